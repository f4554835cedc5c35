"""The rows of a split as Arrow record batches, straight from the kernels."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from formats.file_names import FileKind, parse_file_name, segment_file_name
from kafkalog.errors import DataError
from kafkalog.files.indexes import OffsetIndex, TimeIndex, read_aborted_transactions
from kafkalog.files.log_dir import FileEntry, open_partition
from kafkalog.files.payloads.internal_topics import decode
from kafkalog.files.payloads.kinds import payload_kind
from kafkalog.files.tiers import is_remote
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.condition import condition_of
from kafkalog.log.batches.segment import OpenSegment, offset_at_end
from kafkalog.log.batches.selection import ReadPlan, Selection
from kafkalog.log.columns.arrow import table_of_arrays, text_of
from kafkalog.log.columns.budget import Turnstile
from kafkalog.log.producers import read_producer_snapshot
from kafkalog.model import AbortedTransaction, Isolation
from kafkalog.node.scan import count_records, scan
from kafkalog.node.view import show, state_of
from kafkalog.tables.listeners import Strict
from kafkalog.tables.merging import segment_of, sound_parts
from kafkalog.tables.model import OF_LOGS, TableName
from kafkalog.tables.moved import Losses, current_splits, require_end, splits_now
from kafkalog.tables.schemas import DATA, MILLISECONDS_MAX, SCHEMAS, TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.errors import Listener
    from kafkalog.files.log_dir import Segment
    from kafkalog.log.batches.condition import Condition
    from kafkalog.model import Defect
    from kafkalog.tables.model import Split

ROWS_AT_ONCE: Final = 1 << 16
_TURNSTILE: Final = Turnstile()  # tasks of one process hold large batches one after another
_TIMESTAMP_TYPES: Final = {"CreateTime": 0, "LogAppendTime": 1}

_DECODED: Final = "decoded"
# Columns that have other names in a scan.
_OF_SCAN: Final = {
    "timestamp_ms": "timestamp",
    "timestampType": "timestamp_type",
    "key_bytes": "key",
    "value_bytes": "value",
}


def read_split(
    split: Split,
    schema: Any,
    listener: Listener | None = None,
    *,
    threads: int | None = 1,
    where: Condition | None = None,
) -> Iterator[Any]:
    """Yield the rows of a split as `pyarrow.RecordBatch`es of at most 65,536 rows.

    Args:
        split: the split.
        schema: from `table_schema`.
        listener: hears of damage, which makes up the table of defects, of offsets that were deleted
            after they were planned, by retention for instance, of what comes from other copies, and
            of what is missing after the split, if that is left to its reader; None for `Strict`.
        threads: number of decoding threads; None for one per processor, up to 8.
        where: the condition of the split, for a caller that asks it how many values did not decode.

    Raises:
        CorruptDataError: something is damaged, and `listener` is None.
        UnreadableError: the file cannot be read, or is not the one that was planned.
        ChangedSinceError: as `current_splits`.

    Cost:
        About 20 MB per thread and what is decompressed at a time.
    """
    if split.table not in OF_LOGS:
        for one in current_splits(split):
            yield from _read_small(one, schema)
        return
    listener = listener or Strict()
    if split.table == TableName.DEFECTS:
        yield from _defects(split, schema, threads, Losses(split, listener))
        _check_end(split, listener)
        return
    wanted = [_OF_SCAN.get(name, name) for name in schema.names if name != _DECODED]
    wanted += DATA if _DECODED in schema.names else ()
    of_scan = list(dict.fromkeys(name for name in wanted if name not in _CONSTANT))
    for part in sound_parts(split, listener):
        lost = Losses(part, listener)
        for batch in _scan(part, of_scan, threads, listener.hear, lost, where):
            yield _converted(batch, part, schema)
    _check_end(split, listener)


def count_split(
    split: Split, listener: Listener | None = None, *, threads: int | None = 1
) -> Iterator[int]:
    """Yield the number of records of a split, piece by piece, from headers where they suffice.

    Arguments and errors are those of `read_split`; the split is one of records.
    """
    listener = listener or Strict()
    for part in sound_parts(split, listener):
        yield from count_records(
            plan_of_split(part, Losses(part, listener)),
            threads=threads,
            defects=listener.hear,
            turnstile=_TURNSTILE,
        )
    _check_end(split, listener)


def _check_end(split: Split, listener: Listener) -> None:
    """Look whether a split has what its plan said at its end, and tell the gap after it."""
    require_end(split, _end_of)
    if (offset := gap_after(split)) is not None:
        from kafkalog.check.segments import missing_from

        directory = os.path.dirname(split.path)
        for defect in missing_from(directory, split.log_dirs, split.view, offset):
            listener.hear(defect)


def gap_after(split: Split) -> int | None:
    """Return the first wanted offset that is missing between a split and the next segment, or None.

    Cost:
        No request if the end of the log has just been read.
    """
    following = split.next_offset
    if not split.looks_for_gap or following is None:
        return None
    end = _end_of(split)
    is_wanted = end is not None and (split.to_offset is None or end < split.to_offset)
    return end if end is not None and is_wanted and end < following else None


def _end_of(split: Split) -> int | None:
    """Return the offset after the last batch of a split; None if that is unknown."""
    end = None
    with suppress(DataError), Source(split.path, split.end) as source:
        end = offset_at_end(source)
    if end is None:
        with suppress(DataError), OpenSegment(_with_index(split)) as opened:
            end = opened.next_offset()
    return end


def _with_index(split: Split) -> Segment:
    segment = segment_of(split)
    name = segment_file_name(split.base_offset, FileKind.OFFSET_INDEX)
    path = os.path.join(os.path.dirname(split.path), name)
    return replace(segment, offset_index=FileEntry(path, parse_file_name(name)))


def _read_small(split: Split, schema: Any) -> Iterator[Any]:
    rows = iter(_SMALL[split.table](split))
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield _of_rows(some, split, schema)


def _scan(
    split: Split,
    columns: list[str],
    threads: int | None,
    defects: Callable[[Defect], object],
    losses: Losses,
    where: Condition | None = None,
) -> Iterator[Any]:
    return scan(
        plan_of_split(split, losses, where),
        columns=columns,
        batches=split.table == TableName.BATCHES,
        batch_rows=ROWS_AT_ONCE,
        threads=threads,
        defects=defects,
        turnstile=_TURNSTILE,
    )


def plan_of_split(split: Split, losses: Losses, where: Condition | None = None) -> ReadPlan:
    """Return the plan to read a split; `losses` hears of records that are gone meanwhile.

    `where` stands for the condition of the split.
    """
    is_records = split.table != TableName.BATCHES
    selection = Selection(
        from_offset=split.from_offset,
        to_offset=split.to_offset,
        from_time=split.from_time,
        to_time=split.to_time if is_records else None,
        from_position=split.start,
        max_bytes=split.end,
        data=is_records,
        sound=is_records,
        isolation=Isolation.READ_COMMITTED if split.committed else Isolation.LOG,
        where=where or (None if split.where is None else condition_of(split.where)),
        **split.contents.selected(),
    )
    aborted: dict[int, list[AbortedTransaction]] = {}
    for producer_id, first, last in split.aborted:
        one = AbortedTransaction(0, producer_id, first, last, last)
        aborted.setdefault(producer_id, []).append(one)
    is_known = split.seen is not None and split.first_offset is not None
    again = partial(_plan_again, split, losses, where) if is_known else None
    is_unchanged = None if split.seen is None else split.seen.require
    return ReadPlan(
        (segment_of(split),), selection, aborted, again=again, is_unchanged=is_unchanged,
        low=split.first_offset,
    )  # fmt: skip


def _plan_again(
    split: Split, losses: Losses, where: Condition | None, next_offset: int | None
) -> ReadPlan:
    """Plan the rest of a split, by offsets, after its file disappeared during the read."""
    assert split.seen is not None, "else it is not planned again"
    assert split.first_offset is not None, "nor then"
    split.seen.require()  # else this is another disk
    first = max(split.first_offset, next_offset or 0)
    found = splits_now(replace(split, first_offset=first), losses)
    ends = [one for one in (split.next_offset, split.to_offset) if one is not None]
    plan = plan_of_split(split, losses, where)
    selection = replace(
        plan.selection,
        from_offset=max(first, split.from_offset or 0),
        to_offset=min(ends, default=None),
        from_position=None,
        max_bytes=None,
    )
    # Read to their ends, whatever parts they were listed in.
    segments = {one.path: segment_of(replace(one, high=None)) for one in found}
    return replace(plan, segments=tuple(segments.values()), selection=selection, is_unchanged=None,
                   low=None)  # fmt: skip


def _converted(batch: Any, split: Split, schema: Any) -> Any:
    arrays = []
    for field in schema:
        constant = _CONSTANT.get(field.name)
        if constant is not None:
            arrays.append(pa.repeat(pa.scalar(constant(split), field.type), batch.num_rows))
            continue
        if field.name == _DECODED:
            arrays.append(_decoded(split.topic, batch))
            continue
        column = batch.column(_OF_SCAN.get(field.name, field.name))
        convert = _CONVERSIONS.get(field.name)
        if convert is not None and not field.type.equals(column.type):
            column = convert(column)
        elif pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        # Nested nullability may be declared differently.
        arrays.append(column if column.type.equals(field.type) else column.cast(field.type))
    return table_of_arrays(arrays, batch.num_rows, schema)


def _time(column: Any) -> Any:
    """Convert milliseconds to timestamps; null if microseconds would overflow."""
    fits = pc.and_(
        pc.less_equal(column, MILLISECONDS_MAX), pc.greater_equal(column, -MILLISECONDS_MAX)
    )
    column = pc.if_else(fits, column, pa.scalar(None, pa.int64()))
    return pc.multiply(column, 1000).cast(TIME)


def _timestamp_type(column: Any) -> Any:
    """Return the types as Kafka numbers them: -1 for messages without a timestamp."""
    codes = [_TIMESTAMP_TYPES.get(name, -1) for name in column.dictionary.to_pylist()]
    return pa.array(codes, pa.int32()).take(column.indices)


def _as_text(column: Any, text: Callable[[bytes], str]) -> Any:
    """Return bytes as text: UTF-8, or what `text` makes of them."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [None if one is None else text(one) for one in column.to_pylist()]
        return pa.array(texts, pa.string())


