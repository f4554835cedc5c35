"""The columnar core: numba kernels over log bytes and Arrow record batches; twin of `records`.

It knows the formats from `formats.constants` alone and shares no code with the reference decoder,
so that each of the two can be tested against the other. Nothing here is imported unless it is used.
"""
