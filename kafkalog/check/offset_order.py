"""The order of the batches of a segment by their offsets, which no checksum covers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.check.batch_checks import CheckedLog, SegmentCheck, running_max
from kafkalog.columnar import header_table as h
from kafkalog.columnar import record_facts as f
from kafkalog.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.batch_checks import Found
    from kafkalog.columnar.headers import Stretch
    from kafkalog.model import Defect

    Table = NDArray[np.int64]

(FIRST, LAST, PLACE, IS_KNOWN, SPAN_FIELDS) = range(5)
"""Rows of a table of spans: first and last offset of a batch, its position, and 1 where the first
offset is known: that of a compressed message of magic 0 or 1 is so only where it was decoded."""

_NOWHERE: Final = -c.INT64_MAX - 1


def spans_of(stretch: Stretch) -> tuple[Table, NDArray[np.int64]]:
    """The spans of the batches with a right checksum, and their numbers in the stretch."""
    headers, facts = stretch.headers, stretch.facts
    spans = np.empty((SPAN_FIELDS, stretch.count), np.int64)
    spans[FIRST], spans[LAST] = headers[h.BASE_OFFSET], headers[h.LAST_OFFSET]
    spans[PLACE], spans[IS_KNOWN] = headers[h.POSITION], 1
    is_wrapper = headers[h.MAGIC] < 2
    is_wrapper &= headers[h.ATTRIBUTES] & c.COMPRESSION_MASK != 0
    if is_wrapper.any():
        spans[IS_KNOWN, is_wrapper] = 0
        if facts is not None:
            decoded = is_wrapper & (facts[f.FOUND] > 0)
            spans[FIRST, decoded], spans[IS_KNOWN, decoded] = facts[f.FIRST, decoded], 1
    numbers = np.flatnonzero(stretch.crc_valid)
    return spans[:, numbers], numbers


class OffsetsIncrease(SegmentCheck):
    """Every batch starts after the one before it, in its segment, and ends before the next segment.

    Where another base offset would fit exactly between the batch before and the batch after, only
    that batch is told. Each batch is judged when the next one is known.
    """

    def __init__(self, log: CheckedLog) -> None:
        super().__init__(log)
        assert log.base_offset is not None, "the check applies"
        self._base_offset = log.base_offset
        self._held = np.empty((SPAN_FIELDS, 0), np.int64)
        self._expected = log.base_offset
        self._highest = -1

    @classmethod
    def applies(cls, log: CheckedLog) -> bool:
        """Whether the log has all that the check compares."""
        return log.base_offset is not None

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""
        spans, numbers = spans_of(stretch)
        if not len(numbers):
            return
        spans = np.concatenate([self._held, spans], axis=1)
        numbers = numbers[1 - self._held.shape[1] :]
        self._held = spans[:, -1:]
        following = np.where(spans[IS_KNOWN, 1:] == 1, spans[FIRST, 1:], _NOWHERE)
        for i, defect in self._judge(spans[:, :-1], following):
            yield int(numbers[i]), defect

    def end(self) -> Iterator[Defect]:
        """The last batch, and whether it reaches into the next segment."""
        next_base = self.log.next_base_offset
        following = np.full(self._held.shape[1], _NOWHERE if next_base is None else next_base)
        for _, defect in self._judge(self._held, following):
            yield defect
        if next_base is not None and self._highest >= next_base:
            yield make_defect(
                "segments-overlap",
                self.log.path,
                f"The segment ends at offset {self._highest}, the next one starts at {next_base}.",
                offset=next_base,
            )

    def _judge(self, spans: Table, following: NDArray[np.int64]) -> Iterator[tuple[int, Defect]]:
        """What is wrong with some batches, given the first offsets of those after them."""
        if not spans.shape[1]:
            return
        first, last = spans[FIRST], spans[LAST]
        expected = np.concatenate(([self._expected], last[:-1] + 1))
        fits = expected + (last - first) + 1 == following
        displaced = fits & (first != expected) & (spans[IS_KNOWN] == 1)
        highest = running_max(self._highest, np.where(displaced, -1, last))
        odd = (first < self._base_offset) | (first <= highest[:-1]) | (last < first)
        self._highest = int(highest[-1])
        self._expected = int((following if displaced[-1] else last + 1)[-1])
        for i in np.flatnonzero(odd | displaced).tolist():
            reference = "batch-offset-not-increasing"
            detail = f"The batch has offsets {first[i]} to {last[i]}, after {highest[i]}."
            if displaced[i]:
                reference = "batch-offset-displaced"
                detail = f"The batch has base offset {first[i]}; between its neighbours "
                detail += f"{expected[i]} is right."
            elif first[i] < self._base_offset:
                reference = "batch-below-base-offset"
                detail = f"The batch starts at offset {first[i]}, the segment at "
                detail += f"{self._base_offset}."
            yield (
                i,
                make_defect(
                    reference,
                    self.log.path,
                    detail,
                    position=int(spans[PLACE, i]),
                    offset=int(first[i]),
                ),
            )
