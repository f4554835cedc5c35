"""`kafkalog compact`: run Kafka's log cleaner offline."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.io.wording import counted
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format, Writer
from kafkalog_cli.standard_streams import put_work_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.change.compaction.run import CompactedPartition, CompactionRun
    from kafkalog.io.engine import Engine
    from kafkalog_cli.engines import EngineChoice


def compact(
    path: opt.DirectoryArgument,
    in_place: opt.InPlaceOption = False,
    to: Annotated[str | None, typer.Option(
        "--to", metavar="DIR", help="Compact a copy into a new log directory; only read PATH.",
    )] = None,
    yes: opt.YesOption = False,
    backup: opt.BackupOption = None,
    take_all: Annotated[bool, typer.Option(
        "--all", help="Include partitions too clean for a broker to choose.",
    )] = False,
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    metadata_dir: opt.MetadataDirOption = None,
    high_watermark: opt.HighWatermarkOption = None,
    first_dirty_offset: Annotated[int | None, typer.Option(
        "--first-dirty-offset", metavar="N",
        help="Override the checkpointed first dirty offset.", min=0,
    )] = None,
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
    now: opt.NowOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    quiet: opt.QuietOption = False,
    *,
    spark: opt.Spark,
) -> int:  # fmt: skip
    """Compact partitions as a broker's cleaner does, or show exactly what the result would be.

    The latest record of each key is kept, up to the high watermark and the first open transaction;
    the active segment stays as it is. Tombstones, aborted records and markers are dropped when a
    broker would drop them; so are .deleted files left by a broker. In a log directory, the
    partitions that a broker would choose are compacted, the dirtiest first.

    Without --in-place or --to nothing is written. No broker may run on the log, and its next start
    must have nothing to do: after a crash, run `kafkalog recover` first. After a kill the next run
    or start of a broker finds the old segments or the new ones, complete. --backup keeps the old
    ones: repeat the command to continue, run `kafkalog undo` to restore everything.

    With --spark, tasks write the new segments, and the driver swaps them in. Workers must see the
    same files under the same paths, as the same user. A partition with more keys than
    kafkalog.task.memory holds has a task per bucket of keys. Tasks that had finished before a kill
    are not repeated by the next run with the same --now, or within a day without one.

    \b
    kafkalog compact /var/lib/kafka
    kafkalog compact orders-0 --config cleanup.policy=compact
    kafkalog compact /var/lib/kafka --in-place --yes --backup before-compaction
    kafkalog compact /var/lib/kafka --spark 'local[*]'
    """
    from kafkalog.change.compaction import CompactionRequest
    from kafkalog.change.compaction.run import CompactionRun
    from kafkalog.node.configs import ConfigSources
    from kafkalog_cli.maintenance import require_consent

    require_consent(in_place=in_place, yes=yes, backup=backup)
    if in_place and to is not None:
        raise UsageError("--in-place and --to exclude each other.", hint="Give one of them.")
    request = CompactionRequest(
        now_ms=opt.parse_time(now if now is not None else "-0s"),
        map_memory=None if map_memory is None else opt.parse_size(map_memory),
        load_factor=load_factor,
        high_watermark=opt.parse_high_watermark(high_watermark),
        first_dirty_offset=first_dirty_offset,
        up_to_offset=up_to,
        single_pass=single_pass,
        old_formats=old_formats,
    )
    sources = ConfigSources(opt.parse_configs(config), properties, metadata_dir=metadata_dir)
    outcome, opened = Outcome(), ExitStack()
    choice = spark.choice()
    run = CompactionRun(
        path,
        request,
        sources,
        in_place=in_place,
        to=to,
        backup=backup,
        take_all=take_all,
        engine=_opening(opened, choice) if choice.is_spark else None,
        task_memory=choice.task_memory,
        keeps_clock=now is None,
        arguments=sys.argv[1:],
        listener=outcome,
    )
    if in_place or to is not None:
        put_work_first()
    with run, opened:
        _show(run, form, outcome, Style(exact), asks=in_place and not yes, quiet=quiet)
    return outcome.of_work(has_changed=run.has_changed, is_concerned=run.is_concerned)


def _opening(opened: ExitStack, choice: EngineChoice) -> Callable[[], Engine]:
    return cache(lambda: opened.enter_context(choice.open()))  # however often it is asked for


def _show(
    run: CompactionRun, form: Format, outcome: Outcome, style: Style, *, asks: bool, quiet: bool
) -> None:
    """Plan or compact, and show it; if consent is asked for, first plan, then compact."""
    from kafkalog_cli.maintenance import consents
    from kafkalog_cli.output.compactions import compaction_view

    count = len(run.wanted)
    is_asked = asks and count > 0
    with Writer(compaction_view(style), form) as writer:
        show = partial(_show_results, run, writer, form, outcome, style, quiet=quiet)
        show(is_done=not run.is_plan and not is_asked)
        words = f"{counted(count, 'partition')} of {run.target.path}"
        if is_asked and consents(f"Compact {words} in place?", yes=False):
            show(is_done=True)


def _show_results(
    run: CompactionRun, writer: Writer[CompactedPartition], form: Format, outcome: Outcome,
    style: Style, *, is_done: bool, quiet: bool,
) -> None:  # fmt: skip
    from kafkalog_cli.output import compactions as show

    if run.is_one and form == Format.TABLE:
        for candidate in run.candidates:
            show.print_candidate(candidate)
    summary = show.CompactionSummary(run.request.now_ms, is_done)
    # Each log is read up to three times.
    with byte_progress([one.partition for one in run.wanted] * 3, enabled=not quiet) as progress:
        for found in run.apply(progress) if is_done else run.plan(progress):
            if found.error is not None:
                outcome.hear(found.error)
            summary.add(found)
            writer.write(found)
    writer.write_object(show.COMPACTION_SUMMARY.row(summary))
    if form == Format.TABLE:
        writer.flush()
        show.print_compaction_summary(summary, style, in_place=not run.is_plan)
