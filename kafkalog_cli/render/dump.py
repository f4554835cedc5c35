"""How `dump-segment` shows each kind of file, in each format."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from kafkalog.errors import KafkaLogError
from kafkalog.log_dir import FileEntry, LogDir, PartitionDir, one_log
from kafkalog.model import Batch, Defect, Record
from kafkalog.names import FileKind, parse_directory_name
from kafkalog.reader import read_batches, read_records
from kafkalog_cli.render.progress import byte_progress
from kafkalog_cli.render.rows import (
    batch_row,
    compression_name,
    control_type,
    entry_row,
    facts_row,
    producer_row,
    record_row,
)
from kafkalog_cli.render.text import BytesFormat, bytes_cell, size_cell, time_cell
from kafkalog_cli.render.writer import Column, Format, View, Writer, dumps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import tzinfo
    from types import TracebackType

    from kafkalog.payloads import PayloadKind
    from kafkalog.reader import Selection
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.render.rows import Row

    Progress = Callable[[int], None] | None


@dataclass(frozen=True, slots=True)
class DumpStyle:
    """How a dump is written.

    `records` is None where format and file decide between records and batches.
    """

    form: str
    records: bool | None
    bytes_form: BytesFormat
    zone: tzinfo
    exact: bool
    decode: bool
    progress: bool


class Dump:
    """Shows targets one after the other; use it as a context manager."""

    def __init__(self, selection: Selection, style: DumpStyle, outcome: Outcome) -> None:
        self.selection = selection
        self.style = style
        self.outcome = outcome
        self._writers = ExitStack()
        self._writer: Writer[Any] | None = None
        self._view_name = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writers.__exit__(kind, error, traceback)

    def show(self, target: LogDir | PartitionDir | FileEntry) -> None:
        """Show one target; what is wrong with it is reported, not raised."""
        try:
            target = one_log(target)
            logs = (FileKind.LOG, FileKind.KRAFT_SNAPSHOT)
            if isinstance(target, FileEntry) and target.name.kind not in logs:
                self._side_file(target)
            else:
                # On a terminal the rows themselves are the progress.
                shown = self.style.progress and not sys.stdout.isatty()
                with byte_progress([target], enabled=shown) as progress:
                    show = self._as_kafka if self.style.form == "kafka" else self._log
                    show(target, progress)
        except KafkaLogError as error:
            self.outcome.error(error)

    def _log(self, target: PartitionDir | FileEntry, progress: Progress) -> None:
        table_of_file = self.style.form == Format.TABLE and isinstance(target, FileEntry)
        records = not table_of_file if self.style.records is None else self.style.records
        if not records:
            rows = read_batches(target, self.selection, progress)
            self._write("batches", _batch_view(self.style), rows)
            return
        kind = _payload_kind(target.path, is_file=isinstance(target, FileEntry))
        view = _record_view(self.style, kind if self.style.decode else None)
        self._write("records", view, read_records(target, self.selection, progress))

    def _as_kafka(self, target: PartitionDir | FileEntry, progress: Progress) -> None:
        """Kafka's text, with our selections."""
        from dataclasses import replace

        from kafkalog_cli.render import kafka_text

        kind = _payload_kind(target.path, is_file=isinstance(target, FileEntry))
        text = kafka_text.RecordText(content=True, decoder=kind if self.style.decode else None)
        logs = [segment.log for segment in target.segments] if isinstance(
            target, PartitionDir) else [target]  # fmt: skip
        left = self.selection.limit
        for log in logs:
            if left == 0:
                return
            kafka_text.put_line(f"Dumping {log.path}")
            kafka_text.put_line(kafka_text.heading(log.name))
            shown = None
            selection = replace(self.selection, limit=left)
            rows: Iterable[Batch | Record | Defect] = (
                read_batches(log, selection, progress)
                if self.style.records is False
                else read_records(log, selection, progress)
            )
            for row in rows:
                if isinstance(row, Defect):
                    self.outcome.count(row)
                    self.outcome.defect(row)
                    continue
                left = None if left is None else left - 1
                batch = row if isinstance(row, Batch) else row.batch
                if batch != shown:
                    kafka_text.put_line(kafka_text.batch_line(batch))
                    shown = batch
                if isinstance(row, Record):
                    kafka_text.put_line(kafka_text.record_line(row, text))

    def _side_file(self, entry: FileEntry) -> None:
        if self.style.form == "kafka":
            from kafkalog_cli.kafka_dump import DumpOptions, KafkaDump

            dump = KafkaDump(DumpOptions(), self.outcome)
            dump.dump(entry.path)
            dump.finish()
            return
        name, view, values = _side_file_content(entry, self.style)
        selected = (value for value in values if _in_range(value, self.selection))
        limited = selected if self.selection.limit is None else _first(
            selected, self.selection.limit)  # fmt: skip
        self._write(name, view, limited)

    def _write(self, name: str, view: View[Any], values: Iterable[Any]) -> None:
        """Write values through a writer that is kept while the kind of row stays the same."""
        if self._writer is None or (self._view_name != name and self.style.form != Format.JSON):
            self._writers.close()
            self._writer = Writer(view, Format(self.style.form), self.outcome.defect)
            self._writers.enter_context(self._writer)
        self._writer.view = view
        self._view_name = name
        for value in values:
            if isinstance(value, Defect):
                self.outcome.count(value)
                self._writer.defect(value)
            else:
                self._writer.write(value)


def _payload_kind(path: str, *, is_file: bool) -> PayloadKind | None:
    """How records below a path are to be decoded, by the name of the topic."""
    from kafkalog.payloads import PayloadKind, payload_kind

    path = os.path.abspath(path)
    if os.path.basename(path) == "bootstrap.checkpoint":
        return PayloadKind("cluster-metadata")
    name = parse_directory_name(os.path.basename(os.path.dirname(path) if is_file else path))
    return payload_kind(name.topic) if name else None


def _first(values: Iterable[Any], limit: int) -> Iterator[Any]:
    from itertools import islice

    return islice(values, limit)


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


def _batch_view(style: DumpStyle) -> View[Batch]:
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
    )


def _record_view(style: DumpStyle, kind: PayloadKind | None) -> View[Record]:
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
    return View(columns, to_row)


def decoded(kind: PayloadKind, record: Record) -> Row:
    """The decoded key and value of an internal topic's record; null where they could not be."""
    from kafkalog.payloads import decode

    result = decode(kind, record)
    return {"key": result.key, "value": result.value, "error": result.error}


def _side_file_content(entry: FileEntry, style: DumpStyle) -> tuple[str, View[Any], Iterable[Any]]:
    """What an index, a checkpoint or a small file holds, and how it is shown."""
    path, kind = entry.path, entry.name.kind
    if kind in (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        names: tuple[str, ...] = ("entry", "offset", "position")
        if kind == FileKind.TIME_INDEX:
            names = ("entry", "timestamp", "offset")
        return kind, _entry_view(names, path, style), _index_entries(path, kind)
    if kind == FileKind.TRANSACTION_INDEX:
        from kafkalog.indexes import read_aborted_transactions

        names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
        return kind, _entry_view(names, path, style), read_aborted_transactions(path)
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


def _index_entries(path: str, kind: FileKind) -> Iterator[Any]:
    from kafkalog.indexes import OffsetIndex, TimeIndex

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
