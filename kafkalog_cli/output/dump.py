"""The output of `dump-segment` for each kind of file, in each format."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from kafkalog.batches.reader import plan_reading, read_batches, read_records
from kafkalog.batches.selection import EVERYTHING
from kafkalog.errors import KafkaLogError, UsageError
from kafkalog.living import LivingWalk
from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir, one_log
from kafkalog.model import Batch, Defect, LogView, Record
from kafkalog.names import FileKind, parse_directory_name
from kafkalog.paths import file_system
from kafkalog.view import Shown
from kafkalog_cli.output.bulk import is_bulk, read_kafka_text, read_rows, rows_of
from kafkalog_cli.output.objects import Column
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.records import batch_view, record_view
from kafkalog_cli.output.side_files import (
    index_entries,
    selected_entries,
    side_file_content,
    side_file_view,
)
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalog.batches.selection import ReadPlan, Selection
    from kafkalog.columns.arrow_files import Exporter
    from kafkalog.log_dir import Segment
    from kafkalog.payloads.internal_topics import PayloadKind
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.kafka_text import RecordText
    from kafkalog_cli.output.objects import Style, View

    Progress = Callable[[int], None] | None


_INDEXES = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX)
_LOGS = (FileKind.LOG, FileKind.KRAFT_SNAPSHOT)
_BATCH_ROWS = 16384


@dataclass(frozen=True, slots=True)
class DumpStyle:
    """The style of a dump.

    `records` is None if format and file decide between records and batches. `labels` names each
    target, by path, if tables show several.
    """

    form: str
    records: bool | None
    shown: Style
    decode: bool
    progress: bool
    labels: Mapping[str, str]


class Dump:
    """Shows targets one after another; use it as a context manager."""

    def __init__(self, selection: Selection, style: DumpStyle, outcome: Outcome) -> None:
        self.selection = selection
        self.style = style
        self.outcome = outcome
        self._writers = ExitStack()
        self._writer: Writer[Any] | None = None
        self._view_name = ""
        self._label: str | None = None
        self._rows = 0  # of Kafka's text, for the limit

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._writers.__exit__(*raised)

    def show(self, target: LogDirListing | PartitionDir | FileEntry) -> None:
        """Show one target; errors are reported, not raised."""
        try:
            target = one_log(target)
            self._label = self.style.labels.get(target.path)
            if isinstance(target, FileEntry) and target.name.kind not in _LOGS:
                self._side_file(target)
            else:
                view = self.selection.view
                what = target if isinstance(target, FileEntry) else self.outcome.shown(target, view)
                # On a terminal the rows themselves are the progress.
                shown = self.style.progress and not sys.stdout.isatty()
                with byte_progress([target], enabled=shown) as progress:
                    dump = self._as_kafka if self.style.form == "kafka" else self._log
                    dump(target, what, progress)
        except KafkaLogError as error:
            self.outcome.error(error)

    def _log(
        self, target: PartitionDir | FileEntry, what: Shown | FileEntry, progress: Progress
    ) -> None:
        table_of_file = self.style.form == Format.TABLE and isinstance(target, FileEntry)
        records = not table_of_file if self.style.records is None else self.style.records
        shown = replace(self.style.shown, states=self.selection.view == LogView.ALL)
        view: View[Any] = batch_view(shown)
        if records:
            view = record_view(replace(shown, decoder=self._decoder(target)))
        name = "records" if records else "batches"
        if is_bulk(what, self.selection):
            found = read_rows(what, self.selection, view, self.style, progress, batches=not records)
            self._write_bulk(name, view, found)
        elif records:
            self._write(name, view, read_records(what, self.selection, progress))
        else:
            self._write(name, view, read_batches(what, self.selection, progress))

    def _decoder(self, target: PartitionDir | FileEntry) -> PayloadKind | None:
        is_file = isinstance(target, FileEntry)
        return _payload_kind(target.path, is_file=is_file) if self.style.decode else None

    def _as_kafka(
        self, target: PartitionDir | FileEntry, what: Shown | FileEntry, progress: Progress
    ) -> None:
        """Print Kafka's text, with our selections."""
        from kafkalog_cli.output import kafka_text

        text = kafka_text.RecordText(content=True, decoder=self._decoder(target))
        batches = self.style.records is False
        bulk = not sys.stdout.isatty() and is_bulk(what, self.selection)
        walk = LivingWalk(plan_reading(what, self.selection))
        every = what.segments if isinstance(what, Shown) else walk.plan.segments
        unread = [segment for segment in every if segment not in walk.plan.segments]
        limit, self._rows = self.selection.limit, 0
        while limit is None or self._rows < limit:
            segment = walk.take()
            while unread and (segment is None or unread[0].base_offset < segment.base_offset):
                _put_heading(unread.pop(0))
            if segment is None:
                return
            _put_heading(segment)
            left = None if limit is None else limit - self._rows
            one = replace(
                walk.plan,
                segments=(segment,),
                selection=replace(walk.plan.selection, limit=left),
                again=None if walk.plan.again is None else _give_up,
                reached=walk.check,
            )
            found: Iterator[Any]
            if bulk:
                found = rows_of(read_kafka_text(one, text, progress, batches=batches))
            elif batches:
                found = read_batches(one, progress=progress)
            else:
                found = read_records(one, progress=progress)
            try:
                self._kafka_lines(found, text)
            except _WentAwayError as gone:
                walk.go_on(gone.error)

    def _kafka_lines(self, found: Iterator[Any], text: RecordText) -> None:
        """Print the content of a log, and count the rows."""
        from kafkalog_cli.output import kafka_text

        shown = None
        for row in found:
            if isinstance(row, Defect):
                self.outcome.count(row)
                self.outcome.defect(row)
                continue
            if not isinstance(row, Batch | Record):
                sys.stdout.buffer.write(row.view)
                self._rows += row.rows
                continue
            self._rows += 1
            batch = row if isinstance(row, Batch) else row.batch
            if batch != shown:
                kafka_text.put_line(kafka_text.batch_line(batch))
                shown = batch
            if isinstance(row, Record):
                kafka_text.put_line(kafka_text.record_line(row, text))

    def _side_file(self, entry: FileEntry) -> None:
        if self.style.form == "kafka":
            from kafkalog_cli.output.kafka_dump import DumpOptions, KafkaDump

            dump = KafkaDump(DumpOptions(), self.outcome)
            dump.dump(entry.path)
            dump.finish()
            return
        content = side_file_content(entry, self.selection)
        kind = entry.name.kind
        self._write(kind, side_file_view(kind, self.style.shown), content)

    def _write(self, name: str, view: View[Any], values: Iterable[Any]) -> None:
        """Write values and defects."""
        writer = self._open(name, view)
        for value in values:
            if isinstance(value, Defect):
                self.outcome.count(value)
                writer.defect(value)
            else:
                writer.write(value)

    def _write_bulk(self, name: str, view: View[Any], found: Iterable[Any]) -> None:
        """Write lists of values, blocks of text and defects."""
        writer = self._open(name, view)
        for content in found:
            if isinstance(content, Defect):
                self.outcome.count(content)
                writer.defect(content)
            elif isinstance(content, list):
                for value in content:
                    writer.write(value)
            else:
                writer.write_text(content)

    def _open(self, name: str, view: View[Any]) -> Writer[Any]:
        """Return the writer, which is kept while the kind of row stays the same."""
        label = self._label
        if label is not None:
            view = view.preceded(Column("LOG", lambda _: label, fold=True))
        if self._writer is None or (self._view_name != name and self.style.form != Format.JSON):
            self._writers.close()
            self._writer = Writer(view, Format(self.style.form), self.outcome.defect)
            self._writers.enter_context(self._writer)
        self._writer.view = view
        self._view_name = name
        return self._writer


