"""Transactions without an end: how long nothing was heard of them, and how to end them.

Time is told by clocks of brokers alone: the markers' timestamps, and those of LogAppendTime. What
producers say may be of any year.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.check import producer_states as p
from kafkalog.columnar import header_table as h
from kafkalog.columnar.record_facts import MARKER_TYPE
from kafkalog.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.check.passages import Passage
    from kafkalog.check.producer_rows import Timeline
    from kafkalog.check.producer_states import ProducerStates
    from kafkalog.log_dir import PartitionDir
    from kafkalog.model import Defect

HANGING_MS: Final = 86_400_000
"""A day without a batch: many times the default of `transaction.max.timeout.ms`, 15 minutes, which
is raised to hours for applications with long transactions."""


class OpenTransactions:
    """Watches the clocks, and tells what is open at the end."""

    def __init__(self, states: ProducerStates) -> None:
        self._states = states
        self._newest = -1

    def passage(self, passage: Passage) -> None:
        """Look at the clocks of some batches; the states are those behind them."""
        headers = passage.part.headers
        tells = (headers[h.ATTRIBUTES] & c.TIMESTAMP_TYPE_MASK != 0) & (headers[h.MAGIC] == 2)
        tells |= passage.part.markers[MARKER_TYPE] >= 0
        tells &= headers[h.MAX_TIMESTAMP] >= 0
        table = self._states.table
        if not tells.any():
            return
        offsets, times = headers[h.LAST_OFFSET, tells], headers[h.MAX_TIMESTAMP, tells]
        self._newest = max(self._newest, int(times.max()))
        unheard = np.flatnonzero((table[p.TXN_FIRST] >= 0) & (table[p.HEARD_AT] < 0))
        at = np.searchsorted(offsets, table[p.EVENT_OFFSET, unheard])
        is_told = at < len(offsets)
        table[p.HEARD_AT, unheard[is_told]] = times[at[is_told]]

    def end(self, directory: PartitionDir, timeline: Timeline) -> Iterator[Defect]:
        """The open transactions, by first offset."""
        path = directory.segments[-1].log.path if directory.segments else directory.path
        table = self._states.table[:, p.is_open(self._states.table, timeline)]
        for i in np.argsort(table[p.TXN_FIRST], kind="stable").tolist():
            state = table[:, i]
            first = int(state[p.TXN_FIRST])
            last = int(state[p.LAST_OFFSET] - state[p.OFFSET_DELTA])
            heard_at = int(state[p.HEARD_AT])
            idle_ms = self._newest - heard_at if heard_at >= 0 else 0
            detail = (
                f"Producer {state[p.PRODUCER_ID]} of epoch {state[p.PRODUCER_EPOCH]} has a "
                f"transaction open since offset {first}; its last batch, at offset {last}, has "
                f"timestamp {state[p.TIMESTAMP]}"
            )
            if idle_ms > 0:
                detail += f", at least {idle_ms // 1000} seconds before the newest"
            name = "transaction-hanging" if idle_ms > HANGING_MS else "transaction-open"
            defect = make_defect(name, path, f"{detail}.", offset=first)
            yield dataclasses.replace(defect, hint=_hint(directory, state))


def _hint(directory: PartitionDir, state: NDArray[np.int64]) -> str:
    line = (
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic "
        f"{directory.topic} --partition {directory.partition or 0}"
    )
    old = f"--producer-id {state[p.PRODUCER_ID]} --producer-epoch {state[p.PRODUCER_EPOCH]}"
    return (
        f"If its application is gone: `{line} --start-offset {state[p.TXN_FIRST]}`; with brokers "
        f"before 3.0 `{line} {old} --coordinator-epoch {max(int(state[p.COORDINATOR]), 0)}`."
    )
