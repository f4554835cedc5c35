"""`kafkalog lookup-offset`: find records by offset or time."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from kafkalog.errors import NotFoundError, UsageError
from kafkalog.model import Isolation, LogView, Replicas, Special
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.lookup import Lookup
    from kafkalog.node.unified_log import UnifiedLog

    Question = Callable[[UnifiedLog], Lookup]

_TOPICS_HINT: Final = "--topic names topics, --internal includes internal ones."


def lookup_offset(
    places: Annotated[list[str], typer.Argument(
        metavar="PATH... [OFFSET]...", show_default=False,
        help="Partition directories, log directories or parents of these; then offsets to look up.",
    )],
    timestamp: Annotated[list[str] | None, typer.Option(
        "--timestamp", metavar="TIME",
        help="First record at or after TIME, as ListOffsets finds it; repeatable.",
    )] = None,
    special: Annotated[list[Special] | None, typer.Option(
        "--special", metavar="NAME",
        help="A special timestamp of ListOffsets, repeatable: earliest, latest, max-timestamp; for "
             "tiered topics also earliest-local, latest-tiered, earliest-pending-upload.",
    )] = None,
    isolation: Annotated[Isolation, typer.Option(
        "--isolation",
        help="Search below the high watermark, below the last stable offset, or the whole log.",
    )] = Isolation.READ_UNCOMMITTED,
    high_watermark: Annotated[str, typer.Option(
        "--high-watermark", metavar="N|end|checkpoint",
        help="End of the replicated part; checkpoint: as a broker finds it, else the log "
             "end.",
    )] = "checkpoint",
    log_start_offset: Annotated[int | None, typer.Option(
        "--log-start-offset", metavar="N", help="Override the checkpointed log start offset.",
    )] = None,
    topic: opt.TopicsOption = None,
    internal: opt.InternalOption = False,
    replicas: opt.ReplicasOption = Replicas.BEST,
    view: opt.ViewOption = LogView.RECOVERED,
    explain: Annotated[bool, typer.Option(
        "--explain", help="Show each step and each probe of each search.",
    )] = False,
    no_index: Annotated[bool, typer.Option(
        "--no-index", help="Also search without indexes; a different answer is a defect.",
    )] = False,
    export: opt.ExportOption = None,
    show_record: Annotated[bool, typer.Option("--show", help="Show the record itself.")] = False,
    form: opt.FormatOption = Format.TABLE,
    bytes_form: opt.BytesOption = BytesFormat.AUTO,
    now: opt.NowOption = None,
    exact: opt.ExactOption = False,
    tz: opt.ZoneOption = "UTC",
) -> int:  # fmt: skip
    """Find a record by offset or time, by binary search, as a broker does.

    Offsets are looked up as Fetch does, times as ListOffsets does. For a log directory, every
    partition that a broker would serve is searched. An argument of digits is an offset (./7 is a
    path). The exit status is 1 if no partition answers a query.

    \b
    kafkalog lookup-offset orders-0 4711 --show
    kafkalog lookup-offset orders-0 --timestamp 2026-11-21T04:00:00Z --explain
    kafkalog lookup-offset orders-0 --special latest --isolation read_committed
    kafkalog lookup-offset /var/lib/kafka --timestamp -2h --export offsets.csv
    """
    from kafkalog.answers.search.lookups import look_up
    from kafkalog.io.paths.reading_errors import unread_places
    from kafkalog_cli.output import lookups as show

    paths, offsets = _paths_and_offsets(places)
    if not (offsets or timestamp or special):
        raise UsageError("Nothing to look up.", hint="Give offsets, --timestamp or --special.")
    zone = opt.parse_zone(tz)
    times = [opt.parse_time(text, now, zone) for text in timestamp or ()]
    questions = list(_questions(offsets, times, special or [], isolation))
    if export is not None and len(questions) > 1:
        raise UsageError("--export writes the answers to one query.")
    outcome = Outcome()
    if view == LogView.ALL:
        raise UsageError("A lookup needs one log; leftovers belong to none.")
    watermark = _parsed_high_watermark(high_watermark)
    partitions, is_one = _partitions(outcome, paths, topic, replicas, internal=internal)
    if not is_one and (isinstance(watermark, int) or log_start_offset is not None):
        raise UsageError("An offset that overrides a checkpoint needs one partition.")
    shown = show.LookupWriter(
        form,
        Style(exact, zone, bytes_form),
        outcome,
        names=not is_one,
        directories=len({one.log_dir for one in partitions}) > 1,
        explains=explain,
        shows_records=show_record,
        keeps=export is not None,
    )
    with shown, unread_places() as unread:
        for found in look_up(
            partitions,
            questions,
            isolation=isolation,
            view=view,
            high_watermark=watermark,
            log_start_offset=log_start_offset,
            compares=no_index,
            listener=outcome,
        ):
            shown.write(found)
    outcome.report_logs(fails=False, hint=" (--high-watermark end includes them)")
    outcome.fail_if(not shown.is_complete)
    if export is not None:
        shown.export(export)
    if unread:  # the record may be in an unreadable part
        outcome.hear(unread.error())
    return outcome.status


def _paths_and_offsets(places: list[str]) -> tuple[list[str], list[int]]:
    paths = list(places)
    offsets: list[int] = []
    while paths and re.fullmatch("[0-9]{1,19}", paths[-1]):  # an int64 has up to 19 digits
        offsets.insert(0, int(paths.pop()))
    if not paths:
        raise UsageError("No PATH is given.", hint="Write ./7 for a directory of that name.")
    return paths, offsets


def _partitions(
    outcome: Outcome,
    paths: list[str],
    topics: list[str] | None,
    replicas: Replicas,
    *,
    internal: bool,
) -> tuple[list[PartitionDir], bool]:
    """Return the partitions to search, and whether the paths name a single one."""
    from kafkalog.files.log_dir import FileEntry, PartitionDir, open_partition
    from kafkalog.node.targets import best_replicas

    targets = outcome.open_all(paths, by_names=True, topics=topics)
    is_one = len(targets) == 1 and isinstance(targets[0], PartitionDir)
    meant: list[PartitionDir] = []
    for found in outcome.meant(targets, topics, internal=internal):
        with outcome.contained(found.path):
            meant.append(open_partition(found.path) if isinstance(found, FileEntry) else found)
    if targets and not (meant or outcome.errors):
        raise NotFoundError("There is no partition to look into.", hint=_TOPICS_HINT)
    return (best_replicas(meant) if replicas == Replicas.BEST else meant), is_one


def _parsed_high_watermark(text: str) -> int | Literal["end"] | None:
    """Return an offset, `end`, or None for the checkpoint's."""
    from kafkalog.node.unified_log import END

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
    from kafkalog.node import lookup

    for offset in offsets:
        yield partial(lookup.lookup_offset, offset=offset, isolation=isolation)
    for timestamp in times:
        yield partial(lookup.lookup_timestamp, timestamp=timestamp, isolation=isolation)
    for special in specials:
        yield partial(lookup.lookup_special, special=special, isolation=isolation)
