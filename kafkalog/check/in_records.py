"""Invariants of what is inside batches, by the facts of their decoded records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.check.batch_checks import SegmentCheck
from kafkalog.columnar.header_table import batch_at
from kafkalog.model import Level
from kafkalog.reader import defect_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.check.batch_checks import Found
    from kafkalog.columnar.headers import Stretch


class RecordsDecode(SegmentCheck):
    """The records of every batch with a right checksum can be read, as many as its header says."""

    level = Level.DEEP

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        for i, error in stretch.refusals:
            yield i, defect_of(error, batch_at(stretch.headers, i, self.log.path))
