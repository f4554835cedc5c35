"""The transaction index, `<offset>.txnindex`: the aborted transactions of a segment.

Follows `TransactionIndex` and `AbortedTxn` of Kafka 4.3.
"""

from __future__ import annotations

from typing import Final

from construct import GreedyBytes, GreedyRange, Int16sb, Int64sb, Struct

AbortedTransaction: Final = Struct(
    "version" / Int16sb,
    "producer_id" / Int64sb,
    "first_offset" / Int64sb,
    "last_offset" / Int64sb,
    "last_stable_offset" / Int64sb,
)

# `rest` are trailing bytes that do not fill an entry.
TransactionIndex: Final = Struct(
    "entries" / GreedyRange(AbortedTransaction),
    "rest" / GreedyBytes,
)
