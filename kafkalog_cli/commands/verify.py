"""`kafkalog verify`: check log directories, partitions or files."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.model import Level
from kafkalog_cli import options as opt
from kafkalog_cli.engines import engine_choice
from kafkalog_cli.option_sets import CHECK, RUN, SHOW, OptionSet
from kafkalog_cli.outcome import Outcome, show_note
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format, Writer, write_all
from kafkalog_cli.session import now_ms, session
from kafkalog_cli.values import parse_duration, parse_rate, parse_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.files.log_dir import Target
    from kafkalog_cli.output.findings import Report


class ReportFormat(StrEnum):
    """The format of findings; the last two are of the whole run, for monitoring and for CI."""

    TABLE = "table"
    LINE = "line"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"
    PROMETHEUS = "prometheus"
    JUNIT = "junit"

    @property
    def has_rows(self) -> bool:
        """Whether each finding is a row."""
        return self not in (ReportFormat.PROMETHEUS, ReportFormat.JUNIT)


class Cleaning(OptionSet):
    """Whether a cleaning is judged in place of the files, and by what."""

    compaction: Annotated[
        bool,
        opt.option(
            CHECK,
            "--compaction",
            help="Prove that logs were compacted correctly.",
        ),
    ] = False
    original: Annotated[
        str | None,
        opt.option(
            CHECK,
            "--original",
            metavar="DIR",
            help="The same before the cleaning.",
        ),
    ] = None
    cleaner_offset: Annotated[
        int | None,
        opt.option(
            CHECK,
            "--cleaner-offset",
            metavar="N",
            min=0,
            help="End of the compacted part; overrides the checkpoint.",
        ),
    ] = None
    first_dirty_offset: opt.FirstDirtyOption = None
    producer_expiration: Annotated[
        str,
        opt.option(
            CHECK,
            "--producer-expiration",
            metavar="DURATION",
            help="The broker's producer.id.expiration.ms.",
        ),
    ] = "24h"


def verify(
    paths: opt.PathsArgument,
    level: Annotated[Level, typer.Option(
        "--level", help="Headers and indexes; also checksums; or also every record.",
    )] = Level.STANDARD,
    sample: Annotated[str | None, typer.Option(
        "--sample", metavar="PERCENT",
        help="Check this share of the segments at --level, another one each day (UTC) "
        "without --seed; the others at level quick.",
    )] = None,
    seed: opt.SeedOption = None,
    max_duration: Annotated[str | None, opt.option(
        RUN, "--max-duration", metavar="DURATION", help="Start nothing new after this time.",
    )] = None,
    state: Annotated[str | None, opt.option(
        RUN, "--state", metavar="FILE",
        help="Record what was checked when: start with the oldest, continue the last run.",
    )] = None,
    fail_on: opt.FailOnOption = opt.FailOn.WARNING,
    form: Annotated[ReportFormat, opt.option(
        SHOW, "-o", "--format", help="Output format.",
    )] = ReportFormat.TABLE,
    threads: opt.ThreadsOption = None,
    no_cache: opt.NoCacheOption = False,
    rate_limit: opt.RateLimitOption = None,
    *,
    cleaning: Cleaning,
    partitions: opt.AllPartitions,
    rows: opt.Rows,
    spark: opt.Spark,
) -> int:  # fmt: skip
    """Check log directories, partitions or files, each against the others.

    A log that a healthy broker wrote has no findings more severe than a note. Nothing is written
    except the file of --state. With --compaction: below the cleaner offset no key may occur twice;
    with --original no record was added or changed, and what a cleaner must keep is there.

    \b
    kafkalog verify /var/lib/kafka
    kafkalog verify /var/lib/kafka --level deep --sample 5% --seed 7
    kafkalog verify customers-0 --compaction --original backup
    kafkalog verify orders-0 --level quick -o ndjson
    kafkalog verify /var/lib/kafka --max-duration 10m --state verify.state
    kafkalog verify /var/lib/kafka --fail-on damage --spark spark://host:7077
    """
    if cleaning.compaction:
        return _judge_cleanings(paths, cleaning, form, rows)
    _require_compaction(cleaning)
    from kafkalog.answers.verification import Findings
    from kafkalog_cli.output.findings import RunFacts

    choice = engine_choice(spark, threads)
    if choice.is_spark:
        _refuse_one_process({"--state": state, "--max-duration": max_duration})
    if seed is not None and sample is None:
        raise UsageError("--seed requires --sample.", hint="For example --sample 5% --seed 3.")
    outcome = Outcome()
    rate = None if rate_limit is None else parse_rate(rate_limit)
    duration_s = None if max_duration is None else parse_duration(max_duration)
    run = Findings(
        *paths,
        level=level,
        sample=None if sample is None else parse_share(sample),
        seed=seed,
        max_duration_s=duration_s,
        state=state,
        threads=threads,
        rate_limit=rate,
        leaves_cache=no_cache,
        topics=partitions.topics,
        numbers=partitions.numbers,
        internal=partitions.internal,
        on_event=outcome.hear,
    )
    facts = RunFacts(run, outcome.errors, time.time_ns() // 1_000_000)
    shows_progress = not session().is_quiet and not choice.is_spark
    with (
        byte_progress(run.targets, enabled=shows_progress) as progress,
        choice.open() if choice.is_spark else nullcontext() as opened,
        _make_report(form, rows, paths, partitions, run.targets, fail_on) as report,
        closing(run.run(progress, opened)) as defects,
    ):
        shown = 0
        for defect in defects:
            if rows.limit is None or shown < rows.limit or not form.has_rows:
                report.finding(defect)
                shown += 1
            outcome.count(defect, fail_on.severities)
        outcome.report_failed_checks()
        facts.ended_ms = time.time_ns() // 1_000_000
        if run.summary.files:
            outcome.answers()
        facts.status = outcome.status
        if progress is not None:  # what follows goes to the same terminal
            progress.close()
        report.end(facts)
    return outcome.status


def _require_compaction(cleaning: Cleaning) -> None:
    """Raise `UsageError` for options about a cleaning, which without it would change nothing."""
    given = (cleaning.original, cleaning.cleaner_offset, cleaning.first_dirty_offset)
    if any(one is not None for one in given):
        raise UsageError("This is about a cleaning.", hint="Add --compaction.")


def _judge_cleanings(
    paths: Sequence[str], cleaning: Cleaning, form: ReportFormat, rows: opt.Rows
) -> int:
    """Prove that logs were compacted correctly, or show the first counterexamples of each."""
    from kafkalog.change.audit.run import audit_compaction
    from kafkalog_cli.output import compactions as show

    if not form.has_rows:
        raise UsageError(f"--compaction has no report as {form}.", hint="Give another format.")
    outcome, style, written = Outcome(), rows.style(), Format(rows.shown_as(form))
    found = [
        one
        for target in outcome.open_all(paths)
        for one in audit_compaction(
            target,
            cleaning.original,
            now=now_ms(),
            cleaner_offset=cleaning.cleaner_offset,
            first_dirty_offset=cleaning.first_dirty_offset,
            producer_expiration_ms=round(parse_duration(cleaning.producer_expiration) * 1000),
            findings_max=1 if rows.limit is None else max(rows.limit, 1),
            on_event=outcome.hear,
        )
    ]
    if not found and not outcome.errors:
        show_note(
            "cleaner-offset-checkpoint has no entry of these logs, so they were not compacted; to "
            "judge a partition anyway, name it and give --cleaner-offset N"
        )
    if form == ReportFormat.TABLE and len(found) > 1:
        write_all(found, show.audit_view(style), written)
    with Writer(show.finding_view(style), written) as writer:
        for one in found:
            for finding in one.findings:
                writer.write(finding)
            writer.write_object(show.AUDIT.row(one))
        if found:
            writer.total(show.audit_total(found))
    outcome.answers_no(any(one.findings for one in found))
    return outcome.status


def _refuse_one_process(options: dict[str, str | None]) -> None:
    """Raise where an option is given that is about the order of work in one process."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} does not work with --spark.", hint="Leave one of them out.")


def _make_report(
    form: ReportFormat,
    rows: opt.Rows,
    paths: Sequence[str],
    partitions: opt.Partitions,
    targets: Sequence[Target],
    fail_on: opt.FailOn,
) -> Report:
    from kafkalog_cli.output.finding_table import FindingTable
    from kafkalog_cli.output.findings import Listing

    if not form.has_rows:
        from kafkalog_cli.output.reports import JunitReport, PrometheusReport

        if form == ReportFormat.JUNIT:
            return JunitReport(targets, fail_on.severities)
        return PrometheusReport(targets)
    chosen = Format(rows.shown_as(form))
    return (
        FindingTable(paths, partitions)
        if chosen == Format.TABLE and not rows.columns
        else Listing(chosen, rows.style())
    )