def _name(data: bytes) -> str:
    """Return the name of a header as Kafka's consumer does: invalid UTF-8 becomes U+FFFD."""
    return data.decode("utf-8", "replace")


def _text(data: bytes) -> str:
    """Return a key or value as text: 0x and hexadecimal digits if it is no UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"


def _decoded(topic: str, batch: Any) -> Any:
    """Decode records of Kafka's internal topics to JSON; null for other topics."""
    kind = payload_kind(topic)
    if kind is None:
        return pa.nulls(batch.num_rows, pa.string())
    pairs = zip(*(batch.column(name).to_pylist() for name in DATA), strict=True)
    texts = [json.dumps(asdict(decode(kind, key, value))) for key, value in pairs]
    return pa.array(texts, pa.string())


def _headers(column: Any) -> Any:
    flat = column.values
    keys, values = _as_text(flat.field("key"), _name), flat.field("value")
    kind = SCHEMAS[TableName.RECORDS].field("headers").type
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(column.offsets, pairs, type=kind)


_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "timestamp": _time,
    "timestampType": _timestamp_type,
    "headers": _headers,
    "key": partial(_as_text, text=_text),
    "value": partial(_as_text, text=_text),
}
_CONSTANT: Final[dict[str, Callable[[Split], object]]] = {
    "topic": lambda split: text_of(split.topic),
    "partition": lambda split: split.partition,
    "path": lambda split: text_of(split.path),
    "log_dir": lambda split: text_of(split.log_dir),
    "segment_base_offset": lambda split: split.base_offset,
    "state": lambda split: state_of(split.path),
}


