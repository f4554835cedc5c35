"""Sound bytes as a bad disk, a bad producer or an attacker changes them, by a seeded generator."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import crc32c as wheel

if TYPE_CHECKING:
    from random import Random

EDGES = (0x00, 0x01, 0x7F, 0x80, 0xFF)
NUMBERS = (0, 1, -1, 2, 127, 128, 255, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**31 - 8,
           2**63 - 1, -(2**63), 2**62, 0x01010101)  # fmt: skip
WIDTHS = (1, 2, 4, 4, 8, 8)


def number(rng: Random, bits: int = 64) -> int:
    """Return a number of `bits` bits, mostly at a limit or small."""
    if rng.random() < 0.3:
        return rng.randrange(-2, 20)
    found = rng.choice(NUMBERS) + rng.choice((0, 0, 0, 1, -1))
    return (found + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def mutated(data: bytes, rng: Random, other: bytes = b"", most: int = 4) -> bytes:
    """Return the bytes after one to `most` changes; `other` provides the bytes to splice in."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, most)):
        _change(changed, rng, other)
    return bytes(changed)


def _change(data: bytearray, rng: Random, other: bytes) -> None:
    at = rng.randrange(len(data) + 1) if rng.random() < 0.8 else rng.randrange(1 + len(data) // 9)
    end = at + rng.randrange(60)
    kind = rng.randrange(11)
    if kind <= 1 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 2 and at < len(data):
        data[at] = rng.choice(EDGES)
    elif kind == 3:
        width = rng.choice(WIDTHS)
        data[at : at + width] = number(rng, 8 * width).to_bytes(width, "big", signed=True)
    elif kind == 4:  # a number a little off
        width = rng.choice(WIDTHS)
        old = int.from_bytes(data[at : at + width], "big")
        new = (old + rng.choice((-2, -1, 1, 2))) % (1 << 8 * width)
        data[at : at + width] = new.to_bytes(width, "big")
    elif kind == 5:
        data[at:at] = rng.randbytes(rng.randrange(30))
    elif kind == 6:
        data[at:at] = bytes((rng.choice(EDGES),)) * rng.randrange(1, 80)
    elif kind == 7:
        del data[at:end]
    elif kind == 8:
        data[at:at] = data[at:end]
    elif kind == 9:
        start = rng.randrange(len(other) + 1)
        data[at:end] = other[start : start + rng.randrange(200)]
    elif rng.random() < 0.4:
        del data[at:]
    else:
        data[at:end] = bytes(len(data[at:end]))


def resealed(batch: bytes, *, length: bool = True) -> bytes:
    """Return the batch with a matching checksum and, if wanted, a matching length."""
    if len(batch) < 23:
        return batch
    data = bytearray(batch)
    if length:
        data[8:12] = struct.pack(">i", len(data) - 12)
    if data[16] >= 2:
        data[17:21] = struct.pack(">I", wheel.crc32c(bytes(data[21:])))
    else:
        data[12:16] = struct.pack(">I", zlib.crc32(data[16:]))
    return bytes(data)


# Of a batch of magic 2: position and width of each field that the checksum covers or that stands
# in front of it.
FIELDS = ((0, 8), (12, 4), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2), (53, 4), (57, 4))
OLD_FIELDS = ((0, 8), (17, 1), (18, 8))


def with_field_changed(batch: bytes, rng: Random) -> bytes:
    """Set one header field to a limit or slightly off, and correct the checksum."""
    data = bytearray(batch)
    at, width = rng.choice(FIELDS if batch[16] >= 2 else OLD_FIELDS)
    old = int.from_bytes(data[at : at + width], "big", signed=True)
    new = number(rng, 8 * width) if rng.random() < 0.6 else old + rng.choice((-1, 1, 7))
    data[at : at + width] = (new % (1 << 8 * width)).to_bytes(width, "big")
    return resealed(bytes(data))
