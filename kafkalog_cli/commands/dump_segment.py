"""`kafkalog dump-segment`: show the content of a file, or of a partition's segments."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.model import Isolation, LogView
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_undecodable
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.text import BytesFormat

if TYPE_CHECKING:
    from kafkalog.log.batches.selection import Selection
    from kafkalog.node.targets import Target
    from kafkalog_cli.output.dump import DumpStyle
    from kafkalog_cli.output.file_dump import FileDump


class DumpFormat(StrEnum):
    """The format of a dump; `kafka` is the text of kafka-dump-log.sh, the last two are files."""

    TABLE = "table"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"
    KAFKA = "kafka"
    PARQUET = "parquet"
    ARROW = "arrow"


_FILES = (DumpFormat.PARQUET, DumpFormat.ARROW)


class Order(StrEnum):
    """The order of the rows of several logs."""

    PATH = "path"
    TIME = "time"


class Decode(StrEnum):
    """Whether records of internal topics are decoded."""

    AUTO = "auto"
    NONE = "none"


def dump_segment(
    paths: opt.PathsArgument,
    records: Annotated[bool | None, typer.Option(
        "--records/--batches",
        help="Show records (default), or batches (default for a table of one .log file).",
    )] = None,
    from_offset: opt.FromOffsetOption = None,
    to_offset: opt.ToOffsetOption = None,
    from_time: opt.FromTimeOption = None,
    to_time: opt.ToTimeOption = None,
    from_position: opt.FromPositionOption = None,
    limit: Annotated[int | None, typer.Option(
        min=0, metavar="N", help="Show at most N rows per log; with --order time, N in all.",
    )] = None,
    producer_id: opt.ProducerIdOption = None,
    leader_epoch: opt.LeaderEpochOption = None,
    key: opt.KeyOption = None,
    key_regex: opt.KeyRegexOption = None,
    value_regex: opt.ValueRegexOption = None,
    header: opt.HeaderOption = None,
    where: opt.WhereOption = None,
    control: Annotated[bool, typer.Option("--control", help="Only control records.")] = False,
    read_committed: opt.ReadCommittedOption = False,
    view: opt.ViewOption = LogView.STARTED,
    topic: opt.TopicsOption = None,
    internal: opt.InternalOption = False,
    order: Annotated[Order, typer.Option(
        "--order", help="Show log by log, or merge all logs by timestamp.",
    )] = Order.PATH,
    decode: Annotated[Decode, typer.Option(
        "--decode", help="Show records of internal topics as JSON, or as bytes.",
    )] = Decode.AUTO,
    form: Annotated[DumpFormat, typer.Option(
        "--format", help="Output format; kafka: the text of kafka-dump-log.sh.",
    )] = DumpFormat.TABLE,
    to: Annotated[str | None, typer.Option(
        metavar="FILE", help="New file to write, for --format parquet or arrow.",
    )] = None,
    bytes_form: opt.BytesOption = BytesFormat.AUTO,
    now: opt.NowOption = None,
    exact: opt.ExactOption = False,
    tz: opt.ZoneOption = "UTC",
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Show the content of any file Kafka writes; for a partition, its segments in order.

    For a log directory, the logs of its topics are shown one after another, or merged by time: each
    log keeps its order. After damage, reading resumes at the next sound batch; the exit status is
    then 1. Records that the next start of a broker would truncate are left out and counted in a
    warning (status 1); --view files shows them. After a crash, what
    --limit leaves is noted, not scanned.

    \b
    kafkalog dump-segment orders-0/00000000000000000000.log
    kafkalog dump-segment orders-0 --from-time -2h --key-regex '^user-'
    kafkalog dump-segment __consumer_offsets-7 --format ndjson
    kafkalog dump-segment orders-0/00000000000000000000.timeindex
    kafkalog dump-segment orders-0 --format parquet --to records.parquet
    kafkalog dump-segment /var/lib/kafka --order time --from-time -2h
    """
    from kafkalog.log.batches.selection import Selection
    from kafkalog_cli.output.dump import Dump, DumpStyle, labels_of

    _require_pair(form, to)
    zone = opt.parse_zone(tz)
    selection = Selection(
        from_offset=from_offset,
        to_offset=to_offset,
        from_time=None if from_time is None else opt.parse_time(from_time, now, zone),
        to_time=None if to_time is None else opt.parse_time(to_time, now, zone),
        from_position=from_position,
        limit=limit,
        producer_id=producer_id,
        leader_epoch=leader_epoch,
        key=None if key is None else opt.parse_bytes(key),
        key_regex=opt.parse_regex(key_regex),
        value_regex=opt.parse_regex(value_regex),
        header=opt.parse_header(header),
        where=opt.parse_where(where),
        control=control,
        isolation=Isolation.READ_COMMITTED if read_committed else Isolation.LOG,
        view=view,
    )
    outcome = Outcome()
    targets = outcome.open_all(paths, by_names=bool(from_offset or to_offset), topics=topic)
    if to is not None:
        targets = _single_logs(targets, outcome)
    dead = view == LogView.ALL
    logs = outcome.meant(targets, topic, internal=internal, dead=dead, joins=not dead)
    labels, titles = labels_of(targets, logs)
    style = DumpStyle(
        form=form,
        records=records,
        shown=Style(exact, zone, bytes_form),
        decode=decode == Decode.AUTO,
        progress=not quiet,
        labels=labels,
        titles=titles,
    )
    if order == Order.TIME:
        _require_mergeable(form, view)
        with Dump(selection, style, outcome) as merged:
            merged.show_by_time(logs)
        show_undecodable(selection.where)
        return outcome.status
    with _file_dump(to, selection, style, outcome) or Dump(selection, style, outcome) as dump:
        for log in logs:
            dump.show(log)
    show_undecodable(selection.where)
    return outcome.status


def _file_dump(
    to: str | None, selection: Selection, style: DumpStyle, outcome: Outcome
) -> FileDump | None:
    if to is None:
        return None
    from kafkalog_cli.output.file_dump import FileDump

    return FileDump(to, selection, style, outcome)


def _single_logs(targets: list[Target], outcome: Outcome) -> list[Target]:
    """Report and leave out log directories, whose rows a file of this kind could not tell apart."""
    from kafkalog.files.log_dir import one_log

    found: list[Target] = []
    for target in targets:
        with outcome.contained(target.path):
            found.append(one_log(target))
    return found


def _require_mergeable(form: DumpFormat, view: LogView) -> None:
    if form in (DumpFormat.KAFKA, *_FILES):
        raise UsageError(f"--order time cannot be combined with --format {form}.")
    if view == LogView.ALL:
        raise UsageError("Leftovers have no place in a log.", hint="Use --order path.")


def _require_pair(form: DumpFormat, to: str | None) -> None:
    """Raise `UsageError` unless `--to` is given exactly for formats that are written to a file."""
    if form in _FILES and to is None:
        raise UsageError(f"--format {form} is written to a file.", hint="Name it: --to FILE.")
    if to is not None and form not in _FILES:
        raise UsageError(f"--to cannot be combined with --format {form}.", hint="Redirect stdout.")
    if to == "-":
        raise UsageError("This format is not written to stdout.", hint="Name it: --to FILE.")
