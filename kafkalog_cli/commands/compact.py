"""`kafkalog compact`: run Kafka's log cleaner offline."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.engines import EngineChoice, engine_choice
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Writer
from kafkalog_cli.session import now_ms, session
from kafkalog_cli.values import parse_high_watermark, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.change.compaction.run import CompactedPartition, Compactions
    from kafkalog.io.engine import Engine


def compact(
    paths: opt.DirectoriesArgument,
    to: opt.NewDirectoryOption = None,
    take_all: opt.AllOption = False,
    high_watermark: opt.HighWatermarkOption = None,
    first_dirty_offset: opt.FirstDirtyOption = None,
    up_to: Annotated[int | None, typer.Option(
        "--up-to", metavar="OFFSET",
        help="Leave the segment of OFFSET and all after it as they are.", min=0,
    )] = None,
    map_memory: Annotated[str | None, typer.Option(
        "--map-memory", metavar="SIZE",
        help="Size of the offset map, 24 bytes per slot, as in a broker; default: as large as "
             "needed.",
    )] = None,
    load_factor: Annotated[float, typer.Option(
        "--load-factor", metavar="X", help="How full the offset map may become.",
    )] = 0.9,
    single_pass: Annotated[bool, typer.Option(
        "--single-pass", help="Make only one pass, even if the map fills up.",
    )] = False,
    old_formats: Annotated[bool, typer.Option(
        "--allow-old-formats", help="Convert batches of magic 0 and 1 to magic 2.",
    )] = False,
    *,
    partitions: opt.AllPartitions,
    change: opt.Change,
    configs: opt.Configs,
    show: opt.Show,
    pace: opt.Pace,  # noqa: ARG001 # it holds around the command
    spark: opt.Spark,
) -> int:  # fmt: skip
    """Compact partitions as a broker's cleaner does, or show exactly what the result would be.

    Of each key the latest record is kept, up to the high watermark and the first open transaction;
    the active segment stays. In log directories, the partitions that a broker would choose are
    compacted, the dirtiest first. --apply changes the logs, whose broker is down and whose next
    start has nothing to do: after a crash run `kafkalog recover` first. After a kill the next run
    or start of a broker finds the old segments or the new ones. --to compacts a copy of one PATH.
    With --spark, workers must see the same files under the same paths, as the same user.

    \b
    kafkalog compact /var/lib/kafka
    kafkalog compact /var/lib/kafka --to compacted
    kafkalog compact /var/lib/kafka --apply --backup before
    """
    from kafkalog.change.compaction import CompactionRequest
    from kafkalog.change.compaction.run import Compactions
    from kafkalog_cli.maintenance import will_apply

    is_applied = will_apply(change, to=to, backup=change.backup)
    request = CompactionRequest(
        now_ms=now_ms(),
        map_memory=None if map_memory is None else parse_size(map_memory),
        load_factor=load_factor,
        high_watermark=parse_high_watermark(high_watermark),
        first_dirty_offset=first_dirty_offset,
        up_to_offset=up_to,
        single_pass=single_pass,
        old_formats=old_formats,
    )
    outcome, opened = Outcome(), ExitStack()
    choice = engine_choice(spark)
    run = Compactions(
        paths,
        request,
        configs.sources(),
        in_place=is_applied and to is None,
        to=to if is_applied else None,
        backup=change.backup if is_applied else None,
        take_all=take_all,
        engine=_opening(opened, choice) if choice.is_spark else None,
        task_memory=choice.task_memory,
        keeps_clock=session().now is None,
        arguments=sys.argv[1:],
        listener=outcome,
        **partitions.chosen,
    )
    with run, opened:
        return _show(run, outcome, change, show)


def _opening(opened: ExitStack, choice: EngineChoice) -> Callable[[], Engine]:
    return cache(lambda: opened.enter_context(choice.open()))  # however often it is asked for


def _show(run: Compactions, outcome: Outcome, change: opt.Change, show: opt.Show) -> int:
    """Plan or compact, and show it; if somebody is asked, first plan, then compact."""
    from kafkalog_cli.maintenance import asks, consents_to
    from kafkalog_cli.output.compactions import compaction_view

    count = len(run.wanted)
    is_asked = not run.is_plan and change.apply and asks(change) and count > 0
    with Writer(compaction_view(show.style()), show.format) as writer:
        shown = partial(_show_results, run, writer, outcome, change, show)
        status = shown(is_done=not run.is_plan and not is_asked)
        if is_asked and consents_to(change, count, run.where):
            status = shown(is_done=True)
    return status


def _show_results(
    run: Compactions, writer: Writer[CompactedPartition], outcome: Outcome, change: opt.Change,
    show: opt.Show, *, is_done: bool,
) -> int:  # fmt: skip
    from kafkalog_cli.output import compactions as out

    for candidate in (c for one in run.runs if one.is_one for c in one.candidates):
        writer.write_lines(out.candidate_lines(candidate))
    summary = out.CompactionSummary(run.now_ms, is_done)
    # Each log is read up to three times.
    logs = [one.partition for one in run.wanted] * 3
    with byte_progress(logs, enabled=not session().is_quiet) as progress:
        for number, found in enumerate(run.apply(progress) if is_done else run.plan(progress)):
            if found.error is not None:
                outcome.hear(found.error)
            summary.add(found)
            if show.limit is None or number < show.limit:
                writer.write(found)
    summary.status = outcome.of_work(
        has_changed=run.has_changed,
        has_plan=run.is_plan and summary.judged > 0,
        check=change.check,
        is_concerned=summary.compacted > 0,
    )
    writer.write_object(out.COMPACTION_SUMMARY.row(summary))
    writer.total(*out.compaction_lines(summary, show.style(), is_plan=run.is_plan))
    return summary.status
