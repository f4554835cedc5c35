"""`kafkalog apply-retention`: what retention says, done."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli.options import (
    BackupOption,
    ConfigOption,
    ExactOption,
    FormatOption,
    HighWatermarkOption,
    InPlaceOption,
    LogStartOption,
    MetadataDirOption,
    NowOption,
    PropertiesOption,
    TopicFirstOption,
    UtcOption,
    YesOption,
    ZoneOption,
    parse_configs,
    parse_high_watermark,
    parse_time,
    parse_zone,
)
from kafkalog_cli.render.writer import Format

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.runs import Run
    from kafkalog.trimming import TrimPlan
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.render.retention import RetentionWriter


def apply_retention(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Log directory or partition directory.")
    ],
    in_place: InPlaceOption = False,
    yes: YesOption = False,
    backup: BackupOption = None,
    keep_deleted: Annotated[
        bool,
        typer.Option("--keep-deleted", help="Leave the .deleted files; a broker removes them."),
    ] = False,
    config: ConfigOption = None,
    properties: PropertiesOption = None,
    topic_first: TopicFirstOption = False,
    metadata_dir: MetadataDirOption = None,
    high_watermark: HighWatermarkOption = None,
    log_start_offset: LogStartOption = None,
    now: NowOption = None,
    form: FormatOption = Format.TABLE,
    exact: ExactOption = False,
    utc: UtcOption = False,
    tz: ZoneOption = "UTC",
) -> int:
    """Remove the segments that simulate-retention says a broker would delete.

    Without --in-place it only shows the plan. The log directory is locked as a broker locks it, and
    has to be closed cleanly. Segments go from the front of a log, under .deleted names first; log
    start and leader epochs follow; what is left is read again before the files are removed. Killed
    at any point, the next start finds the old log or the new one. The active segment stays: only a
    broker rolls it. With --log-start-offset the log starts there, as after DeleteRecords.

    \b
    kafkalog apply-retention /var/lib/kafka
    kafkalog apply-retention orders-0 --config retention.ms=3600000 --in-place --yes
    """
    from kafkalog.configs import ConfigSources
    from kafkalog.errors import KafkaLogError, RefusedError, UsageError
    from kafkalog.log_dir import LogDir, PartitionDir, open_path
    from kafkalog.runs import Run
    from kafkalog.runs.requirements import log_dir_around, require_live
    from kafkalog.storage import LogDirLock
    from kafkalog.trimming import plan_trim
    from kafkalog_cli.confirmation import consents, require_consent
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.render.diagnostics import show_note
    from kafkalog_cli.render.retention import RetentionSummary, RetentionWriter
    from kafkalog_cli.render.trimmed import print_trims
    from kafkalog_cli.retention_targets import retention_partitions

    require_consent(in_place=in_place, yes=yes)
    if backup is not None and not in_place:
        raise UsageError("--backup is about --in-place.", hint="A plan changes nothing.")
    zone = parse_zone("UTC" if utc else tz)
    now_ms = parse_time(now if now is not None else "-0s")
    watermark = parse_high_watermark(high_watermark)
    sources = ConfigSources(
        parse_configs(config), properties, topic_first=topic_first, metadata_dir=metadata_dir
    )
    outcome = Outcome()
    target = open_path(path)
    log_dir = target.path if isinstance(target, LogDir) else None
    if isinstance(target, PartitionDir):
        log_dir = log_dir_around(target)
    elif log_start_offset is not None:
        raise UsageError("--log-start-offset is about one partition.", hint="Name a partition.")
    plans: list[TrimPlan] = []
    done: list[TrimPlan] = []
    with ExitStack() as held:
        run = None
        if in_place:
            arguments = sys.argv[1:]
            run = Run(log_dir, command="apply-retention", arguments=arguments, backup=backup)
            held.enter_context(run)
            for name in run.restored:
                show_note(f"{name} was brought back to what it was before the run that was killed")
        elif log_dir is not None:
            held.enter_context(LogDirLock(log_dir))
        target = open_path(path)  # as it is now that nobody else changes it
        summary = RetentionSummary(now_ms, now_ms)
        with RetentionWriter(summary, form, outcome, zone, exact=exact) as writer:
            for partition, configs in retention_partitions([target], sources, outcome):
                if run is not None and run.is_done(partition):
                    show_note(f"{partition.path} was done by an earlier run with this backup")
                    continue
                try:
                    if isinstance(target, LogDir):
                        require_live(partition)
                except RefusedError as stop:
                    show_note(f"{partition.path} is left alone: {stop.message}")
                    continue
                try:
                    plan = plan_trim(
                        partition,
                        configs,
                        now_ms,
                        high_watermark=watermark,
                        log_start_offset=log_start_offset,
                    )
                except KafkaLogError as stop:
                    outcome.error(stop)
                    continue
                plans.append(plan)
                writer.write(plan.found, configs)
            writer.flush()
            wanted = [plan for plan in plans if not plan.is_empty]
            if run is not None and wanted:
                question = f"Remove segments of {len(wanted)} partitions in {path}?"
                if consents(question, yes=yes):
                    done = _perform(run, wanted, keep_deleted, outcome)
            _tell(writer, plans, done, keep_deleted=keep_deleted)
            writer.end()
    if form == Format.TABLE and plans:
        print_trims(plans, done, exact=exact, in_place=in_place)
    return outcome.status


def _perform(
    run: Run, plans: Iterable[TrimPlan], keep_deleted: bool, outcome: Outcome
) -> list[TrimPlan]:
    """Do what the plans say; those that went through."""
    from kafkalog.errors import KafkaLogError
    from kafkalog.trimming import perform_trim

    done = []
    for plan in plans:
        try:
            perform_trim(run, plan, keep_deleted=keep_deleted)
        except KafkaLogError as stop:
            outcome.error(stop)
            continue
        done.append(plan)
    return done


def _tell(
    writer: RetentionWriter, plans: list[TrimPlan], done: list[TrimPlan], *, keep_deleted: bool
) -> None:
    from kafkalog_cli.render.trimmed import trim_row

    for plan in plans:
        writer.row(trim_row(plan, is_done=plan in done, keep_deleted=keep_deleted))
