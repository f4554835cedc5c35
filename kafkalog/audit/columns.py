"""The batches and records of a log as columns, for proofs: sound and of magic 2, or none at all.

It reads as the reference (`log_walk`) does, by kernels. Where anything is not plain it gives up and
leaves the log to the reference, which says what it is.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from kafkalog.audit.log_walk import Transactions, segments_below
from kafkalog.columnar import kernels as k
from kafkalog.columnar.chunks import ChunkReader, Rows, Workspace
from kafkalog.columnar.hash_kernels import hash_keys
from kafkalog.columnar.record_facts import MARKER_TYPE, UNREADABLE, markers_of_chunk
from kafkalog.compaction.key_map import Keys
from kafkalog.records import RECORDS_HELD_MAX
from kafkalog.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.columnar.chunks import Chunk
    from kafkalog.compaction.key_map import KeyMap
    from kafkalog.unified_log import UnifiedLog

    Table = NDArray[np.int64]

_ROWS_AT_ONCE: Final = 8192
_ROWS_MANY: Final = 1 << 18  # how many records a piece has, if they are not of one batch
_ABORT: Final = 0


(BATCH, OFFSET, TIMESTAMP, LOW, HIGH, HAS_KEY, HAS_VALUE, RECORD_FIELDS) = range(8)
"""Fields of a record: the ordinal of its batch, its offset and time, 128 bits of a keyed hash of
its key, value and headers, and whether it has a key and a value, be they empty."""


class NotPlain(Exception):  # noqa: N818 # it is no error: the reference goes on
    """Something is suspicious, or not for the kernels."""


class Piece(NamedTuple):
    """Some batches in order, with their records.

    Attributes:
        headers: int64, one row per field of `header_table`, one column per batch.
        records: int64, one row per field (BATCH, OFFSET, ...), one column per record.
        keys: hashes of the keys, to ask the map with; None where no map was given.
    """

    headers: Table
    records: Table
    keys: Keys | None

    def batches(self, first: int, last: int) -> Piece:
        """Some of the batches, numbered anew; without the hashes of keys."""
        start, end = np.searchsorted(self.records[BATCH], (first, last)).tolist()
        records = self.records[:, start:end].copy()
        records[BATCH] -= first
        return Piece(self.headers[:, first:last], records, None)


def joined(pieces: Sequence[Piece]) -> Piece:
    """Pieces that follow one another as one, without the hashes of keys."""
    counts = np.cumsum([0, *(piece.headers.shape[1] for piece in pieces)])
    records = np.concatenate([piece.records for piece in pieces], axis=1)
    sizes = [piece.records.shape[1] for piece in pieces]
    records[BATCH] += np.repeat(counts[:-1], sizes)
    return Piece(np.concatenate([piece.headers for piece in pieces], axis=1), records, None)


class Columns:
    """Reads logs; contents of records are compared by a hash whose seed is its own secret."""

    def __init__(self) -> None:
        self._seed = secrets.randbits(63), secrets.randbits(63)

    def transactions(self, log: UnifiedLog) -> Transactions:
        """As `Transactions.of`.

        Raises:
            NotPlain: it is for the reference.
        """
        found = Transactions()
        for chunk in _chunks(log, Workspace(0)):
            if chunk.bad_checksums():
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
        """All batches and records of a log, checksums compared; `keys` hashes their keys.

        Segments that begin at the offset `below` or above are left out.

        Raises:
            NotPlain: it is for the reference.

        Cost:
            Memory for a chunk, some 2 MB and the largest batch decompressed, and 200 bytes for each
            of a quarter of a million records.
        """
        for chunk in _chunks(log, Workspace(_ROWS_AT_ONCE), below):
            if chunk.bad_checksums():
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
        low += table[k.KEY_SIZE]  # which lies in front of the key
        records[HAS_KEY] = table[k.KEY_SIZE] >= 0
        records[HAS_VALUE] = table[k.VALUE_SIZE] >= 0
        return records


def _content_ends(rows: Rows) -> Table:
    """Where the key, value and headers of each record end."""
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
        with Source(segment.log.path) as source:
            reader = ChunkReader(source, 0, source.size_bytes)
            while reader.position < reader.end:
                chunk = reader.read(space)
                if chunk is None or (chunk.headers[k.MAGIC] < 2).any():
                    raise NotPlain
                yield chunk
                space.release()