class _WentAwayError(Exception):
    """The files of a segment disappeared."""

    def __init__(self, error: KafkaLogError) -> None:
        super().__init__(error.message)
        self.error = error


def _give_up(_next_offset: int | None) -> ReadPlan:
    """Raise instead of listing again: the name of the next file must be printed first."""
    error = sys.exc_info()[1]
    assert isinstance(error, KafkaLogError), "it is why a plan is made again"
    raise _WentAwayError(error)


def _put_heading(segment: Segment) -> None:
    from kafkalog_cli.output import kafka_text

    kafka_text.put_line(f"Dumping {segment.log.path}")
    kafka_text.put_line(kafka_text.heading(segment.log.name))


def labels_of(targets: Sequence[LogDirListing | PartitionDir | FileEntry]) -> dict[str, str]:
    """Name several targets by path, as briefly as possible; empty for a single target."""
    if len(targets) < 2:
        return {}
    names = {one.path: os.path.basename(file_system.absolute(one.path)) for one in targets}
    return names if len(set(names.values())) == len(names) else {path: path for path in names}


def _payload_kind(path: str, *, is_file: bool) -> PayloadKind | None:
    """Return how records below a path are decoded, by the name of the topic."""
    from kafkalog.payloads.internal_topics import PayloadKind, payload_kind

    path = file_system.absolute(path)
    if os.path.basename(path) == "bootstrap.checkpoint":
        return PayloadKind("cluster-metadata")
    name = parse_directory_name(os.path.basename(os.path.dirname(path) if is_file else path))
    return payload_kind(name.topic) if name else None


