"""`kafkalog dump-segment`: show the content of a file, or of a partition's segments."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from formats.late_classes import dataclass
from kafkalog.errors import UsageError
from kafkalog.model import Isolation, LogView
from kafkalog_cli import options as opt
from kafkalog_cli.option_sets import SELECT, SHOW
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.pager import start_pager
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from kafkalog.log.batches.selection import Selection
    from kafkalog_cli.output.dump import DumpStyle, Log


class DumpFormat(StrEnum):
    """The format of a dump."""

    TABLE = "table"
    LINE = "line"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"
    KAFKA = "kafka"
    """The text of kafka-dump-log.sh."""


_WITHOUT_TURN: Final = (DumpFormat.KAFKA, "parquet", "arrow")
"""Formats of whole files or logs, each after the other."""


class Order(StrEnum):
    """The order of the rows of several logs."""

    TIME = "time"


@dataclass(frozen=True)
class Turn:
    """In which order the rows of several logs come, if not log by log.

    Attributes:
        last: how many records, those with the latest timestamps; None for all.
        by_time: whether all logs are merged by timestamp.
        follow: whether to wait for more.
    """

    last: int | None
    by_time: bool
    follow: bool

    @property
    def names(self) -> tuple[tuple[str, bool], ...]:
        """The options, and whether each is given."""
        return (
            ("--last", self.last is not None),
            ("--sort time", self.by_time),
            ("--follow", self.follow),
        )


def dump_segment(
    paths: opt.PathsArgument,
    batches: Annotated[bool, typer.Option("--batches", help="Show batches.")] = False,
    control: Annotated[bool, opt.option(SELECT, "--control", help="Only control records.")] = False,
    from_position: opt.FromPositionOption = None,
    last: opt.LastOption = None,
    view: opt.ViewOption = LogView.RECOVERED,
    isolation: opt.IsolationOption = Isolation.LOG,
    sort: Annotated[Order | None, opt.option(
        SHOW, "--sort", metavar="FIELD", help="Order of the rows.",
    )] = None,
    form: Annotated[DumpFormat, opt.option(
        SHOW, "-o", "--format", help="Output format; kafka: the text of kafka-dump-log.sh.",
    )] = DumpFormat.TABLE,
    to: opt.ToOption = None,
    follow: opt.FollowOption = False,
    *,
    partitions: opt.Partitions,
    records: opt.Records,
    decode: opt.Decode,
    rows: opt.Rows,
    pace: opt.Pace,  # noqa: ARG001 # it surrounds the command
) -> int:  # fmt: skip
    """Show the content of any file Kafka writes; for a partition, its segments in order.

    Of a log directory, the logs are shown one after another, or merged by time: each log keeps its
    order. After damage, reading resumes at the next sound batch. Records that the next start of a
    broker would truncate are left out and counted in a warning; --view as-is shows them.

    \b
    kafkalog dump-segment orders-0 --from-time -2h -n 10
    kafkalog dump-segment orders-0 --key-regex '^user-' --value-format json
    kafkalog dump-segment /var/lib/kafka -t orders --sort time --from-time -2h
    kafkalog dump-segment orders-0/00000000000000000000.timeindex
    kafkalog dump-segment orders-0 --to records.parquet
    """
    from kafkalog.files.log_dir import one_log
    from kafkalog_cli.output.dump import DumpStyle, labels_of
    from kafkalog_cli.output.new_file import COLUMNAR, form_of
    from kafkalog_cli.schemas import decoders

    shown_form = rows.shown_as(form) if to is None else form_of(to, form)
    select = partial(
        records.selection, from_position=from_position, limit=rows.limit, control=control,
        isolation=isolation, view=view,
    )  # fmt: skip
    selection = select()
    turn = Turn(last, by_time=sort is not None, follow=follow)
    _require_sense(selection, shown_form, turn, batches=batches)
    outcome = Outcome()
    by_names = bool(records.from_offset or records.to_offset)
    topics, dead = partitions.topics, view == LogView.ALL
    targets = outcome.open_all(paths, by_names=by_names, topics=topics)
    if shown_form in COLUMNAR:
        targets = [one_log(target) for target in targets]  # a file could not tell apart the others
    logs = outcome.meant(
        targets, topics, partitions.numbers, internal=partitions.internal, dead=dead, joins=not dead
    )
    key, value = decode.payloads
    labels, titles = labels_of(targets, logs)
    decoded = decoders((key, value), logs, unasked=shown_form not in COLUMNAR)
    selection = select(decoded) if decoded else selection
    shown = rows.style(key_form=key.form, value_form=value.form, decoded=decoded)
    is_shown = not session().is_quiet
    if to is None and not follow and shown_form in ("table", "line"):
        start_pager()
    style = DumpStyle(shown_form, not batches, shown, value.is_auto, is_shown, labels, titles)
    shown_rows = _show(logs, selection, style, outcome, turn, to)
    for one in shown.decoded.values():
        one.report(outcome)
    outcome.leaves_undecoded(selection.where, is_empty=not shown_rows)
    return outcome.status


def _show(
    logs: list[Log],
    selection: Selection,
    style: DumpStyle,
    outcome: Outcome,
    turn: Turn,
    to: str | None,
) -> int:
    """Show logs; return how many rows there were."""
    from kafkalog_cli.output.dump import Dump
    from kafkalog_cli.output.new_file import COLUMNAR, text_to

    if style.form in COLUMNAR:
        from kafkalog_cli.output.file_dump import FileDump

        assert to is not None, "only a file has this form"
        if style.shown.decoded:
            raise UsageError(
                "This file has keys and values as bytes.", hint="`kafkalog export` decodes them."
            )
        with FileDump(to, selection, style, outcome) as written:
            for log in logs:
                written.show(log)
        return written.rows
    with text_to(to), Dump(selection, style, outcome) as dump:
        if turn.follow:
            dump.follow(logs)
        elif turn.last is not None:
            dump.show_latest(logs, turn.last)
        elif turn.by_time:
            dump.show_by_time(logs)
        else:
            for log in logs:
                dump.show(log)
    return dump.rows


def _require_sense(selection: Selection, form: str, turn: Turn, *, batches: bool) -> None:
    """Raise `UsageError` for options that cannot be combined."""
    given = [name for name, is_given in turn.names if is_given]
    if len(given) > 1:
        raise UsageError(f"{given[0]} cannot be combined with {given[1]}.", hint="Use one of them.")
    if given and form in _WITHOUT_TURN:
        raise UsageError(f"{given[0]} cannot be combined with --format {form}.")
    if given and selection.view == LogView.ALL:
        raise UsageError("Leftovers have no place in a log.", hint=f"Leave out {given[0]}.")
    filters = ("key", "key_regex", "value_regex", "header", "where")
    of_records = [
        *(one for one in given if one != "--sort time"),
        *(f"--{one.replace('_', '-')}" for one in filters if getattr(selection, one) is not None),
    ]
    if batches and of_records:
        raise UsageError(f"{of_records[0]} is about records.", hint="Leave out --batches.")
    if turn.follow and selection.view != LogView.RECOVERED:
        raise UsageError("--follow reads what a broker serves.", hint="Leave out --view.")
    if turn.last is not None and selection.limit is not None:
        raise UsageError(
            "--last is about all records, --limit stops before they are read.",
            hint="Use one of them.",
        )
