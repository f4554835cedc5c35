"""The transaction index, `<offset>.txnindex`: the aborted transactions of a segment.

Follows `TransactionIndex` and `AbortedTxn` of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from construct import GreedyBytes, GreedyRange, Struct

from formats.layouts import ABORTED_TRANSACTION
from formats.primitives import fixed

AbortedTransaction: Final = Struct(*fixed(ABORTED_TRANSACTION))

# `rest` holds trailing bytes that do not fill an entry.
TransactionIndex: Final = Struct(
    "entries" / GreedyRange(AbortedTransaction),
    "rest" / GreedyBytes,
)
