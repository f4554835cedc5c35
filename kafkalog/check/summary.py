"""What a run of the checks looked at and found, in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.model import Level, Severity


@dataclass
class Summary:
    """What a run looked at and found; complete when the walk has ended.

    `bytes_deferred` and `segments_deferred` were put off because the time was up: they are not
    among `bytes_expected`.
    """

    files: int = 0
    batches: int = 0
    records: int = 0
    bytes_expected: int = 0
    bytes_checked: int = 0
    bytes_deferred: int = 0
    segments_deferred: int = 0
    defects: Counter[Severity] = field(default_factory=Counter)
    levels: set[Level] = field(default_factory=set)

    def add_looked_at(self, other: Summary) -> None:
        """What another run looked at belongs to this one; its defects are counted as they come."""
        self.files += other.files
        self.batches += other.batches
        self.records += other.records
        self.bytes_expected += other.bytes_expected
        self.bytes_checked += other.bytes_checked
        self.levels |= other.levels
