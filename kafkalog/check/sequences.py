"""Invariants of the batches of each producer: epochs, sequences, coordinators, transactions.

Follows `ProducerAppendInfo` of Kafka 4.3: what a leader lets pass. It lets any sequence pass of a
producer that it has forgotten, which clients do not make use of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.check import producer_rows as r
from kafkalog.check import producer_states as p

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.batch_checks import Found
    from kafkalog.check.passages import Passage
    from kafkalog.check.producer_states import History

_HALF: Final = 1 << 30


def epochs_never_go_back(passage: Passage, history: History) -> Iterator[Found]:
    """No batch of a producer has an epoch below that of the one before it."""
    odd = history.epoch[1:] < history.epoch[:-1]
    odd &= ~history.is_first[1:]
    which = np.flatnonzero(odd) + 1
    for i, origin in zip(which.tolist(), history.origin(which - 1).tolist(), strict=True):
        yield passage.found(
            "producer-epoch-went-back",
            int(history.row[i]),
            f"Producer {history.producer_id[i]} has epoch {history.epoch[i]}, after "
            f"{history.epoch[i - 1]}.",
            origin,
        )


def coordinator_epochs_never_go_back(passage: Passage, history: History) -> Iterator[Found]:
    """No marker of a producer has a coordinator epoch below that of the one before it."""
    markers, before = history.markers()
    epoch = history.get(p.COORDINATOR_OF, markers)
    known = history.get(p.COORDINATOR_OF, before)
    origin = history.origin(before, p.MARKER_ORIGIN)
    for i in np.flatnonzero(epoch < known).tolist():
        yield passage.found(
            "coordinator-epoch-went-back",
            int(history.row[markers[i]]),
            f"The marker of producer {history.producer_id[markers[i]]} has coordinator epoch "
            f"{epoch[i]}, after {known[i]}.",
            int(origin[i]),
        )


def sequences_continue(passage: Passage, history: History) -> Iterator[Found]:
    """The sequences of a producer go on where they ended, or from 0 in a new epoch.

    Where offsets are missing in between, batches may have been removed.
    """
    which = np.flatnonzero((history.row >= 0) & (history.kind != r.MARKER) & ~history.is_first)
    if not len(which):
        return
    found = passage.rows[r.BASE_SEQUENCE, history.row[which]]
    expected, origin = _expected_sequences(history, which), history.origin(which - 1)
    for i in np.flatnonzero((expected >= 0) & (found != expected)).tolist():
        at, sequence, wanted = int(which[i]), int(found[i]), int(expected[i])
        is_back = (sequence - wanted) & c.INT32_MAX >= _HALF
        yield passage.found(
            "producer-sequence-repeated" if is_back else "producer-sequence-skipped",
            int(history.row[at]),
            f"Producer {history.producer_id[at]} of epoch {history.epoch[at]} continues with "
            f"sequence {sequence}, expected {wanted}.",
            int(origin[i]),
        )


def _expected_sequences(history: History, which: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first sequence that some batches should have, -1 where any is legal."""
    gap, epoch, before = history.gap[which], history.epoch[which], history.epoch[which - 1]
    # The batch up to which the state before goes, in the epoch that it has then.
    batch = history.batch[which - 1]
    is_same = epoch == before
    follows = is_same & (batch >= 0) & (history.get(p.GAP_OF_BATCH, batch) == gap)
    after = (history.get(p.LAST_SEQUENCE_OF, batch) + 1) & c.INT32_MAX
    # A marker began the epoch.
    begins = (epoch > before) & (history.gap[which - 1] == gap)
    begins |= is_same & (batch < 0) & (history.epoch_gap()[which - 1] == gap)
    return np.where(follows, after, np.where(begins, 0, -1))


def transactions_hold_only_their_own(passage: Passage, history: History) -> Iterator[Found]:
    """A producer with an open transaction writes nothing outside it."""
    which = np.flatnonzero((history.kind == r.PLAIN) & (history.started >= 0))
    started = history.started[which]
    known = history.blind(which) == history.blind(started)
    first = history.get(p.FIRST_OF_TRANSACTION, started)
    origin = history.origin(started, p.TXN_ORIGIN)
    for i in np.flatnonzero(known).tolist():
        yield passage.found(
            "batch-outside-transaction",
            int(history.row[which[i]]),
            f"Producer {history.producer_id[which[i]]} has a transaction open since offset "
            f"{first[i]}, the batch is not transactional.",
            int(origin[i]),
        )
