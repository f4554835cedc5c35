"""The same pass on columns, by the kernels.

It makes what `cleaning.Pass` makes; messages of magic 0 and 1 are left to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from formats import constants as c
from kafkalog.columnar import kernels as k
from kafkalog.columnar import rewrite_kernels as r
from kafkalog.columnar.chunks import Chunk, ChunkReader, Workspace
from kafkalog.columnar.compacting import opened, rewrite
from kafkalog.columnar.key_map import KeyMap
from kafkalog.compaction.cleanable import segments_between
from kafkalog.compaction.cleaning import group_segments
from kafkalog.compaction.model import Dropped, Tally
from kafkalog.compaction.transactions import TransactionState, collect_aborted
from kafkalog.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from kafkalog.columnar.compacting import Opened
    from kafkalog.compaction.cleaning import LastRecord
    from kafkalog.compaction.model import Cleanable, CompactionConfig
    from kafkalog.log_dir import Segment
    from kafkalog.model import AbortedTransaction
    from kafkalog.unified_log import UnifiedLog

    Mask = NDArray[np.bool_]
    Table = NDArray[np.int64]


class ColumnPass:
    """One pass without a limit of keys over a log of magic 2; arguments as `cleaning.Pass`."""

    def __init__(
        self,
        log: UnifiedLog,
        config: CompactionConfig,
        now_ms: int,
        cleanable: Cleanable,
        producers: Mapping[int, LastRecord],
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.tally = Tally()
        self.config = config
        self.map = KeyMap()
        self.end_offset = cleanable.first_uncleanable_offset
        self._log = log
        self._now_ms = now_ms
        self._producers = producers
        self._upper = cleanable.first_uncleanable_offset
        self._first = cleanable.first_dirty_offset
        self._progress = progress
        self._space = Workspace(0)
        self._build()
        self._transactions = TransactionState()

    def _build(self) -> None:
        dirty = segments_between(self._log.segments, self._first, self._upper)
        transactions = TransactionState()
        if dirty:
            start, lower = dirty[0].base_offset, self._log.log_start_offset
            transactions.expect(collect_aborted(self._log.segments, start, lower, self._upper))
        for segment in dirty:
            for chunk in self._chunks(segment):
                discardable = _discardable(transactions, chunk)
                headers = chunk.headers
                is_control = headers[k.ATTRIBUTES] & c.CONTROL_MASK != 0
                for part in opened(chunk, ~discardable & ~is_control):
                    late = part.rows.table[k.OFFSET] >= self._first
                    self.map.put(self.map.keys(part.rows, late))

    def _chunks(self, segment: Segment) -> Iterator[Chunk]:
        with Source(segment.log.path) as source:
            reader = ChunkReader(source, 0, source.size_bytes)
            while reader.position < reader.end:
                chunk = reader.read(self._space)
                assert chunk is not None, "the log was checked"
                size = chunk.size_bytes
                yield chunk
                if self._progress is not None:
                    self._progress(size)

    def groups(self) -> list[list[Segment]]:
        """The segments from the first one on, as they are put together."""
        segments = segments_between(self._log.segments, 0, self.end_offset)
        return group_segments(segments, self.config, self._upper)

    def clean(self, group: Sequence[Segment]) -> Iterator[memoryview]:
        """The bytes of the new segment of a group, piece by piece; groups come in order."""
        self._transactions.kept = []
        for segment in group:
            upper = segment.next_base_offset
            assert upper is not None, "the active segment is not cleaned"
            self._transactions.expect(
                collect_aborted(
                    self._log.segments, segment.base_offset, self._log.log_start_offset, upper
                )
            )
            for chunk in self._chunks(segment):
                discardable = _discardable(self._transactions, chunk)
                drop_all, stays = self._fate_of_batches(chunk, discardable)
                for part in opened(chunk, ~drop_all | stays):
                    some = slice(part.first, part.last)
                    data = self._cleaned(part, discardable[some], drop_all[some], stays[some])
                    self.tally.bytes_written += len(data)
                    yield data.data
                self.tally.bytes_read += chunk.size_bytes

    @property
    def keys(self) -> int:
        """How many keys are in the map."""
        return len(self.map)

    @property
    def aborted(self) -> list[AbortedTransaction]:
        """The entries of the transaction index of the group that was cleaned last."""
        return self._transactions.kept

    def _fate_of_batches(self, chunk: Chunk, discardable: Mask) -> tuple[Mask, Mask]:
        """Which batches lose all their records, and which stay even so."""
        headers = chunk.headers
        attributes = headers[k.ATTRIBUTES]
        is_control = attributes & c.CONTROL_MASK != 0
        has_horizon = attributes & c.DELETE_HORIZON_MASK != 0
        is_over = has_horizon & (headers[k.BASE_TIMESTAMP] <= self._now_ms)
        drop_all = discardable & (~is_control | is_over)
        stays = headers[k.LAST_OFFSET] + 1 == self._upper
        for producer_id, last in self._producers.items():
            own = headers[k.PRODUCER_ID] == producer_id
            if last.last_data_offset is not None:
                stays |= own & (headers[k.LAST_OFFSET] == last.last_data_offset)
            else:
                stays |= own & is_control & (headers[k.PRODUCER_EPOCH] == last.producer_epoch)
        return drop_all, stays

    def _cleaned(
        self, part: Opened, discardable: Mask, drop_all: Mask, stays: Mask
    ) -> NDArray[np.uint8]:
        headers = part.headers
        table, ordinals, counts = part.rows.table, part.ordinals, part.counts
        batches = headers.shape[1]
        is_control = headers[k.ATTRIBUTES] & c.CONTROL_MASK != 0
        horizon = np.where(
            headers[k.ATTRIBUTES] & c.DELETE_HORIZON_MASK != 0, headers[k.BASE_TIMESTAMP], -1
        )
        is_data = ~(is_control | drop_all)[ordinals]
        keys = self.map.keys(part.rows, is_data)
        superseded = is_data & (table[k.OFFSET] < self.map.get(keys))
        no_key = is_data & (table[k.KEY_SIZE] < 0)
        is_tombstone = table[k.VALUE_SIZE] < 0
        is_over = (horizon >= 0) & (horizon <= self._now_ms)
        expired = is_data & is_tombstone & is_over[ordinals] & ~superseded & ~no_key
        keep = ~(superseded | no_key | expired | drop_all[ordinals])
        kept = np.bincount(ordinals[keep], minlength=batches)
        has_tombstone = np.bincount(ordinals[keep & is_tombstone], minlength=batches) > 0
        needs_horizon = (horizon < 0) & (has_tombstone | (discardable & is_control)) & (kept > 0)
        actions = np.where(kept > 0, r.REBUILD, np.where(stays, r.EMPTY, r.DROP))
        actions[(kept > 0) & (kept == counts) & ~needs_horizon] = r.COPY
        horizon[needs_horizon] = self._now_ms + self.config.delete_retention_ms
        self._count(part, drop_all, superseded, no_key, expired, int(kept.sum()))
        data, _ = rewrite(part, actions, keep, horizon)
        return data

    def _count(
        self, part: Opened, drop_all: Mask, superseded: Mask, no_key: Mask,
        expired: Mask, kept: int,
    ) -> None:  # fmt: skip
        headers = part.headers
        dropped = self.tally.dropped
        dropped[Dropped.SUPERSEDED] += int(superseded.sum())
        dropped[Dropped.NO_KEY] += int(no_key.sum())
        dropped[Dropped.TOMBSTONE] += int(expired.sum())
        is_control = headers[k.ATTRIBUTES] & c.CONTROL_MASK != 0
        for why, which in (
            (Dropped.ABORTED, drop_all & ~is_control),
            (Dropped.MARKER, drop_all & is_control),
        ):
            dropped[why] += int(headers[k.COUNT, which].sum())
        self.tally.records_read += int(headers[k.COUNT].sum())
        self.tally.records_kept += kept


def _discardable(transactions: TransactionState, chunk: Chunk) -> Mask:
    """Which batches were aborted, or are markers of which no data are left."""
    found = np.zeros(chunk.count, np.bool_)
    odd = chunk.headers[k.ATTRIBUTES] & (c.TRANSACTIONAL_MASK | c.CONTROL_MASK)
    for i in np.flatnonzero(odd).tolist():
        found[i] = transactions.is_discardable(chunk, chunk.batch(i))
    return found
