"""The output of `dump-segment` for each kind of file, in each format."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from formats import file_names
from formats.file_names import FileKind, partition_of
from formats.late_classes import dataclass
from kafkalog.errors import GoneError, KafkaLogError, ShortageError, UsageError
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir, Segment, one_log
from kafkalog.files.offsets import name_of
from kafkalog.io.paths import file_system
from kafkalog.io.wording import some_of
from kafkalog.log.batches.segment import gaps_between
from kafkalog.log.living import LivingWalk, answered, listed_again
from kafkalog.model import Batch, Defect, Isolation, LogView, Record
from kafkalog.node.outcome import View as PartitionView
from kafkalog.node.reader import plan_reading, read_batches, read_records, require_log
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.bulk import is_bulk, read_kafka_text, read_rows, rows_of
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.records import batch_view, record_view
from kafkalog_cli.output.side_files import side_file_content, side_file_view
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalog.files.log_dir import Target
    from kafkalog.files.payloads.kinds import PayloadKind
    from kafkalog.log.batches.selection import ReadPlan, Selection
    from kafkalog_cli.output.kafka_text import RecordText
    from kafkalog_cli.output.objects import Style

    Log = PartitionDir | FileEntry
    Progress = Callable[[int], None] | None

LOGS = (FileKind.LOG, FileKind.KRAFT_SNAPSHOT)


@dataclass(frozen=True, slots=True)
class DumpStyle:
    """The style of a dump.

    `records` is whether records are shown rather than batches. `labels` has the first cells of the
    rows of each target, by path, if tables show several; `titles` is what they are.
    """

    form: str
    records: bool
    shown: Style
    decode: bool
    progress: bool
    labels: Mapping[str, tuple[str, ...]]
    titles: tuple[str, ...] = ()


class Dump:
    """Shows targets one after another; use it as a context manager.

    The limit of the selection is one for all of them.

    Attributes:
        rows: how many were shown so far.
    """

    def __init__(self, selection: Selection, style: DumpStyle, outcome: Outcome) -> None:
        self.selection = selection
        self.style = style
        self.outcome = outcome
        self._writers = ExitStack()
        self._writer: Writer[Any] | None = None
        self._view_name: tuple[str, ...] = ()
        self._label: tuple[str, ...] = ()
        self.rows = 0
        self._below_start: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._writers.__exit__(*raised)
        if self._below_start:
            names = some_of(self._below_start)
            show_note(f"no consumer gets records below the log start offset: {names}")

    def show(self, target: Target) -> None:
        """Show one target; errors are reported, not raised."""
        if self._is_full:
            return
        try:
            target = self._wanted(one_log(target))
            self._label = self.style.labels.get(target.path, ())
            if isinstance(target, FileEntry) and target.name.kind not in LOGS:
                self._side_file(target)
            else:
                what = self._in_view(target)
                # On a terminal the rows themselves are the progress.
                shown = self.style.progress and not sys.stdout.isatty()
                with byte_progress([target], enabled=shown) as progress:
                    dump = self._as_kafka if self.style.form == "kafka" else self._log
                    dump(target, what, progress)
                self._has_read(what)
        except ShortageError:
            raise
        except KafkaLogError as error:
            self.outcome.hear(error)

    def _wanted(self, target: PartitionDir | FileEntry) -> PartitionDir | FileEntry:
        """Return a target with no more segments of a packed tier than the selection needs.

        Kafka's text has headings of all segments; what a consumer gets depends on the whole log.
        """
        wanted = self.selection
        is_whole = self.style.form == "kafka" or wanted.isolation != Isolation.LOG
        if is_whole or isinstance(target, FileEntry):
            return target
        return target.between(wanted.from_offset, wanted.to_offset)

    def _log(
        self, target: PartitionDir | FileEntry, what: PartitionView | FileEntry, progress: Progress
    ) -> None:
        records = self.style.records
        name, view = self._view(target, records=records)
        self._open(name, self._labelled(view))  # even if nothing can be planned
        plan = plan_reading(what, self.selection)
        if is_bulk(plan):
            read = partial(
                read_rows, view=view, style=self.style, progress=progress, batches=not records
            )
            self._write_bulk(name, view, with_missing(what, plan, read))
        else:
            self._write(name, view, self._values(what, plan, progress, records=records))

    def _values(
        self, what: PartitionView | FileEntry, plan: ReadPlan, progress: Progress, *, records: bool
    ) -> Iterator[Any]:
        read = partial(read_records if records else read_batches, progress=progress)
        return with_missing(what, plan, read)

    def _has_read(self, what: PartitionView | FileEntry) -> None:
        if not isinstance(what, FileEntry):
            self.outcome.has_read(what)

    @property
    def _is_full(self) -> bool:
        """Whether the limit is reached, by rows: a limit of 0 shows what there is."""
        return self.selection.limit == 0 and self.rows > 0

    def _count(self, rows: int) -> None:
        """Count rows that were shown: fewer are left to show."""
        self.rows += rows
        if (limit := self.selection.limit) is not None:
            self.selection = replace(self.selection, limit=limit - rows)

    def _view(
        self, target: PartitionDir | FileEntry, *, records: bool, decodes: bool = True
    ) -> tuple[str, View[Any]]:
        shown = replace(self.style.shown, states=self.selection.view == LogView.ALL)
        if not records:
            return "batches", batch_view(shown)
        decoder = self._decoder(target) if decodes else None
        return "records", record_view(replace(shown, decoder=decoder))

    def show_by_time(self, targets: Sequence[PartitionDir | FileEntry]) -> None:
        """Show logs together, in the order of their timestamps.

        Raises:
            UsageError: a target is no log.
            LimitExceededError: see `in_time_order`.
        """
        from kafkalog.log.batches.merged import in_time_order

        self._show_together(targets, lambda logs: in_time_order(logs, self.outcome.hear))

    def show_latest(self, targets: Sequence[Log], number: int) -> None:
        """Show the records of all logs with the latest timestamps, in their order.

        Raises:
            UsageError: a target is no log.
        """
        from kafkalog.log.batches.merged import latest, one_by_one

        def chosen(logs: Sequence[tuple[str, Iterator[Any]]]) -> Iterator[tuple[int, Any]]:
            every = one_by_one(logs, self.outcome.hear)
            return latest(
                ((None if isinstance(one, Defect) else one.timestamp, (at, one))
                 for at, one in every), number
            )  # fmt: skip

        self._show_together(targets, chosen)

    def follow(self, targets: Sequence[Log]) -> None:
        """Show the records of partitions, then new ones as they come, forever or up to the limit.

        Raises:
            UsageError: there is no partition.
        """
        from kafkalog.answers.search.following import follow
        from kafkalog.answers.search.run import Search

        views: dict[tuple[str, int | None], tuple[str, View[Any]]] = {}
        for one in targets:
            if isinstance(one, PartitionDir):
                self._label = self.style.labels.get(one.path, ())
                name, view = self._view(one, records=True)
                views[one.topic, one.partition] = name, self._labelled(view)
        if not views:
            raise UsageError("Only partitions grow.", hint="Leave out --follow.")
        wanted = replace(self.selection, limit=None)
        for found in follow(Search(targets, wanted, listener=self.outcome)):
            if isinstance(found, Defect):
                self.outcome.hear(found)
                continue
            writer = self._open(*views[found.topic, found.partition])
            writer.write(found.record)
            writer.flush()
            sys.stdout.flush()  # or a reader of a pipe would wait for whole blocks
            self._count(1)
            if self._is_full:
                return

    def _show_together(
        self,
        targets: Sequence[Log],
        together: Callable[[list[tuple[str, Iterator[Any]]]], Iterator[tuple[int, Any]]],
    ) -> None:
        if not targets:
            return
        # One table has one set of columns.
        decoders = {str(self._decoder(target)) for target in targets}
        decodes = not Format(self.style.form).is_screen or len(decoders) == 1
        logs: list[tuple[str, Iterator[Any]]] = []
        views: list[tuple[str, View[Any]]] = []
        read: list[PartitionView | FileEntry] = []
        shown = self.style.progress and not sys.stdout.isatty()
        with byte_progress(targets, enabled=shown) as progress:
            for target in targets:
                with self.outcome.contained(target.path):
                    target = self._wanted(target)
                    require_log(target)
                    what = self._in_view(target)
                    self._label = self.style.labels.get(target.path, ())
                    name, view = self._view(target, records=self.style.records, decodes=decodes)
                    views.append((name, self._labelled(view)))
                    plan = plan_reading(what, self.selection)
                    found = self._values(what, plan, progress, records=self.style.records)
                    logs.append((target.path, found))
                    read.append(what)
            self._write_merged(together(logs), views)
        for what in read:
            self._has_read(what)

    def _in_view(self, target: PartitionDir | FileEntry) -> PartitionView | FileEntry:
        self._mark_below_start(target)
        if isinstance(target, FileEntry):
            return target
        # Bounds of consumers depend on the log end, and Kafka's text names each file.
        lazily = self.selection.isolation == Isolation.LOG and self.style.form != "kafka"
        return self.outcome.shown(target, self.selection.view, lazily=lazily)

    def _mark_below_start(self, target: PartitionDir | FileEntry) -> None:
        """Remember to note that selected records lie below the log start offset, if any do."""
        if isinstance(target, PartitionDir):
            first = target.segments[0].base_offset if target.segments else None
            around = target
        else:
            first = target.name.offset if target.name.kind == FileKind.LOG else None
            path = os.path.dirname(file_system.absolute(target.path))
            around = PartitionDir(path, partition_of(path), ())
        if first is None or self.selection.isolation != Isolation.LOG:
            return  # it holds none, or they are not shown
        start = UnifiedLog(around).checkpoint(file_names.LOG_STARTS)
        if start is not None and max(first, self.selection.from_offset or 0) < start:
            name = name_of(around.topic, around.partition)
            self._below_start.append(f"{name} has them up to {start}")

    def _write_merged(
        self, found: Iterator[tuple[int, Any]], views: Sequence[tuple[str, View[Any]]]
    ) -> None:
        """Write values and defects, each in the view of its log, up to the limit."""
        for index, one in found:
            if self.selection.limit == 0:
                return
            if isinstance(one, Defect):
                self.outcome.count(one)
                self._open(*views[index]).defect(one)
                continue
            self._open(*views[index]).write(one)
            self._count(1)

    def _decoder(self, target: PartitionDir | FileEntry) -> PayloadKind | None:
        is_file = isinstance(target, FileEntry)
        return _payload_kind(target.path, is_file=is_file) if self.style.decode else None

    def _as_kafka(
        self, target: PartitionDir | FileEntry, what: PartitionView | FileEntry, progress: Progress
    ) -> None:
        from kafkalog_cli.output import kafka_text

        text = kafka_text.RecordText(content=True, decoder=self._decoder(target))
        batches = not self.style.records
        plan = plan_reading(what, self.selection)
        walk = LivingWalk(plan)
        bulk = not sys.stdout.isatty() and is_bulk(walk.plan)
        every = what.segments if isinstance(what, PartitionView) else walk.plan.segments
        # Kafka's tool would dump all files: those that the selection passes over get a heading,
        # too.
        unread = [segment for segment in every if segment not in walk.plan.segments]
        segment: Segment | None = None
        while self.selection.limit != 0:
            segment = walk.take()
            while unread and (segment is None or unread[0].base_offset < segment.base_offset):
                _put_heading(unread.pop(0))
            if segment is None:
                break
            _put_heading(segment)
            one = replace(
                walk.plan,
                segments=(segment,),
                selection=replace(walk.plan.selection, limit=self.selection.limit),
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
        self._kafka_lines(_missing(what, plan.selection, segment), text)

    def _kafka_lines(self, found: Iterator[Any], text: RecordText) -> None:
        from kafkalog_cli.output import kafka_text

        shown = None
        for row in found:
            if isinstance(row, Defect):
                self.outcome.hear(row)
                continue
            if not isinstance(row, Batch | Record):
                sys.stdout.buffer.write(row.view)
                self._count(row.rows)
                continue
            self._count(1)
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
        writer = self._open(name, self._labelled(view))
        rows = 0
        try:
            for value in values:
                if isinstance(value, Defect):
                    self.outcome.count(value)
                    writer.defect(value)
                else:
                    writer.write(value)
                    rows += 1
        finally:
            self._count(rows)

    def _write_bulk(self, name: str, view: View[Any], found: Iterable[Any]) -> None:
        from kafkalog.log.text.plain_rows import PlainRows

        writer = self._open(name, self._labelled(view))
        labels = self._label[: len(self.style.titles)]
        for content in found:
            if isinstance(content, Defect):
                self.outcome.count(content)
                writer.defect(content)
            elif isinstance(content, list):
                for value in content:
                    writer.write(value)
                self._count(len(content))
            elif isinstance(content, PlainRows):
                writer.write_rows(content, labels)
                self._count(len(content))
            else:
                writer.write_text(content)
                self._count(content.rows)

    def _labelled(self, view: View[Any]) -> View[Any]:
        """Return the view with the cells that name the target first."""
        cells = list(zip(self.style.titles, self._label, strict=False))
        for title, label in reversed(cells):
            view = view.preceded(
                Column(title, partial(_constant, label), least=12, keeps_end=True, weight=8)
            )
        return view

    def _open(self, name: str, view: View[Any]) -> Writer[Any]:
        """Return the writer, which is kept while the kind of row stays the same."""
        kind = (name, *(column.title for column in view.columns))
        # One JSON array has all kinds of objects.
        if self._writer is None or (self._view_name != kind and self.style.form != Format.JSON):
            self._writers.close()
            self._writer = Writer(view, Format(self.style.form))
            self._writers.enter_context(self._writer)
        self._writer.view = view
        self._view_name = kind
        return self._writer


def _constant(cell: str, _: object) -> str:
    return cell


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


def labels_of(
    targets: Sequence[Target], logs: Sequence[Log]
) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Name several logs by path, as briefly as possible, and say what the names are.

    Args:
        targets: what was asked for; nothing is named if that is a single log.
    """
    names = {one.path: os.path.basename(file_system.absolute(one.path)) for one in logs}
    if any(isinstance(one, LogDirListing) for one in targets):
        directories = {path: os.path.dirname(path) or os.curdir for path in names}
        if len(set(directories.values())) == 1:
            return {path: (name,) for path, name in names.items()}, ("PARTITION",)
        return (
            {path: (directories[path], name) for path, name in names.items()},
            ("DIRECTORY", "PARTITION"),
        )
    if len(logs) < 2:
        return {}, ()
    is_clear = len(set(names.values())) == len(names)
    return {path: (name if is_clear else path,) for path, name in names.items()}, ("LOG",)


