"""A proof by columns that a large log is correctly compacted; it never says what is wrong.

It judges by the rules of `stale` and `beside`, and gives up where anything breaks one of them: then
these find out what it is, with whole keys, so that no counterexample rests on a hash. That nothing
was lost does, as it does there: what has the same 128 bits of a keyed hash counts as the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.audit import columns as col
from kafkalog.audit.columns import Columns, NotPlain, joined
from kafkalog.columnar import kernels as k
from kafkalog.columnar.header_table import batch_at
from kafkalog.compaction.key_map import KeyMap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from kafkalog.audit.columns import Piece
    from kafkalog.audit.log_walk import Transactions
    from kafkalog.audit.model import Bounds
    from kafkalog.unified_log import UnifiedLog

    Column = NDArray[np.int64]
    Mask = NDArray[np.bool_]

_KEPT: Final = (k.LAST_OFFSET, k.EPOCH, k.PRODUCER_ID, k.PRODUCER_EPOCH, k.BASE_SEQUENCE)
_KEPT_BITS: Final = c.TRANSACTIONAL_MASK | c.CONTROL_MASK | c.TIMESTAMP_TYPE_MASK
_SAME: Final = [col.TIMESTAMP, col.LOW, col.HIGH, col.HAS_KEY]
_BITS_AT_ONCE: Final = 1 << 20


def proved_keys(log: UnifiedLog, original: UnifiedLog | None, bounds: Bounds) -> int | None:
    """The number of distinct keys below the cleaner offset of a log that is correctly compacted.

    None where the reference has to look: something is suspicious, damaged, of an old format, or a
    batch above 64 MB.

    Cost:
        The log is read twice, with an original once more, and the original three times. Memory: as
        `KeyMap` for the distinct keys and records below the cleaner offset of one of them, and some
        10 MB.
    """
    columns = Columns()
    try:
        keys = _distinct(columns, log, bounds)
        if original is not None:
            _Comparison(columns, log, original, bounds).run()
    except NotPlain:
        return None
    return keys


def _distinct(columns: Columns, log: UnifiedLog, bounds: Bounds) -> int:
    """How many keys there are, none of them twice, none missing."""
    transactions = columns.transactions(log)
    found = KeyMap()
    for piece in columns.pieces(log, found, bounds.cleaner_offset):
        judged = _is_mapped(piece, transactions, bounds)
        if not piece.records[col.HAS_KEY, judged].all():
            raise NotPlain
        assert piece.keys is not None, "they were asked for"
        piece.keys.leave_out(~judged)
        found.put(piece.keys)
    found.settle()
    for start in range(0, found.rows, _BITS_AT_ONCE):
        if found.superseded(start, min(_BITS_AT_ONCE, found.rows - start)).any():
            raise NotPlain
    return len(found)


def _is_mapped(piece: Piece, transactions: Transactions, bounds: Bounds) -> Mask:
    """Which records a cleaner's map may hold: committed data below the cleaner offset."""
    batches = (piece.headers[k.ATTRIBUTES] & c.CONTROL_MASK == 0) & ~_aborted(piece, transactions)
    records = piece.records
    found: Mask = batches[records[col.BATCH]] & (records[col.OFFSET] < bounds.cleaner_offset)
    return found


def _aborted(piece: Piece, transactions: Transactions) -> Mask:
    """Which batches hold data of an aborted transaction."""
    attributes = piece.headers[k.ATTRIBUTES]
    found = np.zeros(len(attributes), np.bool_)
    is_data = attributes & (c.TRANSACTIONAL_MASK | c.CONTROL_MASK) == c.TRANSACTIONAL_MASK
    for i in np.flatnonzero(is_data).tolist():
        found[i] = transactions.is_aborted(batch_at(piece.headers, i, ""))
    return found


