"""`kafkalog apply-retention`: delete what retention would (with --in-place)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.configs import ConfigSources, TopicConfigs
    from kafkalog.journal import Run
    from kafkalog.log_dir import PartitionDir
    from kafkalog.retention.apply import TrimPlan
    from kafkalog_cli.maintenance import Maintenance
    from kafkalog_cli.outcome import Outcome


def apply_retention(
    path: opt.DirectoryArgument,
    in_place: opt.InPlaceOption = False,
    yes: opt.YesOption = False,
    backup: opt.BackupOption = None,
    keep_deleted: Annotated[bool, typer.Option(
        "--keep-deleted", help="Leave .deleted files; a broker deletes them when it starts.",
    )] = False,
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    topic_first: opt.TopicFirstOption = False,
    metadata_dir: opt.MetadataDirOption = None,
    high_watermark: opt.HighWatermarkOption = None,
    log_start_offset: opt.LogStartOption = None,
    now: opt.NowOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    utc: opt.UtcOption = False,
    tz: opt.ZoneOption = "UTC",
) -> int:  # fmt: skip
    """Delete the segments that simulate-retention says a broker would delete.

    Without --in-place only the plan is shown. The log directory is locked as a broker locks it;
    after a crash, run `kafkalog recover` first. Segments are removed from the front of the log:
    they are renamed to .deleted, the log start offset and leader epochs are updated, the rest is
    read again, then the files are deleted, including .deleted files that a broker left. If it is
    killed at any point, the next start finds the old log or the new one. The active segment stays:
    only a broker rolls it. With --log-start-offset the log starts there, as after DeleteRecords.


    \b
    kafkalog apply-retention /var/lib/kafka
    kafkalog apply-retention orders-0 --config retention.ms=60000 --in-place --yes
    """
    from functools import partial

    from kafkalog.configs import ConfigSources
    from kafkalog.errors import UsageError
    from kafkalog.log_dir import LogDirListing, open_path
    from kafkalog.retention.apply import plan_trim
    from kafkalog_cli.maintenance import consents, maintenance, require_consent
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output import retention as show
    from kafkalog_cli.output.objects import Style

    require_consent(in_place=in_place, yes=yes, backup=backup)
    zone = opt.parse_zone("UTC" if utc else tz)
    style = Style(exact, zone)
    now_ms = opt.parse_time(now if now is not None else "-0s", zone=zone)
    sources = ConfigSources(
        opt.parse_configs(config), properties, topic_first=topic_first, metadata_dir=metadata_dir
    )
    decide = partial(
        plan_trim,
        now_ms=now_ms,
        high_watermark=opt.parse_high_watermark(high_watermark),
        log_start_offset=log_start_offset,
        keep_deleted=keep_deleted,
    )
    if log_start_offset is not None and isinstance(open_path(path), LogDirListing):
        raise UsageError("--log-start-offset needs one partition.", hint="Name a partition.")
    outcome = Outcome()
    plans: list[TrimPlan] = []
    done: list[TrimPlan] = []
    with maintenance(path, "apply-retention", in_place=in_place, backup=backup) as held:
        summary = show.RetentionSummary(now_ms, now_ms)
        with show.RetentionWriter(summary, form, outcome, style) as writer:
            for plan, configs in _plans(held, sources, decide, outcome):
                plans.append(plan)
                writer.write(plan.found, configs)
            writer.flush()
            wanted = [plan for plan in plans if not plan.is_empty]
            if held.run is not None and wanted:
                question = f"Change {len(wanted)} of {len(plans)} partitions in {path}?"
                if consents(question, yes=yes):
                    done = _perform(held.run, wanted, outcome)
            for plan in plans:
                trim = show.Trim(plan, performed=plan in done)
                writer.row(show.RETENTION_APPLIED.row(trim))
            writer.end()
        has_changed = held.run is not None and held.run.has_changed
    if form == Format.TABLE:
        show.print_trims(plans, done, style, in_place=in_place)
    return outcome.of_work(has_changed=has_changed, is_concerned=bool(wanted))


def _plans(
    held: Maintenance,
    sources: ConfigSources,
    decide: Callable[[PartitionDir, TopicConfigs], TrimPlan],
    outcome: Outcome,
) -> list[tuple[TrimPlan, TopicConfigs]]:
    """Plan each partition; note those that are left alone."""
    from kafkalog.errors import RefusedError
    from kafkalog.journal.requirements import require_live
    from kafkalog.log_dir import LogDirListing
    from kafkalog_cli.maintenance import configs_at
    from kafkalog_cli.outcome import show_note

    found = []
    around = configs_at(held.target, sources, outcome)
    for partition in held.partitions(outcome):
        if not partition.segments:
            continue
        try:
            if isinstance(held.target, LogDirListing):
                require_live(partition)
        except RefusedError as stop:
            show_note(f"{partition.path} is left alone: {stop.message}")
            continue
        with outcome.contained(partition.path):
            configs = around.of_topic(partition.topic)
            found.append((decide(partition, configs), configs))
    return found


def _perform(run: Run, plans: Iterable[TrimPlan], outcome: Outcome) -> list[TrimPlan]:
    """Perform the plans; return those that succeeded."""
    from kafkalog.retention.apply import perform_trim

    done = []
    for plan in plans:
        with outcome.contained(plan.found.partition.path):
            perform_trim(run, plan)
            done.append(plan)
    return done
