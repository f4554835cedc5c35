"""`kafkalog verify`: what is wrong."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog.model import Level, Severity
from kafkalog_cli.options import FormatOption, PathsArgument, QuietOption
from kafkalog_cli.render.writer import Format


def verify(
    paths: PathsArgument,
    level: Annotated[
        Level,
        typer.Option("--level", help="quick: headers and indexes; standard: checksums, too."),
    ] = Level.STANDARD,
    fail_on: Annotated[
        Severity, typer.Option("--fail-on", help="Exit with 1 from this severity on.")
    ] = Severity.WARNING,
    form: FormatOption = Format.TABLE,
    quiet: QuietOption = False,
) -> int:
    """Check the invariants of log directories, partitions or files.

    A log that a healthy broker wrote gives no finding above a note. Nothing is written.

    \b
    kafkalog verify /var/lib/kafka
    kafkalog verify --level quick --format ndjson orders-0
    """
    from kafkalog.check.verify import Verification
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.render.findings import (
        defect_view,
        next_start_row,
        print_next_starts,
        print_summary,
        summary_row,
    )
    from kafkalog_cli.render.progress import byte_progress
    from kafkalog_cli.render.writer import Writer

    outcome = Outcome()
    failing = list(Severity)[: list(Severity).index(fail_on) + 1]
    targets = outcome.open_all(paths)
    with byte_progress(targets, enabled=not quiet) as progress:
        run = Verification(level, progress)
        with Writer(defect_view(), form, outcome.defect) as writer:
            for target in targets:
                for defect in run.verify(target):
                    writer.write(defect)
                    outcome.count(defect, failing)
            for defect in run.end():
                writer.write(defect)
                outcome.count(defect, failing)
            if form in (Format.NDJSON, Format.JSON):
                for start in run.next_starts:
                    writer.write_row(next_start_row(start))
                writer.write_row(summary_row(run.summary, level))
    if form == Format.TABLE and targets:
        print_next_starts(run.next_starts)
        print_summary(run.summary, level)
    return outcome.status
