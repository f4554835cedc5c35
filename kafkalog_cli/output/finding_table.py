"""Findings for people: one line each below the name of the file, in which the cause shows first."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Self

from kafkalog.model import Severity
from kafkalog_cli.output.findings import next_start_lines, summary_lines
from kafkalog_cli.output.text import printable, wrapped
from kafkalog_cli.output.writer import terminal_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from kafkalog.model import Defect
    from kafkalog_cli.output.findings import RunFacts

ALIKE_MAX: Final = 20
"""So many findings of one kind in one file are shown; how many more there are is told."""

_NAMES_MAX: Final = 3  # of the files of which one note is told


class FindingTable:
    """A report as text: what belongs to one segment is told together, file by file.

    Notes come last. The same note on several files of a directory is told once, after the others.
    Memory is bounded: of one segment at most `ALIKE_MAX` findings of each kind and file are kept,
    and of all notes as many in each directory.
    """

    def __init__(self, hidden: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._hidden = hidden
        self._segment = ""
        self._kept: dict[str, list[Defect]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._notes: dict[str, _Notes] = {}  # by directory
        self._has_heading = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not BrokenPipeError:
            self._flush()
            self._flush_notes()

    def finding(self, defect: Defect) -> None:
        """A finding was made."""
        directory, name = os.path.split(defect.path)
        if defect.severity == Severity.NOTE:
            self._notes.setdefault(directory, _Notes()).take(defect)
            return
        segment = os.path.join(directory, name.partition(".")[0])
        if segment != self._segment:
            self._flush()
            self._segment = segment
        self._counts[defect.path, defect.reference] += 1
        if self._counts[defect.path, defect.reference] <= ALIKE_MAX:
            self._kept.setdefault(defect.path, []).append(defect)

    def end(self, facts: RunFacts) -> None:
        """The run is over."""
        self._flush()
        self._flush_notes()
        if not facts.schedule.targets:
            return
        width = terminal_width()
        texts = [*next_start_lines(facts.verification.next_starts), *summary_lines(facts)]
        _put(line for text in texts for line in wrapped(text, first="", width=width))

    def _flush(self) -> None:
        if not self._kept:
            return
        lines = []
        for path, defects in self._kept.items():
            lines += self._lines(path, defects)
            for (place, reference), count in self._counts.items():
                if place == path and count > ALIKE_MAX:
                    lines += _more(f"{count - ALIKE_MAX} more {reference}")
        self._print(lines)
        self._kept.clear()
        self._counts.clear()

    def _flush_notes(self) -> None:
        lines: list[str] = []
        for notes in self._notes.values():
            for path, defects in notes.single.items():
                lines += self._lines(path, defects)
            for reference, count in notes.dropped.items():
                lines += _more(f"{count} more {reference}")
        for directory, notes in self._notes.items():
            for first, names in notes.alike.values():
                lines += wrapped(printable(directory), first="", width=terminal_width())
                lines += _line(first, f"{', '.join(names)}{notes.others_of(first)}: {first.detail}")
        self._print(lines)
        self._notes.clear()

    def _lines(self, path: str, defects: Sequence[Defect]) -> list[str]:
        lines = wrapped(printable(path), first="", width=terminal_width())
        for defect in defects:
            lines += _line(defect, defect.detail)
        return lines

    def _print(self, lines: list[str]) -> None:
        if not lines:
            return
        heading = [] if self._has_heading else ["  SEVERITY    POSITION  FINDING"]
        self._has_heading = True
        with self._hidden():
            _put([*heading, *lines])
            sys.stdout.flush()


class _Notes:
    """The notes on the files of one directory.

    Attributes:
        single: path to the notes that are on no other file.
        alike: reference and detail to the first note and the names of the files that have it.
        dropped: reference to the number of notes that are not kept.
    """

    def __init__(self) -> None:
        self.single: dict[str, list[Defect]] = {}
        self.alike: dict[tuple[str, str], tuple[Defect, list[str]]] = {}
        self.dropped: Counter[str] = Counter()
        self._seen: dict[tuple[str, str], Defect] = {}
        self._kept: Counter[str] = Counter()
        self._alike: Counter[tuple[str, str]] = Counter()

    def take(self, defect: Defect) -> None:
        """Take the next note in."""
        key = defect.reference, defect.detail
        first = self._seen.get(key)
        if first is not None and first.path != defect.path:
            self._take_alike(key, first, defect)
        elif self._kept[defect.reference] < ALIKE_MAX:
            self._seen.setdefault(key, defect)
            self._kept[defect.reference] += 1
            self.single.setdefault(defect.path, []).append(defect)
        else:
            self.dropped[defect.reference] += 1

    def others_of(self, first: Defect) -> str:
        """How many more files have the note than are named."""
        count = self._alike[first.reference, first.detail] - _NAMES_MAX
        return f" and {count} more" if count > 0 else ""

    def _take_alike(self, key: tuple[str, str], first: Defect, defect: Defect) -> None:
        if key not in self.alike:
            self.alike[key] = first, [os.path.basename(first.path)]
            self._alike[key] = 1
            self.single[first.path].remove(first)
            if not self.single[first.path]:
                del self.single[first.path]
        names = self.alike[key][1]
        self._alike[key] += 1
        if len(names) < _NAMES_MAX:
            names.append(os.path.basename(defect.path))


def _line(defect: Defect, words: str) -> list[str]:
    """The lines of one finding."""
    position = "-" if defect.position is None else str(defect.position)
    text = printable(f"{defect.reference}: {words}")
    first = f"  {defect.severity:<8}  {position:>10}  "
    return wrapped(text, first=first, width=terminal_width())


def _more(what: str) -> list[str]:
    text = f"{what}: --format ndjson lists them all"
    return wrapped(text, first=" " * 24, width=terminal_width())


def _put(lines: Iterable[str]) -> None:
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
