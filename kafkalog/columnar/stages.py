"""What the pipelines share: work in steps of bounded output, and the defects of decoded rows."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from kafkalog.reader import crc_defects, defect_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.columnar.chunks import Chunk, Rows
    from kafkalog.model import Defect

_OUTPUT_AT_ONCE: Final = 1 << 25


def defects_of(rows: Rows, chunk: Chunk, bad: list[int]) -> list[tuple[int, Defect]]:
    """What is wrong with the batches of these rows, and how many rows come before; in order.

    The checksum of a batch (`bad`: ordinals of wrong ones) is told before its records are judged.
    """
    told = [
        (rows.row_of(i), i, 0, next(crc_defects(chunk.batch(i, crc_valid=False))))
        for i in bad
        if i in rows.started
    ]
    told += [
        (failure.row, failure.ordinal, 1, defect_of(failure.error, chunk.batch(failure.ordinal)))
        for failure in rows.failures
    ]
    told.sort(key=itemgetter(0, 1, 2))
    return [(event[0], event[3]) for event in told]


def advance(steps: Iterator[Any]) -> tuple[list[Any], bool]:
    """Some steps, until their output is large enough; whether they were the last."""
    found: list[Any] = []
    size = 0
    for step in steps:
        found.append(step)
        if isinstance(step, tuple):
            size += step[1] if isinstance(step[1], int) else step[0].nbytes
        if size >= _OUTPUT_AT_ONCE:
            return found, False
    return found, True
