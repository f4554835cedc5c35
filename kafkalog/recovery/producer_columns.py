"""The batches of a stretch on which producer states depend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.columns import header_table as h

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.columns.headers import Stretch

NO_MARKER: Final = h.NO_MARKER
EMPTIED: Final = h.EMPTIED
ABORT: Final = c.ABORT
COMMIT: Final = c.COMMIT

Row = tuple[int, int, int, int, int, int, int, bool, int, int, int]


def readable_markers(stretch: Stretch) -> NDArray[np.bool_]:
    """Return whether each batch is no producer's marker, or one that can be read completely."""
    headers, kinds = stretch.headers, stretch.markers[h.MARKER_TYPE]
    is_marker = (kinds == ABORT) | (kinds == COMMIT)
    is_empty = (kinds == EMPTIED) & (headers[h.SIZE] == c.RECORD_BATCH_OVERHEAD)
    is_empty &= headers[h.ATTRIBUTES] & c.COMPRESSION_MASK == 0
    readable: NDArray[np.bool_] = (
        (kinds == NO_MARKER) | (headers[h.PRODUCER_ID] < 0) | is_marker | is_empty
    )
    return readable


def rows(stretch: Stretch) -> Iterator[Row]:
    """Yield the batches of producers in order, without those that leave no trace.

    In a run of data batches of one producer that are all transactional, or all not, only the first
    and the last matter.

    Yields:
        Ordinal in the stretch, producer id and epoch, sequence, base and last offset, largest
        timestamp, whether it is transactional; for a marker its type (NO_MARKER for data), the
        coordinator's epoch and its timestamp.
    """
    headers, markers = stretch.headers, stretch.markers
    which = np.flatnonzero(headers[h.PRODUCER_ID] >= 0)
    if not len(which):
        return iter(())
    attributes = headers[h.ATTRIBUTES]
    order = which[np.argsort(headers[h.PRODUCER_ID, which], kind="stable")]
    producer_ids = headers[h.PRODUCER_ID, order]
    is_data = markers[h.MARKER_TYPE, order] == NO_MARKER
    in_transaction = attributes[order] & c.TRANSACTIONAL_MASK
    is_like_next = (
        (producer_ids[1:] == producer_ids[:-1])
        & (in_transaction[1:] == in_transaction[:-1])
        & is_data[1:]
        & is_data[:-1]
    )
    matters = np.ones(len(order), np.bool_)
    matters[1:-1] = ~(is_like_next[1:] & is_like_next[:-1])
    kept = np.sort(order[matters])
    fields = (h.PRODUCER_ID, h.PRODUCER_EPOCH, h.BASE_SEQUENCE, h.BASE_OFFSET, h.LAST_OFFSET,
              h.MAX_TIMESTAMP)  # fmt: skip
    return zip(
        kept.tolist(),
        *(headers[field, kept].tolist() for field in fields),
        (attributes[kept] & c.TRANSACTIONAL_MASK != 0).tolist(),
        *(
            markers[field, kept].tolist()
            for field in (
                h.MARKER_TYPE,
                h.COORDINATOR_EPOCH,
                h.MARKER_TIMESTAMP,
            )
        ),
        strict=True,
    )
