"""Invariants of the batches of each producer: epochs, sequences, coordinators, transactions.

Follows `ProducerAppendInfo` of Kafka 4.3: what a leader lets pass. It lets any sequence pass of a
producer that it has forgotten, which clients do not make use of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.check import producer_rows as r

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.batch_checks import Found
    from kafkalog.check.passages import Passage
    from kafkalog.check.producer_states import History

_HALF: Final = 1 << 30


def epochs_never_go_back(passage: Passage, history: History) -> Iterator[Found]:
    """No batch of a producer has an epoch below that of the one before it."""
    odd = (history.row >= 0) & (history.previous >= 0)
    odd &= history.epoch < history.epoch[history.previous]
    for i in np.flatnonzero(odd).tolist():
        yield passage.found(
            "producer-epoch-went-back",
            int(history.row[i]),
            f"Producer {history.producer_id[i]} has epoch {history.epoch[i]}, after "
            f"{history.epoch[history.previous[i]]}.",
            int(history.origin[history.previous[i]]),
        )


def coordinator_epochs_never_go_back(passage: Passage, history: History) -> Iterator[Found]:
    """No marker of a producer has a coordinator epoch below that of the one before it."""
    odd = (history.row >= 0) & (history.kind == r.MARKER) & (history.marker >= 0)
    odd &= history.coordinator < history.coordinator[history.marker]
    for i in np.flatnonzero(odd).tolist():
        yield passage.found(
            "coordinator-epoch-went-back",
            int(history.row[i]),
            f"The marker of producer {history.producer_id[i]} has coordinator epoch "
            f"{history.coordinator[i]}, after {history.coordinator[history.marker[i]]}.",
            int(history.origin[history.marker[i]]),
        )


def sequences_continue(passage: Passage, history: History) -> Iterator[Found]:
    """The sequences of a producer go on where they ended, or from 0 in a new epoch.

    Where offsets are missing in between, batches may have been removed.
    """
    expected = _expected_sequences(history)
    odd = (expected >= 0) & (history.first_sequence != expected)
    for i in np.flatnonzero(odd).tolist():
        found, wanted = int(history.first_sequence[i]), int(expected[i])
        is_back = (found - wanted) & c.INT32_MAX >= _HALF
        yield passage.found(
            "producer-sequence-repeated" if is_back else "producer-sequence-skipped",
            int(history.row[i]),
            f"Producer {history.producer_id[i]} of epoch {history.epoch[i]} goes on with sequence "
            f"{found}, expected is {wanted}.",
            int(history.origin[history.previous[i]]),
        )


def _expected_sequences(history: History) -> NDArray[np.int64]:
    """The first sequence that each batch should have, -1 where any is legal."""
    previous, batch, gap = history.previous, history.batch, history.gap
    is_data = (history.row >= 0) & (history.kind != r.MARKER) & (previous >= 0)
    is_new = history.epoch > history.epoch[previous]
    is_same = history.epoch == history.epoch[previous]
    follows = is_same & (batch >= 0) & (history.batch_gap[batch] == gap)
    # A marker began the epoch, or the transaction it ended had no batch.
    begins = is_new & (history.gap[previous] == gap)
    begins |= is_same & (batch < 0) & (history.epoch_gap == gap)
    after = (history.sequence[batch] + 1) & c.INT32_MAX
    expected = np.where(follows, after, np.where(begins, 0, -1))
    return np.where(is_data, expected, -1)


def transactions_hold_only_their_own(passage: Passage, history: History) -> Iterator[Found]:
    """A producer with an open transaction writes nothing outside it."""
    odd = (history.row >= 0) & (history.kind == r.PLAIN) & (history.started >= 0)
    odd &= history.blind == history.blind[history.started]
    for i in np.flatnonzero(odd).tolist():
        yield passage.found(
            "batch-outside-transaction",
            int(history.row[i]),
            f"Producer {history.producer_id[i]} has a transaction open since offset "
            f"{history.first_offset[history.started[i]]}, the batch is not transactional.",
            int(history.origin[history.started[i]]),
        )
