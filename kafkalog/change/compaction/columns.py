"""The cleaner's pass on columns, by the kernels.

Gives the same results as `cleaning.Pass`, which handles messages of magic 0 and 1, and batches
above 64 MB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.change.compaction import kernels as r
from kafkalog.change.compaction.buckets import Superseded, SupersededByMap
from kafkalog.change.compaction.chunks import Buffers, Fate, Rule, opened, rewrite
from kafkalog.change.compaction.cleaning import CleaningPass
from kafkalog.change.compaction.model import Cleanable, CompactionConfig, Dropped, read_otherwise
from kafkalog.change.compaction.offset_map import MapBuilding, discardable_among
from kafkalog.io.engine import Crew
from kafkalog.io.jit.fast_path import default_threads
from kafkalog.io.paths.source import Source
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.chunks import Chunk, ChunkReader, Turn
from kafkalog.log.columns.record_facts import markers_of_chunk
from kafkalog.log.columns.walk import Lanes, Task, Walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from kafkalog.change.compaction.transactions import TransactionState
    from kafkalog.files.log_dir import Segment
    from kafkalog.log.producers import LastRecord
    from kafkalog.node.unified_log import UnifiedLog

    Mask = NDArray[np.bool_]
    Table = NDArray[np.int64]


# Records whose bits are looked at in one go: a chunk of tiny records has millions.
_BITS_AT_ONCE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class _Piece:
    """New batches, with the old headers.

    Attributes:
        headers: the headers of the old ones.
        drop_all: which of these lose all records.
        counters: how many records were kept, and dropped for each reason (`kernels`).
        refusal: why a broker's cleaner would not write one of them; None if it would.
    """

    data: NDArray[np.uint8]
    headers: Table
    drop_all: Mask
    counters: Table
    refusal: str | None

    @property
    def size_bytes(self) -> int:
        return len(self.data)


class ColumnPass(CleaningPass):
    """A pass without a limit on keys over a log that suits the kernels; see `cleaning.Pass`.

    One thread reads chunks and returns the new batches in order; others decode and rewrite.

    Args:
        superseded: reports which records are superseded; if None, the dirty part is read now to
            find out.
        transactions: those open where the first cleaned group begins; if None, at the log's
            beginning.
    """

    def __init__(
        self,
        log: UnifiedLog,
        config: CompactionConfig,
        now_ms: int,
        cleanable: Cleanable,
        producers: Mapping[int, LastRecord],
        progress: Callable[[int], None] | None = None,
        superseded: Superseded | None = None,
        transactions: TransactionState | None = None,
    ) -> None:
        super().__init__(log, config, cleanable, producers, progress, transactions)
        self.end_offset = self._upper
        if superseded is None:
            building = MapBuilding(log, cleanable)
            building.read(progress)
            superseded = SupersededByMap(building, cleanable)
        self._superseded = superseded
        # The map has no limit, so it covers everything below the upper bound: no record lies behind
        # it.
        self._rule = Rule(now_ms, self._upper - 1, now_ms + config.delete_retention_ms)
        self._buffers = Buffers()
        self._last: NDArray[np.uint8] | None = None  # the new batches that may be in use
        self._passed = 0  # records of this segment before the next chunk

    def clean(self, group: Sequence[Segment]) -> Iterator[memoryview]:
        """Yield the bytes of a group's new segment, piece by piece; groups must come in order.

        A piece keeps its bytes until the next one is there.
        """
        self._transactions.kept = []
        threads = default_threads()
        with Crew(threads, "kafkalog-cleaner") as pool:
            lanes = Lanes(pool, threads + 1, 0, [])
            for segment in group:
                yield from self._segment(segment, lanes)

    def _segment(self, segment: Segment, lanes: Lanes) -> Iterator[memoryview]:
        upper = segment.next_base_offset
        assert upper is not None, "the active segment is not cleaned"
        self._expect_aborted(segment, upper)
        self._passed = self._superseded.begin(segment.log.path)
        with Source(segment.log.path) as source:
            reader = ChunkReader(source, 0, source.size_bytes, doubled=True)
            walk = Walk(reader, lanes, self._work)
            try:
                for task in walk.found():
                    assert isinstance(task, Task), "nothing else is asked for"
                    size = task.chunk.size_bytes
                    for piece in walk.results(task):
                        yield self._told(piece)
                        # The consumer is done with a piece once it asks for the next one.
                        if self._last is not None:
                            self._buffers.give(self._last)
                        self._last = piece.data
                    self.tally.read_bytes += size
                    if self._progress is not None:
                        self._progress(size)
                # The reader stops quietly at a torn batch; the log had none when it was judged.
                if walk.reader.position != source.size_bytes:
                    raise read_otherwise(source.path)
            finally:
                walk.stop()

    def _work(self, chunk: Chunk) -> Iterator[_Piece | Turn]:
        """Return the work on a chunk; chunks come in order, but the work may run in any order."""
        headers = chunk.headers
        # Here, in log order, as markers decide about later batches; the rest may run in any order.
        markers = markers_of_chunk(chunk)
        discardable = discardable_among(self._transactions, chunk, headers, markers, chunk.path)
        fate = self._fate_of_batches(headers, discardable)
        start, self._passed = self._passed, self._passed + int(headers[k.COUNT].sum())
        return self._pieces(chunk, fate, start)

    def _pieces(self, chunk: Chunk, fate: Fate, start: int) -> Iterator[_Piece | Turn]:
        """Yield the new batches of a chunk, given the number of its first record; in any thread."""
        starts = np.cumsum(chunk.headers[k.COUNT]) - chunk.headers[k.COUNT] + start
        # A batch with nothing but superseded records need not be decompressed to be dropped.
        dead = self._dead(chunk, start) & ~fate.drop_all & ~fate.stays
        for part in opened(chunk, ~(fate.drop_all | dead) | fate.stays):
            if isinstance(part, Turn):
                yield part
                continue
            counters = np.zeros(r.COUNTERS, np.int64)
            counters[r.SUPERSEDED] = (part.headers[k.COUNT] * dead[part.first : part.last]).sum()
            made = rewrite(
                part,
                self._superseded.among(part, starts[part.first : part.last]),
                fate.part(part.first, part.last),
                self._rule,
                counters,
                self._buffers,
            )
            dropped = fate.drop_all[part.first : part.last]
            yield _Piece(made.data, part.headers.copy(), dropped, counters, made.refusal)

    def _dead(self, chunk: Chunk, start: int) -> Mask:
        """Return which batches have superseded records only, as far as that is known unread."""
        headers, counts = chunk.headers, chunk.headers[k.COUNT]
        dead = np.zeros(chunk.count, np.bool_)
        ends = np.cumsum(counts)
        # With a negative count the numbers of all records behind it would be wrong.
        first = 0 if (counts >= 0).all() else chunk.count
        while first < chunk.count:
            before = int(ends[first] - counts[first])
            last = max(int(np.searchsorted(ends, before + _BITS_AT_ONCE)), first + 1)
            some = slice(first, last)
            bits = self._superseded.known(chunk.path, headers[:, some], start + before)
            if bits is not None:
                sums = np.concatenate(([0], np.cumsum(bits)))
                after = ends[some] - before
                dead[some] = sums[after] - sums[after - counts[some]] == counts[some]
            first = last
        dead &= (counts > 0) & (headers[k.LAST_OFFSET] <= self._rule.latest_offset)
        # The key of a marker is its type, and never superseded.
        dead &= headers[k.ATTRIBUTES] & c.CONTROL_MASK == 0
        return dead

    def _told(self, piece: _Piece) -> memoryview:
        """Count a piece, and return its bytes."""
        tally, counters, headers = self.tally, piece.counters, piece.headers
        is_control = headers[k.ATTRIBUTES] & c.CONTROL_MASK != 0
        for why, count in (
            (Dropped.SUPERSEDED, counters[r.SUPERSEDED]),
            (Dropped.NO_KEY, counters[r.NO_KEY]),
            (Dropped.TOMBSTONE, counters[r.TOMBSTONE]),
            (Dropped.ABORTED, headers[k.COUNT, piece.drop_all & ~is_control].sum()),
            (Dropped.MARKER, headers[k.COUNT, piece.drop_all & is_control].sum()),
        ):
            tally.dropped[why] += int(count)
        tally.read_records += int(headers[k.COUNT].sum())
        tally.kept_records += int(counters[r.KEPT])
        tally.bytes_written += piece.size_bytes
        tally.note_refusal(piece.refusal)
        return piece.data.data

    @property
    def keys(self) -> int:
        return self._superseded.keys

    def _fate_of_batches(self, headers: Table, discardable: Mask) -> Fate:
        attributes = headers[k.ATTRIBUTES]
        is_control = attributes & c.CONTROL_MASK != 0
        has_horizon = attributes & c.DELETE_HORIZON_MASK != 0
        is_over = has_horizon & (headers[k.BASE_TIMESTAMP] <= self._rule.now_ms)
        drop_all = discardable & (~is_control | is_over)
        stays = headers[k.LAST_OFFSET] + 1 == self._kept_end
        for producer_id in self._producers.keys() & set(headers[k.PRODUCER_ID].tolist()):
            last, own = self._producers[producer_id], headers[k.PRODUCER_ID] == producer_id
            if last.last_data_offset is not None:
                stays |= own & (headers[k.LAST_OFFSET] == last.last_data_offset)
            else:
                stays |= own & is_control & (headers[k.PRODUCER_EPOCH] == last.producer_epoch)
        return Fate(discardable, drop_all, stays)
