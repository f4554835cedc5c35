"""Finds records in all partitions at once, shows the life of a key, and waits for new records."""
