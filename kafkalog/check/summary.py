"""Counts of what a run of the checks read and found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kafkalog.model import Severity

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkalog.model import Defect, Level

T = TypeVar("T")


@dataclass
class Summary:
    """Counts of what a run read and found; complete when the walk has ended.

    `bytes_deferred` and `segments_deferred` were deferred because time was up: they are not part of
    `bytes_expected`. `bytes_unreadable` are bytes that the disk did not return: expected, but not
    checked.
    """

    files: int = 0
    batches: int = 0
    records: int = 0
    bytes_expected: int = 0
    bytes_checked: int = 0
    bytes_unreadable: int = 0
    bytes_deferred: int = 0
    segments_deferred: int = 0
    defects: Counter[Severity] = field(default_factory=Counter)
    levels: set[Level] = field(default_factory=set)

    @property
    def grave(self) -> int:
        """Number of defects above a note."""
        return self.defects.total() - self.defects[Severity.NOTE]

    @property
    def is_complete(self) -> bool:
        """Whether all listed bytes have been read or reported as unreadable."""
        return self.bytes_checked + self.bytes_unreadable >= self.bytes_expected

    def give_up(self) -> None:
        """Expect nothing more, because the listed files no longer exist."""
        self.bytes_expected = min(self.bytes_expected, self.bytes_checked + self.bytes_unreadable)

    def counting(self, defects: Generator[Defect, None, T]) -> Generator[Defect, None, T]:
        """Count defects while passing them on."""
        while True:
            try:
                defect = next(defects)
            except StopIteration as end:
                found: T = end.value
                return found
            self.defects[defect.severity] += 1
            yield defect

    def add_looked_at(self, other: Summary) -> None:
        """Add what another run read; its defects are counted as they arrive."""
        self.files += other.files
        self.batches += other.batches
        self.records += other.records
        self.bytes_expected += other.bytes_expected
        self.bytes_checked += other.bytes_checked
        self.bytes_unreadable += other.bytes_unreadable
        self.bytes_deferred += other.bytes_deferred
        self.segments_deferred += other.segments_deferred
        self.levels |= other.levels
