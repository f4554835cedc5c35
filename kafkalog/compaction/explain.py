"""A cleaning step by step, planned: the map as it fills, each batch, and every rename.

What is explained is what the cleaner's own code does here: `cleaning.Pass` decides about batches,
`swap.swap_in` names the steps of the swap; both only report to this module.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import file_names
from formats.file_names import FileState, segment_file
from kafkalog.batches.records import hold_records, require_few_records
from kafkalog.columns.chunks import BATCH_SIZE_MAX, ChunkReader, Rows, Workspace
from kafkalog.columns.pipeline import records_of
from kafkalog.compaction.cleaning import Pass
from kafkalog.compaction.model import MAP_MEMORY, MAP_SLOT_SIZE, Action, Group
from kafkalog.compaction.offset_map import MapBuilding, OffsetMap
from kafkalog.compaction.plan import require_known_layout, require_sound
from kafkalog.compaction.swap import NewFiles, clean_group, swap_in
from kafkalog.jit.fast_path import kernels_work
from kafkalog.storage import Changes, Step, StepKind
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.compaction.model import Candidate, CleanedBatch, CompactionRequest
    from kafkalog.log_dir import PartitionDir, Segment
    from kafkalog.model import Batch, Record
    from kafkalog.paths.source import Source

_ROWS_AT_ONCE: Final = 8192


@dataclass(frozen=True, slots=True)
class MapStep:
    """The offset map after a segment of the dirty part.

    Attributes:
        base_offset: base offset of the segment.
        size_bytes: size of its log.
        keys: keys in the map so far.
        slots: slots that Kafka's map has, of the size requested, else by default.
        is_full: whether the map took no more: the rest is left to another pass.
    """

    base_offset: int
    size_bytes: int
    keys: int
    slots: int
    is_full: bool

    @property
    def load(self) -> float:
        """The share of the slots in use."""
        return self.keys / self.slots if self.slots else 0.0


@dataclass(frozen=True, slots=True)
class FinishedMap:
    """The offset map of a pass.

    Attributes:
        keys: keys in it.
        load_factor: how far a map is filled.
        size_bytes: bytes that our map takes; None for the one of a limited size, which is a plain
            dictionary.
    """

    keys: int
    load_factor: float
    size_bytes: int | None

    @property
    def kafka_bytes(self) -> int:
        """Bytes that Kafka's map needs for them: 24 per slot, filled up to the load factor."""
        return ceil(self.keys / self.load_factor) * MAP_SLOT_SIZE


@dataclass(frozen=True, slots=True)
class ExplainedGroup:
    """Segments that become one, and how.

    Attributes:
        group: the segments and their sizes.
        batches: the first batches of each fate, in log order.
        actions: number of batches, all of them, by what becomes of them.
        steps: what is done to files, in order; paths are names in the partition's directory.
    """

    group: Group
    batches: tuple[CleanedBatch, ...]
    actions: Counter[Action]
    steps: tuple[Step, ...]


Explained = MapStep | FinishedMap | ExplainedGroup


def cleaner_state(partition: PartitionDir) -> str:
    """Return what the files say of a cleaner that was interrupted: `swapping`, `cleaning`, `idle`.

    Brokers keep the states of their cleaners in memory: in progress, aborted and paused are gone
    with the process.
    """
    states = {entry.name.state for entry in partition.files}
    if FileState.SWAP in states:
        return "swapping"
    return "cleaning" if FileState.CLEANED in states else "idle"


