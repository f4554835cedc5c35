"""`kafkalog lookup-offset`: find records by offset or time."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kafkalog.model import Isolation, LogView, Special
from kafkalog_cli import options as opt
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.batches.lookup import Lookup
    from kafkalog.unified_log import UnifiedLog

    Question = Callable[[UnifiedLog], Lookup]


def lookup_offset(
    partition_dir: opt.PartitionArgument,
    offsets: Annotated[list[int] | None, typer.Argument(
        metavar="OFFSET", help="Offsets to look up.",
    )] = None,
    timestamp: Annotated[list[str] | None, typer.Option(
        "--timestamp", metavar="TIME",
        help="First record at or after TIME, as ListOffsets finds it; repeatable.",
    )] = None,
    special: Annotated[list[Special] | None, typer.Option(
        "--special", metavar="earliest|latest|max-timestamp",
        help="The special timestamps of ListOffsets; repeatable.",
    )] = None,
    isolation: Annotated[Isolation, typer.Option(
        "--isolation",
        help="Search below the high watermark, below the last stable offset, or the whole log.",
    )] = Isolation.READ_UNCOMMITTED,
    high_watermark: Annotated[str, typer.Option(
        "--high-watermark", metavar="N|end|checkpoint",
        help="End of the replicated part; checkpoint: as the broker noted it, or the log end if "
             "it noted none.",
    )] = "checkpoint",
    log_start_offset: Annotated[int | None, typer.Option(
        "--log-start-offset", metavar="N", help="Override the checkpoint.",
    )] = None,
    view: opt.ViewOption = LogView.STARTED,
    explain: Annotated[bool, typer.Option(
        "--explain", help="Show each step and each probe of each search.",
    )] = False,
    no_index: Annotated[bool, typer.Option(
        "--no-index", help="Also scan without indexes; a different answer is a defect.",
    )] = False,
    show_record: Annotated[bool, typer.Option("--show", help="Show the record itself.")] = False,
    form: opt.FormatOption = Format.TABLE,
    bytes_form: opt.BytesOption = BytesFormat.AUTO,
    now: opt.NowOption = None,
    exact: opt.ExactOption = False,
    utc: opt.UtcOption = False,
    tz: opt.ZoneOption = "UTC",
) -> int:  # fmt: skip
    """Find a record by offset or time, by binary search, as a broker does.

    Offsets are looked up as Fetch does, times as ListOffsets does. The exit status is 1 if nothing
    was found.


    \b
    kafkalog lookup-offset orders-0 4711 --show
    kafkalog lookup-offset orders-0 --timestamp 2026-11-21T04:00:00Z --explain
    kafkalog lookup-offset orders-0 --special latest --isolation read_committed
    """
    from kafkalog.batches.lookup import compared
    from kafkalog.defects import make_defect
    from kafkalog.errors import UsageError
    from kafkalog.log_dir import open_partition
    from kafkalog.paths.reading_errors import unread_places
    from kafkalog.unified_log import UnifiedLog
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output import lookups as show
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.records import RECORD
    from kafkalog_cli.output.writer import Writer

    if not (offsets or timestamp or special):
        raise UsageError("Nothing to look up.", hint="Give offsets, --timestamp or --special.")
    zone = opt.parse_zone("UTC" if utc else tz)
    style = Style(exact, zone, bytes_form)
    times = [opt.parse_time(text, now, zone) for text in timestamp or ()]
    outcome = Outcome()
    if view == LogView.ALL:
        raise UsageError("A lookup needs one log; leftovers belong to none.")
    log = UnifiedLog(
        outcome.shown(open_partition(partition_dir), view, fails=False).partition,
        high_watermark=_parsed_high_watermark(high_watermark),
        log_start_offset=log_start_offset,
    )
    with (
        Writer(show.lookup_view(style), form, outcome.defect) as writer,
        unread_places() as unread,
    ):
        for question in _questions(offsets or [], times, special or [], isolation):
            found, control = compared(log, question) if no_index else (question(log), None)
            writer.write(found)
            outcome.status = max(outcome.status, 0 if found.found else 1)
            if explain and form == Format.TABLE:
                writer.flush()
                show.print_steps(found)
            elif explain and form != Format.CSV:
                for step in enumerate(found.steps):
                    writer.write_row(show.STEP.row(step))
            if show_record and found.record is not None:
                if form == Format.TABLE:
                    writer.flush()
                    show.print_record(found.record, style)
                elif form != Format.CSV:
                    writer.write_row(RECORD.row(found.record, style))
            if control is not None and not found.agrees_with(control):
                outcome.status = max(outcome.status, 1)
                writer.defect(
                    make_defect(
                        "lookup-index-mismatch",
                        log.partition.path,
                        f"With indexes {found.query} is at offset {found.offset}, by scanning at "
                        f"offset {control.offset}.",
                    )
                )
    if unread:  # the record may be in an unreadable part
        outcome.error(unread.error())
    return outcome.status


def _parsed_high_watermark(text: str) -> int | Literal["end"] | None:
    """Return an offset, `end`, or None for the checkpoint's."""
    from kafkalog.errors import UsageError
    from kafkalog.unified_log import END

    if text == END:
        return END
    if text == "checkpoint":
        return None
    if not re.fullmatch("[0-9]{1,19}", text):
        raise UsageError(f"{text!r} is not a high watermark.", hint="Give N, end or checkpoint.")
    return int(text)


def _questions(
    offsets: list[int], times: list[int], specials: list[Special], isolation: Isolation
) -> Iterator[Question]:
    from kafkalog.batches import lookup

    for offset in offsets:
        yield partial(lookup.lookup_offset, offset=offset, isolation=isolation)
    for timestamp in times:
        yield partial(lookup.lookup_timestamp, timestamp=timestamp, isolation=isolation)
    for special in specials:
        yield partial(lookup.lookup_special, special=special, isolation=isolation)
