"""Copies of partitions against each other: how far they agree, and what each has alone."""
