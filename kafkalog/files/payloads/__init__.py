"""Decodes keys and values of internal topics, as Kafka prints them."""
