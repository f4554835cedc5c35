"""`kafkalog verify`: what is wrong."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.errors import UsageError
from kafkalog.model import Level, Severity
from kafkalog_cli import options as opt
from kafkalog_cli.engines import (
    ConnectTimeoutOption,
    EngineChoice,
    EngineName,
    MasterOption,
    SparkChoice,
    SparkConfOption,
)
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.check.schedule import History, Sample, Schedule
    from kafkalog.check.walk import Elsewhere
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.findings import Report, RunFacts, Target
    from kafkalog_cli.output.progress import ByteProgress


_STATE_SIZE_MAX = 1 << 30


class ReportFormat(StrEnum):
    """How findings are written; the last three are for CI, code hosts and monitoring."""

    TABLE = "table"
    NDJSON = "ndjson"
    JSON = "json"
    CSV = "csv"
    JUNIT = "junit"
    SARIF = "sarif"
    PROMETHEUS = "prometheus"


def verify(
    paths: opt.PathsArgument,
    level: Annotated[Level, typer.Option(
        "--level",
        help="quick: headers and indexes; standard: also checksums; deep: also every record.",
    )] = Level.STANDARD,
    sample: Annotated[str | None, typer.Option(
        "--sample", metavar="PERCENT",
        help="Check this share of the segments (5%) at --level, the others at level quick.",
    )] = None,
    seed: Annotated[int | None, typer.Option(
        "--seed", metavar="N",
        help="Seed of --sample: the same N selects the same segments. Default: the date (UTC), "
             "such as 20261121; the summary shows it.",
    )] = None,
    max_duration: Annotated[str | None, typer.Option(
        "--max-duration", metavar="DURATION",
        help="Start nothing new after this time (90s, 10m, 2h); the summary counts what was "
             "deferred.",
    )] = None,
    state: Annotated[str | None, typer.Option(
        "--state", metavar="FILE",
        help="Remember what was checked when: start with what was checked longest ago, and "
             "continue where the last run stopped.",
    )] = None,
    threads: Annotated[int | None, typer.Option(
        "--threads", metavar="N", min=1,
        help="Checking threads. Default: one per processor, at most 8; with Spark: per task, "
             "default 1.",
    )] = None,
    no_cache: Annotated[bool, typer.Option(
        "--no-cache", help="Leave the page cache as it was, for use next to a running broker.",
    )] = False,
    rate_limit: Annotated[str | None, typer.Option(
        "--rate-limit", metavar="SIZE",
        help="Read at most SIZE per second (50MiB); with Spark: all tasks together.",
    )] = None,
    fail_on: Annotated[Severity, typer.Option(
        "--fail-on", help="Exit with status 1 from this severity on.",
    )] = Severity.WARNING,
    form: Annotated[ReportFormat, typer.Option(
        "--format", help="Output format: a listing, or a report at the end of the run.",
    )] = ReportFormat.TABLE,
    engine: Annotated[EngineName, typer.Option(
        "--engine",
        help="spark: check partitions in Spark tasks. Each worker reads the log directories "
             "itself, under the same paths.",
    )] = EngineName.LOCAL,
    master: MasterOption = "local[*]",
    spark_conf: SparkConfOption = None,
    connect_timeout: ConnectTimeoutOption = "30s",
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Check log directories, partitions or files, each against the others.

    A log that a healthy broker wrote has no finding above a note. Nothing is written except the
    file of --state.


    \b
    kafkalog verify /var/lib/kafka
    kafkalog verify --level quick --format ndjson orders-0
    kafkalog verify --level deep --sample 5% --seed 7 /var/lib/kafka
    kafkalog verify --no-cache --rate-limit 50MiB --level deep /var/lib/kafka
    kafkalog verify --max-duration 10m --state verify.state /var/lib/kafka
    kafkalog verify --format junit --fail-on damage /var/lib/kafka
    kafkalog verify --engine spark --master spark://host:7077 /var/lib/kafka
    """
    from kafkalog.check.schedule import Schedule
    from kafkalog.check.verify import Verification
    from kafkalog.paths.read_options import reading
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.findings import RunFacts
    from kafkalog_cli.output.progress import byte_progress

    if engine == EngineName.SPARK:
        _refuse_one_process({"--state": state, "--max-duration": max_duration})
    choice = EngineChoice(engine, SparkChoice(master, spark_conf, connect_timeout, quiet))
    rate = None if rate_limit is None else opt.parse_rate(rate_limit)
    duration_s = None if max_duration is None else opt.parse_duration(max_duration)
    chosen = _sample(sample, seed)
    outcome = Outcome()
    targets = outcome.open_all(paths)
    history = None if state is None else _read_history(state, targets)
    started_ms = time.time_ns() // 1_000_000
    schedule = Schedule(targets, level, sample=chosen, history=history, duration_s=duration_s)
    failing = list(Severity)[: list(Severity).index(fail_on) + 1]
    with (
        byte_progress(targets, enabled=not quiet and engine == EngineName.LOCAL) as progress,
        reading(rate_limit=rate, leaves_cache=no_cache),
        _elsewhere(choice, schedule, (threads, rate, no_cache)) as elsewhere,
    ):
        run = Verification(level, progress, schedule=schedule, threads=threads, elsewhere=elsewhere)
        facts = RunFacts(run, schedule, failing, outcome.errors, started_ms)
        try:
            _check(facts, _make_report(form, targets, progress, outcome), outcome, progress)
        finally:
            if history is not None and state is not None:
                _write_history(history, state, targets)
    return outcome.status


