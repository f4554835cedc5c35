"""The bytes of any file of Kafka's, explained field by field by the schemas in `formats`.

Every byte belongs to exactly one field: what cannot be read, what is not shown and what only fills
the file are fields, too.
"""
