"""Predicts a broker's next start on a partition directory, without writing anything.

Follows `LogManager.loadLog`, `UnifiedLog.create` and `LogLoader` of Kafka.
"""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from formats import file_names
from formats.constants import INT64_MAX
from formats.file_names import DirectoryState, FileKind
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.files import text_files
from kafkalog.files.log_dir import open_partition
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source
from kafkalog.io.wording import counted
from kafkalog.log.batches.order import Order
from kafkalog.model import Batch, present_ms
from kafkalog.node.recovery.directory import Directory, check_partition_metadata
from kafkalog.node.recovery.loader import Loader
from kafkalog.node.recovery.model import (
    Behind,
    Consequence,
    LoadedLog,
    LoadedSegment,
    PredictedStart,
    RebuildIndexes,
    StartConfig,
    StartMode,
    StartRefusedError,
)
from kafkalog.node.recovery.producer_replay import segments_between
from kafkalog.node.recovery.producers import LeaderEpochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.node.configs import ConfigValue, TopicConfigs
    from kafkalog.node.recovery.directory import Content
    from kafkalog.node.recovery.model import Action, Refusal
    from kafkalog.node.recovery.node_start import Hosting
    from kafkalog.node.recovery.segment_recovery import SegmentRecovery
    from kafkalog.node.recovery.segment_state import SegmentState


CHECKPOINTS = (file_names.RECOVERY_POINTS, file_names.LOG_STARTS)
UNCHECKED = "all checksums are correct (not checked)"
NO_TOPIC_ID = (
    f"{file_names.PARTITION_METADATA} is missing: a KRaft broker treats the partition as a stray"
)


@dataclass(frozen=True, slots=True)
class _Circumstances:
    """How the broker starts on the log, and which parts of that were assumed."""

    mode: StartMode
    recovery_point: int
    log_start: int
    assumptions: tuple[str, ...]


def predict_start(
    partition: PartitionDir | str,
    mode: StartMode | None = None,
    *,
    recovery_point: int | None = None,
    log_start_checkpoint: int | None = None,
    config: StartConfig | None = None,
    hosting: Hosting | None = None,
    tell: Callable[[str, bytes], None] | None = None,
) -> PredictedStart:
    """Predict what a broker's next start would do to a partition directory. Nothing is written.

    Args:
        partition: the directory, or its path.
        mode: how the broker starts; None derives it from the log directory.
        recovery_point: where an unclean start begins to scan; None reads it from the checkpoint.
        log_start_checkpoint: the log start offset; None reads it from the checkpoint.
        config: the configs that the outcome depends on; None for Kafka's defaults.
        hosting: the partitions assigned to the broker; None assumes that this one is.
        tell: called with name and bytes of each file the start would write, in the order of the
            actions that write them; the bytes are not kept.

    Returns:
        The prediction; a log that cannot be loaded is a `Refusal` in it.

    Raises:
        NotFoundError, UnreadableError, NotAKafkaFileError: the directory cannot be read.

    Cost:
        After a clean shutdown, reads the end of the active segment and what the newest producer
        snapshot does not cover; otherwise every byte from the recovery point on. Memory for the
        producers and the indexes of a few segments.
    """
    return StartInProgress(
        open_partition(partition) if isinstance(partition, str) else partition,
        mode,
        recovery_point=recovery_point,
        log_start_checkpoint=log_start_checkpoint,
        config=config,
        hosting=hosting,
        tell=tell,
    ).end()


