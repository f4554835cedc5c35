"""The outcome of a start: the view of a partition directory, and how it differs from its files."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from formats.late_classes import dataclass
from kafkalog.errors import EventKind
from kafkalog.io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.errors import DataError
    from kafkalog.files.log_dir import PartitionDir, Segment
    from kafkalog.node.frontier import Frontier


@dataclass(frozen=True, slots=True)
class Difference:
    """How the view of a start differs from the files under final names.

    Attributes:
        path: the partition directory.
        swapped: number of `.swap` segments that become live.
        replaced: number of segments under final names that they replace.
        cut_at: the offset at which the log is cut; None if it is not.
        ends_at: the log end offset after a clean shutdown, if batches follow it, which stay on disk
            and are not served; otherwise None.
        hidden_records: number of records cut off, or behind the log end, according to the headers
            of their batches.
        hidden_bytes: bytes of logs that are cut off, or of batches behind the log end.
        refusal: why the outcome of a start is unknown and the files are shown as they are, or as a
            swap leaves them; None if it is known.
        logs_in_doubt: names of the logs of which a reader may have shown what does not stay; see
            `Frontier`.
        unscanned_bytes: bytes that a start would scan, and nobody has, as no reader needed them.
    """

    kind = EventKind.NOTE

    path: str
    swapped: int = 0
    replaced: int = 0
    cut_at: int | None = None
    ends_at: int | None = None
    hidden_records: int = 0
    hidden_bytes: int = 0
    refusal: str | None = None
    logs_in_doubt: tuple[str, ...] = ()
    unscanned_bytes: int = 0

    @property
    def is_known(self) -> bool:
        """Whether something is known to differ, not only that a start may cut the log."""
        return not self.unscanned_bytes or self.swapped > 0

    @property
    def detail(self) -> str:
        """The whole difference, in one line."""
        logs = ", ".join(self.logs_in_doubt)
        also = f"; records of {logs} may have been shown before" if logs else ""
        if self.refusal is not None:
            how = "with the swap completed" if self.swapped else "as they are"
            return f"{self.refusal}; showing the files {how}{also}"
        return _actions([self]) + also


@dataclass(frozen=True, slots=True)
class View:
    """A partition directory in a view.

    Attributes:
        partition: the directory with the files of the view, each under its name there.
        segments: the segments to read, in order: those of the log, and in `all` also leftovers.
        difference: how that differs from the files under final names, None if it does not.
        frontier: what scans the log for its reader; None if all of it is known.
    """

    partition: PartitionDir
    segments: Sequence[Segment]
    difference: Difference | None = None
    frontier: Frontier | None = None

    @property
    def so_far(self) -> View:
        """The view as far as it is known by now: the final one once everything was scanned."""
        if self.frontier is None or self.frontier.unscanned_bytes:
            return self
        return self.frontier.settle()

    @property
    def difference_so_far(self) -> Difference | None:
        """The difference as far as it is known by now, with how much was not scanned."""
        difference = self.so_far.difference
        if self.frontier is None or not (unscanned := self.frontier.unscanned_bytes):
            return difference
        difference = difference or Difference(self.partition.path)
        return replace(difference, unscanned_bytes=unscanned)


def summary(differences: Sequence[Difference]) -> str | None:
    """Summarize the differences of all partitions in one line; None if there are none."""
    if len(differences) < 2:
        return f"{differences[0].path}: {differences[0].detail}" if differences else None
    line = _actions(differences)
    refused = [one.detail for one in differences if one.refusal is not None]
    if refused:
        line += f"; {counted(len(refused), 'partition')} of them: {refused[0]}"
    return f"{differences[0].path} and {counted(len(differences) - 1, 'other partition')}: {line}"


def early_end(place: str, records: int, size_bytes: int) -> str:
    """Describe where logs end too early, and what becomes of the records after that."""
    hidden = f"{counted(records, 'record')} ({counted(size_bytes, 'byte')})"
    return f"end {place} and hide {hidden}, whose offsets new records get"


def _actions(differences: Sequence[Difference]) -> str:
    actions = []
    swapped = sum(one.swapped for one in differences)
    if swapped:
        replaced = sum(one.replaced for one in differences)
        place = f" in place of {replaced}" if replaced else ""
        actions.append(f"make {counted(swapped, '.swap segment')} live{place}")
    hidden = [one for one in differences if one.hidden_bytes]
    cut = [one for one in hidden if one.ends_at is None]
    if cut:
        one_log = f"truncate the log at offset {cut[0].cut_at}"
        logs = one_log if len(differences) == 1 else f"cut {counted(len(cut), 'log')}"
        records, size = _hidden(cut)
        dropped = f"{counted(records, 'record')} ({counted(size, 'byte')})"
        actions.append(f"{logs} and drop {dropped}")
    short = [one for one in hidden if one.ends_at is not None]
    if short:
        one_log = f"the log at offset {short[0].ends_at}"
        logs = one_log if len(differences) == 1 else f"{counted(len(short), 'log')} too early"
        actions.append(early_end(logs, *_hidden(short)))
    unscanned = counted(sum(one.unscanned_bytes for one in differences), "byte")
    is_whole = not any(one.unscanned_bytes for one in differences)
    rest = f"not closed cleanly; {unscanned} that a start scans, and may cut, were not read"
    if not actions:
        return "the next start would not load them" if is_whole else rest
    hint = "dump-segment --view as-is shows the files under final names"
    also = "" if is_whole else f"; {rest}"
    return f"the next start would {', and '.join(actions)}; {hint}{also}"


def _hidden(differences: Sequence[Difference]) -> tuple[int, int]:
    """Return the records and bytes that a start cuts off or hides."""
    records = sum(one.hidden_records for one in differences)
    return records, sum(one.hidden_bytes for one in differences)


def unknown_outcome(partition: PartitionDir, error: DataError) -> View:
    """Return the view of a directory of which a start could not be predicted."""
    return as_it_is(partition, f"what the next start would show is unknown: {error.message}")


def as_it_is(partition: PartitionDir, why: str) -> View:
    """Return the view of a directory as it is on disk, and why nothing else can be shown."""
    return View(partition, partition.segments, Difference(partition.path, refusal=why))