@contextmanager
def _elsewhere(
    choice: EngineChoice, schedule: Schedule, manner: tuple[int | None, int | None, bool]
) -> Iterator[Elsewhere | None]:
    """Open what checks the partitions elsewhere; None if this process does."""
    if choice.name == EngineName.LOCAL:
        yield None
        return
    from kafkalog.check.tasks import Manner, WalkedByTasks

    threads, rate, no_cache = manner
    with choice.open(partitions=0) as opened:
        share = None if rate is None else max(1, rate // opened.workers)
        with WalkedByTasks(opened, schedule, Manner(threads or 1, share, no_cache)) as elsewhere:
            yield elsewhere


def _refuse_one_process(options: dict[str, str | None]) -> None:
    """Raise where an option is given that is about the order of work in one process."""
    for name, value in options.items():
        if value is not None:
            raise UsageError(
                f"{name} does not work with --engine spark.",
                hint="Leave it out, or use --engine local.",
            )


def _check(
    facts: RunFacts, report: Report, outcome: Outcome, progress: ByteProgress | None
) -> None:
    """Check all targets and report what is found."""
    from kafkalog.errors import KafkaLogError, as_internal_error
    from kafkalog_cli.outcome import UNREADABLE, unread_places
    from kafkalog_cli.standard_streams import OutputError

    run = facts.verification
    reported: set[str] = set()
    with report, unread_places() as unread:
        for target in facts.schedule.targets:
            try:
                for defect in run.check(target):
                    report.finding(defect)
                    outcome.count(defect, facts.failing)
                    if defect.reference in UNREADABLE:
                        reported.add(defect.path)
            except KafkaLogError as error:
                outcome.error(error)
            except OutputError:
                raise
            except Exception as raised:  # noqa: BLE001 # a failure of ours: the report says so
                outcome.error(as_internal_error(raised, target.path))
        for defect in run.check_together():
            report.finding(defect)
            outcome.count(defect, facts.failing)
        for path in reported:
            unread.forget(path)
        if unread and not outcome.errors:
            outcome.error(unread.error())
        outcome.report_failed_checks()
        facts.ended_ms = time.time_ns() // 1_000_000
        facts.status = outcome.status
        if progress is not None:
            progress.close()
        report.end(facts)


def _make_report(
    form: ReportFormat,
    targets: Sequence[Target],
    progress: ByteProgress | None,
    outcome: Outcome,
) -> Report:
    from kafkalog_cli.output.findings import FindingTable, Listing

    hidden = nullcontext if progress is None else progress.hidden
    if form == ReportFormat.TABLE:
        return FindingTable(hidden)
    if form == ReportFormat.JUNIT:
        from kafkalog_cli.output.reports import JunitReport

        return JunitReport(targets)
    if form == ReportFormat.SARIF:
        from kafkalog_cli.output.sarif import SarifReport

        return SarifReport()
    if form == ReportFormat.PROMETHEUS:
        from kafkalog_cli.output.reports import PrometheusReport

        return PrometheusReport(targets)
    return Listing(Format(form.value), outcome.defect, hidden)


def _sample(share: str | None, seed: int | None) -> Sample | None:
    """Return the sample that was asked for; without a seed, the one of the day."""
    from kafkalog.check.schedule import Sample

    if share is None:
        if seed is not None:
            raise UsageError("--seed requires --sample.")
        return None
    if seed is None:
        seed = int(time.strftime("%Y%m%d", time.gmtime()))
    return Sample(opt.parse_share(share), seed)


def _read_history(path: str, targets: Sequence[Target]) -> History:
    """Return what the file of `--state` says; an empty history if it is missing.

    Raises:
        UsageError: the file would lie in what is checked, where nothing is ever written.
        UnwritableError: it could not be written after the run.
        NotAKafkaFileError: it is something else.
    """
    from kafkalog.check.schedule import History
    from kafkalog.errors import UnwritableError
    from kafkalog.paths.source import read_file

    place = os.path.realpath(path)
    for target in targets:
        if place.startswith(os.path.join(os.path.realpath(_directory(target)), "")):
            raise UsageError(
                "The state file lies inside the checked directory.",
                path=path,
                hint="Put it elsewhere: kafkalog never writes to what it reads.",
            )
    if not os.access(os.path.dirname(place), os.W_OK):
        raise UnwritableError("The state file cannot be written there.", path=path)
    if not os.path.lexists(path):
        return History()
    text = read_file(path, _STATE_SIZE_MAX).decode("utf-8", "surrogateescape")
    return History.from_json(text, path)


def _write_history(history: History, path: str, targets: Sequence[Target]) -> None:
    """Replace the file; segments that are gone are forgotten. Raises `UnwritableError`.

    A crash leaves the old file or the new one.
    """
    from kafkalog.log_dir import LogDir, PartitionDir
    from kafkalog.storage import NewFile

    for target in targets:
        if isinstance(target, LogDir):
            history.forget_missing(target.partitions, [target.path])
        elif isinstance(target, PartitionDir):
            history.forget_missing([target], [target.path])
    with NewFile(path, replaces=True) as new:
        new.file.write(history.to_json().encode("utf-8", "surrogateescape"))


def _directory(target: Target) -> str:
    """Return the directory whose files are read."""
    from kafkalog.log_dir import FileEntry

    is_file = isinstance(target, FileEntry)
    return os.path.dirname(target.path) or "." if is_file else target.path
