"""`kafkalog dump-segment`: show the content of a file, or of a partition's segments."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.model import Isolation, LogView
from kafkalog_cli import options as opt
from kafkalog_cli.output.text import BytesFormat


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


class Decode(StrEnum):
    """Whether records of internal topics are decoded."""

    AUTO = "auto"
    NONE = "none"


def dump_segment(
    paths: opt.PathsArgument,
    records: Annotated[bool | None, typer.Option(
        "--records/--batches",
        help="Records (default), or batches (default for a table of one .log file).",
    )] = None,
    from_offset: opt.FromOffsetOption = None,
    to_offset: opt.ToOffsetOption = None,
    from_time: opt.FromTimeOption = None,
    to_time: opt.ToTimeOption = None,
    from_position: Annotated[int | None, typer.Option(
        min=0, metavar="N", help="Byte position to start at; reading starts at the next batch.",
    )] = None,
    limit: Annotated[int | None, typer.Option(
        min=0, metavar="N", help="At most N rows per PATH.",
    )] = None,
    producer_id: Annotated[int | None, typer.Option(
        metavar="N", help="Batches of this producer.",
    )] = None,
    leader_epoch: Annotated[int | None, typer.Option(
        metavar="N", help="Batches of this epoch.",
    )] = None,
    key: Annotated[str | None, typer.Option(
        metavar="TEXT|0xHEX", help="Records with this key.",
    )] = None,
    key_regex: Annotated[str | None, typer.Option(
        metavar="REGEX", help="Records whose key matches.",
    )] = None,
    value_regex: Annotated[str | None, typer.Option(
        metavar="REGEX", help="Records whose value matches.",
    )] = None,
    header: Annotated[str | None, typer.Option(
        metavar="NAME[=VALUE]", help="Records with this header.",
    )] = None,
    control: Annotated[bool, typer.Option("--control", help="Control records only.")] = False,
    read_committed: opt.ReadCommittedOption = False,
    view: opt.ViewOption = LogView.STARTED,
    max_bytes: Annotated[str | None, typer.Option(
        metavar="SIZE", help="Read at most SIZE bytes of each .log.",
    )] = None,
    decode: Annotated[Decode, typer.Option(
        "--decode", help="Records of internal topics as JSON, or as bytes.",
    )] = Decode.AUTO,
    form: Annotated[DumpFormat, typer.Option(
        "--format", help="Output format; kafka: the text of kafka-dump-log.sh.",
    )] = DumpFormat.TABLE,
    to: Annotated[str | None, typer.Option(
        metavar="FILE", help="New file for --format parquet and arrow.",
    )] = None,
    bytes_form: opt.BytesOption = BytesFormat.AUTO,
    now: opt.NowOption = None,
    exact: opt.ExactOption = False,
    utc: opt.UtcOption = False,
    tz: opt.ZoneOption = "UTC",
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Show the content of any file Kafka writes; of a partition, its segments in order.

    Damage is reported where it was met, and reading resumes at the next sound batch; the exit
    status is then 1. Records that the next start of a broker would truncate are left out and
    counted in a warning (status 1); --view files shows them. Records, batches and index entries can
    be written to a new Parquet or Arrow file.


    \b
    kafkalog dump-segment orders-0/00000000000000000000.log
    kafkalog dump-segment orders-0 --from-time -2h --key-regex '^user-'
    kafkalog dump-segment __consumer_offsets-7 --format ndjson
    kafkalog dump-segment orders-0/00000000000000000000.timeindex
    kafkalog dump-segment orders-0 --format parquet --to records.parquet
    """
    from kafkalog.batches.selection import Selection
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.dump import Dump, DumpStyle, FileDump, labels_of
    from kafkalog_cli.output.objects import Style

    _require_pair(form, to)
    zone = opt.parse_zone("UTC" if utc else tz)
    name, _, value = (header or "").partition("=")
    selection = Selection(
        from_offset=from_offset,
        to_offset=to_offset,
        from_time=None if from_time is None else opt.parse_time(from_time, now, zone),
        to_time=None if to_time is None else opt.parse_time(to_time, now, zone),
        from_position=from_position,
        limit=limit,
        max_bytes=None if max_bytes is None else opt.parse_size(max_bytes),
        producer_id=producer_id,
        leader_epoch=leader_epoch,
        key=None if key is None else opt.parse_bytes(key),
        key_regex=opt.parse_regex(key_regex),
        value_regex=opt.parse_regex(value_regex),
        header=(opt.parse_bytes(name), opt.parse_bytes(value) if "=" in (header or "") else None)
        if header
        else None,
        control=control,
        isolation=Isolation.READ_COMMITTED if read_committed else Isolation.LOG,
        view=view,
    )
    outcome = Outcome()
    targets = outcome.open_all(paths)
    style = DumpStyle(
        form=form,
        records=records,
        shown=Style(exact, zone, bytes_form),
        decode=decode == Decode.AUTO,
        progress=not quiet,
        labels=labels_of(targets),
    )
    file = None if to is None else FileDump(to, selection, style, outcome)
    with file or Dump(selection, style, outcome) as dump:
        for target in targets:
            dump.show(target)
    return outcome.status


def _require_pair(form: DumpFormat, to: str | None) -> None:
    """Raise `UsageError` unless `--to` is given exactly for formats that are written to a file."""
    if form in _FILES and to is None:
        raise UsageError(f"--format {form} is written to a file.", hint="Name it: --to FILE.")
    if to is not None and form not in _FILES:
        raise UsageError(f"--to cannot be combined with --format {form}.", hint="Redirect stdout.")
    if to == "-":
        raise UsageError("This format is not written to stdout.", hint="Name it: --to FILE.")
