"""The output of `verify`: findings as a listing, and the summary."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

from formats.late_classes import dataclass
from kafkalog.check.verdict import verdict
from kafkalog.io.paths import file_system
from kafkalog.io.wording import counted, printable
from kafkalog.model import Defect, Level, Severity
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import DEFECT, Column, Field, ObjectType
from kafkalog_cli.output.text import size_cell
from kafkalog_cli.output.writer import Format, Writer
from kafkalog_cli.session import session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.answers.verification import Findings
    from kafkalog.errors import KafkaLogError
    from kafkalog.node.recovery import NextStart
    from kafkalog_cli.output.objects import Style


@dataclass
class RunFacts:
    """The facts of a run that a report states, apart from its findings."""

    run: Findings
    errors: list[KafkaLogError] = field(default_factory=list)
    started_ms: int = 0
    ended_ms: int = 0
    status: int = 0

    @property
    def levels(self) -> list[Level]:
        """The levels at which segments were read; the requested one if none were read."""
        used = self.run.summary.levels
        return [level for level in Level if level in used] or [self.run.schedule.level]


class Report(ABC):
    """A sink for findings; a context manager that completes the output."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:  # noqa: B027 # one that is printed as it comes
        """End the report, even after an error."""

    @abstractmethod
    def finding(self, defect: Defect) -> None: ...

    @abstractmethod
    def end(self, facts: RunFacts) -> None: ...


_COLUMNS: Final = (
    Column[Defect]("SEVERITY", "severity"),
    Column[Defect]("REFERENCE", "reference"),
    Column[Defect]("FILE", "path", least=20, keeps_end=True),
    Column[Defect]("POSITION", "position"),
    Column[Defect]("DETAIL", "detail", below=True),
)


class Listing(Report):
    """A report as NDJSON, JSON or CSV: findings, then (not in CSV) next starts and summary."""

    def __init__(self, form: Format, style: Style) -> None:
        self._writer = Writer(DEFECT.view(style, *_COLUMNS), form)

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._writer.__exit__(*raised)

    def finding(self, defect: Defect) -> None:
        self._writer.write(defect)
        sys.stdout.flush()

    def end(self, facts: RunFacts) -> None:
        for start in facts.run.next_starts:
            self._writer.write_object(NEXT_START.row(start))
        self._writer.write_object(SUMMARY.row(facts))


def _sample(facts: RunFacts) -> object:
    schedule = facts.run.schedule
    if schedule.sample is None:
        return None
    return {
        "share": schedule.sample.share,
        "seed": schedule.sample.seed,
        "segments": schedule.segments_chosen,
        "of": schedule.segments_in_all,
    }


def _defects(facts: RunFacts) -> object:
    return {one.value: facts.run.summary.defects[one] for one in Severity}


def _sum(name: str, meaning: str) -> Field[RunFacts]:
    return Field(name, k.INT, meaning, f"run.summary.{name}")


