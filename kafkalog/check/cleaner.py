"""Whether a broker's cleaner gets through a compacted log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from formats import constants as c
from kafkalog.check.batch_checks import PartitionCheck
from kafkalog.check.segments import has_compact_policy
from kafkalog.cleaner_verdict import ENDS_READING
from kafkalog.columnar import header_table as h
from kafkalog.columnar import record_facts as f
from kafkalog.defects import make_defect
from kafkalog.names import DirectoryState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.batch_checks import CheckedPartition, Found
    from kafkalog.columnar.headers import Stretch
    from kafkalog.model import Defect

_WORDS = "A broker's cleaner fails on this partition"


class CleanerGetsThrough(PartitionCheck):
    """No closed segment of a compacted topic has a batch on which a broker's cleaner fails.

    The first one is told: the cleaner comes no further. What is in records is seen at level deep.
    """

    def __init__(self, partition: CheckedPartition) -> None:
        super().__init__(partition)
        self._defect: Defect | None = None

    @classmethod
    def applies(cls, partition: CheckedPartition) -> bool:
        """Whether the partition is live, and its topic is known to be compacted."""
        return partition.directory.state == DirectoryState.LIVE and has_compact_policy(partition)

    def damage(self, defect: Defect) -> None:
        """Something that is no batch comes between those of the segment."""
        self._unreadable(defect.reference, defect.position, defect.offset)

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """Nothing is told here; at the end the first batch on which the cleaner fails is."""
        headers = stretch.headers
        for i in np.flatnonzero(headers[h.MAGIC] > 2)[:1].tolist():
            self._unreadable("magic-unknown", *_place(stretch, i))
        for i, error in stretch.refusals:
            self._unreadable(error.reference, *_place(stretch, i))
        if stretch.facts is not None:
            for i in np.flatnonzero(_stopping(stretch))[:1].tolist():
                offset = int(stretch.facts[f.INVALID_TIME, i])
                why = " as soon as it has to write this batch again: the record at offset "
                self._note(f"{why}{offset} has a negative timestamp.", *_place(stretch, i))
        return iter(())

    def end(self) -> Iterator[Defect]:
        """The first batch on which the cleaner fails."""
        if self._defect is not None:
            yield self._defect

    def _unreadable(self, reference: str, position: int | None, offset: int | None) -> None:
        if reference in ENDS_READING:
            self._note(f": it cannot read past here ({reference}).", position, offset)

    def _note(self, why: str, position: int | None, offset: int | None) -> None:
        if self._defect is None and self.log.next_base_offset is not None:
            self._defect = make_defect(
                "cleaner-stuck", self.log.path, _WORDS + why, position=position, offset=offset
            )


def _stopping(stretch: Stretch) -> NDArray[np.bool_]:
    """Which batches have a time that Kafka does not write, and are written again now or later.

    One of magic 2 with a single record that has a value is copied or goes.
    """
    headers, facts = stretch.headers, stretch.facts
    assert facts is not None, "the level is deep"
    is_written: NDArray[np.bool_] = (facts[f.FOUND] > 1) | (facts[f.TOMBSTONE] >= 0)
    is_written |= (headers[h.MAGIC] < 2) | (headers[h.ATTRIBUTES] & c.CONTROL_MASK != 0)
    is_written &= facts[f.INVALID_TIME] >= 0
    return is_written


def _place(stretch: Stretch, ordinal: int) -> tuple[int, int]:
    headers = stretch.headers
    return int(headers[h.POSITION, ordinal]), int(headers[h.BASE_OFFSET, ordinal])
