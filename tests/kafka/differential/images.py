"""Compares the partition directories that Kafka's cleaning and ours leave on disk."""

from __future__ import annotations

import os
import struct
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kafkalog.change.compaction.swap import NewSegment
from kafkalog.files.log_dir import open_partition
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.records import decode_records
from kafkalog.model import Batch

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog.change.compaction.cleaning import Pass
    from kafkalog.change.compaction.columns import ColumnPass
    from kafkalog.model import AbortedTransaction

DATA, OFFSETS, TIMES, ABORTED = SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
STAMP_SPREAD_MS = 5000
DAY_S = 86_400
OF_COMPRESSION = {"path", "position", "size_bytes", "crc"}
"""Fields of a batch that follow from how well its records were compressed."""


def date(partition: Path, now_ms: int, rng: random.Random) -> None:
    """Set modification times near the case's clock, for logs that were just written."""
    for path in sorted(partition.glob("*" + DATA)):
        if path.stat().st_mtime > now_ms / 1000 + DAY_S:
            stamp = (now_ms - rng.randrange(STAMP_SPREAD_MS)) * 10**6
            os.utime(path, ns=(stamp, stamp))


def batches(partition: Path) -> Iterator[Batch]:
    """Yield all batches of a partition directory."""
    for segment in open_partition(str(partition)).segments:
        with Source(segment.log.path) as source:
            for found in scan_batches(source):
                assert isinstance(found, Batch)
                yield found


def write_cleaned(cleaning: Pass | ColumnPass, partition: Path) -> None:
    """Put the result of a pass in place of the segments that it read."""
    made: dict[str, bytes] = {}
    gone: list[str] = []
    for group in cleaning.groups():
        base = group[0].base_offset
        data = b"".join(bytes(piece) for piece in cleaning.clean(group))
        segment = indexed(data, base, cleaning.config.index_interval_bytes)
        made |= {
            name_of(base, DATA): data,
            name_of(base, OFFSETS): bytes(segment.offset_index),
            name_of(base, TIMES): bytes(segment.time_index),
            name_of(base, ABORTED): b"".join(map(packed, cleaning.aborted)),
        }
        gone += [name_of(source.base_offset, suffix) for source in group for suffix in SUFFIXES]
    for name in gone:
        (partition / name).unlink(missing_ok=True)
    for name, content in made.items():
        (partition / name).write_bytes(content)


def indexed(data: bytes, base_offset: int, interval: int) -> NewSegment:
    """Build a segment with indexes from these batches."""
    segment = NewSegment(base_offset, interval)
    segment.extend(data)
    segment.close()
    return segment


def packed(entry: AbortedTransaction) -> bytes:
    """Pack an entry as the transaction index stores it."""
    return struct.pack(
        ">hqqqq", entry.version, entry.producer_id, entry.first_offset, entry.last_offset,
        entry.last_stable_offset,
    )  # fmt: skip


def name_of(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020}{suffix}"


def differences(ours: Path, kafkas: Path, interval: int) -> Iterator[str]:
    """Yield where the files of segments differ.

    If a codec compresses equal records to different bytes, the indexes must be those of Kafka's own
    log.
    """
    names = [{path.name for path in place.glob("*" + DATA)} for place in (ours, kafkas)]
    if names[0] != names[1]:
        yield f"segments {sorted(names[0])} != Kafka's {sorted(names[1])}"
    for name in sorted(names[0] & names[1]):
        stem = name.removesuffix(DATA)
        logs = (ours / name).read_bytes(), (kafkas / name).read_bytes()
        indexes = [
            {suffix: content(place / (stem + suffix)) for suffix in SUFFIXES[1:]}
            for place in (ours, kafkas)
        ]
        if logs[0] != logs[1]:
            yield from batch_differences(ours / name, kafkas / name)
            segment = indexed(logs[1], int(stem), interval)
            indexes[0] |= {
                OFFSETS: bytes(segment.offset_index), TIMES: bytes(segment.time_index)
            }  # fmt: skip
        for suffix in SUFFIXES[1:]:
            if indexes[0][suffix] != indexes[1][suffix]:
                yield (f"{stem}{suffix}: {indexes[0][suffix].hex()} != Kafka's "
                       f"{indexes[1][suffix].hex()}")  # fmt: skip


def directory_differences(ours: Path, kafkas: Path) -> Iterator[str]:
    """Yield where files of a partition differ by name, or logs by modification time."""
    names = [
        {path.name for path in place.iterdir() if path.stat().st_size or path.suffix != ABORTED}
        for place in (ours, kafkas)
    ]
    if names[0] != names[1]:
        yield f"only ours {sorted(names[0] - names[1])}, only Kafka's {sorted(names[1] - names[0])}"
    for name in sorted(names[0] & names[1]):
        times = [(place / name).stat().st_mtime_ns // 10**6 for place in (ours, kafkas)]
        if name.endswith(DATA) and times[0] != times[1]:
            yield f"{name}: modified {times[0]} != Kafka's {times[1]}"


def content(path: Path) -> bytes:
    """Return the bytes of a file; a missing file equals an empty one."""
    return path.read_bytes() if path.exists() else b""


def batch_differences(ours: Path, kafkas: Path) -> Iterator[str]:
    """Yield where two logs differ whose bytes are not equal."""
    mine, theirs = logical(ours), logical(kafkas)
    if mine == theirs:
        return
    for number, (one, other) in enumerate(zip(mine, theirs, strict=False)):
        if one != other:
            yield f"{ours.name}, batch {number}:\n    {one}\n    Kafka's {other}"
            return
    yield f"{ours.name}: {len(mine)} batches, Kafka's {len(theirs)}"


def logical(path: Path) -> list[dict[str, Any]]:
    """Return the batches of a log as values, without those that a codec's output decides."""
    found = []
    with Source(str(path)) as source:
        for batch in scan_batches(source):
            assert isinstance(batch, Batch), batch
            facts = {field.name: getattr(batch, field.name) for field in fields(batch)}
            facts["records"] = [
                {field.name: getattr(record, field.name) for field in fields(record)[1:]}
                for record in decode_records(source, batch)
            ]
            if batch.compression:
                facts = {name: facts[name] for name in facts if name not in OF_COMPRESSION}
            else:
                del facts["path"], facts["position"]
            found.append(facts)
    return found
