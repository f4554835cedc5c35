"""Invariants of what is inside batches, by the facts of their decoded records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.check.batch_checks import SegmentCheck
from kafkalog.check.headers_alone import defect_at
from kafkalog.columnar import header_table as h
from kafkalog.columnar import record_facts as f
from kafkalog.columnar.header_table import batch_at
from kafkalog.model import Level
from kafkalog.reader import defect_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.batch_checks import Found
    from kafkalog.columnar.headers import Stretch

_NO_TIMESTAMP: Final = -1


class RecordsDecode(SegmentCheck):
    """The records of every batch with a right checksum can be read, as many as its header says."""

    level = Level.DEEP

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        for i, error in stretch.refusals:
            # The headers have told of a codec that does not exist.
            if error.reference != "unknown-codec":
                yield i, defect_of(error, batch_at(stretch.headers, i, self.log.path))


class RecordOffsetsFitBatches(SegmentCheck):
    """Offsets rise from record to record, within the offsets of the batch.

    Of magic 0 and 1 a batch says only its last offset, which is that of its last message.
    """

    level = Level.DEEP

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        headers, facts = stretch.headers, stretch.facts
        if facts is None:
            return
        is_old = headers[h.MAGIC] < 2
        first, last = headers[h.BASE_OFFSET], headers[h.LAST_OFFSET]
        outside = (facts[f.FIRST] < first) & ~is_old
        # The offset 0 of an old compressed message says nothing: some producers left it so.
        outside |= np.where(is_old & (last != 0), facts[f.LAST] != last, facts[f.LAST] > last)
        disorder = facts[f.DISORDER] >= 0
        for i in np.flatnonzero((outside | disorder) & _decoded(stretch)).tolist():
            detail = f"The records have offsets {facts[f.FIRST, i]} to {facts[f.LAST, i]}, "
            detail += f"the batch {first[i]} to {last[i]}."
            if disorder[i]:
                detail = f"Record {facts[f.DISORDER, i]} of the batch does not follow the offset "
                detail += "of the one before it."
            yield i, defect_at(self.log.path, stretch, i, "record-offset-invalid", detail)


class MaxTimestampsAreRight(SegmentCheck):
    """The largest timestamp in a batch is the one that its header says.

    The broker sets it when it appends (`LogValidator`), and the cleaner when it drops records
    (`MemoryRecords.filterTo`); a batch that lost all of them keeps the old one. With LogAppendTime
    the header is all there is. Messages of magic 0 inside one of magic 1 have no timestamps. All
    of them begin to look for the largest at -1: that is what a batch says whose records lie below.
    """

    level = Level.DEEP

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        headers, facts = stretch.headers, stretch.facts
        if facts is None:
            return
        magic, largest = headers[h.MAGIC], facts[f.TIME_MAX]
        judged = (headers[h.ATTRIBUTES] & c.TIMESTAMP_TYPE_MASK == 0) & (magic > 0)
        judged &= _decoded(stretch) & ((magic > 1) | (largest != -1))
        said = np.maximum(largest, _NO_TIMESTAMP)
        for i in np.flatnonzero(judged & (said != headers[h.MAX_TIMESTAMP])).tolist():
            detail = f"The header says {headers[h.MAX_TIMESTAMP, i]}, its records {largest[i]}."
            yield i, defect_at(self.log.path, stretch, i, "max-timestamp-wrong", detail)


def _decoded(stretch: Stretch) -> NDArray[np.bool_]:
    """Which batches have records, all of which were read."""
    assert stretch.facts is not None, "the level is deep"
    found: NDArray[np.bool_] = stretch.facts[f.FOUND] > 0
    found[[ordinal for ordinal, _ in stretch.refusals]] = False
    return found
