"""Bits that nothing in a log directory can contradict, by class, as in docs/design/evidence.md.

Each class is a rule about the changed file alone, by struct and text: nothing comes from kafkalog.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING

from tests.builders import frames
from tests.kafkalog.check.file_fields import Place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Batch = tuple[int, int, int, int]
"""Position, first offset, last offset, leader epoch (-1 of messages of magic 0 and 1)."""


def batches_of(log: Path) -> list[Batch]:
    """Return all batches of a sound log; messages of magic 0 or 1 only have their last offset."""
    data, found = log.read_bytes(), []
    for position, _ in frames(data):
        first = last = int.from_bytes(data[position : position + 8], "big")
        epoch = -1
        if data[position + 16] == 2:
            last += struct.unpack_from(">i", data, position + 23)[0]
            epoch = struct.unpack_from(">i", data, position + 12)[0]
        found.append((position, first, last, epoch))
    return found


def logs_beside(path: Path) -> list[Path]:
    """Return the logs of the only partition with a checkpoint entry, or those next to the file."""
    directory = path.parent
    if not list(directory.glob("*.log")):
        [directory] = [p for p in directory.iterdir() if p.is_dir() and not p.name.startswith("__")]
    return sorted(directory.glob("*.log"))


def is_possible_high_watermark(place: Place, changed: bytes) -> bool:
    """Check the offset: other replicas may have been behind by any number of records."""
    return _offset(changed) in range(_log_end(place.path) + 1)


def is_possible_cleaner_offset(place: Place, changed: bytes) -> bool:
    """Check the offset: the cleaner may have stopped at any one below the active segment."""
    return _offset(changed) in range(int(logs_beside(place.path)[-1].stem) + 1)


def are_possible_epochs(place: Place, changed: bytes) -> bool:
    """Check that every batch still has the epoch of the entries; an epoch may have no batches."""
    lines = [line.split() for line in changed.decode("latin-1").splitlines()[2:]]
    entries = [(int(start), int(epoch)) for epoch, start in lines]
    starts, epochs = [start for start, _ in entries], [epoch for _, epoch in entries]
    if sorted(set(starts)) != starts or sorted(set(epochs)) != epochs:
        return False
    batches = [batch for log in logs_beside(place.path) for batch in batches_of(log)]
    return all(
        epoch == -1 or epochs[bisect_right(starts, first) - 1] == epoch
        for _, first, _, epoch in batches
    )


def is_entry_of_one_append(place: Place, changed: bytes) -> bool:
    """Check the entry: its offset is the last or first of a batch from its position on.

    Brokers up to 3.9.0, and 4.0.0, write one entry for all batches of an append: the position of
    the first with the last offset of the last. Those before 2.0 write first offsets.
    """
    base, log = int(place.path.stem), place.path.with_suffix(".log")
    entries = list(struct.iter_unpack(">ii", changed))
    offset, position = entries[place.entry]
    batches = [batch for batch in batches_of(log) if batch[0] >= position]
    told = {offset for _, first, last, _ in batches for offset in (first, last)}
    return base + offset in told and sorted(entries) == entries


def is_offset_in_the_batch(place: Place, changed: bytes) -> bool:
    """Check the offset beside a time: by release, it is that of the record or its batch's last."""
    base, log = int(place.path.stem), place.path.with_suffix(".log")
    _, before = list(struct.iter_unpack(">qi", place.path.read_bytes()))[place.entry]
    _, after = list(struct.iter_unpack(">qi", changed))[place.entry]
    return any(
        first <= base + before <= last and first <= base + after <= last
        for _, first, last, _ in batches_of(log)
    )


def is_comment(place: Place, _changed: bytes) -> bool:
    """Check for the comment that tells people when the file was written."""
    return _line(place).startswith(b"#")


def is_cluster_id(place: Place, _changed: bytes) -> bool:
    """Check for the cluster id: in a broker's only log directory, no other file has it."""
    return _line(place).startswith(b"cluster.id=")


def _offset(changed: bytes) -> int:
    """Return the offset of the only entry of a checkpoint, -1 if it is not a number."""
    words = changed.splitlines()[-1].split()
    return int(words[-1]) if words[-1].isdigit() else -1


def _log_end(path: Path) -> int:
    return max(batch[2] for batch in batches_of(logs_beside(path)[-1])) + 1


def _line(place: Place) -> bytes:
    return place.path.read_bytes().splitlines()[place.entry]


CLASSES: dict[str, tuple[str, str, Callable[[Place, bytes], bool]]] = {
    "high watermark": ("replication-offset-checkpoint", "text", is_possible_high_watermark),
    "cleaner offset": ("cleaner-offset-checkpoint", "text", is_possible_cleaner_offset),
    "epoch without batches": ("leader-epoch-checkpoint", "text", are_possible_epochs),
    "entry of one append": ("index", "offset", is_entry_of_one_append),
    "offset of a time": ("timeindex", "offset", is_offset_in_the_batch),
    "comment": ("meta.properties", "text", is_comment),
    "cluster id": ("meta.properties", "text", is_cluster_id),
}
"""Name to kind of file, field, and whether a changed file is of the class."""


def class_of(place: Place, bit: int) -> str | None:
    """Return the class of a flipped bit, None if it has none.

    The file of the place must be unchanged.
    """
    changed = bytearray(place.path.read_bytes())
    changed[place.position] ^= 1 << bit
    for name, (kind, field, is_member) in CLASSES.items():
        if (place.kind, place.field) == (kind, field) and is_member(place, bytes(changed)):
            return name
    return None


def is_explained(path: Path, entry: int, changed: bytes) -> bool:
    """Check whether a broker might have written the other offset into the index entry."""
    place = Place(path.suffix[1:], path, 0, "offset", entry, is_last=False, byte=0)
    if len(changed) != path.stat().st_size:
        return False
    if place.kind == "index":
        return is_entry_of_one_append(place, changed)
    return place.kind == "timeindex" and is_offset_in_the_batch(place, changed)