def with_missing(
    what: PartitionView | FileEntry, plan: ReadPlan, read: Callable[[ReadPlan], Iterator[Any]]
) -> Iterator[Any]:
    """Yield what `read` does of a plan, and then the findings about gaps before the last of it."""
    last: Segment | None = None

    def keep(segment: Segment | None) -> None:
        nonlocal last
        last = segment

    yield from read(replace(plan, on_segment=keep))
    yield from _missing(what, plan.selection, last)


def _missing(
    what: PartitionView | FileEntry, selection: Selection, last: Segment | None
) -> Iterator[Defect]:
    """Yield the findings about missing offsets, up to the segment where a limit was reached."""
    if isinstance(what, FileEntry):
        return
    partition, view = what.partition, selection.view
    wanted = selection.from_offset, selection.to_offset if last is None else last.base_offset
    with suppress(GoneError):  # a broker may have cleaned the log since it was listed
        yield from answered(
            lambda: _missing_in(what.so_far, view, *wanted),
            lambda: _missing_in(show(listed_again(partition), view), view, *wanted),
        )


def _missing_in(what: PartitionView, view: LogView, *wanted: int | None) -> list[Defect]:
    if next(gaps_between(what.segments, *wanted), None) is None:
        return []
    from kafkalog.check.segments import missing_offsets

    if what.partition.packed:  # other segments may show that compaction removed them
        what = show(listed_again(what.partition), view)
    return list(missing_offsets(what.partition, what.segments, *wanted))


def _payload_kind(path: str, *, is_file: bool) -> PayloadKind | None:
    from kafkalog.files.payloads.kinds import payload_kind_at

    return payload_kind_at(file_system.absolute(path), is_file=is_file)
