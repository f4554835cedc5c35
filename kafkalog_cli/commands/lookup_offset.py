"""`kafkalog lookup-offset`: find records by offset or time."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafkalog.errors import NotFoundError, UsageError
from kafkalog.model import LogView, Replicas, Special
from kafkalog_cli import completion
from kafkalog_cli import options as opt
from kafkalog_cli.option_sets import RUN, SELECT, SHOW
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.session import time_of
from kafkalog_cli.values import parse_high_watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.model import Isolation
    from kafkalog.node.lookup import Lookup
    from kafkalog.node.unified_log import UnifiedLog

    Question = Callable[[UnifiedLog], Lookup]

_TOPICS_HINT: Final = "--topic names topics, --internal includes internal ones."


def lookup_offset(
    places: Annotated[list[str], typer.Argument(
        metavar="PATH... [OFFSET]...", show_default=False, autocompletion=completion.places,
        help="Partition directories, log directories or parents of these; then offsets to look up.",
    )],
    timestamp: Annotated[list[str] | None, opt.option(
        SELECT, "--timestamp", metavar="TIME",
        help="First record at or after a time, as ListOffsets finds it; repeatable.",
    )] = None,
    special: Annotated[list[Special] | None, opt.option(
        SELECT, "--special", metavar="NAME",
        help="A special timestamp of ListOffsets: earliest, latest, max-timestamp; of tiered "
             "topics earliest-local, latest-tiered, earliest-pending-upload; repeatable.",
    )] = None,
    high_watermark: opt.HighWatermarkOption = None,
    log_start_offset: opt.LogStartOption = None,
    no_index: Annotated[bool, opt.option(
        RUN, "--no-index", help="Also search without indexes; a different answer is a defect.",
    )] = False,
    steps: opt.StepsOption = False,
    show_record: Annotated[bool, opt.option(SHOW, "--show", help="The record itself.")] = False,
    *,
    partitions: opt.Partitions,
    bounds: opt.Bounds,
    rows: opt.ShowOffsets,
) -> int:  # fmt: skip
    """Find a record by offset or time, by binary search, as a broker does.

    Offsets are looked up as Fetch does, times as ListOffsets does. For a log directory, every
    partition that a broker would serve is searched. An argument of digits is an offset (./7 is a
    path). The exit status is 1 if no partition answers a query.

    \b
    kafkalog lookup-offset orders-0 4711 --show
    kafkalog lookup-offset orders-0 --timestamp 2026-11-21T04:00:00Z --steps
    kafkalog lookup-offset orders-0 --special latest --isolation read_committed
    kafkalog lookup-offset /var/lib/kafka --timestamp -2h -o reset-offsets
    """
    from kafkalog.answers.search.lookups import look_up
    from kafkalog.io.paths.reading_errors import unread_places
    from kafkalog_cli.output import lookups as show

    paths, offsets = _paths_and_offsets(places)
    if not (offsets or timestamp or special):
        raise UsageError("Nothing to look up.", hint="Give offsets, --timestamp or --special.")
    times = [time_of(text) for text in timestamp or ()]
    questions = list(_questions(offsets, times, special or [], bounds.isolation))
    if rows.resets and len(questions) > 1:
        raise UsageError("-o reset-offsets has the answers to one query.")
    if bounds.view == LogView.ALL:
        raise UsageError("A lookup needs one log; leftovers belong to none.")
    watermark = parse_high_watermark(high_watermark)
    outcome = Outcome()
    logs, is_one = _logs(outcome, paths, partitions, bounds.replicas)
    if not is_one and (isinstance(watermark, int) or log_start_offset is not None):
        raise UsageError("An offset that overrides a checkpoint needs one partition.")
    shown = show.LookupWriter(
        rows.format,
        rows.style(),
        outcome,
        resets=rows.resets,
        names=not is_one,
        directories=len({one.log_dir for one in logs}) > 1,
        explains=steps,
        shows_records=show_record,
        limit=rows.limit,
    )
    with shown, unread_places() as unread:
        for found in look_up(
            logs,
            questions,
            isolation=bounds.isolation,
            view=bounds.view,
            high_watermark=watermark,
            log_start_offset=log_start_offset,
            compares=no_index,
            listener=outcome,
        ):
            shown.write(found)
    outcome.report_logs(fails=False, hint=" (--high-watermark end includes them)")
    outcome.answers_no(not shown.is_complete)
    shown.note_resets()
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


def _logs(
    outcome: Outcome, paths: list[str], partitions: opt.Partitions, replicas: Replicas
) -> tuple[list[PartitionDir], bool]:
    """Return the logs to search, and whether the paths name a single one."""
    from kafkalog.files.log_dir import FileEntry, PartitionDir, open_partition
    from kafkalog.node.targets import best_replicas

    topics = partitions.topics
    targets = outcome.open_all(paths, by_names=True, topics=topics)
    is_one = len(targets) == 1 and isinstance(targets[0], PartitionDir)
    meant: list[PartitionDir] = []
    for found in outcome.meant(targets, topics, partitions.numbers, internal=partitions.internal):
        with outcome.contained(found.path):
            meant.append(open_partition(found.path) if isinstance(found, FileEntry) else found)
    if targets and not (meant or outcome.errors):
        raise NotFoundError("There is no partition to look into.", hint=_TOPICS_HINT)
    return (best_replicas(meant) if replicas == Replicas.BEST else meant), is_one


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
