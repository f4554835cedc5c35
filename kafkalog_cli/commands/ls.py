"""`kafkalog ls`: list log directories, partitions, segments and files."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkalog.model import LogView
from kafkalog_cli import options as opt
from kafkalog_cli.output.objects import Column
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir
    from kafkalog.view import Difference
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.objects import View


class SortKey(StrEnum):
    """The sort key of a listing."""

    NAME = "name"
    SIZE = "size"
    TIME = "time"


def ls(
    paths: opt.PathsArgument,
    segments: Annotated[bool, typer.Option("--segments", help="One row per segment.")] = False,
    files: Annotated[bool, typer.Option("--files", help="One row per file.")] = False,
    view: opt.ViewOption = LogView.STARTED,
    sort: Annotated[SortKey, typer.Option("--sort", help="Order of the rows.")] = SortKey.NAME,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    utc: opt.UtcOption = False,
    tz: opt.ZoneOption = "UTC",
) -> int:  # fmt: skip
    """List log directories, partitions, segments or files, in any state.

    Leftovers of deletions, cleanings and moves are listed with their state. Segments and offsets
    are those of the view; sizes and files are those on disk. Nothing is written.

    \b
    kafkalog ls /var/lib/kafka --sort size
    kafkalog ls --segments /var/lib/kafka/orders-0
    kafkalog ls --files --format ndjson /var/lib/kafka
    """
    from kafkalog.inventory import (
        list_files,
        list_log_dirs,
        list_partitions,
        list_segments,
        partitions_of,
    )
    from kafkalog.log_dir import FileEntry
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output import listing as show
    from kafkalog_cli.output.objects import Style
    from kafkalog_cli.output.text import printable
    from kafkalog_cli.output.writer import Writer

    style = Style(exact=exact, zone=opt.parse_zone("UTC" if utc else tz))
    outcome = Outcome()
    targets = outcome.open_all(paths)
    differences: list[Difference] = []
    columns: View[Any] = show.partition_view(style)
    each = partial(_by_partition, targets, view, differences.append, outcome)
    rows: Iterable[Any] = each(list_partitions)
    if files or any(isinstance(target, FileEntry) for target in targets):
        columns, rows = show.file_view(style), list_files(targets)
    elif segments:
        columns = show.segment_view(style, states=view == LogView.ALL)
        rows = each(list_segments)
    if sort != SortKey.NAME:
        fact = attrgetter("size_bytes" if sort == SortKey.SIZE else "mtime_ms")
        rows = sorted(rows, key=fact, reverse=True)
    if not files and len({show.directory_of(one.path) for one in partitions_of(targets)}) > 1:
        depth = 2 if segments else 1
        columns = columns.preceded(
            Column("DIRECTORY", lambda row: show.directory_of(row.path, depth), fold=True)
        )
    with Writer(columns, form, outcome.defect) as writer:
        for log_dir in list_log_dirs(targets):
            if form == Format.TABLE:
                for line in show.log_dir_heading(log_dir):
                    typer.echo(printable(line))
            elif form != Format.CSV:
                writer.write_row(show.LOG_DIR.row(log_dir))
            for defect in log_dir.defects:
                outcome.count(defect)
                writer.defect(defect)
        for row in rows:
            writer.write(row)
    outcome.differs(differences, fails=False)
    return outcome.status


def _by_partition(
    targets: list[LogDirListing | PartitionDir | FileEntry],
    view: LogView,
    differences: Callable[[Difference], object],
    outcome: Outcome,
    listing: Callable[..., Iterable[Any]],
) -> Iterator[Any]:
    """Yield the rows of each partition; a failure affects only that partition."""
    from kafkalog.inventory import partitions_of

    for partition in partitions_of(targets):
        found: list[Any] = []
        with outcome.contained(partition.path):
            found += listing([partition], view, differences)
        yield from found
