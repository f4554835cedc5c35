"""`kafkalog retention`: what a broker would delete, when, and what blocks it; or delete it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kafkalog.errors import UsageError
from kafkalog.io.times import parse_time
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.session import now_ms, session
from kafkalog_cli.values import parse_high_watermark

if TYPE_CHECKING:
    from kafkalog_cli.output.retention import RetentionSummary

_SIMULATION: Final = "simulate-retention"


def retention(
    context: typer.Context,
    paths: opt.DirectoriesArgument,
    high_watermark: opt.HighWatermarkOption = None,
    log_start_offset: opt.LogStartOption = None,
    until: Annotated[str, typer.Option(
        "--until", metavar="TIME", help="End of the forecast.",
    )] = "+7d",
    checks: Annotated[bool, typer.Option(
        "--checks",
        help="Show what each check of a broker that starts now would delete.",
    )] = False,
    keep_deleted: Annotated[bool, opt.option(
        opt.CHANGE, "--keep-deleted",
        help="Leave .deleted files; a broker deletes them when it starts.",
    )] = False,
    *,
    partitions: opt.AllPartitions,
    change: opt.Change,
    configs: opt.Configs,
    show: opt.Show,
) -> int:  # fmt: skip
    """Show what a broker's retention would delete, when and why, and what prevents it; delete it.

    The policies run in Kafka's order: log start offset, size, time. The forecast assumes that
    nothing is appended. For a topic with remote storage give the tier as a PATH, too. --apply
    changes the logs of a broker that is down; the active segment stays: only a broker rolls it.
    After a kill the next start finds the old log or the new one. simulate-retention only plans.

    \b
    kafkalog retention /var/lib/kafka --until +30d
    kafkalog retention orders-0 --config retention.ms=3600000 --checks
    kafkalog retention /var/lib/kafka --apply --backup before
    """
    from kafkalog_cli.maintenance import will_apply
    from kafkalog_cli.output.retention import RetentionSummary

    is_simulation = context.info_name == _SIMULATION
    if change.apply and is_simulation:
        raise UsageError(
            f"{_SIMULATION} changes nothing.", hint="`kafkalog retention` has --apply."
        )
    is_applied = will_apply(change, backup=change.backup)
    now = now_ms()
    summary = RetentionSummary(now, parse_time(until, now, session().zone))
    options = {
        "now_ms": now,
        "high_watermark": parse_high_watermark(high_watermark),
        "log_start_offset": log_start_offset,
    }
    work = _Work(summary, options, keep_deleted, partitions, change, configs, show)
    if is_applied:
        return work.apply(paths)
    return work.plan(paths, checks=checks, is_simulation=is_simulation)


@dataclass(frozen=True)
class _Work:
    """What is asked for, to be planned or carried out."""

    summary: RetentionSummary
    options: dict[str, Any]
    keep_deleted: bool
    partitions: opt.Partitions
    change: opt.Change
    configs: opt.Configs
    show: opt.Show

    def plan(self, paths: list[str], *, checks: bool, is_simulation: bool) -> int:
        """Show what a broker would delete; return the exit status."""
        from kafkalog.change.retention.apply import trim_of
        from kafkalog.change.retention.run import TrimmedPartition
        from kafkalog.change.retention.simulation import judged_partitions
        from kafkalog.node.targets import partitions_of, require_named, selected
        from kafkalog_cli.output import retention as out
        from kafkalog_cli.output.trims import RETENTION_APPLIED, trim_lines

        outcome, summary, show = Outcome(), self.summary, self.show
        opened = outcome.open_all(paths, topics=self.partitions.topics)
        if not outcome.errors:
            require_named(opened, self.partitions.topics, self.partitions.numbers)
        targets = selected(opened, **self.partitions.chosen)
        sources, style = self.configs.sources(), show.style()
        trims: list[TrimmedPartition] = []
        places = {os.path.dirname(one.path) for one in partitions_of(targets)}
        with out.RetentionWriter(
            summary,
            show.format,
            style,
            names_paths=len(places) > 1,
            checks=checks,
            limit=show.limit,
        ) as writer:
            for found in judged_partitions(
                *targets, configs=sources, hear=outcome.hear, **self.options
            ):
                writer.write_partition(found)
                if not is_simulation:
                    with outcome.contained(found.partition.path):
                        trim = trim_of(found.partition, found, keep_deleted=self.keep_deleted)
                        trims += [] if trim is None else [TrimmedPartition(trim)]
            for one in trims:
                writer.write_object(RETENTION_APPLIED.row(one))
            summary.to_change = sum(not one.plan.is_empty for one in trims)
            status = outcome.of_work(
                has_changed=False,
                has_plan=summary.partitions > 0,
                check=self.change.check,
                is_concerned=summary.to_change > 0,
            )
            writer.end(status)
            if targets:
                plans = None if is_simulation else [one.plan for one in trims]
                writer.total(
                    *trim_lines(trims, writer.name, style),
                    *out.retention_lines(summary, plans, style),
                )
        return status

    def apply(self, paths: list[str]) -> int:
        """Delete it, once that is agreed to; return the exit status."""
        from kafkalog.change.retention.run import retention_runs
        from kafkalog_cli.maintenance import consents_to
        from kafkalog_cli.output import retention as out
        from kafkalog_cli.output.trims import RETENTION_APPLIED, trim_lines, trimmed_total

        outcome, summary, show = Outcome(), self.summary, self.show
        style = show.style()
        run = retention_runs(
            paths,
            sources=self.configs.sources(),
            keep_deleted=self.keep_deleted,
            in_place=True,
            backup=self.change.backup,
            arguments=sys.argv[1:],
            listener=outcome,
            **self.partitions.chosen,
            **self.options,
        )
        with (
            run,
            out.RetentionWriter(summary, show.format, style, limit=show.limit) as writer,
        ):
            for one in run.plan():
                writer.write_partition(one.plan.found)
            writer.end_rows()
            if run.wanted and consents_to(self.change, len(run.wanted), run.where):
                run.apply()
            for one in run.results:
                writer.write_object(RETENTION_APPLIED.row(one))
            summary.to_change = len(run.wanted)
            summary.changed = sum(one.is_done for one in run.results)
            status = outcome.of_work(has_changed=run.has_changed)
            writer.end(status)
            lines = trim_lines(run.results, writer.name, style)
            writer.total(*lines, trimmed_total(run.results, style))
        return status
