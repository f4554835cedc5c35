"""The order of the batches of a segment by their offsets, which no checksum covers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.check.batches import CheckedLog, SegmentCheck, running_max
from kafkalog.columns import header_table as h
from kafkalog.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.batches import Found
    from kafkalog.columns.headers import Stretch
    from kafkalog.model import Defect

    Table = NDArray[np.int64]

(FIRST, LAST, PLACE, END_PLACE, IS_SOUND, IS_KNOWN, SPAN_FIELDS) = range(7)
"""Rows of a table of spans: first and last offset of a batch, its position and the next one, 1 if
the checksum is right, and 1 if the first offset is known. The first offset of a compressed
message of magic 0 or 1 is known only if the message was decoded.
"""

_NOWHERE: Final = -c.INT64_MAX - 1


def spans_of(stretch: Stretch) -> Table:
    """Return the spans of all batches."""
    headers, facts = stretch.headers, stretch.facts
    spans = np.empty((SPAN_FIELDS, stretch.count), np.int64)
    spans[FIRST], spans[LAST] = headers[h.BASE_OFFSET], headers[h.LAST_OFFSET]
    spans[PLACE], spans[END_PLACE] = headers[h.POSITION], headers[h.POSITION] + headers[h.SIZE]
    spans[IS_SOUND], spans[IS_KNOWN] = stretch.crc_valid, 1
    is_wrapper = headers[h.MAGIC] < 2
    is_wrapper &= headers[h.ATTRIBUTES] & c.COMPRESSION_MASK != 0
    if is_wrapper.any():
        spans[IS_KNOWN, is_wrapper] = 0
        if facts is not None:
            decoded = is_wrapper & (facts[h.FOUND] > 0)
            spans[FIRST, decoded], spans[IS_KNOWN, decoded] = facts[h.FIRST, decoded], 1
    return spans


def follows(spans: Table, end_position: int) -> NDArray[np.bool_]:
    """Return whether each batch starts where the one before it ends."""
    follows: NDArray[np.bool_] = spans[PLACE] == np.concatenate(
        ([end_position], spans[END_PLACE, :-1])
    )
    return follows


class OffsetsIncrease(SegmentCheck):
    """Every batch starts after the one before it, in its segment, and ends before the next segment.

    If another base offset would fit exactly between a batch's neighbours, only that batch is
    reported. Each batch is judged once the next one is known.
    """

    def __init__(self, log: CheckedLog) -> None:
        super().__init__(log)
        assert log.base_offset is not None, "the check applies"
        self._base_offset = log.base_offset
        self._held = np.empty((SPAN_FIELDS, 0), np.int64)
        self._expected = log.base_offset
        self._highest = -1
        self._end_position = 0

    @classmethod
    def applies(cls, log: CheckedLog) -> bool:
        """Return whether the log has everything that the check compares."""
        return log.base_offset is not None

    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """Yield the defects of the next batches, ordered by batch number."""
        shift = 1 - self._held.shape[1]
        spans = np.concatenate([self._held, spans_of(stretch)], axis=1)
        self._held = spans[:, -1:]
        is_evidence = (spans[IS_SOUND] == 1) & (spans[IS_KNOWN] == 1)
        is_evidence[1:] &= spans[PLACE, 1:] == spans[END_PLACE, :-1]
        following = np.where(is_evidence, spans[FIRST], _NOWHERE)[1:]
        for i, defect in self._judge(spans[:, :-1], following):
            yield i + shift, defect

    def end(self) -> Iterator[Defect]:
        """Yield the defects of the last batch, which may reach into the next segment."""
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
        """Yield the defects of some batches, given the first offsets of those after them."""
        numbers = np.flatnonzero(spans[IS_SOUND] == 1)
        if not len(numbers):
            return
        spans, following = spans[:, numbers], following[numbers]
        first, last = spans[FIRST], spans[LAST]
        expected = np.concatenate(([self._expected], last[:-1] + 1))
        fits = expected + (last - first) + 1 == following
        displaced = fits & (first != expected) & (spans[IS_KNOWN] == 1)
        displaced &= follows(spans, self._end_position)
        highest = running_max(self._highest, np.where(displaced, -1, last))
        odd = (first < self._base_offset) | (first <= highest[:-1]) | (last < first)
        self._highest = int(highest[-1])
        self._expected, self._end_position = int((last + 1)[-1]), int(spans[END_PLACE, -1])
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
                int(numbers[i]),
                make_defect(
                    reference,
                    self.log.path,
                    detail,
                    position=int(spans[PLACE, i]),
                    offset=int(first[i]),
                ),
            )
