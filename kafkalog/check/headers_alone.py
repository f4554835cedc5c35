"""Invariants of a log's batches by their headers and checksums, without any other file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.check.batch_checks import CheckedLog, SegmentCheck, running_max
from kafkalog.columnar import header_table as h
from kafkalog.defects import make_defect
from kafkalog.model import Level
from kafkalog.reader import crc_defects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.check.batch_checks import Found
    from kafkalog.columnar.headers import Stretch


class ChecksumsMatch(SegmentCheck):
    """The bytes of every batch match its checksum."""

    level = Level.STANDARD

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        for i in np.flatnonzero(~stretch.crc_valid).tolist():
            batch = h.batch_at(stretch.headers, i, self.log.path, crc_valid=False)
            for defect in crc_defects(batch):
                yield i, defect


class MagicIsKnown(SegmentCheck):
    """No batch that is framed as magic 2 says it is of a later one."""

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        headers = stretch.headers
        for i in np.flatnonzero(headers[h.MAGIC] > 2).tolist():
            yield (
                i,
                make_defect(
                    "magic-unknown",
                    self.log.path,
                    f"Magic {headers[h.MAGIC, i]} is unknown.",
                    position=int(headers[h.POSITION, i]),
                    offset=int(headers[h.BASE_OFFSET, i]),
                    size_bytes=int(headers[h.SIZE, i]),
                ),
            )


class OffsetsIncrease(SegmentCheck):
    """Every batch starts after the one before it, and not below the segment's base offset."""

    def __init__(self, log: CheckedLog) -> None:
        super().__init__(log)
        self._last_offset = -1

    @classmethod
    def applies(cls, log: CheckedLog) -> bool:
        """Whether the log has all that the check compares."""
        return log.base_offset is not None

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        headers = stretch.headers
        last = headers[h.LAST_OFFSET]
        first = np.where(headers[h.MAGIC] < 2, last, headers[h.BASE_OFFSET])
        highest = running_max(self._last_offset, last)
        self._last_offset = int(highest[-1])
        below = first < self.log.base_offset
        for i in np.flatnonzero(below | (first <= highest[:-1]) | (last < first)).tolist():
            reference = "batch-offset-not-increasing"
            detail = f"The batch has offsets {first[i]} to {last[i]}, after {highest[i]}."
            if below[i]:
                reference = "batch-below-base-offset"
                detail = f"The batch starts at offset {first[i]}, the segment at "
                detail += f"{self.log.base_offset}."
            yield (
                i,
                make_defect(
                    reference,
                    self.log.path,
                    detail,
                    position=int(headers[h.POSITION, i]),
                    offset=int(first[i]),
                ),
            )
