"""What each client writes, as far as it can; the programs in other languages follow this one."""

from __future__ import annotations

CODECS = ("gzip", "snappy", "lz4", "zstd")
PLAIN = (
    (b"key", b"value"), (None, b"no key"), (b"tombstone", None), (b"", b""), (None, None),
    ("schlüssel".encode(), "Größe \U0001f600".encode()), (bytes(range(256)), b"\0\xff"),
)  # fmt: skip
HEADERS = (
    [("one", b"1")],
    [("null", None), ("empty", b""), ("", b"no name")],
    [("twice", b"1"), ("twice", b"2"), ("ünï", "ü".encode())],
)
TIMES_MS = (1_600_000_000_000, 1, 4_102_444_800_000, 1_599_999_999_999, 1_700_000_000_000)
MANY = 300
BIG = b"big " * 10_000


def value(number: int) -> bytes:
    """Return one of several values that compress well."""
    return b"value %d " % number * 5
