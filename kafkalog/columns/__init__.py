"""Logs as columns: kernels over log bytes, chunks, and Arrow record batches; twin of `batches`.

The formats are known from `formats.constants` alone, and no code is shared with the reference
decoder, so that each of the two can be tested against the other. Nothing here is imported unless
it is used.
"""
