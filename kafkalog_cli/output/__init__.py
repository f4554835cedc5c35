"""How answers look: tables for people, NDJSON, JSON and CSV for programs, Kafka's own text."""
