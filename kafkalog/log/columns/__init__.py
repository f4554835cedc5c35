"""Logs as columns: kernels over log bytes, chunks, and Arrow record batches; the twin of `batches`.

Knows the formats from `formats.constants` alone, and shares no code with the reference decoder, so
that each of the two can be tested against the other. Nothing here is imported before it is used.
"""
