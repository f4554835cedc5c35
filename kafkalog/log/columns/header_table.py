"""Batch headers, markers and facts of records as tables: a row per field, a column per batch.

The kernels fill such tables from a large log; here they are built from batches, and converted back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.model import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# Fields of a header table.
(POSITION, SIZE, BASE_OFFSET, LAST_OFFSET, MAGIC, ATTRIBUTES, CRC, EPOCH, BASE_TIMESTAMP,
 MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, COUNT,
 HEADER_FIELDS) = range(15)  # fmt: skip

(FOUND, FIRST, LAST, DISORDER, TIME_MAX, OFFSET_OF_MAX, INVALID_TIME, TOMBSTONE,
 FACT_FIELDS) = range(9)  # fmt: skip
"""Rows of a table of facts: number of records decoded (-1: not decoded), the smallest and the
largest offset, ordinal of the first record that does not follow the one before it (-1: all do),
the largest timestamp and the first offset that has it, the first offset >= 0 with a timestamp
below -1 (-1: none) and the first offset >= 0 without a value (-1: none).
"""

(MARKER_TYPE, COORDINATOR_EPOCH, MARKER_TIMESTAMP, MARKER_FIELDS) = range(4)
"""Rows of a table of markers: the type of a control batch's first record, the coordinator epoch in
a transaction marker and its timestamp in milliseconds (both -1 in other batches).
"""

NO_MARKER: Final = -1
"""In the row MARKER_TYPE: not a control batch."""
EMPTIED: Final = -2
"""In the row MARKER_TYPE: a control batch without records, as the cleaner leaves it."""
UNREADABLE: Final = -3
"""In the row MARKER_TYPE: a control batch whose record cannot be read."""


def table_of(batches: Sequence[Batch]) -> NDArray[np.int64]:
    rows = [
        (
            batch.position,
            batch.size_bytes,
            batch.base_offset,
            batch.last_offset,
            batch.magic,
            batch.attributes,
            batch.crc,
            batch.leader_epoch,
            batch.base_timestamp,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.records,
        )
        for batch in batches
    ]
    return np.ascontiguousarray(np.array(rows, np.int64).reshape(-1, HEADER_FIELDS).T)


def batch_at(
    headers: NDArray[np.int64], ordinal: int, path: str, crc_valid: bool | None = None
) -> Batch:
    """Return one batch of the table, with the path of its file."""
    row = headers[:, ordinal].tolist()
    return Batch(
        path=path,
        position=row[POSITION],
        size_bytes=row[SIZE],
        base_offset=row[BASE_OFFSET],
        last_offset=row[LAST_OFFSET],
        magic=row[MAGIC],
        attributes=row[ATTRIBUTES],
        crc=row[CRC],
        leader_epoch=row[EPOCH],
        base_timestamp=row[BASE_TIMESTAMP],
        max_timestamp=row[MAX_TIMESTAMP],
        producer_id=row[PRODUCER_ID],
        producer_epoch=row[PRODUCER_EPOCH],
        base_sequence=row[BASE_SEQUENCE],
        records=row[COUNT],
        crc_valid=crc_valid,
    )
