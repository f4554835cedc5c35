"""`kafkalog simulate-retention`: predict what a broker would delete, when, and what blocks it."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.writer import Format


def simulate_retention(
    paths: Annotated[list[str], typer.Argument(
        metavar="PATH...", help="Log directory or partition directory.", show_default=False,
    )],
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    metadata_dir: opt.MetadataDirOption = None,
    high_watermark: opt.HighWatermarkOption = None,
    log_start_offset: opt.LogStartOption = None,
    until: Annotated[str, typer.Option(
        "--until", metavar="TIME", help="End of the forecast.",
    )] = "+7d",
    checks: Annotated[bool, typer.Option(
        "--checks", help="Show what each check of a broker that starts now would delete.",
    )] = False,
    now: opt.NowOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    tz: opt.ZoneOption = "UTC",
) -> int:  # fmt: skip
    """Show what a broker's retention would delete, when and why, and what prevents it.

    The policies run in Kafka's order: log start offset, size, time. Each config and offset is shown
    with its source. The forecast assumes that nothing is appended. Nothing is written.

    A broker checks only at intervals: log.initial.task.delay.ms after its start, then every
    log.retention.check.interval.ms; for compacted topics, whenever a cleaner thread has nothing to
    clean. --checks shows its checks up to --until. For a topic with remote storage, local.retention
    deletes what was uploaded, and retention what is in remote storage: give the tier as a PATH,
    too.

    \b
    kafkalog simulate-retention /var/lib/kafka --until +30d
    kafkalog simulate-retention orders-0 --config retention.ms=3600000
    kafkalog simulate-retention orders-0 --config retention.ms=3600000 --checks
    kafkalog simulate-retention /var/lib/kafka /mnt/tier/kafka-tiered-storage
    """
    from kafkalog.change.retention.simulation import judged_partitions
    from kafkalog.node.configs import ConfigSources
    from kafkalog_cli.output.retention import (
        RetentionSummary,
        RetentionWriter,
        print_retention_summary,
    )

    zone = opt.parse_zone(tz)
    style = Style(exact, zone)
    now_ms = opt.parse_time(now if now is not None else "-0s", zone=zone)
    summary = RetentionSummary(now_ms, opt.parse_time(until, now_ms, zone))
    watermark = opt.parse_high_watermark(high_watermark)
    sources = ConfigSources(opt.parse_configs(config), properties, metadata_dir=metadata_dir)
    outcome = Outcome()
    targets = outcome.open_all(paths)
    with RetentionWriter(summary, form, style, checks=checks) as writer:
        for found in judged_partitions(
            *targets,
            configs=sources,
            now_ms=now_ms,
            high_watermark=watermark,
            log_start_offset=log_start_offset,
            hear=outcome.hear,
        ):
            writer.write_partition(found)
        writer.end()
    if form == Format.TABLE and targets:
        print_retention_summary(summary, style)
    return outcome.status
