"""`kafkalog diff`: compare copies of partitions."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.io.wording import counted
from kafkalog.model import LogView
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note, status_of, status_of_all
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format, Writer, write_all
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from kafkalog.check.comparison.model import Comparison
    from kafkalog.check.comparison.run import Comparer, Pair
    from kafkalog.node.targets import Target


def diff(
    paths: opt.PathsArgument,
    records: Annotated[bool, typer.Option(
        "--records", help="Also the records that only one copy has, or that differ.",
    )] = False,
    every: opt.AllOption = False,
    view: opt.ViewOption = LogView.RECOVERED,
    *,
    partitions: opt.AllPartitions,
    show: opt.Show,
    pace: opt.Pace,  # noqa: ARG001 # it surrounds the command
) -> int:  # fmt: skip
    """Compare copies of partitions: those of several brokers, or a backup with its original.

    Each PATH is one side: a partition, a log directory, or the parent of a broker's log
    directories. The first is compared with each other one. Logs are the same if their batches are;
    one that was compacted further, if the latest record of every key is. The exit status is 1 if
    copies differ or one is missing, 8 if damage was left out.

    \b
    kafkalog diff /var/lib/kafka /backups/kafka
    kafkalog diff /var/lib/kafka/orders-0 /backups/kafka/orders-0 --records
    """
    from kafkalog.check.comparison.run import Comparer, pairs_of
    from kafkalog.node.targets import selected

    topics, outcome = partitions.topics, Outcome()
    sides = [outcome.open_all([path], topics=topics) for path in paths]
    if outcome.errors:
        return status_of_all([status_of(one) for one in outcome.errors], has_answer=False)
    sides = [
        selected(side, topics, partitions.numbers, internal=partitions.internal) for side in sides
    ]
    pairs = list(pairs_of(sides, topics))
    if not pairs:
        outcome.miss("no partition to compare")
    with byte_progress(_targets(sides), enabled=not session().is_quiet) as progress:
        comparer = Comparer(view, outcome, progress)
        _show(comparer, pairs, show, outcome, every=every, records=records)
    outcome.report_logs(fails=False)
    return outcome.status


def _targets(sides: list[list[Target]]) -> list[Target]:
    return [target for side in sides for target in side]


def _show(
    comparer: Comparer,
    pairs: list[Pair],
    shown: opt.Show,
    outcome: Outcome,
    *,
    every: bool,
    records: bool,
) -> None:
    """Write a row per pair; then, or in objects between them, the records that differ."""
    from kafkalog.check.comparison.model import Verdict
    from kafkalog_cli.output import compared as show

    form, style = shown.format, shown.style()
    different: list[tuple[Pair, Comparison]] = []
    alike = 0
    wanted = iter(count() if shown.limit is None else range(shown.limit))
    with Writer(show.comparison_view(style), form) as writer:
        for pair in pairs:
            found = comparer.compare(pair)
            outcome.answers_no(show.is_difference(found))
            is_same = found.verdict == Verdict.IDENTICAL and not show.starts_differ(found)
            if is_same and not every:
                alike += 1
                continue
            if len(different) == shown.limit:
                continue
            writer.write(found)
            different.append((pair, found))
            if records and form in (Format.NDJSON, Format.JSON):
                for _, one in zip(wanted, comparer.records(pair, found), strict=False):
                    writer.write_row(show.RECORD_DIFFERENCE.row(one, style))
    if records and form.is_screen and different:
        typer.echo()
        rows = (one for pair, found in different for one in comparer.records(pair, found))
        limited = (one for _, one in zip(wanted, rows, strict=False))
        write_all(limited, show.record_view(style), form)
    if alike:
        show_note(f"{counted(alike, 'partition')} of {len(pairs)} identical (--all shows them)")