def constants_of(split: Split) -> dict[str, object]:
    """Return the columns that have one value for all rows of a split, with that value."""
    names = ["topic", "partition", "log_dir"]
    if split.table in (TableName.RECORDS, TableName.BATCHES):
        names += ["path", "state"]
    elif split.table in (TableName.OFFSET_INDEX, TableName.TIME_INDEX, TableName.TRANSACTIONS):
        names += ["path", "segment_base_offset"]
    return {name: _CONSTANT[name](split) for name in names}


def _of_rows(rows: list[Any], split: Split, schema: Any) -> Any:
    arrays = []
    for field in schema:
        constant = _CONSTANT.get(field.name)
        if constant is not None and field.name != "path":
            arrays.append(pa.repeat(pa.scalar(constant(split), field.type), len(rows)))
        else:
            arrays.append(pa.array([_value(row, field.name) for row in rows], field.type))
    return table_of_arrays(arrays, len(rows), schema)


def _value(row: Any, name: str) -> Any:
    value = row[name] if isinstance(row, dict) else getattr(row, name)
    return text_of(value) if name == "path" else value


def _with_path(rows: Iterable[Any], path: str, *names: str) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield {"path": path, **{name: getattr(row, name) for name in names}}


def _offset_index(split: Split) -> Iterator[Any]:
    with OffsetIndex(split.path, split.base_offset) as index:
        yield from _with_path(index.entries(), split.path, "entry", "offset", "position")


