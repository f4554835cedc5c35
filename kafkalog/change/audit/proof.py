"""Proves by columns that a large log is correctly compacted; it never says what is wrong.

The kernels read what the reference (`log_walk`) reads. At anything irregular the proof gives up and
leaves the log to the reference, which then finds out what is wrong, with whole keys, so that no
counterexample rests on a hash. That nothing was lost does rest on one, here as there: contents with
the same 128 bits of a keyed hash count as equal.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from formats import constants as c
from kafkalog.change.audit.log_walk import Bounds, Transactions, segments_below
from kafkalog.change.compaction.key_map import KeyMap, Keys
from kafkalog.log.batches.records import RECORDS_HELD_MAX
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.byte_kernels import hash_keys
from kafkalog.log.columns.chunks import Chunk, ChunkReader, Rows, Workspace
from kafkalog.log.columns.header_table import MARKER_TYPE, UNREADABLE, batch_at
from kafkalog.log.columns.record_facts import markers_of_chunk
from kafkalog.log.columns.scan_steps import in_order
from kafkalog.model import Defect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.node.unified_log import UnifiedLog

    Table = NDArray[np.int64]

    Column = NDArray[np.int64]
    Mask = NDArray[np.bool_]


_ROWS_AT_ONCE: Final = 8192
_ROWS_MANY: Final = 1 << 18  # records per piece, unless they are of one batch
_ABORT: Final = 0  # `ControlRecordType.ABORT`


(BATCH, OFFSET, TIMESTAMP, LOW, HIGH, HAS_KEY, HAS_VALUE, RECORD_FIELDS) = range(8)
"""Fields of a record: the ordinal of its batch, its offset and timestamp, 128 bits of a keyed hash
of its key, value and headers, and whether it has a key and a value, even if they are empty.
"""


class NotPlain(Exception):  # noqa: N818 # not an error: the reference continues
    """Something is suspicious, or unsuitable for the kernels."""


class Piece(NamedTuple):
    """Consecutive batches with their records.

    Attributes:
        headers: int64, one row per field of `header_table`, one column per batch.
        records: int64, one row per field (BATCH, OFFSET, ...), one column per record.
        keys: hashes of the keys, for the map; None if no map was given.
    """

    headers: Table
    records: Table
    keys: Keys | None

    def batches(self, first: int, last: int) -> Piece:
        """Return a range of the batches, renumbered, without the hashes of keys."""
        start, end = np.searchsorted(self.records[BATCH], (first, last)).tolist()
        records = self.records[:, start:end].copy()
        records[BATCH] -= first
        return Piece(self.headers[:, first:last], records, None)


def joined(pieces: Sequence[Piece]) -> Piece:
    """Join consecutive pieces into one, without the hashes of keys."""
    counts = np.cumsum([0, *(piece.headers.shape[1] for piece in pieces)])
    records = np.concatenate([piece.records for piece in pieces], axis=1)
    sizes = [piece.records.shape[1] for piece in pieces]
    records[BATCH] += np.repeat(counts[:-1], sizes)
    return Piece(np.concatenate([piece.headers for piece in pieces], axis=1), records, None)


class Columns:
    """Reads logs; contents of records are compared by a hash with a secret seed of its own."""

    def __init__(self) -> None:
        self._seed = secrets.randbits(63), secrets.randbits(63)

    def transactions(self, log: UnifiedLog) -> Transactions:
        """As `Transactions.of`.

        Raises:
            NotPlain: it is for the reference.
        """
        found = Transactions()
        for chunk in _chunks(log, Workspace(0)):
            if not chunk.crc_valid.all():
                raise NotPlain
            headers = chunk.headers
            markers = markers_of_chunk(chunk)[MARKER_TYPE]
            if (markers == UNREADABLE).any():
                raise NotPlain
            for i in np.flatnonzero(headers[k.PRODUCER_ID] >= 0).tolist():
                found.add(chunk.batch(i), is_abort=int(markers[i]) == _ABORT)
        return found

    def pieces(
        self, log: UnifiedLog, keys: KeyMap | None = None, below: int | None = None
    ) -> Iterator[Piece]:
        """Yield all batches and records of a log, checksums verified; `keys` hashes their keys.

        Segments that begin at the offset `below` or above are left out.

        Raises:
            NotPlain: the reference must read it.

        Cost:
            Memory for a chunk, about 2 MB and the largest batch decompressed, and 200 bytes for
            each of a quarter of a million records.
        """
        for chunk in _chunks(log, Workspace(_ROWS_AT_ONCE), below):
            if not chunk.crc_valid.all():
                raise NotPlain
            counts = chunk.headers[k.COUNT].clip(0)
            if (counts > RECORDS_HELD_MAX).any():
                raise NotPlain
            ends = np.cumsum(counts)
            first = 0
            while first < chunk.count:
                before = int(ends[first - 1]) if first else 0
                last = max(first + 1, int(np.searchsorted(ends, before + _ROWS_MANY, "right")))
                yield self._piece(chunk, first, last, keys)
                first = last

    def _piece(self, chunk: Chunk, first: int, last: int, keys: KeyMap | None) -> Piece:
        wanted = np.zeros(chunk.count, np.bool_)
        wanted[first:last] = True
        records, hashes = [np.empty((RECORD_FIELDS, 0), np.int64)], []
        for rows in chunk.decode(wanted):
            assert isinstance(rows, Rows), "no batch is left to the reference decoder"
            records.append(self._records(rows))
            if keys is not None:
                hashes.append(keys.keys(rows))
        joint = np.concatenate(records, axis=1)
        joint[BATCH] -= first
        headers = chunk.headers[:, first:last].copy()
        return Piece(headers, joint, None if keys is None else Keys.joined(hashes))

    def _records(self, rows: Rows) -> Table:
        if rows.failures:
            raise NotPlain
        table = rows.table
        records = np.empty((RECORD_FIELDS, table.shape[1]), np.int64)
        records[[BATCH, OFFSET, TIMESTAMP]] = table[[k.ORDINAL, k.OFFSET, k.TIMESTAMP]]
        starts, low, high = table[k.KEY_POSITION], records[LOW], records[HIGH]
        hash_keys(rows.arena, starts, _content_ends(rows) - starts, *self._seed, low, high)
        low += table[k.KEY_SIZE]  # the size is stored before the key, outside the hashed bytes
        records[HAS_KEY] = table[k.KEY_SIZE] >= 0
        records[HAS_VALUE] = table[k.VALUE_SIZE] >= 0
        return records


def _content_ends(rows: Rows) -> Table:
    """Return the ends of the key, value and headers of each record."""
    table = rows.table
    ends: Table = table[k.VALUE_POSITION] + table[k.VALUE_SIZE].clip(0)
    counts = table[k.HEADERS_COUNT]
    having = np.flatnonzero(counts > 0)
    if len(having):
        fields = np.empty((4, int(counts[having].sum())), np.int64)
        positions = np.ascontiguousarray(table[k.HEADERS_POSITION, having])
        k.expand_headers(rows.arena, positions, counts[having], fields)
        last = counts[having].cumsum() - 1
        ends[having] = fields[2, last] + fields[3, last].clip(0)
    return ends


def _chunks(log: UnifiedLog, space: Workspace, below: int | None = None) -> Iterator[Chunk]:
    for segment in segments_below(log, below):
        with log.open_segment(segment) as opened:
            source, order = opened.source, opened.order(check_crc=False)
            reader = ChunkReader(source, 0, source.size_bytes)
            for chunk in reader.chunks(space):
                if (chunk.headers[k.MAGIC] < 2).any():
                    raise NotPlain
                kept = in_order(order, chunk, chunk.count)
                for position in chunk.headers[k.POSITION, kept:].tolist():
                    found = order.at(position)
                    if isinstance(found, Defect) or found.header_defect is not None:
                        raise NotPlain
                yield chunk
            if reader.position < reader.end:
                raise NotPlain


_KEPT: Final = (k.LAST_OFFSET, k.EPOCH, k.PRODUCER_ID, k.PRODUCER_EPOCH, k.BASE_SEQUENCE)
_KEPT_BITS: Final = c.TRANSACTIONAL_MASK | c.CONTROL_MASK | c.TIMESTAMP_TYPE_MASK
_SAME: Final = [TIMESTAMP, LOW, HIGH, HAS_KEY]
_BITS_AT_ONCE: Final = 1 << 20


def proved_keys(log: UnifiedLog, original: UnifiedLog | None, bounds: Bounds) -> int | None:
    """Return the number of distinct keys below the cleaner offset of a correctly compacted log.

    None if the reference must look: something is suspicious, damaged, of an old format, or a batch
    above 64 MB.

    Cost:
        Reads the log twice, with an original once more, and the original three times. Memory: as
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
    """Return the number of keys, provided that none occurs twice and none is missing."""
    transactions = columns.transactions(log)
    found = KeyMap()
    for piece in columns.pieces(log, found, bounds.cleaner_offset):
        judged = _is_mapped(piece, transactions, bounds)
        if not piece.records[HAS_KEY, judged].all():
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
    """Return which records a cleaner's map may hold: committed data below the cleaner offset."""
    batches = (piece.headers[k.ATTRIBUTES] & c.CONTROL_MASK == 0) & ~_aborted(piece, transactions)
    records = piece.records
    found: Mask = batches[records[BATCH]] & (records[OFFSET] < bounds.cleaner_offset)
    return found


