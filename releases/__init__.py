"""Rewrites the tables that come from Kafka's jars: `make kafka RELEASE=4.5.0`."""
