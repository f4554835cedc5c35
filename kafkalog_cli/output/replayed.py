"""The output of `replay`: what was produced of each log, and what offsets of groups became."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.io.wording import counted, some_of
from kafkalog.model import Defect
from kafkalog.wire.producing.model import ReplayListener
from kafkalog_cli.maintenance import WORK_DONE, with_next_step
from kafkalog_cli.outcome import show_note, show_warning
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType
from kafkalog_cli.output.text import size_cell
from kafkalog_cli.output.writer import Format, Writer, write_all
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from kafkalog.errors import Event
    from kafkalog.wire.producing.model import Replayed, TranslatedOffset
    from kafkalog.wire.producing.run import ReplaySummary
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.progress import ByteProgress


class ShownLog(NamedTuple):
    """What was done with a log, and whether it was."""

    done: Replayed
    performed: bool


class Shown(NamedTuple):
    """What a replay did or would do, whether it did, and the exit status of the command."""

    summary: ReplaySummary
    performed: bool
    status: int = 0

    def total(self, name: str) -> int:
        """Return the sum of a number of all logs."""
        return sum(getattr(one, name) for one in self.summary.logs)

    @property
    def changed(self) -> int:
        """Number of partitions whose records were produced."""
        return sum(one.records > 0 for one in self.summary.logs) if self.performed else 0


REPLAYED: Final = ObjectType[ShownLog](
    "replayed",
    "`replay`",
    "A log whose records were produced into a cluster, or would be.",
    Field("path", k.TEXT, "partition directory or file", "done.route.path"),
    Field("topic", k.TEXT, "from the directory's name", "done.route.topic"),
    Field("partition", k.INT | None, "null if the directory's name has none",
          "done.route.partition"),
    Field("to_topic", k.TEXT, "in the cluster", "done.route.to_topic"),
    Field("to_partition", k.INT | None, "in the cluster; null if the keys decide",
          "done.route.to_partition"),
    Field("performed", k.BOOL, "false in a plan"),
    Field("records", k.INT, "of this run", "done.records"),
    Field("tombstones", k.INT, "", "done.tombstones"),
    Field("size_bytes", k.SIZE, "keys, values and headers", "done.size_bytes"),
    Field("first_offset", k.INT | None, "in the log", "done.first_offset"),
    Field("last_offset", k.INT | None, "in the log", "done.last_offset"),
    Field("records_before", k.INT, "produced before the run was stopped", "done.records_before"),
    Field("unsendable_records", k.INT, "left out: a header name is not UTF-8",
          "done.unsendable_records"),
    Field("refused_records", k.INT, "left out: the topic refuses them", "done.refused_records"),
    Field("zero_timestamps", k.INT, "records whose timestamp 0 becomes 1", "done.zero_timestamps"),
)  # fmt: skip
TRANSLATED: Final[ObjectType[TranslatedOffset]] = ObjectType(
    "translated_offset",
    "`replay --commit-offsets`",
    "A committed offset of a group, and what was committed for it in the cluster.",
    Field("group_id", k.TEXT, "", "group"),
    Field("topic", k.TEXT, "in the files"),
    Field("partition", k.INT, ""),
    Field("offset", k.INT, "in the files"),
    Field("to_topic", k.TEXT, "in the cluster"),
    Field("to_offset", k.INT | None,
          "first replayed record at or after it, else after the last; null (nothing committed) "
          "if no record was replayed"),
)  # fmt: skip


REPLAY_SUMMARY: Final = ObjectType[Shown](
    "replay_summary",
    "`replay`",
    "The last object: totals.",
    Field("partitions", k.INT, "", lambda one: len(one.summary.logs)),
    Field("records", k.INT, "of this run", lambda one: one.total("records")),
    Field("size_bytes", k.SIZE, "keys, values and headers", lambda one: one.total("size_bytes")),
    Field("created_topics", k.ARRAY, "", "summary.created"),
    Field("was_complete", k.BOOL, "an earlier run had done everything", "summary.was_complete"),
    *WORK_DONE,
)


def write_replay(shown: Shown, form: Format, style: Style) -> None:
    """Write a row per log; then, except in CSV, what offsets of groups became, and the totals."""
    summary, performed = shown.summary, shown.performed
    view = REPLAYED.view(
        style,
        Column("PARTITION", lambda one: one.done.route.name, least=12, keeps_end=True),
        Column("TO", _destination, least=12),
        Column("RECORDS", "records"),
        Column("TOMBSTONES", "tombstones"),
        Column("SIZE", "size_bytes"),
        Column("OFFSETS", _offsets),
        Column("BEFORE", "records_before"),
    )
    with Writer(view, form) as writer:
        for done in summary.logs:
            writer.write(ShownLog(done, performed))
        for one in summary.offsets:
            writer.write_object(TRANSLATED.row(one))
        writer.write_object(REPLAY_SUMMARY.row(shown))
        if form.is_screen and summary.offsets:
            writer.end_rows()
            _write_offsets(summary, style)
        writer.total(_total(shown))


def _write_offsets(summary: ReplaySummary, style: Style) -> None:
    view = TRANSLATED.view(
        style,
        Column("GROUP", "group_id", least=12),
        Column("PARTITION", lambda one: f"{one.topic}-{one.partition}", least=12, keeps_end=True),
        Column("OFFSET", "offset"),
        Column("TO", "to_topic", least=12),
        Column("OFFSET", "to_offset"),
    )
    write_all(summary.offsets, view, Format.TABLE)


def _destination(one: ShownLog) -> str:
    route = one.done.route
    return (
        route.to_topic if route.to_partition is None else f"{route.to_topic}-{route.to_partition}"
    )


def _offsets(one: ShownLog) -> str:
    done = one.done
    return "-" if done.first_offset is None else f"{done.first_offset}-{done.last_offset}"


def _total(shown: Shown) -> str:
    if shown.summary.was_complete:
        return "nothing to do: the run is complete"
    records, before = shown.total("records"), shown.total("records_before")
    size = size_cell(shown.total("size_bytes"), exact=session().exact)
    line = f"{counted(records, 'record')}, {size}, {'' if shown.performed else 'would be '}produced"
    line += f"; {counted(before, 'record')} before" if before else ""
    return with_next_step(line, is_plan=records > 0 and not shown.performed)


class ShownReplay(ReplayListener):
    """Shows what is met on the way, once, although logs may be read for the plan, too.

    Attributes:
        bar: the progress of what is read now.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._defects: set[Defect] = set()
        self.bar: ByteProgress | None = None

    def hear(self, event: Event) -> None:
        if isinstance(event, Defect):
            if event in self._defects:
                return
            self._defects.add(event)
        self._outcome.hear(event)

    def advanced(self, size_bytes: int) -> None:
        if self.bar is not None:
            self.bar(size_bytes)


def report_losses(summary: ReplaySummary) -> None:
    if summary.created:
        show_note(f"{counted(len(summary.created), 'topic')} created: {some_of(summary.created)}")
        show_note("what server.properties of the source's brokers set is not known to new topics")
    if unsendable := sum(one.unsendable_records for one in summary.logs):
        show_warning(
            f"{counted(unsendable, 'record')} left out: the name of a header is not UTF-8, and "
            "librdkafka's binding sends no other."
        )
    if refused := sum(one.refused_records for one in summary.logs):
        show_warning(
            f"{counted(refused, 'record')} left out, which topics refuse: --refused has them."
        )
    if zeros := sum(one.zero_timestamps for one in summary.logs):
        show_warning(
            f"{counted(zeros, 'record')} with the timestamp 0 get 1: librdkafka sends no 0."
        )
    if lost := sum(one.to_offset is None for one in summary.offsets):
        show_warning(
            f"{counted(lost, 'committed offset')} left out: no record of the partition was "
            "replayed."
        )
