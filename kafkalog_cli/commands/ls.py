"""`kafkalog ls`: list log directories, partitions, segments and files."""

from __future__ import annotations

import os
from enum import StrEnum
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kafkalog.io.wording import counted
from kafkalog.model import LogView
from kafkalog_cli import options as opt
from kafkalog_cli.option_sets import SHOW
from kafkalog_cli.outcome import Outcome, show_warning
from kafkalog_cli.output import listing
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.writer import Format, Writer
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.files.log_dir import PartitionDir, Target
    from kafkalog.node.inventory import PartitionRow

_STUCK_SHOWN: Final = 5


class SortKey(StrEnum):
    """The sort key of a listing."""

    NAME = "name"
    SIZE = "size"
    TIME = "time"


def ls(
    paths: opt.PathsArgument,
    segments: Annotated[bool, typer.Option("--segments", help="One row per segment.")] = False,
    files: Annotated[bool, typer.Option("--files", help="One row per file.")] = False,
    view: opt.ViewOption = LogView.RECOVERED,
    sort: Annotated[SortKey, opt.option(
        SHOW, "--sort", metavar="FIELD", help="Order of the rows.",
    )] = SortKey.NAME,
    *,
    partitions: opt.AllPartitions,
    show: opt.Show,
) -> int:  # fmt: skip
    """List log directories, partitions, segments or files, in any state.

    Leftovers of deletions, compactions and moves are listed with their state. Segments and offsets
    are those of --view, sizes and files those on disk. A large log that was not closed is not
    scanned: then END is a lower bound (≥).

    \b
    kafkalog ls /var/lib/kafka --sort size
    kafkalog ls /var/lib/kafka/orders-0 --segments
    kafkalog ls /var/lib/kafka --files -o ndjson
    """
    from kafkalog.files.log_dir import FileEntry
    from kafkalog.node.inventory import PartitionRow, list_files, list_log_dirs, list_segments
    from kafkalog.node.targets import partitions_of, require_named, selected

    style = show.style()
    outcome = Outcome()
    opened = outcome.open_all(paths)
    if not outcome.errors:
        require_named(opened, partitions.topics, partitions.numbers)
    targets = selected(opened, partitions.topics, partitions.numbers, internal=partitions.internal)
    stuck: list[PartitionRow] = []
    tally = listing.Tally()
    columns: View[Any] = listing.partition_view(style)
    each = partial(_by_partition, targets, view, outcome)
    rows: Iterable[Any] = each(_listed_with_dirt)
    if files or any(isinstance(target, FileEntry) for target in targets):
        columns, rows = listing.file_view(style), list_files(targets)
    elif segments:
        columns = listing.segment_view(style, states=view == LogView.ALL)
        rows = each(list_segments)
    if sort != SortKey.NAME:
        fact = attrgetter("size_bytes" if sort == SortKey.SIZE else "modified_timestamp")
        rows = sorted(rows, key=fact, reverse=True)
    if not files and len({os.path.dirname(one.path) for one in partitions_of(targets)}) > 1:
        columns = columns.preceded(
            Column("DIRECTORY", attrgetter("log_dir"), least=12, keeps_end=True)
        )
    is_full = session().is_verbose or show.format == Format.LINE
    with Writer(columns, show.format) as writer:
        for log_dir in list_log_dirs(opened):
            writer.write_lines(listing.log_dir_heading(log_dir, is_full=is_full))
            writer.write_object(listing.LOG_DIR.row(log_dir))
            for defect in log_dir.defects:
                outcome.count(defect)
                writer.defect(defect)
        for row in islice(rows, show.limit):
            writer.write(row)
            tally.add(row)
            if isinstance(row, PartitionRow) and row.cleaner_stuck is not None:
                stuck.append(row)
        if tally.rows or not outcome.errors:
            writer.total(*tally.lines(columns.type_name, show.limit, style))
    _warn_of_cleaner(stuck)
    outcome.report_logs(fails=False)
    return outcome.status


def _listed_with_dirt(
    partitions: list[PartitionDir], view: LogView, outcome: Outcome
) -> Iterator[PartitionRow]:
    from kafkalog.change.compaction.candidates import with_dirt
    from kafkalog.node.inventory import list_partitions
    from kafkalog.node.view import show

    for partition in partitions:
        for row in list_partitions([partition], view, outcome, partial(show, lazily=True)):
            yield with_dirt(row, partition)


def _warn_of_cleaner(stuck: list[PartitionRow]) -> None:
    stuck.sort(key=lambda row: -(row.dirty_bytes or 0))
    for row in stuck[:_STUCK_SHOWN]:
        show_warning(f"{row.path}: the cleaner is stuck: {row.cleaner_stuck}")
    if len(stuck) > _STUCK_SHOWN:
        others = counted(len(stuck) - _STUCK_SHOWN, "other partition")
        show_warning(f"the cleaner is stuck on {others}: its thread has ended, or never ran")
    if stuck:
        show_warning(
            f"`kafkalog verify --level deep {stuck[0].path}` says if a batch stops the cleaner; "
            "if none does, its thread has ended: restart the broker"
        )


def _by_partition(
    targets: list[Target],
    view: LogView,
    outcome: Outcome,
    rows_of: Callable[..., Iterable[Any]],
) -> Iterator[Any]:
    """Yield the rows of each partition; a failure affects only that partition."""
    from kafkalog.io.paths.file_system import announced
    from kafkalog.io.paths.uris import is_object
    from kafkalog.node.targets import partitions_of

    partitions = list(partitions_of(targets))
    places: Iterable[tuple[str, int]] = ()
    if any(is_object(one.path) for one in partitions):
        from kafkalog.files import ahead

        ends = ahead.ends_of if rows_of is _listed_with_dirt else ahead.segments_of
        places = ends(partitions)
    with announced(places):
        for partition in partitions:
            found: list[Any] = []
            with outcome.contained(partition.path):
                found += rows_of([partition], view, outcome)
            yield from found
