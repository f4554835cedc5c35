"""`kafkalog ls`: what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli.options import (
    DebugOption,
    ExactOption,
    FormatOption,
    PathsArgument,
    QuietOption,
    UtcOption,
    ZoneOption,
    parse_zone,
)
from kafkalog_cli.render.writer import Format

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.inventory import FileRow, PartitionRow, SegmentRow

from enum import StrEnum


class SortKey(StrEnum):
    """What a listing is sorted by."""

    NAME = "name"
    SIZE = "size"
    TIME = "time"


def ls(
    paths: PathsArgument,
    segments: Annotated[bool, typer.Option("--segments", help="One row a segment.")] = False,
    files: Annotated[bool, typer.Option("--files", help="One row a file.")] = False,
    sort: Annotated[SortKey, typer.Option("--sort", help="Order of the rows.")] = SortKey.NAME,
    form: FormatOption = Format.TABLE,
    exact: ExactOption = False,
    utc: UtcOption = False,
    tz: ZoneOption = "UTC",
    quiet: QuietOption = False,
    debug: DebugOption = False,
) -> int:
    """List log directories, partitions, segments or files, in any state.

    Leftovers of deletions, cleanings and moves are listed with their state. Nothing is written.

    \b
    kafkalog ls /var/lib/kafka --sort size
    kafkalog ls --segments /var/lib/kafka/orders-0
    kafkalog ls --files --format ndjson /var/lib/kafka
    """
    from kafkalog.inventory import list_files, list_log_dirs, list_partitions, list_segments
    from kafkalog_cli.render.listing import (
        file_view,
        log_dir_heading,
        log_dir_row,
        partition_view,
        segment_view,
    )
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.render.text import printable
    from kafkalog_cli.render.writer import Writer

    zone = parse_zone("UTC" if utc else tz)
    outcome = Outcome()
    targets = outcome.open_all(paths)
    if files:
        view, rows = file_view(zone, exact=exact), list_files(targets)
    elif segments:
        view, rows = segment_view(zone, exact=exact), list_segments(targets)
    else:
        view, rows = partition_view(exact=exact), list_partitions(targets)
    key: Callable[[FileRow | SegmentRow | PartitionRow], object] | None = {
        SortKey.SIZE: lambda row: -row.size_bytes,
        SortKey.TIME: lambda row: -row.mtime_ms,
    }.get(sort)
    with Writer(view, form, outcome.defect) as writer:
        for log_dir in list_log_dirs(targets):
            if form == Format.TABLE:
                for line in log_dir_heading(log_dir):
                    typer.echo(printable(line))
            elif form != Format.CSV:
                writer.write_row(log_dir_row(log_dir))
            for defect in log_dir.defects:
                outcome.count(defect)
                writer.defect(defect)
        for row in sorted(rows, key=key) if key else rows:
            writer.write(row)
    return outcome.status
