"""Finds the field and entry of each byte in Kafka's files, by layouts written down here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.builders import frames

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Names and sizes of fields in the order of the file.
BATCH = (("base_offset", 8), ("length", 4), ("leader_epoch", 4), ("magic", 1), ("crc", 4),
         ("attributes", 2), ("last_offset_delta", 4), ("base_timestamp", 8), ("max_timestamp", 8),
         ("producer_id", 8), ("producer_epoch", 2), ("base_sequence", 4), ("count", 4),
         ("records", 0))  # fmt: skip
MESSAGE = (("base_offset", 8), ("length", 4), ("crc", 4), ("magic", 1), ("content", 0))
OFFSET_INDEX = (("offset", 4), ("position", 4))
TIME_INDEX = (("timestamp", 8), ("offset", 4))
TRANSACTION_INDEX = (("version", 2), ("producer_id", 8), ("first_offset", 8), ("last_offset", 8),
                     ("last_stable_offset", 8))  # fmt: skip
SNAPSHOT_HEAD = (("version", 2), ("crc", 4), ("count", 4))
SNAPSHOT = (("producer_id", 8), ("producer_epoch", 2), ("last_sequence", 4), ("last_offset", 8),
            ("offset_delta", 4), ("timestamp", 8), ("coordinator_epoch", 4),
            ("txn_first_offset", 8))  # fmt: skip
OUTSIDE_CHECKSUMS = {
    "log": {"base_offset", "length", "leader_epoch", "magic"},
    "snapshot": {"version"},
}
"""Kind of file to the fields that its checksums do not cover; files without any are not here."""


@dataclass(frozen=True)
class Place:
    """One byte of a file.

    Attributes:
        kind: the suffix of the file, or its name where it has none.
        path: the file.
        position: position of the byte.
        field: which field the byte belongs to.
        entry: ordinal of the batch or entry in its file.
        is_last: whether that is the last entry of the file.
        byte: ordinal of the byte in the field.
    """

    kind: str
    path: Path
    position: int
    field: str
    entry: int
    is_last: bool
    byte: int

    @property
    def has_checksum(self) -> bool:
        """Whether a checksum in the file covers the byte."""
        return self.kind in OUTSIDE_CHECKSUMS and self.field not in OUTSIDE_CHECKSUMS[self.kind]


def places(path: Path) -> list[Place]:
    """Return all bytes of a sound file of Kafka."""
    kind = path.suffix[1:] if path.stem.isdigit() else path.name
    pieces = list(_pieces(kind, path.read_bytes()))
    last = max((entry for _, _, entry in pieces), default=0)
    found: list[Place] = []
    for field, size, entry in pieces:
        for byte in range(size):
            found.append(Place(kind, path, len(found), field, entry, entry == last, byte))
    assert len(found) == path.stat().st_size, path
    return found


def _pieces(kind: str, data: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield field, size and entry, one after the other."""
    if kind == "log":
        for entry, (position, size) in enumerate(frames(data)):
            layout = BATCH if data[position + 16] >= 2 else MESSAGE
            yield from _fields(layout, entry, size)
    elif kind == "snapshot":
        yield from _fields(SNAPSHOT_HEAD, 0, 10)
        yield from _entries(SNAPSHOT, data[10:])
    elif layout := {
        "index": OFFSET_INDEX,
        "timeindex": TIME_INDEX,
        "txnindex": TRANSACTION_INDEX,
    }.get(kind):
        yield from _entries(layout, data)
    else:
        for entry, line in enumerate(data.splitlines(keepends=True)):
            yield "text", len(line), entry


def _entries(layout: tuple[tuple[str, int], ...], data: bytes) -> Iterator[tuple[str, int, int]]:
    total = sum(size for _, size in layout)
    for entry in range(len(data) // total):
        yield from _fields(layout, entry, total)


def _fields(
    layout: tuple[tuple[str, int], ...], entry: int, total: int
) -> Iterator[tuple[str, int, int]]:
    """Yield the fields of one entry; a field without a size takes the remaining bytes."""
    for field, size in layout:
        taken = size or total
        yield field, taken, entry
        total -= taken
    assert total == 0
