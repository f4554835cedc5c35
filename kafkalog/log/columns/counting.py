"""Counts records by the headers of their batches, decoding only those that a bound can cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from formats import constants as c
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.scan_steps import Part, RecordWork, wanted_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from kafkalog.log.batches.selection import ReadPlan
    from kafkalog.log.columns.chunks import Chunk, Rows, Turn
    from kafkalog.model import Record

# length, attributes, two deltas, two sizes and the number of headers, a byte each
_RECORD_SIZE_MIN: Final = 7
_RATIO_MAX: Final = 1024
"""A batch that claims more records than such a compression ratio allows is decoded."""


class Counts:
    """A format for records: how many there are."""

    rows_max = 1 << 16

    def left_over(self, _headers: NDArray[np.int64]) -> None:
        """See `scan_steps.RecordFormat`."""
        return

    def of_rows(self, rows: Rows, _chunk: Chunk) -> Iterator[Part]:
        """See `scan_steps.RecordFormat`."""
        yield count_part(rows.table.shape[1])

    def of_records(self, records: list[Record], *, begins: bool) -> Iterator[Part]:  # noqa: ARG002
        """See `scan_steps.RecordFormat`."""
        yield count_part(len(records))

    def cut(self, _content: Any, first: int, last: int) -> int:
        """See `scan_steps.Format`."""
        return last - first

    def release(self, content: Any) -> None:
        """See `scan_steps.Format`."""


def count_part(count: int) -> Part:
    """Return the part that stands for some records."""
    return Part(count, count, 0)


@dataclass(frozen=True, slots=True)
class CountWork(RecordWork):
    """Counts the wanted records."""

    def of_plan(self, plan: ReadPlan) -> CountWork:
        return replace(self, plan=plan)

    def steps(self, chunk: Chunk) -> Iterator[Part | Turn]:
        headers, valid = chunk.headers, chunk.crc_valid
        wanted = wanted_batches(headers, self.plan)
        whole = wanted & valid & self._taken_whole(headers)
        yield count_part(int(headers[k.COUNT][whole].sum()))
        cut = wanted & ~whole
        reported = cut & ~valid
        if self.plan.selection.sound:
            cut &= valid
        if cut.any() or reported.any():
            yield from self.decoded(chunk, cut, reported)

    def _taken_whole(self, headers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the batches of which all records are wanted, if their headers are plausible."""
        selection = self.plan.selection
        count, base, last = headers[k.COUNT], headers[k.BASE_OFFSET], headers[k.LAST_OFFSET]
        is_packed = headers[k.ATTRIBUTES] & c.COMPRESSION_MASK != 0
        room = headers[k.SIZE] - c.RECORD_BATCH_OVERHEAD
        room[is_packed] *= _RATIO_MAX
        whole: NDArray[np.bool_] = (headers[k.MAGIC] == 2) & (count >= 0)
        # A count that cannot be is not believed: the records are decoded.
        whole &= (count <= last - base + 1) & (count * _RECORD_SIZE_MIN <= room)
        # A header has no lower bound for its records' times.
        if selection.from_time is not None or selection.to_time is not None:
            whole[:] = False
        if selection.from_offset is not None:
            whole &= base >= selection.from_offset
        if selection.to_offset is not None:
            whole &= last < selection.to_offset
        return whole