class FileDump:
    """Writes targets of one kind to a file of Parquet or Arrow; use it as a context manager.

    The file appears when it is complete.

    Raises:
        UnsupportedError: a package is missing.
        DestinationExistsError, UnwritableError: see `NewFile`.
    """

    def __init__(self, path: str, selection: Selection, style: DumpStyle, outcome: Outcome) -> None:
        # Arrow's own pool keeps tens of megabytes that it does not use.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        from kafkalog.jit import fast_path

        fast_path.require_arrow()
        self._path = path
        self._selection = selection
        self._style = style
        self._outcome = outcome
        self._kind: str | None = None
        self._exporter: Exporter | None = None
        self._files = ExitStack()

    def __enter__(self) -> Self:
        from kafkalog.storage import NewFile

        self._new_file = self._files.enter_context(NewFile(self._path))
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._exporter is None:
            self._new_file.discard()
        self._files.__exit__(*raised)

    def show(self, target: LogDirListing | PartitionDir | FileEntry) -> None:
        """Write one target; errors in it are reported, not raised.

        Raises:
            UsageError: it is of another kind than the first one.
        """
        try:
            target = one_log(target)
            exporter = self._exporter_for(target)
            view = self._selection.view
            what = target if isinstance(target, FileEntry) else self._outcome.shown(target, view)
            with byte_progress([target], enabled=self._style.progress) as progress:
                if self._kind in ("records", "batches"):
                    from kafkalog.columns.scan import scan

                    for batch in scan(
                        what,
                        selection=self._selection,
                        batches=self._kind == "batches",
                        batch_rows=_BATCH_ROWS,
                        defects=self._defect,
                        progress=progress,
                    ):
                        exporter.write(batch)
                else:
                    assert isinstance(target, FileEntry), "only files are of other kinds"
                    entries = index_entries(target.path, target.name.kind)
                    wanted = selected_entries(entries, self._selection)
                    exporter.write_entries(wanted, target.path)
        except UsageError:
            raise
        except KafkaLogError as error:
            self._outcome.error(error)

    def _exporter_for(self, target: PartitionDir | FileEntry) -> Exporter:
        kind = "batches" if self._style.records is False else "records"
        if isinstance(target, FileEntry) and target.name.kind not in _LOGS:
            if target.name.kind not in _INDEXES:
                raise UsageError(
                    f"A file of this kind cannot be written as {self._style.form}.",
                    path=target.path,
                    hint="Logs and indexes can; for others there are ndjson, json and csv.",
                )
            kind = str(target.name.kind)
        if self._kind not in (None, kind):
            raise UsageError(
                f"A file holds rows of one kind: {self._kind} so far, {kind} here.",
                path=target.path,
                hint="Write each kind to its own file.",
            )
        if self._exporter is None:
            from kafkalog.columns.arrow_files import Exporter

            made = Exporter(self._new_file.file, self._style.form, kind, _facts(self._selection))
            self._exporter = self._files.enter_context(made)
            self._kind = kind
        return self._exporter

    def _defect(self, defect: Defect) -> None:
        self._outcome.count(defect)
        self._outcome.defect(defect)


def _facts(selection: Selection) -> dict[str, Any]:
    """Return the selection for the metadata of the file."""
    from importlib.metadata import version

    chosen = {
        name: _plain(value)
        for name, value in asdict(selection).items()
        if value != getattr(EVERYTHING, name)
    }
    return {"version": version("kafkalog"), "selection": chosen}


def _plain(value: Any) -> object:
    if isinstance(value, tuple):
        return [None if part is None else _plain(part) for part in value]
    if isinstance(value, re.Pattern):
        value = value.pattern
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value
