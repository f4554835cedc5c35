"""What is in the records of batches, as columns beside their headers: one column per batch.

Small logs are read by the reference decoder, large ones by the kernels; both say the same.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.control_records import control_record
from kafkalog.errors import KafkaLogError
from kafkalog.records import decode_records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from kafkalog.columnar.chunks import Chunk, Rows
    from kafkalog.model import Batch
    from kafkalog.paths.source import Readable

    Table = NDArray[np.int64]
    Refusals = list[tuple[int, KafkaLogError]]

(FOUND, FIRST, LAST, DISORDER, TIME_MAX, OFFSET_OF_MAX, INVALID_TIME, TOMBSTONE,
 FACT_FIELDS) = range(9)  # fmt: skip
"""Rows of a table of facts: how many records were decoded (-1: none was tried), the smallest and
the largest offset, ordinal of the first record that does not follow the one before it (-1: all do),
the largest timestamp and the first offset that has it, the first offset from 0 on with a timestamp
below -1 (-1: none has) and the first from 0 on without a value (-1: all have one)."""

(MARKER_TYPE, COORDINATOR_EPOCH, MARKER_TIMESTAMP, MARKER_FIELDS) = range(4)
"""Rows of a table of markers: the type of a control batch's first record, the epoch that a
transaction marker carries and its timestamp in milliseconds (both -1 in other batches)."""

NO_MARKER: Final = -1
"""In the row MARKER_TYPE: this is no control batch."""
EMPTIED: Final = -2
"""In the row MARKER_TYPE: a control batch without records, as the cleaner leaves it."""
UNREADABLE: Final = -3
"""In the row MARKER_TYPE: a control batch whose record cannot be read."""


class OutOfTurnError(Exception):
    """A large batch has to wait until its chunk is the first in line."""


def markers_of(source: Readable, batches: Sequence[Batch]) -> Table:
    """What the control batches among some batches say: table of MARKER_FIELDS rows."""
    table = _no_markers(len(batches))
    for i, batch in enumerate(batches):
        if batch.is_control:
            table[:, i] = _marker_of(source, batch)
    return table


def facts_of(source: Readable, batches: Sequence[Batch]) -> tuple[Table, Refusals]:
    """Facts of some batches, and which could not be decoded; a wrong checksum: none is tried."""
    table = _no_facts(len(batches))
    refusals: Refusals = []
    for i, batch in enumerate(batches):
        if batch.crc_valid is False:
            continue
        table[FOUND, i] = 0
        try:
            for record in decode_records(source, batch):
                _add(table[:, i], record.offset, record.timestamp)
                if record.offset < 0:
                    continue
                if record.timestamp < c.NO_TIMESTAMP and table[INVALID_TIME, i] < 0:
                    table[INVALID_TIME, i] = record.offset
                if record.value is None and table[TOMBSTONE, i] < 0:
                    table[TOMBSTONE, i] = record.offset
        except KafkaLogError as error:
            refusals.append((i, error))
    return table, refusals


def markers_of_chunk(chunk: Chunk) -> Table:
    """As `markers_of`, by a kernel."""
    from kafkalog.columnar import fact_kernels as fk
    from kafkalog.columnar import kernels as k

    headers = chunk.headers
    table = _no_markers(chunk.count)
    is_control = (headers[k.ATTRIBUTES] & c.CONTROL_MASK != 0) & (headers[k.MAGIC] >= 2)
    which = np.flatnonzero(is_control)
    if not len(which):
        return table
    plain = which[
        (headers[k.ATTRIBUTES, which] & c.COMPRESSION_MASK == 0) & (headers[k.COUNT, which] == 1)
    ]
    table[MARKER_TYPE, which] = UNREADABLE
    types, epochs, deltas = np.empty((3, len(plain)), np.int64)
    starts = headers[k.POSITION, plain] - chunk.position
    fk.read_markers(
        chunk.workspace.arena,
        starts + c.RECORD_BATCH_OVERHEAD,
        starts + headers[k.SIZE, plain],
        types,
        epochs,
        deltas,
    )
    table[MARKER_TYPE, plain] = types
    known = plain[types != UNREADABLE]
    table[COORDINATOR_EPOCH, known] = epochs[types != UNREADABLE]
    by_broker = headers[k.ATTRIBUTES, known] & c.TIMESTAMP_TYPE_MASK != 0
    times = headers[k.BASE_TIMESTAMP, known] + deltas[types != UNREADABLE]
    table[MARKER_TIMESTAMP, known] = np.where(by_broker, headers[k.MAX_TIMESTAMP, known], times)
    for i in np.flatnonzero(table[MARKER_TYPE] == UNREADABLE).tolist():
        table[:, i] = _marker_of(chunk, chunk.batch(i))
    return table


def facts_of_chunk(
    chunk: Chunk, bad: Sequence[int], look: Callable[[Chunk, Rows], object] | None = None
) -> tuple[Table, Refusals]:
    """As `facts_of`, by the kernels; `bad` are the ordinals of wrong checksums.

    `look` is called with the records as they are decoded.

    Raises:
        OutOfTurnError: the chunk waits, and has a large batch: ask again in its turn.
    """
    from kafkalog.columnar import fact_kernels as fk
    from kafkalog.columnar.chunks import Rows, Turn

    table = _no_facts(chunk.count)
    wanted = np.ones(chunk.count, np.bool_)
    wanted[bad] = False
    table[FOUND, wanted] = 0
    refusals: Refusals = []
    for rows in chunk.decode(wanted):
        if isinstance(rows, Turn):
            raise OutOfTurnError
        assert isinstance(rows, Rows), "no batch is left to the reference decoder"
        fk.gather_facts(rows.table, rows.table.shape[1], table)
        if look is not None:
            look(chunk, rows)
        refusals += [(failure.ordinal, failure.error) for failure in rows.failures]
    return table, refusals


def _no_markers(count: int) -> Table:
    table = np.full((MARKER_FIELDS, count), -1, np.int64)
    table[MARKER_TYPE] = NO_MARKER
    return table


def _no_facts(count: int) -> Table:
    return np.full((FACT_FIELDS, count), -1, np.int64)


def _marker_of(source: Readable, batch: Batch) -> tuple[int, int, int]:
    if batch.count == 0:
        return EMPTIED, -1, -1
    with suppress(KafkaLogError):
        record = next(decode_records(source, batch), None)
        if record is not None:
            marker = control_record(record)
            epoch = marker.coordinator_epoch
            if marker.type_id >= 0:
                if epoch is None:
                    return marker.type_id, -1, -1
                return marker.type_id, epoch, record.timestamp
    return UNREADABLE, -1, -1


def _add(facts: Table, offset: int, timestamp: int) -> None:
    """Take one record into account, as `fact_kernels.gather_facts` does."""
    found = int(facts[FOUND])
    facts[FOUND] += 1
    if found == 0:
        facts[[FIRST, LAST, TIME_MAX, OFFSET_OF_MAX]] = offset, offset, timestamp, offset
        return
    if offset > facts[LAST]:
        facts[LAST] = offset
    elif facts[DISORDER] < 0:
        facts[DISORDER] = found
    facts[FIRST] = min(int(facts[FIRST]), offset)
    if timestamp > facts[TIME_MAX]:
        facts[TIME_MAX], facts[OFFSET_OF_MAX] = timestamp, offset
