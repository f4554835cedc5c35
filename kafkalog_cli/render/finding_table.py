"""Findings for people: one line each below the name of the file, in which the cause shows first."""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Self

from kafkalog_cli.render.findings import next_start_lines, summary_lines
from kafkalog_cli.render.text import printable, wrapped
from kafkalog_cli.render.writer import terminal_width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from kafkalog.model import Defect
    from kafkalog_cli.render.findings import RunFacts

ALIKE_MAX: Final = 20
"""So many findings of one kind in one file are shown; how many more there are is told."""


class FindingTable:
    """A report as text: what belongs to one segment is told together, file by file.

    Memory is bounded: of one segment at most `ALIKE_MAX` findings of each kind and file are kept.
    """

    def __init__(self, hidden: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._hidden = hidden
        self._segment = ""
        self._kept: dict[str, list[Defect]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
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

    def finding(self, defect: Defect) -> None:
        """A finding was made."""
        directory, name = os.path.split(defect.path)
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
        if not facts.schedule.targets:
            return
        width = terminal_width()
        texts = [*next_start_lines(facts.verification.next_starts), *summary_lines(facts)]
        _put(line for text in texts for line in wrapped(text, first="", width=width))

    def _flush(self) -> None:
        if not self._kept:
            return
        width = terminal_width()
        lines = [] if self._has_heading else ["  SEVERITY    POSITION  FINDING"]
        self._has_heading = True
        for path, defects in self._kept.items():
            lines += wrapped(printable(path), first="", width=width)
            for defect in defects:
                position = "-" if defect.position is None else str(defect.position)
                text = printable(f"{defect.reference}: {defect.detail}")
                first = f"  {defect.severity:<8}  {position:>10}  "
                lines += wrapped(text, first=first, width=width)
            for (place, reference), count in self._counts.items():
                if place == path and count > ALIKE_MAX:
                    text = f"{count - ALIKE_MAX} more {reference}: --format ndjson has them all"
                    lines += wrapped(text, first=" " * 24, width=width)
        with self._hidden():
            _put(lines)
            sys.stdout.flush()
        self._kept.clear()
        self._counts.clear()


def _put(lines: Iterable[str]) -> None:
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
