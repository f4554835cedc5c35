"""Seeded damage to real logs, and what survives it: by bytes and struct alone.

Nothing here comes from kafkalog: what must survive a salvage is known from the undamaged bytes.
"""

from __future__ import annotations

import json
import shutil
import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.builders import flip

if TYPE_CHECKING:
    import random
    from pathlib import Path


@dataclass(frozen=True)
class OriginalBatch:
    """A batch of an undamaged log: its bytes, where they are, and the offsets that belong to it."""

    position: int
    data: bytes
    first_offset: int
    last_offset: int


def batches_of(data: bytes, base_offset: int) -> list[OriginalBatch]:
    """Return the batches up to the first invalid one, by their length fields.

    For a compressed message of magic 0 or 1 only the last offset is known.
    """
    found, after = [], base_offset
    for position, size in frames_while_sane(data):
        offset = int.from_bytes(data[position : position + 8], "big")
        first, last = after, offset
        if data[position + 16] == 2:
            first, last = offset, offset + struct.unpack_from(">i", data, position + 23)[0]
        found.append(OriginalBatch(position, data[position : position + size], first, last))
        after = last + 1
    return found


@dataclass
class Damage:
    """A copy of a partition with damage in some of its logs.

    Attributes:
        partition: the copy.
        survivors: by log, the batches that no damage has touched, in order.
        words: description of the damage.
    """

    original: Path
    partition: Path
    rng: random.Random
    survivors: dict[str, list[OriginalBatch]] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        shutil.copytree(self.original, self.partition)
        for log in sorted(self.original.glob("*.log")):
            self.survivors[log.name] = batches_of(log.read_bytes(), int(log.stem))

    def hurt(self, kind: str) -> None:
        """Damage a log that has batches, if any has."""
        names = [name for name, batches in self.survivors.items() if batches]
        if not names:
            return
        name = self.rng.choice(names)
        path = self.partition / name
        before = path.read_bytes()
        if kind in ("swap", "duplicate"):
            after, left = getattr(self, kind)(before, self.survivors[name])
        else:
            after, left = getattr(self, kind)(before), self.survivors[name]
        path.write_bytes(after)
        self.words.append(f"{kind} in {name}")
        self.survivors[name] = [
            one for one in left if after[one.position : one.position + len(one.data)] == one.data
        ]

    def flip(self, data: bytes) -> bytes:
        for _ in range(self.rng.choice((1, 1, 3))):
            data = flip(data, self.rng.randrange(8 * len(data)))
        return data

    def flip_header(self, data: bytes) -> bytes:
        """Flip a bit that no checksum covers: offset, length, epoch or magic."""
        start, _ = self.rng.choice(frames_while_sane(data) or [(0, 0)])
        return flip(data, 8 * start + self.rng.randrange(8 * 17))

    def zeros(self, data: bytes) -> bytes:
        start, end = self.range(data)
        return data[:start] + bytes(end - start) + data[end:]

    def noise(self, data: bytes) -> bytes:
        start, end = self.range(data)
        return data[:start] + self.rng.randbytes(end - start) + data[end:]

    def block(self, data: bytes) -> bytes:
        """Overwrite a block of the file with another, like a disk that mixes up sectors."""
        size = min(self.rng.choice((512, 4096)), len(data) // 2)
        here, there = (self.rng.randrange(len(data) - size + 1) for _ in range(2))
        return data[:here] + data[there : there + size] + data[here + size :]

    def cut(self, data: bytes) -> bytes:
        return data[: self.rng.randrange(len(data))]

    def swap(self, data: bytes, batches: list[OriginalBatch]) -> tuple[bytes, list[OriginalBatch]]:
        at = self.rng.randrange(len(batches))
        one, other = (batches[at : at + 2] * 2)[:2]
        end = one.position + len(one.data)
        if other.position != end:
            return data, batches
        swapped = other.data + one.data
        left = [each for each in batches if each not in (one, other)]
        return data[: one.position] + swapped + data[one.position + len(swapped) :], left

    def duplicate(
        self, data: bytes, batches: list[OriginalBatch]
    ) -> tuple[bytes, list[OriginalBatch]]:
        """Write a batch twice: one of both must survive."""
        number = self.rng.randrange(len(batches))
        twice = batches[number].data
        end = batches[number].position + len(twice)
        shifted = [replace(one, position=one.position + len(twice)) for one in batches[number:]]
        return data[:end] + twice + data[end:], [*batches[: number + 1], *shifted]

    def range(self, data: bytes) -> tuple[int, int]:
        start = self.rng.randrange(len(data))
        return start, min(len(data), start + self.rng.choice((1, 20, 300, 5000)))


KINDS = ("flip", "flip_header", "zeros", "noise", "block", "cut", "swap", "duplicate")


def frames_while_sane(data: bytes) -> list[tuple[int, int]]:
    """Return position and size of what looks like a batch, up to the first that does not."""
    found, position = [], 0
    while position + 12 <= len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if size < 26 or position + size > len(data):
            break
        found.append((position, size))
        position += size
    return found


def kafka_records(path: Path) -> dict[int, dict[str, Any]]:
    """Return what a consumer read from the undamaged partition, by offset."""
    with path.open() as lines:
        return {row["offset"]: row for row in map(json.loads, lines)}
