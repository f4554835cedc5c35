"""The kernel that replays appends: where segments end, by columns of batch headers.

Follows `LogSegment.shouldRoll`, `LogSegment.append` and `TimeIndex.maybeAppend` of Kafka 4.3, each
batch an append of its own. `kafkalog.roll.replay` is its reference twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.constants import INT32_MAX
from kafkalog.columns.header_table import BASE_OFFSET, LAST_OFFSET, MAGIC, MAX_TIMESTAMP, SIZE
from kafkalog.jit.native import inlined, kernel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Fields of a segment, as it is and as it ended. Missing timestamps are -1.
(SEGMENT_BASE, SEGMENT_LAST, SEGMENT_SIZE, SEGMENT_BATCHES, FIRST_TIMESTAMP, LARGEST_TIMESTAMP,
 INDEX_ENTRIES, TIME_ENTRIES, ROLLED_BY, SEGMENT_FIELDS) = range(10)  # fmt: skip
# Further state while a segment is appended to.
(BYTES_SINCE_ENTRY, INDEXED_TIMESTAMP, REFUSED, UNTIMED, ORDINAL,
 STATE_FIELDS) = range(SEGMENT_FIELDS, SEGMENT_FIELDS + 6)  # fmt: skip
# Settings.
(SEGMENT_BYTES, SEGMENT_MS, OFFSET_ENTRIES_MAX, TIME_ENTRIES_MAX, INTERVAL_BYTES,
 SETTINGS) = range(6)  # fmt: skip
# Values of ROLLED_BY.
NOT_ROLLED, BY_BYTES, BY_TIME, BY_INDEX, BY_RANGE = range(5)


@inlined
def why_roll(
    state: NDArray[np.int64],
    settings: NDArray[np.int64],
    jitters: NDArray[np.int64],
    size: int,
    timestamp: int,
    last_offset: int,
) -> int:
    """Return why a batch starts a new segment, else NOT_ROLLED; conditions are in Kafka's order."""
    if state[SEGMENT_SIZE] > settings[SEGMENT_BYTES] - size:
        return BY_BYTES
    if state[SEGMENT_SIZE] > 0:
        if state[FIRST_TIMESTAMP] < 0:
            state[UNTIMED] += 1
        else:
            limit = settings[SEGMENT_MS] - jitters[state[ORDINAL] % jitters.shape[0]]
            if timestamp - state[FIRST_TIMESTAMP] > limit:
                return BY_TIME
    if (
        state[INDEX_ENTRIES] >= settings[OFFSET_ENTRIES_MAX]
        or state[TIME_ENTRIES] >= settings[TIME_ENTRIES_MAX] - 1
    ):
        return BY_INDEX
    distance = last_offset - state[SEGMENT_BASE]
    if distance < 0 or distance > INT32_MAX:
        return BY_RANGE
    return NOT_ROLLED


@kernel("table int ints ints ints table", results=2)
def replay_headers(
    headers: NDArray[np.int64],
    first: int,
    settings: NDArray[np.int64],
    jitters: NDArray[np.int64],
    state: NDArray[np.int64],
    out: NDArray[np.int64],
) -> tuple[int, int]:
    """Append the batches from ordinal `first` on, until all are appended or `out` is full.

    Args:
        headers: a header table.
        first: ordinal of the first batch.
        settings: SETTINGS values.
        jitters: the jitter of each segment, by its ordinal modulo their number.
        state: STATE_FIELDS values of the active segment; changed.
        out: SEGMENT_FIELDS rows, a column per segment that ended.

    Returns:
        The ordinal of the first batch that was not appended, and the number of segments that ended.
    """
    done = 0
    for i in range(first, headers.shape[1]):
        size = headers[SIZE, i]
        timestamp = headers[MAX_TIMESTAMP, i]
        last = headers[LAST_OFFSET, i]
        # UnifiedLog.append throws RecordBatchTooLargeException before it thinks of rolling.
        if size > settings[SEGMENT_BYTES]:
            state[REFUSED] += 1
            continue
        why = why_roll(state, settings, jitters, size, timestamp, last)
        if why != NOT_ROLLED:
            # The first offset of a compressed message of magic 0 or 1 is not known unpacked: Kafka
            # takes the lowest that fits.
            base = headers[BASE_OFFSET, i] if headers[MAGIC, i] >= 2 else last - INT32_MAX
            base = max(base, state[SEGMENT_LAST] + 1)
            # Else the segment was empty, and is replaced by one of the same base.
            if base != state[SEGMENT_BASE]:
                if done == out.shape[1]:
                    return i, done
                # LogSegment.onBecomeInactiveSegment adds a last entry, full or not.
                if state[LARGEST_TIMESTAMP] > state[INDEXED_TIMESTAMP]:
                    state[TIME_ENTRIES] += 1
                for field in range(SEGMENT_FIELDS):
                    out[field, done] = state[field]
                out[ROLLED_BY, done] = why
                done += 1
            state[ORDINAL] += 1
            state[SEGMENT_BASE] = base
            state[SEGMENT_LAST] = base - 1
            state[SEGMENT_SIZE] = 0
            state[SEGMENT_BATCHES] = 0
            state[FIRST_TIMESTAMP] = -1
            state[LARGEST_TIMESTAMP] = -1
            state[INDEX_ENTRIES] = 0
            state[TIME_ENTRIES] = 0
            state[BYTES_SINCE_ENTRY] = 0
            state[INDEXED_TIMESTAMP] = -1
        if state[SEGMENT_BATCHES] == 0:
            state[FIRST_TIMESTAMP] = timestamp
        state[LARGEST_TIMESTAMP] = max(state[LARGEST_TIMESTAMP], timestamp)
        # Tested before the batch counts: the first of a segment never gets an entry.
        if state[BYTES_SINCE_ENTRY] > settings[INTERVAL_BYTES]:
            state[INDEX_ENTRIES] += 1
            if state[LARGEST_TIMESTAMP] > state[INDEXED_TIMESTAMP]:
                state[TIME_ENTRIES] += 1
                state[INDEXED_TIMESTAMP] = state[LARGEST_TIMESTAMP]
            state[BYTES_SINCE_ENTRY] = 0
        state[BYTES_SINCE_ENTRY] += size
        state[SEGMENT_SIZE] += size
        state[SEGMENT_LAST] = last
        state[SEGMENT_BATCHES] += 1
    return headers.shape[1], done
