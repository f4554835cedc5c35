"""The fields of indexes and snapshots, entry by entry, with the batch that each points to."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from formats.side_files import (
    AbortedTransaction,
    OffsetIndexEntry,
    ProducerSnapshot,
    RemoteLogSnapshot,
    TimeIndexEntry,
)
from formats.trace import Tracer
from kafkalog.anatomy.items import Said, item_of, items_of
from kafkalog.anatomy.meanings import SIDE_FILES, time_of
from kafkalog.anatomy.model import Bytes, Stream
from kafkalog.anatomy.records import checksum, checksum_words
from kafkalog.batches.framing import read_batch
from kafkalog.batches.segment import OpenSegment
from kafkalog.codecs import crc32c
from kafkalog.errors import KafkaLogError
from kafkalog.indexes import ENTRY_SIZES, OffsetIndex, TimeIndex
from kafkalog.log_dir import open_path
from kafkalog.model import Batch
from kafkalog.names import FileKind
from kafkalog.paths import file_system
from kafkalog.paths.reading_errors import reason
from kafkalog.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from formats.trace import Path, Trace, TracedField
    from kafkalog.anatomy.model import Item
    from kafkalog.log_dir import FileEntry, Segment
    from kafkalog.paths.source import Source

_SCHEMAS: Final = {
    FileKind.OFFSET_INDEX: OffsetIndexEntry,
    FileKind.TIME_INDEX: TimeIndexEntry,
    FileKind.TRANSACTION_INDEX: AbortedTransaction,
}
_SNAPSHOTS: Final = {
    FileKind.PRODUCER_SNAPSHOT: ProducerSnapshot,
    FileKind.REMOTE_LOG_SNAPSHOT: RemoteLogSnapshot,
}


@dataclass(frozen=True)
class _Log:
    """The log of the same segment as an index or snapshot; None if it is missing."""

    opened: OpenSegment | None
    base_offset: int

    def at_position(self, position: int) -> Said:
        """Say what an offset index's position points to."""
        if self.opened is None:
            return Said("position of the batch in the .log, which is not here")
        source = self.opened.source
        if position >= source.size_bytes or position < 0:
            return Said("position after the end of the .log", "index-entry-misses-batch")
        found = read_batch(source, position, source.size_bytes)
        if not isinstance(found, Batch):
            return Said("position in the .log where no batch begins", "index-entry-misses-batch")
        return Said(f"position of the batch with {_offsets(found)}")

    def at_offset(self, offset: int) -> str:
        """Say which batch has an offset."""
        if self.opened is None:
            return "the .log is not here"
        with suppress(KafkaLogError):
            found = self.opened.find_batch(self._start(offset), offset)
            if found is not None and found.base_offset <= offset:
                return f"in the batch at position {found.position}, {_offsets(found)}"
        return "in no batch of this segment"

    def _start(self, offset: int) -> int:
        entry = self.opened.index_entry(offset) if self.opened else None
        return entry.position if entry else 0


def _offsets(batch: Batch) -> str:
    if batch.base_offset == batch.last_offset:
        return f"offset {batch.last_offset}"
    return f"offsets {batch.base_offset}–{batch.last_offset}"