def explain_partition(
    candidate: Candidate,
    request: CompactionRequest,
    limit: int,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Explained]:
    """Yield the steps of the next pass over a partition; nothing is written.

    Args:
        candidate: the partition; one that is skipped has no steps.
        request: as for `compact_partition`.
        limit: maximum number of batches of each group that have the same fate.
        progress: called with the number of bytes read since the last call.

    Raises:
        KafkaLogError: as `compact_partition`.

    Cost:
        Goes record by record, so it takes several times as long as the plan, and holds the keys of
        the dirty part.
    """
    cleanable = candidate.cleanable
    if candidate.skip is not None or cleanable is None:
        return
    require_known_layout(candidate.partition)
    log = UnifiedLog(candidate.partition, high_watermark=candidate.high_watermark)
    is_limited = candidate.config.keys_max is not None
    building = None if is_limited or not kernels_work() else MapBuilding(log, cleanable)
    sound = require_sound(candidate, request, progress, building)
    steps: list[MapStep] = []
    slots = (request.map_memory or MAP_MEMORY) // MAP_SLOT_SIZE

    def mapped(segment: Segment, found: OffsetMap) -> None:
        size = segment.log.size_bytes
        steps.append(MapStep(segment.base_offset, size, len(found), slots, found.is_full))

    watch = _Watch(limit)
    cleaning = Pass(
        log,
        candidate.config,
        request.now_ms,
        cleanable,
        sound.producers,
        progress,
        mapped,
        watch.cleaned,
        # Explaining goes batch by batch: the kernels decode, `Pass` decides as in the reference
        # pass.
        _Decoder().records if kernels_work() else hold_records,
    )
    yield from steps
    own = None
    if building is not None and sound.suits_kernels:
        building.map.settle()
        own = building.map.size_bytes
    yield FinishedMap(cleaning.keys, candidate.config.load_factor, own)
    for segments in cleaning.groups():
        watch.begin()
        files = clean_group(cleaning, segments, None)
        before = sum(one.log.size_bytes for one in segments)
        bases = tuple(one.base_offset for one in segments)
        yield ExplainedGroup(
            Group(files.base_offset, bases, before, files.size_bytes),
            tuple(watch.batches),
            watch.actions,
            tuple(_steps(files, segments, candidate.partition)),
        )


class _Decoder:
    """Decodes batches by the kernels; what these leave over, as the reference decoder does."""

    def __init__(self) -> None:
        self._space = Workspace(_ROWS_AT_ONCE)

    def records(self, source: Source, batch: Batch) -> list[Record]:
        """Return the records of a batch. Raises as `hold_records`."""
        require_few_records(batch.count)
        if batch.magic < 2 or batch.size_bytes > BATCH_SIZE_MAX:
            return hold_records(source, batch)
        found: list[Record] = []
        reader = ChunkReader(source, batch.position, batch.end_position)
        for chunk in reader.chunks(self._space):
            for rows in chunk.decode(np.ones(chunk.count, np.bool_)):
                if not isinstance(rows, Rows) or rows.failures:
                    return hold_records(source, batch)
                found += records_of(rows, chunk)
        is_whole = reader.position == batch.end_position and len(found) == batch.count
        return found if is_whole else hold_records(source, batch)


class _Watch:
    """Keeps the first batches of a group by what becomes of them, and counts all of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.begin()

    def begin(self) -> None:
        self.batches: list[CleanedBatch] = []
        self.actions = Counter[Action]()

    def cleaned(self, found: CleanedBatch) -> None:
        """Take the next batch."""
        self.actions[found.action] += 1
        if self.actions[found.action] <= self._limit:
            self.batches.append(found)


class _PlannedChanges(Changes):
    """Notes the steps instead of taking them."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.steps: list[Step] = []

    def rename(self, name: str, new_name: str) -> None:
        self.steps.append(Step(StepKind.RENAME, name, new_name))

    def remove(self, name: str, *, missing_ok: bool = False) -> None:  # noqa: ARG002
        self.steps.append(Step(StepKind.REMOVE, name))

    def sync_directory(self) -> None:
        self.steps.append(Step(StepKind.SYNC_DIRECTORY, ""))


def _steps(files: NewFiles, group: Sequence[Segment], partition: PartitionDir) -> Iterator[Step]:
    for suffix in files.suffixes:
        name = segment_file(files.base_offset, suffix) + file_names.CLEANED
        yield Step(StepKind.CREATE, name)
        yield Step(StepKind.SYNC, name)
    planned = _PlannedChanges(partition.path)
    swap_in(files, group, partition, planned)
    yield from planned.steps
