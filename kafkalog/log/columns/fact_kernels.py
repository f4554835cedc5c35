"""Compiled loops that summarize the records of batches, as one column per batch.

Follows `DefaultRecordBatch` and `EndTransactionMarker` of Kafka.
"""

from __future__ import annotations

import numpy as np

from formats import constants as c
from kafkalog.io.jit.native import kernel
from kafkalog.log.columns import header_table
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.byte_kernels import int16, int32, varint, varlong

# numba compiles these functions: plain loops, no annotations, constants taken in at compile time.
# mypy: disable-error-code="no-untyped-def,no-untyped-call"


_FOUND, _FIRST, _LAST, _DISORDER = (
    header_table.FOUND,
    header_table.FIRST,
    header_table.LAST,
    header_table.DISORDER,
)
_TIME_MAX, _OFFSET_OF_MAX = header_table.TIME_MAX, header_table.OFFSET_OF_MAX
_INVALID_TIME, _TOMBSTONE = header_table.INVALID_TIME, header_table.TOMBSTONE
_UNREADABLE = header_table.UNREADABLE
_NO_TIMESTAMP = c.NO_TIMESTAMP


@kernel("table int table")
def gather_facts(rows, count, facts):
    """Update the facts with `count` rows, which continue where the previous rows ended.

    Args:
        rows: table of `kernels.ROW_FIELDS` rows.
        count: number of records in it.
        facts: table of FACT_FIELDS rows, one column per batch; updated.
    """
    for row in range(count):
        batch = rows[k.ORDINAL, row]
        offset = rows[k.OFFSET, row]
        timestamp = rows[k.TIMESTAMP, row]
        # Offset -1 means none in these columns, so negative ones are left out.
        if timestamp < _NO_TIMESTAMP and offset >= 0 and facts[_INVALID_TIME, batch] < 0:
            facts[_INVALID_TIME, batch] = offset
        if rows[k.VALUE_SIZE, row] < 0 and offset >= 0 and facts[_TOMBSTONE, batch] < 0:
            facts[_TOMBSTONE, batch] = offset
        found = facts[_FOUND, batch]
        facts[_FOUND, batch] = found + 1
        if found == 0:
            facts[_FIRST, batch] = offset
            facts[_LAST, batch] = offset
            facts[_TIME_MAX, batch] = timestamp
            facts[_OFFSET_OF_MAX, batch] = offset
            continue
        if offset > facts[_LAST, batch]:
            facts[_LAST, batch] = offset
        elif facts[_DISORDER, batch] < 0:
            facts[_DISORDER, batch] = found
        if offset < facts[_FIRST, batch]:
            facts[_FIRST, batch] = offset
        if timestamp > facts[_TIME_MAX, batch]:
            facts[_TIME_MAX, batch] = timestamp
            facts[_OFFSET_OF_MAX, batch] = offset


@kernel("ints int int ints", results=1)
def list_due(positions, last, interval, due):
    """List the batches for which index entries are due: those far enough behind the last entry.

    Args:
        positions: positions of batches, rising.
        last: position of the last entry.
        interval: how many bytes may follow it.
        due: filled with ordinals; as long as `positions`.

    Returns:
        The number of these batches.
    """
    count = 0
    for i in range(len(positions)):
        if positions[i] - last > interval:
            due[count] = i
            count += 1
            last = positions[i]
    return count


@kernel("bytes ints ints ints ints ints")
def read_markers(data, starts, ends, types, epochs, deltas):
    """Read types, coordinator epochs and timestamps of transaction markers.

    Args:
        data: the bytes that `starts` and `ends` point into.
        starts, ends: where the uncompressed records of some control batches are.
        types: filled with the types; UNREADABLE if the first record is neither ABORT nor COMMIT, so
            that the reference decoder examines it.
        epochs: filled with the coordinator epochs.
        deltas: filled with the timestamps, relative to the base timestamp of the batch.
    """
    for i in range(len(starts)):
        types[i] = _UNREADABLE
        end = ends[i]
        length, at = varint(data, starts[i], end)
        # A marker is alone in its batch (EndTransactionMarker); anything else is left to the
        # reference.
        if at < 0 or length != end - at or length < 1:
            continue
        delta, at = varlong(data, at + 1, end)
        if at < 0:
            continue
        _, at = varint(data, at, end)
        if at < 0:
            continue
        size, at = varint(data, at, end)
        if at < 0 or size != 4 or size > end - at:
            continue
        kind = int16(data, at + 2)
        if int16(data, at) != 0 or kind < 0 or kind > 1:
            continue
        size, at = varint(data, at + 4, end)
        if at < 0 or size != 6 or size > end - at or int16(data, at) != 0:
            continue
        epoch = int32(data, at + 2)
        count, at = varint(data, at + 6, end)
        if at != end or count != 0:
            continue
        types[i] = kind
        epochs[i] = np.int64(epoch)
        deltas[i] = delta
