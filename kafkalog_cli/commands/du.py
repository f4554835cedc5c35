"""`kafkalog du`: what uses disk space, how fast it grows, and when a disk will be full."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.answers.disk_usage.model import Report, SplitBy
from kafkalog.errors import UsageError
from kafkalog.io.times import parse_time
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.next_steps import words_of
from kafkalog_cli.output.progress import partition_progress
from kafkalog_cli.output.writer import Writer
from kafkalog_cli.session import now_ms, session
from kafkalog_cli.values import parse_size

if TYPE_CHECKING:
    from collections.abc import Sequence


def du(
    paths: opt.PathsArgument,
    by: Annotated[SplitBy, typer.Option(
        "--by", help="What to split the sum by; day: that of a segment's latest record.",
    )] = SplitBy.TOPIC,
    forecast: Annotated[bool, typer.Option(
        "--forecast",
        help="Measure growth; predict what retention will free, and when a disk will be full.",
    )] = False,
    until: Annotated[str, typer.Option(
        "--until", metavar="TIME", help="End of the forecast.",
    )] = "+7d",
    disk_size: Annotated[str | None, typer.Option(
        "--disk-size", metavar="SIZE", help="Size of each disk, if not that of its file system.",
    )] = None,
    *,
    configs: opt.Configs,
    show: opt.Show,
) -> int:  # fmt: skip
    """Show what uses disk space: blocks on disk, as `du` counts them, per topic over all brokers.

    A file with several names counts once; SIZE is the apparent size. --forecast also shows the
    growth per hour by the timestamps of batches, what retention will free, what is above its limit
    and why, what could be reclaimed, and when the disk will be full.

    \b
    kafkalog du /var/lib/kafka
    kafkalog du /var/lib/kafka --by kind
    kafkalog du /var/lib/kafka --forecast --disk-size 2TiB
    """
    from kafkalog.answers.disk_usage import Forecast, disk_usage

    ahead = None
    if forecast:
        now = now_ms()
        ahead = Forecast(
            now,
            parse_time(until, now, session().zone),
            configs.sources(),
            None if disk_size is None else parse_size(disk_size),
        )
    elif disk_size is not None:
        raise UsageError("--disk-size requires --forecast.", hint="Add --forecast.")
    outcome = Outcome()
    with partition_progress(enabled=not session().is_quiet) as progress:
        report = disk_usage(
            *paths, by=by, forecast=ahead, zone=session().zone, listener=outcome,
            progress=progress,
        )  # fmt: skip
    until_ms = None if ahead is None else ahead.until_ms
    _write(report, paths, by, show, outcome, until_ms)
    if report.links:
        show_note(f"{report.links} symbolic links are not followed, as by du")
    return outcome.status


def _write(
    report: Report,
    paths: Sequence[str],
    by: SplitBy,
    shown: opt.Show,
    outcome: Outcome,
    until_ms: int | None,
) -> None:
    from kafkalog_cli.output import disk_usage as show

    style = shown.style()
    places = {share.log_dir for share in report.shares}
    view = show.share_view(
        style,
        by,
        ahead=until_ms is not None and by in (SplitBy.TOPIC, SplitBy.PARTITION),
        directories=by == SplitBy.PARTITION and len(places) > 1,
    )
    with Writer(view, shown.format) as writer:
        for share in islice(report.shares, shown.limit):
            writer.write(share)
        for over in report.over:
            writer.write_object(show.OVER_LIMIT.row(over))
        for disk in report.disks:
            writer.write_object(show.DISK.row(disk))
        writer.write_object(show.DISK_USAGE_TOTAL.row(report.total))
        if report.shares or not outcome.errors:
            writer.total(*show.report_lines(report, by, style, until_ms))
        if report.over:
            writer.next("retention", *words_of(paths))
