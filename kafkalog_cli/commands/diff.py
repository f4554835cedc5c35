"""`kafkalog diff`: compare copies of partitions."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalog.io.wording import counted
from kafkalog.model import LogView
from kafkalog_cli import options as opt
from kafkalog_cli.outcome import Outcome, show_note, status_of, status_of_all
from kafkalog_cli.output.next_steps import put_command, words_of
from kafkalog_cli.output.progress import byte_progress
from kafkalog_cli.output.writer import Format, Writer, limited, print_lines, write_all
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections import Counter

    from kafkalog.check.comparison.model import Comparison, Verdict
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
    from kafkalog.check.comparison.model import ALIKE, Verdict
    from kafkalog.check.comparison.run import Comparer, pairs_of
    from kafkalog.node.targets import require_named, selected

    topics, outcome = partitions.topics, Outcome()
    sides = [outcome.open_all([path], topics=topics) for path in paths]
    if outcome.errors:
        return status_of_all([status_of(one) for one in outcome.errors], has_answer=False)
    require_named(_targets(sides), topics, partitions.numbers)
    sides = [
        selected(side, topics, partitions.numbers, internal=partitions.internal) for side in sides
    ]
    pairs = list(pairs_of(sides, topics))
    if not pairs:
        outcome.miss("no partition to compare")
    with byte_progress(_targets(sides), enabled=not session().is_quiet) as progress:
        comparer = Comparer(view, outcome, progress)
        verdicts = _show(comparer, pairs, show, outcome, every=every, records=records)
    if show.format.is_screen and verdicts.keys() - ALIKE:
        words = words_of(paths, partitions)
        is_seen = records or not verdicts.keys() & {Verdict.DIFFERENT, Verdict.BEHIND}
        put_command("next", *(["verify", *words] if is_seen else ["diff", *words, "--records"]))
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
) -> Counter[Verdict]:
    """Write a row per pair; then, or in objects between them, the records that differ."""
    from collections import Counter

    from kafkalog.check.comparison.model import Verdict
    from kafkalog_cli.output import compared as show

    form, style = shown.format, shown.style()
    different: list[tuple[Pair, Comparison]] = []
    verdicts: Counter[Verdict] = Counter()
    left = sys.maxsize if shown.limit is None else shown.limit
    with Writer(show.comparison_view(style), form) as writer:
        for pair in pairs:
            found = comparer.compare(pair)
            outcome.answers_no(show.is_difference(found))
            verdicts[found.verdict] += 1
            is_same = found.verdict == Verdict.IDENTICAL and not show.starts_differ(found)
            if (is_same and not every) or not left:
                continue
            left -= 1
            writer.write(found)
            different.append((pair, found))
            if records and form in (Format.NDJSON, Format.JSON):
                for one in islice(comparer.records(pair, found), left):
                    writer.write_row(show.RECORD_DIFFERENCE.row(one, style))
                    left -= 1
        same = verdicts[Verdict.IDENTICAL]
        hidden = "" if every or not same else " (--all shows them)"
        counts = [f"{count} {one}" for one, count in verdicts.items() if one != Verdict.IDENTICAL]
        total = ", ".join(counts + [f"{same} identical{hidden}"] * (same > 0))
        if pairs:
            total = f"{counted(len(pairs), 'partition')}: {total}"
            writer.total(limited(total, len(different), shown.limit))
    if records and form.is_screen and different and left:
        typer.echo()
        rows = (one for pair, found in different for one in comparer.records(pair, found))
        number = write_all(islice(rows, left), show.record_view(style), form)
        print_lines([f"{counted(number, 'record')} not the same"])
    if hidden and not form.is_screen:
        show_note(f"{counted(same, 'partition')} of {len(pairs)} identical{hidden}")
    return verdicts
