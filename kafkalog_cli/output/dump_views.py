"""How `dump-segment` shows batches, records and the entries of side files: cells and objects."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from kafkalog.errors import KafkaLogError
from kafkalog.model import Batch
from kafkalog.names import FileKind
from kafkalog.view import state_of
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.row_text import dumps
from kafkalog_cli.output.rows import (
    BATCH_FIELDS,
    RECORD_FIELDS,
    batch_row,
    compression_name,
    control_type,
    entry_row,
    facts_row,
    producer_row,
    record_row,
)
from kafkalog_cli.output.text import bytes_cell, size_cell, time_cell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.log_dir import FileEntry
    from kafkalog.model import Record
    from kafkalog.payloads import PayloadKind
    from kafkalog.reader import Selection
    from kafkalog_cli.output.dump import DumpStyle
    from kafkalog_cli.output.objects import Row


def batch_view(style: DumpStyle) -> View[Batch]:
    """One row a batch."""

    def flags(batch: Batch) -> str:
        words = ["transactional"] if batch.is_transactional else []
        words += ["control"] if batch.is_control else []
        words += ["bad crc"] if batch.crc_valid is False else []
        if batch.delete_horizon_ms is not None:
            words.append(f"delete horizon {_time(batch.delete_horizon_ms, style)}")
        return ", ".join(words)

    def producer(batch: Batch) -> str:
        if batch.producer_id < 0:
            return "-"
        return f"{batch.producer_id}/{batch.producer_epoch}"

    return View(
        (
            Column("OFFSETS", lambda batch: f"{batch.base_offset}-{batch.last_offset}", fold=True),
            Column("COUNT", lambda batch: batch.count, right=True),
            Column("POSITION", lambda batch: batch.position, right=True),
            Column("SIZE", lambda b: size_cell(b.size_bytes, exact=style.exact), right=True),
            Column("CODEC", compression_name),
            Column("MAX TIME", lambda batch: _time(batch.max_timestamp, style)),
            Column("PRODUCER", producer, fold=True),
            Column("EPOCH", lambda batch: batch.partition_leader_epoch, right=True),
            Column("NOTES", flags, fold=True),
        ),
        batch_row,
        names=BATCH_FIELDS,
    )


def marked(view: View[Any]) -> View[Any]:
    """The same, and each row says where its log lives: `live`, `deleted`, `swap` …."""

    def state(value: Batch | Record) -> str:
        return state_of(value.path if isinstance(value, Batch) else value.batch.path)

    def row(value: Batch | Record) -> Row:
        fields = view.row(value)
        return {"type": fields.pop("type"), "state": state(value), **fields}

    return View((Column("STATE", state), *view.columns), row)


def record_view(style: DumpStyle, kind: PayloadKind | None) -> View[Record]:
    """One row a record; `kind` says how those of an internal topic are decoded."""

    def key(record: Record) -> str:
        if record.batch.is_control:
            return str(control_type(record))
        return bytes_cell(record.key, style.bytes_form)

    def value(record: Record) -> str:
        if kind is None or record.batch.is_control:
            return bytes_cell(record.value, style.bytes_form)
        from kafkalog.payloads import kafka_text

        try:
            return kafka_text(kind, record).strip()
        except KafkaLogError as error:
            return error.message

    def headers(record: Record) -> str:
        return ", ".join(
            f"{header.key.decode('utf-8', 'replace')}={bytes_cell(header.value, style.bytes_form)}"
            for header in record.headers
        )

    def to_row(record: Record) -> Row:
        row = record_row(record, style.bytes_form)
        if kind is not None and not record.batch.is_control:
            row["decoded"] = decoded(kind, record)
        return row

    columns: tuple[Column[Record], ...] = (
        Column("OFFSET", lambda record: record.offset, right=True),
        Column("TIME", lambda record: _time(record.timestamp, style)),
        Column("KEY", key, fold=True),
        Column("VALUE", value, fold=True),
        Column("HEADERS", headers, fold=True),
    )
    if kind is not None:

        def content(record: Record) -> str:
            return key(record) if record.batch.is_control else value(record)

        columns = (*columns[:2], Column("CONTENT", content, fold=True))
    return View(columns, to_row, names=RECORD_FIELDS if kind is None else ())


def decoded(kind: PayloadKind, record: Record) -> Row:
    """The decoded key and value of an internal topic's record; null where they could not be."""
    from kafkalog.payloads import decode

    result = decode(kind, record.key, record.value)
    return {"key": result.key, "value": result.value, "error": result.error}