def index_items(source: Source, entry: FileEntry, start: int, limit: int) -> Iterator[Item]:
    """Yield the entries of an index from a position on: `limit` of them, the rest as one field."""
    kind = entry.name.kind
    size, space = ENTRY_SIZES[kind], Bytes(source, 0, source.size_bytes)
    slots = source.size_bytes // size
    entries = slots
    if kind != FileKind.TRANSACTION_INDEX:
        opener = OffsetIndex if kind == FileKind.OFFSET_INDEX else TimeIndex
        with opener(source.path, entry.name.offset or 0) as index:
            entries, is_zero = index.entry_count, index.padding_is_zero()
    first = min(start // size, slots)
    if first:
        words = f"{counted(first, 'entry')} before the position asked for"
        yield space.left_out("", 0, first * size, words)
    segment = _segment_of(entry)
    opened = None if segment is None else OpenSegment(segment)
    tracer = Tracer(_SCHEMAS[kind])
    shown = range(first, min(max(entries, first), first + limit))
    try:
        log = _Log(opened, entry.name.offset or 0)
        for number in shown:
            trace = tracer.trace(Stream(source, number * size, (number + 1) * size))
            yield from _entry(space, number, trace, log)
    finally:
        if opened is not None:
            opened.__exit__()
    if shown.stop < entries:
        words = f"{counted(entries - shown.stop, 'entry')} left out"
        yield space.left_out("", shown.stop * size, entries * size, words)
    position = max(entries, first) * size
    if position < slots * size:
        words = f"{counted(slots - position // size, 'entry')} not used: preallocated"
        damage = None if is_zero else "index-padding-not-zero"
        yield space.field("padding", position, slots * size, None, words, damage=damage)
    if slots * size < source.size_bytes:
        words = f"{counted(source.size_bytes - slots * size, 'byte')}: no whole entry"
        yield space.field("rest", slots * size, source.size_bytes, None, words,
                          damage="index-size-not-multiple")  # fmt: skip


def _entry(space: Bytes, number: int, trace: Trace, log: _Log) -> Iterator[Item]:
    values = trace.value
    position, end = trace.fields[0].position, trace.fields[-1].end
    says: dict[str, Said] = {}
    words = ""
    if "relative_offset" in values:
        offset = log.base_offset + values.relative_offset
        words = f"offset {offset}"
        says["relative_offset"] = Said(
            f"offset {log.base_offset} + {values.relative_offset} = {offset}"
        )
    if "position" in values:
        says["position"] = log.at_position(values.position)
    elif "relative_offset" in values:
        says["timestamp"] = Said(f"{time_of(values.timestamp)}, the largest up to here")
        said = says["relative_offset"]
        says["relative_offset"] = Said(f"{said.meaning}, {log.at_offset(offset)}")
    else:
        words = f"aborted transaction of producer {values.producer_id}"
        says["last_offset"] = Said(f"offset of its marker, {log.at_offset(values.last_offset)}")
    name = f"entries[{number}]"
    damage = says["position"].damage if "position" in says else None
    yield space.structure(name, position, end, words, damage)
    for one in trace.fields:
        field = str(one.path[-1])
        said = says.get(field, Said(SIDE_FILES.get(field, "")))
        yield item_of(space, one, f"{name}.", said)


def _segment_of(entry: FileEntry) -> Segment | None:
    """Return the segment that an index belongs to, None if its log is not beside it."""
    with suppress(KafkaLogError):
        directory = open_path(os.path.dirname(file_system.absolute(entry.path)))
        for one in getattr(directory, "segments", ()):
            if one.base_offset == entry.name.offset:
                return one  # type: ignore[no-any-return]
    return None


def snapshot_items(source: Source, entry: FileEntry, limit: int) -> Iterator[Item]:
    """Yield the fields of a producer snapshot or of one of remote log metadata."""
    space, kind = Bytes(source, 0, source.size_bytes), entry.name.kind
    trace = Tracer(_SNAPSHOTS[kind], limit).trace(Stream(source, 0, source.size_bytes))
    describe = partial(_describe_snapshot, space=space)
    yield from items_of(space, trace.fields, "", describe, partial(_producer_words, trace))
    done = trace.fields[-1].end if trace.fields else 0
    if done == source.size_bytes:
        return
    if trace.is_cut:
        declared = next(one.value for one in trace.fields if one.path == ("entries", "count"))
        words = f"{counted(declared - limit, 'entry')} left out"
        yield space.left_out("", done, source.size_bytes, words)
        return
    words = "" if trace.error is None else f"{reason(trace.error)}."
    yield space.field("unreadable", done, source.size_bytes, None, words,
                      damage="producer-snapshot-corrupt")  # fmt: skip


def _producer_words(trace: Trace, element: Path) -> str:
    values = {
        one.path[-1]: one.value for one in trace.fields if one.path[: len(element)] == element
    }
    return f"producer {values['producer_id']}" if "producer_id" in values else ""


def _describe_snapshot(field: TracedField, space: Bytes) -> Said:
    name = str(field.path[-1])
    if name == "crc":
        computed = checksum(space, crc32c, field.end, space.size_bytes)
        return checksum_words("CRC-32C", "count", field.value, computed, field.end,
                              space.size_bytes, "producer-snapshot-corrupt")  # fmt: skip
    if name == "rest":
        return Said("bytes after the last entry", "producer-snapshot-corrupt")
    if name == "timestamp":
        return Said(f"time of its last batch: {time_of(field.value)}")
    if name == "current_txn_first_offset" and field.value < 0:
        return Said("no transaction is open")
    return Said(SIDE_FILES.get(name, ""))
