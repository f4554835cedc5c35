"""Rewrites the tables that come from Kafka's jars: `make kafka RELEASE=4.5.0`."""

NEWEST = "4.4.0"
"""The release of Kafka that kafkalog follows."""

KEPT = ("4.3.0",)
"""Older releases whose starts and tools it follows, too."""
