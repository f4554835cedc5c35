"""`kafkalog verify`: check log directories, partitions or files."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.model import Level, Severity
from kafkalog_cli import engines as eng
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.files.log_dir import Target
    from kafkalog_cli.output.findings import Report
    from kafkalog_cli.output.progress import ByteProgress


class ReportFormat(StrEnum):
    """The format of findings; the last one is for monitoring."""

    TABLE = "table"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"
    PROMETHEUS = "prometheus"


def verify(
    paths: opt.PathsArgument,
    level: Annotated[Level, typer.Option(
        "--level",
        help="quick: headers and indexes; standard: also checksums; deep: also every record.",
    )] = Level.STANDARD,
    topic: Annotated[list[str] | None, typer.Option(
        "--topic", metavar="TOPIC", help="Only partitions of this topic; repeatable.",
    )] = None,
    exclude: Annotated[list[str] | None, typer.Option(
        "--exclude", metavar="TOPIC", help="Only partitions of other topics; repeatable.",
    )] = None,
    sample: Annotated[str | None, typer.Option(
        "--sample", metavar="PERCENT",
        help="Check this share of the segments (5%) at --level, the others at level quick.",
    )] = None,
    seed: Annotated[int | None, typer.Option(
        "--seed", metavar="N",
        help="Seed of --sample: the same N selects the same segments. Default: the date (UTC), "
             "such as 20261121.",
    )] = None,
    max_duration: Annotated[str | None, typer.Option(
        "--max-duration", metavar="DURATION",
        help="Start nothing new after this time (90s, 10m, 2h).",
    )] = None,
    state: Annotated[str | None, typer.Option(
        "--state", metavar="FILE",
        help="Record in FILE what was checked when: start with the oldest, continue where the "
             "last run stopped.",
    )] = None,
    threads: Annotated[int | None, typer.Option(
        "--threads", metavar="N", min=1,
        help="Checking threads. Default: one per processor, at most 8; with Spark: per task, "
             "default 1.",
    )] = None,
    no_cache: Annotated[bool, typer.Option(
        "--no-cache", help="Do not displace what a running broker has in the page cache.",
    )] = False,
    rate_limit: Annotated[str | None, typer.Option(
        "--rate-limit", metavar="SIZE",
        help="Read at most SIZE per second (50MiB); with Spark: all tasks together.",
    )] = None,
    fail_on: Annotated[Severity, typer.Option(
        "--fail-on", help="Exit with status 1 for findings of this severity or worse.",
    )] = Severity.WARNING,
    form: Annotated[ReportFormat, typer.Option(
        "--format", help="Output format: a listing, or a report of the run.",
    )] = ReportFormat.TABLE,
    engine: Annotated[eng.EngineName, typer.Option(
        "--engine",
        help="spark: check partitions in Spark tasks; each worker reads the log directories "
             "under the same paths.",
    )] = eng.EngineName.LOCAL,
    master: eng.MasterOption = None,
    spark_conf: eng.SparkConfOption = None,
    connect_timeout: eng.ConnectTimeoutOption = "30s",
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Check log directories, partitions or files, each against the others.

    A log that a healthy broker wrote has no findings more severe than a note. Nothing is written
    except the file of --state.

    \b
    kafkalog verify /var/lib/kafka
    kafkalog verify --level quick --format ndjson orders-0
    kafkalog verify --level deep --sample 5% --seed 7 /var/lib/kafka
    kafkalog verify --max-duration 10m --state verify.state /var/lib/kafka
    kafkalog verify --format ndjson --fail-on damage /var/lib/kafka
    kafkalog verify --engine spark --master spark://host:7077 /var/lib/kafka
    """
    from kafkalog.answers.verification import Findings
    from kafkalog_cli.output.findings import RunFacts

    if engine == eng.EngineName.SPARK:
        _refuse_one_process({"--state": state, "--max-duration": max_duration})
    if seed is not None and sample is None:
        raise UsageError("--seed requires --sample.", hint="For example --sample 5% --seed 3.")
    choice = eng.EngineChoice(engine, eng.SparkChoice(master, spark_conf, connect_timeout, quiet))
    outcome = Outcome()
    rate = None if rate_limit is None else opt.parse_rate(rate_limit)
    duration_s = None if max_duration is None else opt.parse_duration(max_duration)
    run = Findings(
        *paths,
        level=level,
        sample=None if sample is None else opt.parse_share(sample),
        seed=seed,
        max_duration_s=duration_s,
        state=state,
        threads=threads,
        rate_limit=rate,
        leaves_cache=no_cache,
        topics=topic,
        exclude=exclude or (),
        on_event=outcome.hear,
    )
    failing = list(Severity)[: list(Severity).index(fail_on) + 1]
    facts = RunFacts(run, outcome.errors, time.time_ns() // 1_000_000)
    is_local = engine == eng.EngineName.LOCAL
    with (
        byte_progress(run.targets, enabled=not quiet and is_local) as progress,
        nullcontext() if is_local else choice.open() as opened,
        _make_report(form, run.targets, progress) as report,
        closing(run.run(progress, opened)) as defects,
    ):
        for defect in defects:
            report.finding(defect)
            outcome.count(defect, failing)
        outcome.report_failed_checks()
        facts.ended_ms = time.time_ns() // 1_000_000
        facts.status = outcome.status
        if progress is not None:  # what follows goes to the same terminal
            progress.close()
        report.end(facts)
    return outcome.status


def _refuse_one_process(options: dict[str, str | None]) -> None:
    """Raise where an option is given that is about the order of work in one process."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(
                f"{name} does not work with --engine spark.",
                hint="Leave it out, or use --engine local.",
            )


def _make_report(
    form: ReportFormat, targets: Sequence[Target], progress: ByteProgress | None
) -> Report:
    from kafkalog_cli.output.finding_table import FindingTable
    from kafkalog_cli.output.findings import Listing

    hidden = nullcontext if progress is None else progress.hidden
    if form == ReportFormat.TABLE:
        return FindingTable(hidden)
    if form == ReportFormat.PROMETHEUS:
        from kafkalog_cli.output.reports import PrometheusReport

        return PrometheusReport(targets)
    return Listing(Format(form.value), hidden)
