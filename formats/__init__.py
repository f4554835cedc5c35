"""The layout of bytes: construct schemas for every file and payload that Kafka stores.

One module per kind of file. No I/O and no judgement: a schema parses bytes into plain fields and
builds the same bytes back; whether the values make sense is decided in `kafkalog`. Schemas raise
`construct.ConstructError` and nothing else on bytes they cannot parse.
"""
