"""`kafkalog report`: everything about log directories on one page."""

from __future__ import annotations

from typing import Annotated

from kafkalog.model import Level, Severity
from kafkalog_cli import options as opt
from kafkalog_cli.option_sets import CHECK, SHOW
from kafkalog_cli.outcome import Outcome
from kafkalog_cli.output.next_steps import words_of
from kafkalog_cli.output.objects import Style
from kafkalog_cli.output.progress import advancing, byte_progress
from kafkalog_cli.output.writer import Writer
from kafkalog_cli.session import now_ms, session


def report(
    paths: opt.PathsArgument,
    to: Annotated[str, opt.option(
        SHOW, "--to", metavar="NEW", help="The page to write, such as report.html.",
    )],
    replace: opt.ReplaceOption = False,
    level: Annotated[Level, opt.option(
        CHECK, "--level", help="Headers and indexes; also checksums; or also every record.",
    )] = Level.STANDARD,
    keys: Annotated[bool, opt.option(
        CHECK, "--keys", help="Also read all records, for tombstones, distinct and hot keys.",
    )] = False,
    hot_keys: Annotated[int, opt.option(
        SHOW, "--hot-keys", metavar="N", min=0, help="At most N hot keys per topic.",
    )] = 10,
    fail_on: opt.FailOnOption = opt.FailOn.NEVER,
    *,
    configs: opt.Configs,
    reading: opt.Reading,
    shown: opt.Form,
) -> int:  # fmt: skip
    """Write one HTML page about log directories.

    The page shows sizes, growth, findings with the commands that repair them, the next start of the
    broker, retention, groups and lag, open transactions, compaction and batches, and what was not
    read. It is one file that opens without a network. Give the log directories of all brokers.

    \b
    kafkalog report /var/lib/kafka --to report.html
    kafkalog report /var/lib/kafka --to report.html --level deep --keys
    kafkalog report /var/lib/kafka --to report.html --replace --fail-on damage
    """
    form = shown.format
    from kafkalog.answers.overview import report
    from kafkalog.answers.overview.page import require_libraries
    from kafkalog.io.storage import NewFile
    from kafkalog_cli.output.overviews import WrittenReport, view

    require_libraries()
    sources = configs.sources()
    outcome = Outcome()
    targets = outcome.open_all(paths)
    if not targets:
        return outcome.status
    # Before the work, in case FILE exists or cannot be written.
    with NewFile(to, replaces=replace) as new:
        with byte_progress(targets, enabled=not session().is_quiet) as progress:
            found = report(
                *targets,
                level=level,
                records=keys,
                hot_keys=hot_keys,
                configs=sources,
                now=now_ms(),
                threads=reading.threads,
                on_event=advancing(progress, outcome.hear),
            )
        if not found.partitions and not found.log_dirs:
            new.discard()
            return outcome.status
        page = found.to_html().encode()
        new.file.write(page)
    defects = found.checked.defects
    outcome.answers_no(any(defects[one] for one in fail_on.severities))
    style = Style(session().exact, session().zone)
    with Writer(view(style), form) as writer:
        writer.write(WrittenReport(to, len(page), found))
        if any(defects[one] for one in Severity if one != Severity.NOTE):
            writer.next("verify", *words_of(paths))
    return outcome.status
