"""How `compact` is shown: what becomes of each partition, and why of some nothing."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from kafkalog.compaction import Dropped, Skip, Tally
from kafkalog.paths import file_system
from kafkalog.storage import final_path
from kafkalog_cli.output.configs import (
    config_rows,
    configs_text,
    mark_rows,
    marks_text,
    print_heading,
)
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import counted, left_overs_text, size_cell

if TYPE_CHECKING:
    from kafkalog.compaction import Candidate, Compaction
    from kafkalog.errors import KafkaLogError
    from kafkalog.log_dir import PartitionDir
    from kafkalog_cli.output.objects import Row


@dataclass(frozen=True)
class Shown:
    """A partition as it is shown: what came of it, or the error that stopped the work on it."""

    partition: PartitionDir
    compaction: Compaction | None
    error: KafkaLogError | None = None

    @property
    def skipped(self) -> str | None:
        """Why it is left as it is."""
        if self.error is not None:
            return f"{self.error.reference}: {self.error.message}"
        skip = None if self.compaction is None else self.compaction.candidate.skip
        return None if skip is None else str(skip)


@dataclass
class CompactionSummary:
    """What all partitions come to.

    Attributes:
        now_ms: the clock that was used.
        is_done: whether anything may have been written.
        given_up: of each partition that a broker's cleaner gives up: which it is, and why.
    """

    now_ms: int
    is_done: bool
    partitions: int = 0
    compacted: int = 0
    clean_enough: int = 0
    left_overs: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    tally: Tally = field(default_factory=Tally)
    given_up: list[str] = field(default_factory=list)

    def add(self, shown: Shown) -> None:
        """Count one more partition."""
        self.partitions += 1
        found = shown.compaction
        self.clean_enough += found is not None and found.candidate.skip == Skip.CLEAN_ENOUGH
        if shown.skipped is None and found is not None:
            self.compacted += 1
            self.left_overs += len(_left_overs(shown))
            self.bytes_before += found.bytes_before
            self.bytes_after += found.bytes_after
            self.tally.add(found.tally)
            if found.tally.cleaner_gives_up is not None:
                self.given_up.append(f"{_name(shown.partition)}: {found.tally.cleaner_gives_up}")


def compaction_view(*, exact: bool) -> View[Shown]:
    """One row a partition."""

    def cell(shown: Shown, name: str) -> str:
        found = shown.compaction
        if found is None or found.candidate.cleanable is None:
            return "-"
        if name == "ratio":
            return f"{100 * found.candidate.cleanable.ratio:.0f}%"
        if name == "dirty":
            return str(found.candidate.cleanable.first_dirty_offset)
        return "-" if shown.skipped else _value(found, name, exact=exact)

    def column(title: str, name: str) -> Column[Shown]:
        return Column(title, lambda shown: cell(shown, name), right=True)

    return View(
        (
            Column("PARTITION", lambda shown: _name(shown.partition), fold=True),
            column("DIRTY", "dirty"),
            column("CLEAN TO", "next"),
            column("RATIO", "ratio"),
            column("READ", "read"),
            column("KEPT", "kept"),
            column("BEFORE", "before"),
            column("AFTER", "after"),
            Column("SKIPPED", lambda shown: shown.skipped or "-", fold=True, below=True),
        ),
        compaction_row,
    )


def _value(found: Compaction, name: str, *, exact: bool) -> str:
    if name in ("before", "after"):
        size = found.bytes_before if name == "before" else found.bytes_after
        return size_cell(size, exact=exact)
    tally = found.tally
    values = {"next": found.next_dirty_offset, "read": tally.records_read}
    return str(values.get(name, tally.records_kept))


def compaction_row(shown: Shown) -> Row:
    """The object for a partition."""
    found = shown.compaction
    candidate = None if found is None else found.candidate
    cleanable = None if candidate is None else candidate.cleanable
    tally = Tally() if found is None else found.tally
    return {
        "type": "compaction",
        "path": final_path(shown.partition.path),
        "topic": shown.partition.topic,
        "partition": shown.partition.partition,
        "is_done": found is not None and found.is_done,
        "first_dirty_offset": None if cleanable is None else cleanable.first_dirty_offset,
        "first_uncleanable_offset": (
            None if cleanable is None else cleanable.first_uncleanable_offset
        ),
        "next_dirty_offset": None if found is None else found.next_dirty_offset,
        "is_complete": found is not None and found.is_complete,
        "clean_bytes": None if cleanable is None else cleanable.clean_bytes,
        "cleanable_bytes": None if cleanable is None else cleanable.cleanable_bytes,
        "passes": 0 if found is None else found.passes,
        "keys": 0 if found is None else found.keys,
        "records_read": tally.records_read,
        "records_kept": tally.records_kept,
        "dropped": {why.value: tally.dropped[why] for why in Dropped},
        "bytes_before": None if found is None else found.bytes_before,
        "bytes_after": None if found is None else found.bytes_after,
        "groups": [] if found is None else [asdict(group) for group in found.groups],
        "configs": [] if candidate is None else config_rows(candidate.configs),
        "marks": [] if candidate is None else mark_rows(candidate.marks),
        "left_overs": _left_overs(shown),
        "cleaner_gives_up": tally.cleaner_gives_up,
        "skipped": shown.skipped,
    }


def compaction_summary_row(summary: CompactionSummary) -> Row:
    """The last object of a run."""
    return {
        "type": "compaction_summary",
        "now": summary.now_ms,
        "is_done": summary.is_done,
        "partitions": summary.partitions,
        "compacted": summary.compacted,
        "records_read": summary.tally.records_read,
        "records_kept": summary.tally.records_kept,
        "bytes_before": summary.bytes_before,
        "bytes_after": summary.bytes_after,
    }


def print_candidate(candidate: Candidate) -> None:
    """The lines above the table of a partition that was named."""
    lines = [
        f"{final_path(candidate.partition.path)}: {marks_text(candidate.marks)}",
        configs_text(candidate.configs),
    ]
    print_heading(lines)


def print_compaction_summary(summary: CompactionSummary, *, exact: bool, in_place: bool) -> None:
    """The lines below the table: what it comes to, and what is dropped why."""
    before = size_cell(summary.bytes_before, exact=exact)
    after = size_cell(summary.bytes_after, exact=exact)
    verb = "compacted" if summary.is_done else "would be compacted"
    line = f"{counted(summary.compacted, 'partition')} {verb}"
    if summary.compacted:
        line += f", from {before} to {after}"
    dropped = [
        f"{count} {why.value.replace('_', ' ')}"
        for why in Dropped
        if (count := summary.tally.dropped[why])
    ]
    lines = [line]
    if dropped:
        lines.append(f"dropped: {', '.join(dropped)}")
    if summary.left_overs:
        lines.append(left_overs_text(summary.left_overs, is_done=summary.is_done))
    lines += [f"a broker's cleaner fails on this partition: {one}" for one in summary.given_up]
    if summary.clean_enough:
        lines.append(f"--all adds {summary.clean_enough} more that a broker would skip")
    if summary.compacted and not in_place:
        lines.append("nothing was changed; --in-place applies the plan")
    print_heading(lines)


def _left_overs(shown: Shown) -> list[str]:
    """Names of the files of earlier deletions that go with it."""
    if shown.skipped is not None:
        return []
    return [entry.name.name for entry in shown.partition.left_overs]


def _name(partition: PartitionDir) -> str:
    return os.path.basename(file_system.absolute(partition.path))