def selected_entries(values: Iterable[Any], selection: Selection) -> Iterator[Any]:
    """The wanted ones of the entries of a side file, up to the limit."""
    return islice((value for value in values if _in_range(value, selection)), selection.limit)


def _in_range(value: Any, selection: Selection) -> bool:
    """Whether an entry of an index or a checkpoint is wanted; what has no offset always is."""
    for fact, low, high in (
        (getattr(value, "offset", None), selection.from_offset, selection.to_offset),
        (getattr(value, "timestamp", None), selection.from_time, selection.to_time),
    ):
        if fact is None:
            continue
        if (low is not None and fact < low) or (high is not None and fact >= high):
            return False
    return True


def side_file_content(entry: FileEntry, style: DumpStyle) -> tuple[str, View[Any], Iterable[Any]]:
    """What an index, a checkpoint or a small file holds, and how it is shown."""
    path, kind = entry.path, entry.name.kind
    if kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        names: tuple[str, ...] = ("entry", "offset", "position")
        if kind == FileKind.TIME_INDEX:
            names = ("entry", "timestamp", "offset")
        return kind, _entry_view(names, path, style), index_entries(path, kind)
    if kind == FileKind.TRANSACTION_INDEX:
        names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
        return kind, _entry_view(names, path, style), index_entries(path, kind)
    if kind == FileKind.PRODUCER_SNAPSHOT:
        from kafkalog.producer_snapshot import read_producer_snapshot

        names = ("producer_id", "producer_epoch", "last_sequence", "last_offset",
                 "last_timestamp", "coordinator_epoch", "current_txn_first_offset")  # fmt: skip
        view = _entry_view(names, path, style)
        return (
            kind,
            View(view.columns, lambda state: producer_row(state, path)),
            (read_producer_snapshot(path)),
        )
    if kind in (FileKind.OFFSET_CHECKPOINT, FileKind.LEADER_EPOCH_CHECKPOINT):
        from kafkalog.checkpoints import read_leader_epochs, read_offset_checkpoint

        if kind == FileKind.OFFSET_CHECKPOINT:
            names = ("topic", "partition", "offset")
            return kind, _entry_view(names, path, style), read_offset_checkpoint(path)
        return kind, _entry_view(("epoch", "start_offset"), path, style), read_leader_epochs(path)
    facts = _facts(entry)
    view = View[tuple[str, Any]](
        (
            Column("NAME", lambda fact: fact[0], fold=True),
            Column("VALUE", lambda f: f[1] if isinstance(f[1], str) else dumps(f[1]), fold=True),
        ),
        lambda fact: facts_row(kind, path, *fact),
    )
    return kind, view, facts.items()


def index_entries(path: str, kind: FileKind) -> Iterator[Any]:
    """The entries of an offset, time or transaction index."""
    from kafkalog.indexes import OffsetIndex, TimeIndex, read_aborted_transactions

    if kind == FileKind.TRANSACTION_INDEX:
        yield from read_aborted_transactions(path)
        return
    with OffsetIndex(path) if kind == FileKind.OFFSET_INDEX else TimeIndex(path) as index:
        yield from index.entries()


def _facts(entry: FileEntry) -> dict[str, Any]:
    """The names and values in a small file."""
    from kafkalog import metadata_files as files

    path, kind = entry.path, entry.name.kind
    if kind == FileKind.META_PROPERTIES:
        return dict(files.read_properties(path))
    if kind == FileKind.PARTITION_METADATA:
        return {"topic_id": files.read_topic_id(path)}
    if kind == FileKind.QUORUM_STATE:
        return files.read_quorum_state(path)
    if kind == FileKind.CLEAN_SHUTDOWN:
        return files.read_clean_shutdown(path)
    if kind == FileKind.LOCK:
        return {}
    return files.read_remote_log_file(path, kind)


def _entry_view(names: tuple[str, ...], path: str, style: DumpStyle) -> View[Any]:
    def column(name: str) -> Column[Any]:
        def cell(value: Any) -> str:
            content = getattr(value, name)
            if name.endswith("timestamp"):
                return _time(content, style)
            return "-" if content is None else str(content)

        title = name.replace("_", " ").upper()
        return Column(title, cell, right=name not in ("topic", "timestamp", "last_timestamp"))

    return View(tuple(map(column, names)), lambda value: entry_row(value, path))


def _time(timestamp_ms: int, style: DumpStyle) -> str:
    return str(timestamp_ms) if style.exact else time_cell(timestamp_ms, style.zone)
