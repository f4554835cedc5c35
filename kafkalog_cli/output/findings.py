"""What `verify` tells, in the formats of listings, and its summary."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

from kafkalog.model import Level, Severity
from kafkalog.paths import file_system
from kafkalog_cli.output.objects import View
from kafkalog_cli.output.rows import Row, defect_row
from kafkalog_cli.output.text import printable, size_cell
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from kafkalog.check.schedule import Schedule
    from kafkalog.check.verify import Verification
    from kafkalog.errors import KafkaLogError
    from kafkalog.log_dir import FileEntry, LogDir, PartitionDir
    from kafkalog.model import Defect
    from kafkalog.recovery import NextStart

    Target = LogDir | PartitionDir | FileEntry


@dataclass
class RunFacts:
    """What a report says of a run beside its findings.

    Attributes:
        verification: the run; its summary is complete at the end.
        schedule: what it was to read.
        failing: the severities that make the exit status 1.
        errors: what stopped the work on a target.
        started_ms: when it began.
        ended_ms: when it ended.
        status: the exit status.
    """

    verification: Verification
    schedule: Schedule
    failing: Sequence[Severity]
    errors: list[KafkaLogError] = field(default_factory=list)
    started_ms: int = 0
    ended_ms: int = 0
    status: int = 0

    @property
    def duration_s(self) -> float:
        """How long it took."""
        return (self.ended_ms - self.started_ms) / 1000

    @property
    def levels(self) -> list[Level]:
        """The levels at which segments were read; the one that was asked for where none were."""
        used = self.verification.summary.levels
        return [level for level in Level if level in used] or [self.schedule.level]


class Report(Protocol):
    """A way to write findings down; a context manager that ends what it began to write."""

    def __enter__(self) -> Self:
        """The report begins."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The report ends."""

    def finding(self, defect: Defect) -> None:
        """A finding was made."""

    def end(self, facts: RunFacts) -> None:
        """The run is over."""


class Listing:
    """A report as NDJSON, JSON or CSV: one object a finding, then (not in CSV) the next starts
    and the summary."""

    def __init__(
        self,
        form: Format,
        on_defect: Callable[[Defect], None],
        hidden: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._form = form
        self._hidden = hidden
        self._writer = Writer(View((), defect_row), form, on_defect)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._writer.__exit__(kind, error, traceback)

    def finding(self, defect: Defect) -> None:
        """A finding was made."""
        with self._hidden():
            self._writer.write(defect)
            sys.stdout.flush()

    def end(self, facts: RunFacts) -> None:
        """The run is over."""
        if self._form != Format.CSV:
            for start in facts.verification.next_starts:
                self._writer.write_row(next_start_row(start))
            self._writer.write_row(summary_row(facts))


def summary_row(facts: RunFacts) -> Row:
    """The last object of a run."""
    summary, schedule = facts.verification.summary, facts.schedule
    sample: Row | None = None
    if schedule.sample is not None:
        sample = {
            "share": schedule.sample.share,
            "seed": schedule.sample.seed,
            "segments": schedule.segments_chosen,
            "of": schedule.segments_in_all,
        }
    return {
        "type": "summary",
        "files": summary.files,
        "batches": summary.batches,
        "records": summary.records,
        "bytes_expected": summary.bytes_expected,
        "bytes_checked": summary.bytes_checked,
        "bytes_deferred": summary.bytes_deferred,
        "segments_deferred": summary.segments_deferred,
        "defects": {severity.value: summary.defects[severity] for severity in Severity},
        "levels": [level.value for level in facts.levels],
        "sample": sample,
    }


def next_start_row(start: NextStart) -> Row:
    """The object for what a broker's next start would do."""
    return {
        "type": "next_start",
        "path": start.path,
        "topic": start.topic,
        "partition": start.partition,
        "mode": start.mode,
        "verdict": start.verdict,
        "truncate_to": start.truncate_to,
        "records_lost": start.records_lost,
        "bytes_lost": start.bytes_lost,
        "rebuilt_segments": list(start.rebuilt_segments),
        "error": start.error,
        "consequence": start.consequence,
        "detail": start.detail,
        "assumptions": list(start.assumptions),
        "notes": list(start.notes),
    }


def next_start_lines(starts: Sequence[NextStart]) -> list[str]:
    """What a broker's next start would do, where it is not nothing, for people.

    What is assumed, and what the start would not notice, is said once for all of whom it is true.
    """
    from kafkalog.recovery import Verdict

    said: dict[str, list[str]] = {}
    lines = []
    for start in starts:
        name = os.path.basename(file_system.absolute(start.path))
        if start.verdict != Verdict.NOTHING:
            lines.append(f"next start: {name}: {start.detail}")
            for assumption in start.assumptions:
                said.setdefault(f"assumed: {assumption}", []).append(name)
        for note in start.notes:
            said.setdefault(f"note: {note}", []).append(name)
    for words, names in said.items():
        which = names[0] if len(names) == 1 else f"{len(names)} partitions"
        lines.append(f"next start: {which}: {words}")
    return [printable(line) for line in lines]


def summary_lines(facts: RunFacts) -> list[str]:
    """What was checked, how much was found, and what was left out, for people."""
    summary, schedule = facts.verification.summary, facts.schedule
    found = [
        f"{summary.defects[severity]} {severity}"
        for severity in Severity
        if summary.defects[severity]
    ]
    level = " and ".join(facts.levels)
    checked = (
        f"{summary.files} files, {summary.batches} batches, {summary.records} records, "
        f"{size_cell(summary.bytes_checked, exact=False)} checked at level {level}"
    )
    nothing = "nothing wrong"
    if facts.errors:
        nothing += " in what was read, but not everything was read"
    lines = [f"{checked}: {', '.join(found) if found else nothing}"]
    if schedule.sample is not None:
        lines.append(
            f"sample: {schedule.segments_chosen} of {schedule.segments_in_all} segments at level "
            f"{schedule.level}, seed {schedule.sample.seed}"
        )
    if facts.verification.put_off:
        lines.append(
            f"deferred when time ran out: {size_cell(summary.bytes_deferred, exact=False)} in "
            f"{summary.segments_deferred} segments"
        )
    if found:
        lines.append("`kafkalog explain REFERENCE` explains a finding and what to do.")
    return lines