MEANING_OF_MODE: Final = (
    "`clean`: after a clean shutdown; `unclean`: scanned from the recovery point; `full`: scanned "
    "from the start"
)
MEANING_OF_VERDICT: Final = (
    "the worst: `nothing`, `tidy` (removes leftovers), `rebuild` (indexes), `hide` (the log "
    "ends before its last batches), `truncate` (the log), `create` (an empty log), `stray` "
    "(renames the directory), `refuse`"
)
MEANING_OF_LOST: Final = "cut off, by batch headers"
MEANING_OF_HIDDEN: Final = "on disk behind a log end that is too early; new ones get their offsets"
MEANING_OF_DEPTH: Final = (
    "how deep, everywhere: `names` (of files), `headers`, `checksums` or `records`"
)
NEXT_START: Final[ObjectType[NextStart]] = ObjectType(
    "next_start",
    "`verify`",
    "What the next start of a broker would do with a partition, or why it would stop at a log "
    "directory. Partitions that it leaves alone have no row.",
    Field("path", k.TEXT, "the partition directory or the log directory"),
    Field("topic", k.TEXT | None, "null for a log directory"),
    Field("partition", k.INT | None, "null for a log directory"),
    Field("mode", k.TEXT, MEANING_OF_MODE),
    Field("verdict", k.TEXT, MEANING_OF_VERDICT),
    Field("truncate_to", k.INT | None, "the log end offset, if cut"),
    Field("lost_records", k.INT, MEANING_OF_LOST),
    Field("hidden_records", k.INT, MEANING_OF_HIDDEN),
    Field("lost_bytes", k.INT, "of logs"),
    Field("rebuilt_segments", k.ARRAY, "base offsets of segments whose indexes change"),
    Field("error", k.TEXT | None, "the exception that Kafka throws"),
    Field("consequence", k.TEXT | None, "how far a refusal reaches"),
    Field("detail", k.TEXT, ""),
    Field("assumptions", k.ARRAY, "what could not be read"),
    Field("notes", k.ARRAY, "what an operator should know"),
)  # fmt: skip
SUMMARY: Final = ObjectType[RunFacts](
    "verify_summary",
    "`verify`",
    "The last object: totals.",
    Field("status", k.INT, "exit status of the run"),
    Field("changed", k.INT, "always 0", lambda _: 0),
    _sum("files", ""),
    _sum("batches", ""),
    _sum("records", "by batch headers"),
    _sum("expected_bytes", "that should be checked"),
    _sum("checked_bytes", ""),
    _sum("deferred_bytes", "past `--max-duration`; not in `expected_bytes`"),
    _sum("deferred_segments", "past `--max-duration`; not in `expected_bytes`"),
    Field("defects", k.OBJECT, "by severity", _defects),
    Field("levels", k.ARRAY, "at which segments were read"),
    Field("depth", k.TEXT, MEANING_OF_DEPTH, "run.summary.looked"),
    Field("sample", k.OBJECT | None,
          "`share`, `seed`, and how many `segments` `of` all were read at `--level`", _sample),
)  # fmt: skip


def next_start_lines(starts: Sequence[NextStart]) -> list[str]:
    """Return what a broker's next start would do, if anything, for people.

    Assumptions, and problems that the start would not notice, are reported once for all partitions
    that they concern. Without -v only the assumption is shown that may prove wrong.
    """
    from kafkalog.node.recovery import Verdict
    from kafkalog.node.recovery.start import UNCHECKED

    said: dict[str, list[str]] = {}
    lines = []
    for start in starts:
        name = os.path.basename(file_system.absolute(start.path))
        if start.verdict != Verdict.NOTHING:
            lines.append(f"{name}: {start.detail}")
            for assumption in start.assumptions:
                if session().is_verbose or assumption == UNCHECKED:
                    said.setdefault(f"assumed: {assumption}", []).append(name)
        for note in start.notes:
            said.setdefault(f"note: {note}", []).append(name)
    for words, names in said.items():
        which = names[0] if len(names) == 1 else f"{len(names)} partitions"
        lines.append(f"{which}: {words}")
    return [printable(line) for line in lines]


def summary_lines(facts: RunFacts) -> list[str]:
    """Return what was left out, and the total."""
    summary, schedule = facts.run.summary, facts.run.schedule
    size = partial(size_cell, exact=session().exact)
    lines = []
    if schedule.sample is not None:
        lines.append(
            f"sample: {schedule.segments_chosen} of {schedule.segments_in_all} segments at level "
            f"{schedule.level}, seed {schedule.sample.seed}"
        )
    if facts.run.verification.put_off:
        lines.append(
            f"deferred when time ran out: {size(summary.deferred_bytes)} in "
            f"{counted(summary.deferred_segments, 'segment')}"
        )
    is_whole = not facts.errors and not facts.run.verification.put_off
    found = verdict(summary.looked, summary.defects, is_whole=is_whole)
    where = f"{' in' if summary.defects.total() else ':'} {counted(summary.files, 'file')}"
    checked = f"{counted(summary.records, 'record')}, {size(summary.checked_bytes)}"
    lines.append(f"{found}{where} ({checked}, level {' and '.join(facts.levels)})")
    return lines