class _Comparison:
    """A log beside what it was; `run` raises `NotPlain` where one breaks a rule."""

    def __init__(
        self, columns: Columns, after: UnifiedLog, original: UnifiedLog, bounds: Bounds
    ) -> None:
        self._columns = columns
        self._after = after
        self._original = original
        self._bounds = bounds
        self._transactions = columns.transactions(original)
        self._lone = np.array(sorted(self._transactions.lone_markers), np.int64)
        self._last = np.array(sorted(self._transactions.last_batches(bounds)), np.int64)
        self._map = KeyMap()

    def run(self) -> None:
        """Compare all of both."""
        for piece in self._columns.pieces(self._original, self._map, self._bounds.cleaner_offset):
            assert piece.keys is not None, "they were asked for"
            piece.keys.leave_out(~_is_mapped(piece, self._transactions, self._bounds))
            self._map.put(piece.keys)
        self._map.settle()
        row = 0
        rest = _Rest(self._columns.pieces(self._after))
        for piece in self._columns.pieces(self._original):
            left = rest.up_to(int(piece.headers[k.LAST_OFFSET, -1]))
            self._compare(piece, left, row)
            row += piece.records.shape[1]
        if rest.has_more():
            raise NotPlain

    def _compare(self, before: Piece, after: Piece | None, row: int) -> None:
        """Some batches of the original, the first of whose records has this number."""
        judged = before.headers[k.LAST_OFFSET] >= self._after.log_start_offset
        gone = judged.copy()
        dropped = judged[before.records[col.BATCH]]
        if after is not None:
            places = _places(before.headers[k.BASE_OFFSET], after.headers[k.BASE_OFFSET])
            _require_same_batches(before.headers[:, places], after.headers)
            gone[places] = False
            rows = _places(before.records[col.OFFSET], after.records[col.OFFSET])
            were = before.records[:, rows]
            if (were[_SAME] != after.records[_SAME]).any():
                raise NotPlain
            if (were[col.BATCH] != places[after.records[col.BATCH]]).any():
                raise NotPlain
            dropped[rows] = False
        if np.isin(before.headers[k.BASE_OFFSET, gone], self._last).any():
            raise NotPlain
        if (dropped & ~self._may_go(before, row)).any():
            raise NotPlain

    def _may_go(self, piece: Piece, row: int) -> Mask:
        """Which records a cleaner may drop."""
        headers = piece.headers
        attributes = headers[k.ATTRIBUTES]
        has_horizon = attributes & c.DELETE_HORIZON_MASK != 0
        has_passed = has_horizon & (headers[k.BASE_TIMESTAMP] <= self._bounds.now_ms)
        is_control = attributes & c.CONTROL_MASK != 0
        is_lone = np.isin(headers[k.BASE_OFFSET], self._lone)
        whole = is_control & is_lone & has_passed | _aborted(piece, self._transactions)
        records, of = piece.records, piece.records[col.BATCH]
        superseded = np.zeros(len(of), np.bool_)
        known = min(len(superseded), max(self._map.rows - row, 0))
        if known:
            superseded[:known] = self._map.superseded(row, known)
        tombstone = (records[col.HAS_VALUE] == 0) & has_passed[of]
        alone = ~is_control[of] & (records[col.OFFSET] < self._bounds.cleaner_offset)
        is_void = (records[col.HAS_KEY] == 0) | superseded | tombstone
        found: Mask = whole[of] | alone & is_void
        return found


class _Rest:
    """The pieces of a log that were not asked for yet."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self._held: list[Piece] = []

    def up_to(self, last_offset: int) -> Piece | None:
        """The batches that begin at or below an offset, one piece; None where there is none."""
        found = []
        while self.has_more():
            piece = self._held.pop()
            bases = piece.headers[k.BASE_OFFSET]
            count = int(np.searchsorted(bases, last_offset, "right"))
            if count:
                found.append(piece.batches(0, count))
            if count < len(bases):
                self._held.append(piece.batches(count, len(bases)))
                break
        return joined(found) if found else None

    def has_more(self) -> bool:
        """Whether there are batches left."""
        if not self._held and (piece := next(self._pieces, None)) is not None:
            self._held.append(piece)
        return bool(self._held)


def _places(before: Column, after: Column) -> Column:
    """Where each offset is among those that were; all are there, and all rise."""
    if (np.diff(before) <= 0).any() or (np.diff(after) <= 0).any():
        raise NotPlain
    places = np.searchsorted(before, after)
    if len(after) and (places[-1] >= len(before) or (before[places] != after).any()):
        raise NotPlain
    return places


def _require_same_batches(before: Column, after: Column) -> None:
    """What a batch that was kept, rewritten or emptied must still say."""
    for name in _KEPT:
        if (before[name] != after[name]).any():
            raise NotPlain
    were, are = before[k.ATTRIBUTES], after[k.ATTRIBUTES]
    if ((were ^ are) & _KEPT_BITS).any():
        raise NotPlain
    is_set = (were & c.DELETE_HORIZON_MASK != 0) & (after[k.COUNT] > 0)
    same = (are & c.DELETE_HORIZON_MASK != 0) & (
        before[k.BASE_TIMESTAMP] == after[k.BASE_TIMESTAMP]
    )
    if (is_set & ~same).any():
        raise NotPlain
