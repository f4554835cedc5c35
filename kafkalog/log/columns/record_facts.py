"""Facts about the records of batches, one column per batch, to accompany their headers.

Small logs are read by the reference decoder, large ones by the kernels; the results are the same.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from formats import constants as c
from kafkalog.errors import DataError, KafkaLogError
from kafkalog.files.payloads.control_records import control_record
from kafkalog.log.batches.records import decode_records
from kafkalog.log.columns.header_table import (
    COORDINATOR_EPOCH,
    EMPTIED,
    FACT_FIELDS,
    FOUND,
    MARKER_FIELDS,
    MARKER_TIMESTAMP,
    MARKER_TYPE,
    NO_MARKER,
    UNREADABLE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from numpy.typing import NDArray

    from kafkalog.io.paths.source import Readable
    from kafkalog.log.columns.chunks import Chunk, Rows, Turn
    from kafkalog.model import Batch

    Table = NDArray[np.int64]
    Refusals = list[tuple[int, KafkaLogError]]


def markers_of(source: Readable, batches: Sequence[Batch]) -> Table:
    """Return the markers of the control batches among some batches: MARKER_FIELDS rows."""
    table = _no_markers(len(batches))
    for i, batch in enumerate(batches):
        if batch.is_control:
            table[:, i] = _marker_of(source, batch)
    return table


def facts_of(source: Readable, batches: Sequence[Batch]) -> tuple[Table, Refusals]:
    """Return facts, and which batches failed to decode; wrong checksums are skipped."""
    from kafkalog.log.columns import fact_kernels as fk
    from kafkalog.log.columns import kernels as k

    table = _no_facts(len(batches))
    row = np.zeros((k.ROW_FIELDS, 1), np.int64)
    refusals: Refusals = []
    for i, batch in enumerate(batches):
        # Whatever its records say is not what was written.
        if batch.crc_valid is False:
            continue
        table[FOUND, i] = 0
        try:
            for record in decode_records(source, batch):
                row[[k.ORDINAL, k.OFFSET, k.TIMESTAMP], 0] = i, record.offset, record.timestamp
                row[k.VALUE_SIZE] = -1 if record.value is None else 0
                fk.gather_facts.function(row, 1, table)  # its source, where it is not compiled
        except DataError as error:
            refusals.append((i, error))
    return table, refusals


def markers_of_chunk(chunk: Chunk) -> Table:
    """Do what `markers_of` does, by a kernel."""
    from kafkalog.log.columns import fact_kernels as fk
    from kafkalog.log.columns import kernels as k

    headers = chunk.headers
    table = _no_markers(chunk.count)
    is_control = (headers[k.ATTRIBUTES] & c.CONTROL_MASK != 0) & (headers[k.MAGIC] >= 2)
    which = np.flatnonzero(is_control)
    if not len(which):
        return table
    plain = which[
        (headers[k.ATTRIBUTES, which] & c.COMPRESSION_MASK == 0) & (headers[k.COUNT, which] == 1)
    ]
    # What the kernel does not take is decided by the reference decoder, below.
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
    chunk: Chunk, look: Callable[[Chunk, Rows], object] | None = None
) -> Generator[Turn, None, tuple[Table, Refusals]]:
    """Do what `facts_of` does, by the kernels; large batches wait for their turn.

    `look` is called with the records as they are decoded.
    """
    from kafkalog.log.columns import fact_kernels as fk
    from kafkalog.log.columns.chunks import Rows, Turn

    table = _no_facts(chunk.count)
    wanted = chunk.crc_valid.copy()
    table[FOUND, wanted] = 0
    refusals: Refusals = []
    for rows in chunk.decode(wanted):
        if isinstance(rows, Turn):
            yield rows
            continue
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
    if batch.records == 0:
        return EMPTIED, -1, -1
    with suppress(DataError):
        record = next(decode_records(source, batch), None)
        if record is not None:
            marker = control_record(record)
            epoch = marker.coordinator_epoch
            if marker.type_id >= 0:
                if epoch is None:
                    return marker.type_id, -1, -1
                return marker.type_id, epoch, record.timestamp
    return UNREADABLE, -1, -1
