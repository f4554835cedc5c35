"""The order of leader epochs along a log; no checksum covers them.

Follows `LeaderEpochFileCache` of Kafka 4.3: a leader writes its own epoch into every batch, and an
epoch is never given again. Messages of magic 0 and 1 have none, nor have the batches that the
cleaner makes of them (-1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.check.batch_checks import PartitionCheck
from kafkalog.columnar import header_table as h
from kafkalog.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.check.batch_checks import CheckedPartition, Found
    from kafkalog.columnar.headers import Stretch


class LeaderEpochsDoNotDecrease(PartitionCheck):
    """No batch has a lower leader epoch than the batch before it.

    Where the batch before is the only one with its epoch, it is the one that is told.
    """

    def __init__(self, partition: CheckedPartition) -> None:
        super().__init__(partition)
        # Of the two batches before: epoch, path, position, base offset.
        self._before: list[tuple[int, str, int, int]] = []

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        headers = stretch.headers
        which = np.flatnonzero(
            stretch.crc_valid & (headers[h.MAGIC] >= 2) & (headers[h.EPOCH] != -1)
        )
        if not len(which):
            return
        epochs = np.concatenate(([row[0] for row in self._before], headers[h.EPOCH, which]))
        known = len(self._before)
        for i in (np.flatnonzero(epochs[1:] < epochs[:-1]) + 1).tolist():
            if i < known:
                continue
            rows = [self._row(stretch, int(which[k - known])) if k >= known else self._before[k]
                    for k in range(max(i - 2, 0), i + 1)]  # fmt: skip
            is_single = len(rows) == 2 or rows[0][0] <= rows[2][0]
            epoch, path, position, offset = rows[-2] if is_single else rows[-1]
            other = rows[-1] if is_single else rows[-2]
            detail = f"The batch has leader epoch {epoch}, its neighbour at offset {other[3]} has "
            detail += f"{other[0]}."
            yield (
                int(which[i - known]),
                make_defect("leader-epoch-decreases", path, detail, position=position,
                            offset=offset),
            )  # fmt: skip
        last = [self._row(stretch, int(number)) for number in which[-2:]]
        self._before = [*self._before, *last][-2:]

    def _row(self, stretch: Stretch, number: int) -> tuple[int, str, int, int]:
        row = stretch.headers[:, number]
        return int(row[h.EPOCH]), self.log.path, int(row[h.POSITION]), int(row[h.BASE_OFFSET])