def _time_index(split: Split) -> Iterator[Any]:
    with TimeIndex(split.path, split.base_offset) as index:
        yield from _with_path(index.entries(), split.path, "entry", "timestamp", "offset")


def _transactions(split: Split) -> Iterator[Any]:
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    yield from _with_path(read_aborted_transactions(split.path), split.path, *names)


def _segments(split: Split) -> Iterator[Any]:
    for segment in show(open_partition(split.path), split.view).segments:
        sizes = {
            name: None if entry is None else entry.used_bytes
            for name, entry in (
                ("index_bytes", segment.offset_index),
                ("timeindex_bytes", segment.time_index),
                ("txnindex_bytes", segment.transaction_index),
            )
        }
        yield {
            "base_offset": segment.base_offset,
            "next_base_offset": segment.next_base_offset,
            "is_active": segment.is_active and not is_remote(segment.log.path),
            "size_bytes": segment.log.size_bytes,
            "modified_timestamp": segment.log.modified_timestamp,
            "path": segment.log.path,
            **sizes,
        }


def _producers(split: Split) -> Iterator[Any]:
    names = ("producer_id", "producer_epoch", "last_sequence", "last_offset", "last_timestamp",
             "coordinator_epoch", "current_txn_first_offset")  # fmt: skip
    partition = show(open_partition(split.path), split.view).partition
    for entry in partition.live(FileKind.PRODUCER_SNAPSHOT):
        for row in _with_path(read_producer_snapshot(entry.path), entry.path, *names):
            yield {"snapshot_offset": entry.name.offset, **row}


def _defects(split: Split, schema: Any, threads: int | None, losses: Losses) -> Iterator[Any]:
    found: list[Defect] = []
    for _ in _scan(split, [], threads, found.append, losses):
        if len(found) >= ROWS_AT_ONCE:
            yield _of_rows(found, split, schema)
            found.clear()
    if found:
        yield _of_rows(found, split, schema)


_SMALL: Final = {
    TableName.OFFSET_INDEX: _offset_index,
    TableName.TIME_INDEX: _time_index,
    TableName.TRANSACTIONS: _transactions,
    TableName.SEGMENTS: _segments,
    TableName.PRODUCERS: _producers,
}
