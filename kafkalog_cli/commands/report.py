"""`kafkalog report`: everything about log directories on one page."""

from __future__ import annotations

from typing import Annotated

import typer

from kafkalog.model import Level, Severity
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.progress import advancing, byte_progress
from kafkalog_cli.output.writer import Format, write_all


def report(
    paths: Annotated[list[str], typer.Argument(
        metavar="PATH...", help="Log directory or partition directory.", show_default=False,
    )],
    to: Annotated[str, typer.Option(
        "--to", metavar="FILE", help="The page to write, such as report.html.",
    )],
    level: Annotated[Level, typer.Option(
        "--level", help="How much to check: headers, also checksums, or also all records.",
    )] = Level.STANDARD,
    records: Annotated[bool, typer.Option(
        "--records", help="Also read all records, for tombstones, distinct keys and hot keys.",
    )] = False,
    hot_keys: Annotated[int, typer.Option(
        "--hot-keys", metavar="N", min=0, help="With --records: most hot keys to show per topic.",
    )] = 10,
    replace: Annotated[bool, typer.Option("--replace", help="Replace FILE if it exists.")] = False,
    config: opt.ConfigOption = None,
    properties: opt.PropertiesOption = None,
    metadata_dir: opt.MetadataDirOption = None,
    threads: Annotated[int | None, typer.Option(
        "--threads", metavar="N", min=1,
        help="Checking threads. Default: one per processor, at most 8.",
    )] = None,
    now: opt.NowOption = None,
    form: opt.FormatOption = Format.TABLE,
    exact: opt.ExactOption = False,
    quiet: opt.QuietOption = False,
) -> int:  # fmt: skip
    """Write a report about log directories as one HTML page.

    The page shows sizes, growth, findings with the commands that repair them, the next start of the
    broker, retention, groups and lag, open transactions, compaction and batches. It is one file
    that opens without a network. Give the log directories of all brokers. The exit status is 1 if a
    finding is more severe than a note.

    \b
    kafkalog report /var/lib/kafka --to report.html
    kafkalog report /var/lib/kafka --to report.html --level deep --records
    """
    from kafkalog.answers.overview import report
    from kafkalog.answers.overview.page import require_libraries
    from kafkalog.io.storage import NewFile
    from kafkalog.node.configs import ConfigSources
    from kafkalog_cli.output.overviews import WrittenReport, view

    require_libraries()
    sources = ConfigSources(opt.parse_configs(config), properties, metadata_dir=metadata_dir)
    outcome = Outcome()
    targets = outcome.open_all(paths)
    if not targets:
        return outcome.status
    # Before the work, in case FILE exists or cannot be written.
    with NewFile(to, replaces=replace) as new:
        with byte_progress(targets, enabled=not quiet) as progress:
            found = report(
                *targets,
                level=level,
                records=records,
                hot_keys=hot_keys,
                configs=sources,
                now=None if now is None else opt.parse_time(now),
                threads=threads,
                on_event=advancing(progress, outcome.hear),
            )
        if not found.partitions and not found.log_dirs:
            new.discard()
            return outcome.status
        page = found.to_html().encode()
        new.file.write(page)
    defects = found.checked.defects
    outcome.fail_if(any(defects[one] for one in Severity if one != Severity.NOTE))
    write_all([WrittenReport(to, len(page), found)], view(Style(exact)), form)
    return outcome.status
