"""Compaction as Kafka's cleaner does it, without a broker."""