class StartInProgress:
    """A prediction that waits for the batches of the segments that a start scans.

    A caller that reads the whole log anyway feeds them, segment by segment in base-offset order;
    what is not fed is read here.

    Args:
        mode, recovery_point, log_start_checkpoint, config, hosting, tell: as in `predict_start`.
        check_crc: whether the scans verify checksums, as a broker's do. Otherwise they are assumed
            to be right, which is reported as an assumption.
        trusts_swaps: whether the log of a swap without its indexes gets empty ones, as in a broker;
            otherwise they are built.
        rebuilds_epochs: whether leader epochs that Kafka cannot read are rebuilt from the log.
        progress: called with the bytes that scans have read since the last call.

    Raises:
        UnreadableError: a file cannot be read.
    """

    def __init__(
        self,
        partition: PartitionDir,
        mode: StartMode | None = None,
        *,
        recovery_point: int | None = None,
        log_start_checkpoint: int | None = None,
        config: StartConfig | None = None,
        hosting: Hosting | None = None,
        tell: Callable[[str, bytes], None] | None = None,
        check_crc: bool = True,
        trusts_swaps: bool = True,
        rebuilds_epochs: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.partition = partition
        self._around = _circumstances(partition, mode, recovery_point, log_start_checkpoint)
        self._config = config
        self._hosting = hosting
        self._check_crc = check_crc
        self._trusts_swaps = trusts_swaps
        self._rebuilds_epochs = rebuilds_epochs
        self._progress = progress
        self._directory = Directory(partition, tell)
        self._begun: Loader | None = None
        self._loader: Loader | None = None  # set once it has finished
        self._refusal: Refusal | None = None
        self._repaired: Refusal | None = None
        self._path: str | None = None
        self._steps = self._load()
        self._scan: SegmentRecovery | None = None
        self._has_scanned = False
        self._go_on()

    def begin(self, path: str, base_offset: int) -> None:
        """Start a segment, whose batches follow. Raises as `end`."""
        self._path = path
        while self._scan is not None and self._scan.segment.base_offset < base_offset:
            self._go_on()

    def feed(self, columns: BatchColumns) -> None:
        """Feed the next batches of the segment, from its first on, with their checksums verified.

        They may end anywhere, and irregular batches may be left out.
        """
        if self._scan is not None and self._scan.segment.log.path == self._path:
            self._scan.feed(columns)

    def accepts(self, base_offset: int, position: int) -> bool:
        """Return whether a start accepts the batches of a segment up to a position, and all before.

        Scans no further than it takes to know. If it does not, or if the scans are over, `end` says
        what becomes of the log.
        """
        while (scan := self._scan) is not None and scan.segment.base_offset <= base_offset:
            is_here = scan.segment.base_offset == base_offset
            if not scan.advance(position if is_here else scan.segment.size_bytes):
                return False
            if is_here:
                return True
            self._go_on()
        return self._scan is not None

    def advance(self) -> bool:
        """Scan a step further; return whether all of it is accepted, and something is left."""
        scan = self._scan
        if scan is None or not scan.advance(scan.reached[0]):
            return False
        if not scan.unread_bytes:
            self._go_on()
        return self._scan is not None

    @property
    def scan(self) -> SegmentRecovery | None:
        """The scan that has begun, and waits to be fed; None once all are over."""
        return self._scan

    @property
    def unread_bytes(self) -> int:
        """How much is left to scan of the segments that may not have been flushed."""
        if self._scan is None or self._begun is None:
            return 0
        first = self._scan.segment.base_offset
        later = [one for base, one in self._begun.segments.items() if base > first]
        return self._scan.unread_bytes + sum(one.size_bytes for one in later)

    @property
    def log_start_checkpoint(self) -> int:
        return self._around.log_start

    @property
    def scans_the_end(self) -> bool:
        """Whether the scan that has begun is of the end of the log, which may not be flushed."""
        return self._scan is not None and self._begun is not None and self._begun.is_loaded

    def end(self) -> PredictedStart:
        """Return the prediction, once all batches have been fed.

        Raises:
            UnreadableError: a file cannot be read.
        """
        while self._scan is not None:
            self._go_on()
        notes: list[str] = []
        loaded = behind = None
        if self._loader is not None and self._refusal is None:
            try:
                loaded = _loaded(self._loader)
            except StartRefusedError as error:
                self._refusal = self._refused(error)
            if self.partition.state != DirectoryState.DELETE:
                notes = _notes(self._loader)
                if loaded is not None and self._around.mode == StartMode.CLEAN:
                    behind = _behind(self._loader, loaded)
        return dataclasses.replace(self._prediction(loaded, notes), behind=behind)

    @property
    def refusal(self) -> Refusal | None:
        """Why a start would fail, even if the cause was repaired here; valid after `end`."""
        return self._refusal or self._repaired

    @property
    def contents(self) -> dict[str, Content]:
        """The files as they would be after the start, by name; valid after `end`."""
        return dict(self._directory.contents)

    @property
    def tidying(self) -> tuple[Action, ...]:
        """The actions that finish or roll back what a crash left, before segments are examined."""
        count = self._begun.tidying_count if self._begun is not None else 0
        return tuple(self._directory.actions[:count])

    def _go_on(self) -> None:
        """Continue to the next scan, or to the end."""
        try:
            self._scan = next(self._steps, None)
        except StartRefusedError as error:
            self._scan, self._refusal = None, self._refused(error)
        self._has_scanned |= self._scan is not None

    def _refused(self, error: StartRefusedError) -> Refusal:
        return _reaching(error.refusal(), self.partition)

    def _load(self) -> Iterator[SegmentRecovery]:
        config, around = self._config or usual_config(self.partition), self._around
        epochs = LeaderEpochs(self._directory, rebuilds=self._rebuilds_epochs)
        if epochs.refusal is not None:
            self._repaired = _reaching(epochs.refusal, self.partition)
        loader = Loader(
            self._directory,
            epochs,
            config,
            now_ms=present_ms() if config.now_ms is None else config.now_ms,
            is_clean=around.mode == StartMode.CLEAN,
            recovery_point=around.recovery_point,
            log_start_checkpoint=around.log_start,
            check_crc=self._check_crc,
            trusts_swaps=self._trusts_swaps,
            progress=self._progress,
        )
        self._begun = loader
        yield from loader.load(is_deleted=self.partition.state == DirectoryState.DELETE)
        # UnifiedLog reads it once the log is loaded, so a damaged log is reported first.
        check_partition_metadata(self._directory)
        self._loader = loader

    def _prediction(self, loaded: LoadedLog | None, notes: list[str]) -> PredictedStart:
        directory = self._directory
        may_be_stray = self._hosting is None and self.partition.topic != CLUSTER_METADATA
        if may_be_stray and file_names.PARTITION_METADATA not in directory:
            notes.append(NO_TOPIC_ID)
        assumptions = list(self._around.assumptions)
        is_rebuilt = any(isinstance(action, RebuildIndexes) for action in directory.actions)
        if self._config is None and is_rebuilt:
            assumptions.append("index.interval.bytes and segment.index.bytes are Kafka's defaults")
        if self._has_scanned and not self._check_crc:
            assumptions.append(UNCHECKED)
        return PredictedStart(
            self.partition.path,
            self._around.mode,
            self._around.recovery_point,
            self._around.log_start,
            tuple(assumptions),
            tuple(notes),
            tuple(directory.actions),
            self._refusal,
            loaded,
            self._hosting.stray_reason(self.partition) if self._hosting is not None else None,
        )


def _reaching(refusal: Refusal, partition: PartitionDir) -> Refusal:
    """Return a refusal with its reach: no node does without the log directory of its metadata."""
    around = os.path.dirname(file_system.absolute(partition.path))
    if file_system.exists(os.path.join(around, f"{CLUSTER_METADATA}-0")):
        return dataclasses.replace(refusal, consequence=Consequence.BROKER_FAILS)
    return refusal


def usual_config(partition: PartitionDir) -> StartConfig:
    """Return Kafka's defaults, with room for the largest existing index."""
    kinds = (FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
    sizes = [entry.size_bytes for kind in kinds for entry in partition.live(kind)]
    usual, largest = StartConfig(), max(sizes, default=0)
    if largest <= usual.segment_index_bytes:
        return usual
    # The topic's config is not in the directory; an index larger than the default shows that it is
    # set.
    return dataclasses.replace(usual, segment_index_bytes=largest)


def start_mode(log_dir: str) -> StartMode:
    """Return how a broker starts on a log directory, by its clean shutdown mark."""
    is_clean = file_system.exists(os.path.join(log_dir, file_names.CLEAN_SHUTDOWN))
    return StartMode.CLEAN if is_clean else StartMode.UNCLEAN


def _circumstances(
    partition: PartitionDir,
    mode: StartMode | None,
    recovery_point: int | None,
    log_start: int | None,
) -> _Circumstances:
    """Return what the broker would read around the partition; given values take precedence."""
    assumptions = []
    parent = os.path.dirname(file_system.absolute(partition.path))
    if partition.topic == CLUSTER_METADATA:
        return _Circumstances(StartMode.FULL, 0, 0, ())  # KRaft trusts no mark and no checkpoint
    if log_start is None:
        log_start = checkpointed(parent, file_names.LOG_STARTS, partition) or 0
    if mode is None:
        mode = start_mode(parent)
    if recovery_point is None and mode != StartMode.FULL:
        recovery_point = checkpointed(parent, file_names.RECOVERY_POINTS, partition)
        if recovery_point is None and mode == StartMode.UNCLEAN:
            assumptions.append(
                f"no entry in {file_names.RECOVERY_POINTS} for the partition: recovery point 0"
            )
    return _Circumstances(mode, recovery_point or 0, log_start, tuple(assumptions))


def checkpointed(log_dir: str, name: str, partition: PartitionDir) -> int | None:
    """Return the partition's checkpoint entry; None if missing or the file is malformed."""
    return text_files.checkpointed(log_dir, name, partition.topic, partition.partition)


def _loaded(loader: Loader) -> LoadedLog:
    producers = loader.producers
    start = loader.log_start_offset
    producers.drop_replicated(start)  # at a start the only known high watermark is the log start
    return LoadedLog(
        log_start_offset=start,
        log_end_offset=loader.log_end_offset,
        # As UnifiedLog: nothing below the log start is left to flush.
        recovery_point=max(loader.recovery_point, start),
        first_unstable_offset=_first_unstable_offset(loader),
        segments=tuple(_segment(loader.segments[base]) for base in sorted(loader.segments)),
        producers=tuple(producers.states[who] for who in sorted(producers.states)),
        leader_epochs=loader.epochs.entries,
        snapshots=tuple(sorted(producers.snapshots)),
    )


def _first_unstable_offset(loader: Loader) -> int | None:
    """Return the base offset of the first batch of the earliest undecided transaction.

    The transaction may have begun before the log start, or its batch may be gone: then it is that
    of the next batch, as `UnifiedLog.maybeIncrementFirstUnstableOffset` reads it from the log.
    """
    offset = loader.producers.first_unstable_offset
    if offset is None:
        return None
    offset = max(offset, loader.log_start_offset)
    if loader.log_end_offset <= offset or offset < min(loader.segments):
        return offset
    for segment in segments_between(loader.segments, offset, INT64_MAX):
        found = segment.find(offset)
        if found is not None:
            return found.base_offset
    return loader.log_end_offset


def _segment(segment: SegmentState) -> LoadedSegment:
    return LoadedSegment(
        segment.base_offset,
        segment.log.path,
        segment.log.start,
        segment.size_bytes,
        segment.offset_index.entry_count,
        segment.time_index.entry_count,
        segment.aborted_count,
        segment.max_timestamp[0],
    )


def _notes(loader: Loader) -> list[str]:
    """Return what the start neither changes nor reports."""
    notes = []
    active = loader.segments[max(loader.segments)]
    if active.size_bytes and loader.log_end_offset == active.base_offset:
        notes.append(
            f"no batch is found where the index of segment {active.base_offset} ends: the log end "
            "offset falls back to the base offset, and offsets in use would be given again; "
            "`kafkalog recover PATH --scan checkpoint` keeps the whole batches"
        )
    elif active.size_bytes:
        left = active.size_bytes - active.end_of_batches
        if left:
            notes.append(
                f"segment {active.base_offset} ends with {counted(left, 'byte')} that are no batch "
                "and stay: the next append goes after them"
            )
    if active.has_epochs and not loader.epochs.entries:
        notes.append(
            f"{file_names.LEADER_EPOCHS} is empty, and a clean start does not fill it from the log"
        )
    return notes


def _behind(loader: Loader, loaded: LoadedLog) -> Behind | None:
    """Return the batches behind the log end; a start that scans a segment leaves none there."""
    segment, active = loader.segments[max(loader.segments)], loaded.segments[-1]
    if active.path is None or segment.end_of_batches >= active.size_bytes:
        return None
    end = loaded.log_end_offset
    with Source(active.path) as source:
        limit = active.start + active.size_bytes
        order = Order(source, limit, active.base_offset, None, check_crc=False)
        position, records, size = active.start, 0, 0
        for one in order.scan(active.start):
            if isinstance(one, Batch) and one.last_offset < end:
                position, records, size = one.end_position, 0, 0
            elif isinstance(one, Batch):
                records, size = records + max(one.records, 0), size + one.size_bytes
    return Behind(active.path, active.base_offset, position, end, records, size) if size else None


_INTERVAL = "index.interval.bytes"
_INDEX_SIZE = "segment.index.bytes"


def start_config(
    partition: PartitionDir, configs: TopicConfigs, now_ms: int | None = None
) -> tuple[StartConfig, tuple[ConfigValue, ...]]:
    """Return the configs that a start depends on, and all configs that were looked up.

    Args:
        configs: the configs of its topic.
        now_ms: the broker's clock; None for this machine's clock.

    Raises:
        CorruptDataError: a source holds a value that no broker would accept.
    """
    usual = usual_config(partition)
    index_size = configs.number(_INDEX_SIZE)
    if not configs.is_set(_INDEX_SIZE):
        index_size = max(index_size, usual.segment_index_bytes)
    config = dataclasses.replace(
        usual,
        index_interval_bytes=configs.number(_INTERVAL),
        segment_index_bytes=index_size,
        now_ms=now_ms,
    )
    return config, (configs[_INTERVAL], configs[_INDEX_SIZE])