def _aborted(piece: Piece, transactions: Transactions) -> Mask:
    attributes = piece.headers[k.ATTRIBUTES]
    found = np.zeros(len(attributes), np.bool_)
    is_data = attributes & (c.TRANSACTIONAL_MASK | c.CONTROL_MASK) == c.TRANSACTIONAL_MASK
    for i in np.flatnonzero(is_data).tolist():
        found[i] = transactions.is_aborted(batch_at(piece.headers, i, ""))
    return found


class _Comparison:
    """A log compared with its original; `run` raises `NotPlain` if one breaks a rule."""

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
        """Compare some batches of the original, given the number of their first record."""
        judged = before.headers[k.LAST_OFFSET] >= self._after.log_start_offset
        gone = judged.copy()
        dropped = judged[before.records[BATCH]]
        if after is not None:
            places = _places(before.headers[k.BASE_OFFSET], after.headers[k.BASE_OFFSET])
            _require_same_batches(before.headers[:, places], after.headers)
            gone[places] = False
            rows = _places(before.records[OFFSET], after.records[OFFSET])
            were = before.records[:, rows]
            if (were[_SAME] != after.records[_SAME]).any():
                raise NotPlain
            if (were[BATCH] != places[after.records[BATCH]]).any():
                raise NotPlain
            dropped[rows] = False
        if np.isin(before.headers[k.BASE_OFFSET, gone], self._last).any():
            raise NotPlain
        if (dropped & ~self._may_go(before, row)).any():
            raise NotPlain

    def _may_go(self, piece: Piece, row: int) -> Mask:
        headers = piece.headers
        attributes = headers[k.ATTRIBUTES]
        has_horizon = attributes & c.DELETE_HORIZON_MASK != 0
        has_passed = has_horizon & (headers[k.BASE_TIMESTAMP] <= self._bounds.now_ms)
        is_control = attributes & c.CONTROL_MASK != 0
        is_lone = np.isin(headers[k.BASE_OFFSET], self._lone)
        whole = is_control & is_lone & has_passed | _aborted(piece, self._transactions)
        records, of = piece.records, piece.records[BATCH]
        superseded = np.zeros(len(of), np.bool_)
        known = min(len(superseded), max(self._map.rows - row, 0))
        if known:
            superseded[:known] = self._map.superseded(row, known)
        tombstone = (records[HAS_VALUE] == 0) & has_passed[of]
        alone = ~is_control[of] & (records[OFFSET] < self._bounds.cleaner_offset)
        is_void = (records[HAS_KEY] == 0) | superseded | tombstone
        found: Mask = whole[of] | alone & is_void
        return found


class _Rest:
    """The remaining pieces of a log."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = pieces
        self._held: list[Piece] = []

    def up_to(self, last_offset: int) -> Piece | None:
        """Return the batches that begin at or below an offset, as one piece; None if none does."""
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
        if not self._held and (piece := next(self._pieces, None)) is not None:
            self._held.append(piece)
        return bool(self._held)


def _places(before: Column, after: Column) -> Column:
    """Return the position of each offset among the old ones; all must exist, and rise."""
    if (np.diff(before) <= 0).any() or (np.diff(after) <= 0).any():
        raise NotPlain
    places = np.searchsorted(before, after)
    if len(after) and (places[-1] >= len(before) or (before[places] != after).any()):
        raise NotPlain
    return places


def _require_same_batches(before: Column, after: Column) -> None:
    """Raise unless kept, rewritten or emptied batches preserve what they must."""
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
