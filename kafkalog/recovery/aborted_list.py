"""The entries of a `.txnindex` that is written anew; follows `TransactionIndex` of Kafka 4.3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats.layouts import ABORTED_TRANSACTION
from kafkalog.recovery.model import StartRefusedError

if TYPE_CHECKING:
    from kafkalog.recovery.producers import CompletedTransaction


class AbortedList:
    """Aborted transactions in the order of their markers."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._last_offset: int | None = None

    def append(self, completed: CompletedTransaction, last_stable_offset: int) -> None:
        """Add an aborted transaction.

        Raises:
            StartRefusedError: it does not end after the last one.
        """
        if self._last_offset is not None and self._last_offset >= completed.last_offset:
            raise StartRefusedError(
                "IllegalArgumentException",
                "The last offset of appended transactions must increase sequentially, but "
                f"{completed.last_offset} is not greater than current last offset "
                f"{self._last_offset}",
            )
        self._last_offset = completed.last_offset
        self.data += ABORTED_TRANSACTION.struct.pack(
            0,
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            last_stable_offset,
        )
