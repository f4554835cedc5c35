"""The fields of the files next to a log: indexes and snapshots entry by entry, and text files.

The schemas of these files keep every character; the fields are the pieces that they return.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final

from formats.constructs import ConstructError
from formats.file_names import OFFSET_CHECKPOINTS, FileKind
from formats.late_classes import dataclass
from formats.side_files import (
    AbortedTransaction,
    OffsetIndexEntry,
    ProducerSnapshot,
    RemoteLogSnapshot,
    TimeIndexEntry,
)
from formats.text_files import ENTRY_FIELDS, SCHEMAS, JsonObject
from formats.trace import Path, Trace, TracedField, Tracer
from kafkalog.answers.anatomy.meanings import SIDE_FILES, Said, item_of, items_of, time_of
from kafkalog.answers.anatomy.model import Bytes, Content, Item, Stream
from kafkalog.answers.anatomy.records import checksum, checksum_words
from kafkalog.errors import DataError
from kafkalog.files.indexes import ENTRY_SIZES, OffsetIndex, TimeIndex
from kafkalog.io.codecs import crc32c
from kafkalog.io.paths.reading_errors import reason
from kafkalog.io.paths.source import Source, read_file
from kafkalog.io.wording import counted
from kafkalog.log.batches.framing import read_batch
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.batches.selection import segments_of
from kafkalog.model import Batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.files.log_dir import FileEntry, Segment

    Pieces = Iterator[tuple[str, str, str]]

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
        if self.opened is None:
            return "the .log is not here"
        with suppress(DataError):
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
    with suppress(DataError):
        _, around = segments_of(entry)
        return next((one for one in around.segments if one.base_offset == entry.name.offset), None)
    return None


def snapshot_items(source: Source, entry: FileEntry, limit: int) -> Iterator[Item]:
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


_MEANINGS: Final = {
    "epoch": "leader epoch",
    "start_offset": "first offset of the epoch",
    "metadata_partition": "partition of __remote_log_metadata",
}
_JSON_SIZE_MAX: Final = 1 << 20
_PARSED_MIN: Final = 1 << 16
_LINE_SIZE: Final = 1 << 10
"""Bytes per line that is to be shown; of longer lines fewer are."""
_SPACE: Final = re.compile(r"[ \t\n\r]*")


def text_items(entry: FileEntry, limit: int) -> Iterator[Item]:
    """Yield the fields of a text file, line by line: `limit` of them, the rest as one field.

    Only what may be shown is parsed: a hostile file has millions of lines.
    """
    kind = entry.name.kind
    is_json = isinstance(SCHEMAS[kind], JsonObject)
    data = read_file(entry.path, _JSON_SIZE_MAX) if is_json else read_file(entry.path)
    space = Bytes(Content(entry.path, data), 0, len(data))
    room = max(_PARSED_MIN, limit * _LINE_SIZE)
    head = data
    if len(data) > room and not is_json:
        head = data[: data.rfind(b"\n", 0, room) + 1]
    try:
        parsed = SCHEMAS[kind].parse(head)
    except ConstructError as error:
        yield space.field("unreadable", 0, len(data), None, f"{reason(error)}.",
                          damage="file-malformed")  # fmt: skip
        return
    encoding = "iso-8859-1" if kind == FileKind.META_PROPERTIES else "utf-8"
    count = len(parsed) if head is data and not is_json else data.count(b"\n")
    lines = _members(data.decode()) if is_json else _lines(entry, parsed, count)
    position = 0
    for number, (title, pieces) in enumerate(lines):
        if number == limit + 2:  # version and count of a checkpoint come first
            break
        found = []
        start = position
        for name, text, meaning in pieces:
            end = position + len(text.encode(encoding))
            if end > position:
                found.append(space.field(name, position, end, text, meaning))
            position = end
        if title and found:
            yield space.structure(title, start, position, "")
        yield from found
    if position < len(data):
        words = f"{counted(len(data) - position, 'byte')} left out"
        yield space.left_out("", position, len(data), words)


def _lines(entry: FileEntry, lines: list[Any], count: int) -> Iterator[tuple[str, Pieces]]:
    pieces: Callable[[FileEntry, int, Any, str, int], Pieces] = (
        _checkpoint_pieces if "fields" in (lines[0] if lines else ()) else _named_pieces
    )
    for number, line in enumerate(lines):
        title = f"lines[{number}]"
        yield title, pieces(entry, number, line, f"{title}.", count)


def _checkpoint_pieces(entry: FileEntry, number: int, line: Any, prefix: str, count: int) -> Pieces:
    kind = entry.name.kind
    names = ENTRY_FIELDS[kind]
    if number < 2:
        names = (("version",), ("count",))[number]
    for i, (text, separator) in enumerate(zip_longest(line.fields, line.separators, fillvalue="")):
        name = names[i] if i < len(names) else "extra"
        meaning = _MEANINGS.get(name, name)
        if name == "offset" and kind == FileKind.OFFSET_CHECKPOINT:
            meaning = OFFSET_CHECKPOINTS[entry.name.name.removesuffix(".tmp")]
        elif name == "version":
            meaning = "version of the format"
        elif name == "count":
            meaning = f"number of entries; {counted(max(count - 2, 0), 'line')} follow"
        yield f"{prefix}{name}", text, meaning
        yield f"{prefix}space", separator, ""
    yield f"{prefix}end", line.end, "end of the line"


def _named_pieces(_entry: FileEntry, _number: int, line: Any, prefix: str, _count: int) -> Pieces:
    yield f"{prefix}space", line.get("indent", ""), ""
    yield f"{prefix}key", line.key, "name"
    yield f"{prefix}separator", line.separator, ""
    is_comment = line.get("kind", "property") != "property"
    yield f"{prefix}value", line.value, "comment" if is_comment else f"value of {line.key}"
    yield f"{prefix}end", line.end, "end of the line"


def _members(text: str) -> Iterator[tuple[str, Pieces]]:
    decoder = json.JSONDecoder()
    position = 0

    def upto(end: int) -> str:
        nonlocal position
        piece, position = text[position:end], end
        return piece

    def after_space(start: int) -> int:
        match = _SPACE.match(text, start)
        return match.end() if match else start

    if not text:
        return
    yield "", iter([("begin", upto(text.index("{") + 1), "a JSON object begins")])
    number = 0
    while text[after_space(position)] == '"':
        key_start = after_space(position)
        key, key_end = decoder.raw_decode(text, key_start)
        value_start = after_space(text.index(":", key_end) + 1)
        _, value_end = decoder.raw_decode(text, value_start)
        end = after_space(value_end)
        prefix = f"members[{number}]."
        pieces = [
            (f"{prefix}space", upto(key_start), ""),
            (f"{prefix}key", upto(key_end), "name"),
            (f"{prefix}separator", upto(value_start), ""),
            (f"{prefix}value", upto(value_end), f"value of {key}"),
            (f"{prefix}end", upto(end + (text[end] == ",")), ""),
        ]
        yield f"members[{number}]", iter(pieces)
        number += 1
    yield "", iter([("end", upto(len(text)), "the object ends")])
