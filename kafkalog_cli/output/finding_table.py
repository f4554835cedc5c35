"""Findings for people: grouped by file, most severe first."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from kafkalog.files.log_dir import PartitionDir
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.io.wording import printable
from kafkalog.model import Defect, Severity
from kafkalog.node.recovery.model import Verdict
from kafkalog_cli.output.findings import Report, RunFacts, next_start_lines, summary_lines
from kafkalog_cli.output.next_steps import put_command, words_of
from kafkalog_cli.output.table import terminal_width
from kafkalog_cli.output.text import cell_width, painted, tone_of, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.node.targets import Target
    from kafkalog_cli.options import PartitionNames

ALIKE_MAX: Final = 20
"""At most this many findings of one kind in one file are shown; the others are counted."""

_HELD_MAX: Final = 200  # findings of one kind that are held until the end
_NAMES_MAX: Final = 3  # files that share a note


class FindingTable(Report):
    """A report as text: damage as it is found, then other findings, most severe first.

    Findings are grouped by file: a line each where there is room, else with the sentence below. The
    same note on several files of a directory is shown once, after the others. Memory is bounded: at
    most `ALIKE_MAX` findings of each kind and file are kept, and as many notes per directory; of
    what is held until the end, `_HELD_MAX` of each kind.

    Args:
        paths: the command line's, for the command that comes next.
        partitions: which of them were chosen.
    """

    def __init__(self, paths: Iterable[str], partitions: PartitionNames) -> None:
        self._paths = {file_system.normalize(path) for path in paths}
        self._partitions = partitions
        self._worst: dict[Severity, Defect] = {}  # the first of each
        self._segment = ""
        self._damage = _Kept()
        self._held = {severity: _Kept() for severity in (Severity.INDEX, Severity.WARNING)}
        self._notes: dict[str, _Notes] = {}  # by directory

    def __exit__(self, *raised: Any) -> None:
        if raised[0] is not BrokenPipeError:  # nobody reads on
            self._flush()

    def finding(self, defect: Defect) -> None:
        self._worst.setdefault(defect.severity, defect)
        directory, name = os.path.split(defect.path)
        if defect.severity == Severity.NOTE:
            self._notes.setdefault(directory, _Notes()).take(defect)
        elif defect.severity in self._held:
            self._held[defect.severity].take(defect)
        else:
            segment = os.path.join(directory, name.partition(".")[0])
            if segment != self._segment:
                self._flush_damage()
                self._segment = segment
            self._damage.take(defect)

    def end(self, facts: RunFacts) -> None:
        self._flush()
        if not facts.run.schedule.targets:
            return
        width = terminal_width()
        lines = []
        for text in next_start_lines(facts.run.next_starts):
            lines += wrapped(text, first="next start  ", width=width)
        for text in summary_lines(facts):
            lines += wrapped(text, first="", width=width, hanging=2)
        _put(lines)
        self._put_commands(facts)

    def _put_commands(self, facts: RunFacts) -> None:
        """Name what helps against the most severe finding, and what explains it."""
        worst = next((self._worst[one] for one in Severity if one in self._worst), None)
        starts = [one.path for one in facts.run.next_starts if one.verdict != Verdict.NOTHING]
        command, about = "recover", starts[0] if starts else ""
        if worst is not None and worst.severity == Severity.DAMAGE:
            command, about = "salvage", worst.path
        elif worst is not None and worst.severity == Severity.INDEX and not starts:
            command, about = "rebuild-index", os.path.dirname(worst.path) or "."
        if about and not is_object(about):
            words = words_of([self._place(about, facts.run.targets)], self._partitions)
            put_command("next", command, *words, *(["--to", "NEW"] * (command == "salvage")))
        if worst is not None:
            put_command("why", "explain", worst.reference)

    def _place(self, path: str, targets: Sequence[Target]) -> str:
        """Return the PATH that something is in: the log directory, unless less was named."""
        for target in targets:
            place = target.path
            if f"{path}/".startswith(f"{place.rstrip('/')}/"):
                is_chosen = isinstance(target, PartitionDir) and place not in self._paths
                return os.path.dirname(place) or "." if is_chosen else place
        return path

    def _flush(self) -> None:
        self._flush_damage()
        for held in self._held.values():
            self._print(held.taken_lines())
        self._flush_notes()

    def _flush_damage(self) -> None:
        self._print(self._damage.taken_lines())

    def _flush_notes(self) -> None:
        lines: list[str] = []
        for notes in self._notes.values():
            for path, defects in notes.single.items():
                lines += _file_lines(path, defects)
            for reference, count in notes.dropped.items():
                lines += _more(f"{count} more {reference}")
        for directory, notes in self._notes.items():
            for first, names in notes.alike.values():
                lines += wrapped(printable(directory), first="", width=terminal_width())
                lines += _line(first, f"{', '.join(names)}{notes.others_of(first)}: {first.detail}")
        self._print(lines)
        self._notes.clear()

    def _print(self, lines: list[str]) -> None:
        if not lines:
            return
        _put(lines)
        sys.stdout.flush()


class _Kept:
    """Findings by file, as many as are shown, and the number of the others."""

    def __init__(self) -> None:
        self._kept: dict[str, list[Defect]] = {}
        self._in_file: dict[str, Counter[str]] = {}  # by path, by reference
        self._in_all: Counter[str] = Counter()  # by reference
        self._elsewhere: Counter[str] = Counter()

    def take(self, defect: Defect) -> None:
        reference = defect.reference
        if defect.path not in self._kept and self._in_all[reference] >= _HELD_MAX:
            self._elsewhere[reference] += 1
            return
        found = self._in_file.setdefault(defect.path, Counter())
        found[reference] += 1
        if found[reference] <= ALIKE_MAX:
            self._in_all[reference] += 1
            self._kept.setdefault(defect.path, []).append(defect)

    def taken_lines(self) -> list[str]:
        """Return the lines of what was kept, and forget it."""
        lines = []
        for path, defects in self._kept.items():
            lines += _file_lines(path, defects)
            for reference, count in self._in_file[path].items():
                if count > ALIKE_MAX:
                    lines += _more(f"{count - ALIKE_MAX} more {reference}")
        for reference, count in self._elsewhere.items():
            lines += _more(f"{count} more {reference} in other files")
        self._kept.clear()
        self._in_file.clear()
        self._in_all.clear()
        self._elsewhere.clear()
        return lines


class _Notes:
    """The notes on the files of one directory.

    Attributes:
        single: path to the notes that no other file has.
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
        """Return how many more files have the note than are named."""
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


def _file_lines(path: str, defects: Sequence[Defect]) -> list[str]:
    lines = wrapped(printable(path), first="", width=terminal_width())
    has_positions = any(defect.position is not None for defect in defects)
    for defect in defects:
        lines += _line(defect, defect.detail, has_position=has_positions)
    return lines


def _line(defect: Defect, words: str, *, has_position: bool = False) -> list[str]:
    position = "" if defect.position is None else f"at {defect.position}"
    place = f"{position:<8}  " if has_position else ""
    severity, width = f"{defect.severity:<7}", terminal_width()
    head, words = f" {place}{printable(defect.reference)}", printable(words)
    whole = f"{head}  {words}"
    has_room = width is None or 2 + len(severity) + cell_width(whole) <= width
    toned = painted(severity, tone_of(defect.severity), sys.stdout)
    first = f"  {toned}{whole if has_room else head}"
    return [first] if has_room else [first, *wrapped(words, first=" " * 10, width=width)]


def _more(what: str) -> list[str]:
    return wrapped(f"{what}: -o ndjson lists them all", first=" " * 10, width=terminal_width())


def _put(lines: Iterable[str]) -> None:
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
