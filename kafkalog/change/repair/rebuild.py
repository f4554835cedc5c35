"""The indexes of segments, rebuilt from the log as a broker does if an index is missing.

Follows `LogSegment.recover` of Kafka, as `LogLoader` calls it for a missing `.index`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from formats import file_names
from formats.file_names import parse_file_name, segment_file
from formats.late_classes import dataclass
from kafkalog.change.journal.requirements import require_own_files
from kafkalog.change.journal.run import Maintenance, share_of
from kafkalog.change.journal.runs import Runs
from kafkalog.change.plan import plan_of
from kafkalog.change.repair.model import contents_of, is_left_over
from kafkalog.change.repair.plan import is_same, with_clock
from kafkalog.change.repair.recover import Settlement
from kafkalog.change.repair.staging import Staging, remove_left_over
from kafkalog.errors import CorruptDataError, contained
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source
from kafkalog.io.storage import require_writable
from kafkalog.io.times import clock_ms
from kafkalog.node.configs import ConfigSources
from kafkalog.node.recovery import StartInProgress, StartMode, start_config, usual_config
from kafkalog.node.recovery.directory import offset_from_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from kafkalog.change.journal import Run
    from kafkalog.change.plan import Plan
    from kafkalog.errors import OnEvent
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.io.rows import Rows
    from kafkalog.io.times import Time
    from kafkalog.node.recovery import PredictedStart, StartConfig


class Comparison(StrEnum):
    """How an index compares with the one that is built from the log."""

    SAME = "same"
    PADDED = "padded"
    """Equal, followed by preallocated zeros, as a killed broker leaves it."""
    DIFFERENT = "different"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class IndexComparison:
    """One index.

    Attributes:
        base_offset: base offset of its segment.
        result: how the file compares with the rebuilt index.
        size_bytes: size of the file; None if it is missing.
        new_size_bytes: size of the rebuilt index.
    """

    path: str
    base_offset: int
    result: Comparison
    size_bytes: int | None
    new_size_bytes: int

    @property
    def is_changed(self) -> bool:
        """Whether a rebuild writes the file."""
        return self.result != Comparison.SAME


def compare_indexes(
    partition: PartitionDir,
    config: StartConfig | None = None,
    base_offsets: Collection[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[IndexComparison, ...]:
    """Compare the indexes of a partition with rebuilt ones. Nothing is written.

    Args:
        config: sizes and density of the indexes; None for Kafka's defaults.
        base_offsets: the segments; None for all.
        progress: called with the bytes of these segments scanned since the last call.

    Returns:
        The indexes by segment, then kind.

    Raises:
        CorruptDataError: the log is damaged, or a crash has left something unfinished.
        UnreadableError: a file cannot be read.

    Cost:
        Reads the logs once, and of the logs before them what no producer snapshot covers; memory
        for the producers and the indexes of a few segments.
    """
    comparing = _Comparing(partition, base_offsets)
    _scan(partition, config, base_offsets, comparing, progress)
    return comparing.result()


def rebuild_indexes(
    partition: PartitionDir,
    run: Run,
    config: StartConfig | None = None,
    base_offsets: Collection[int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[IndexComparison, ...]:
    """Rebuild the indexes of a partition.

    The new files are written next to the old ones, synced, and put in their place: at any moment,
    also after a crash, each is the old file or the new one, whole. A missing `.index` comes last,
    so that a broker that starts in between rebuilds all three.

    Args:
        run: holds the lock of the log directory.
        config, base_offsets, progress: as for `compare_indexes`.

    Returns:
        The indexes as they were, as `compare_indexes` does.

    Raises:
        CorruptDataError, UnreadableError: as `compare_indexes`; nothing was changed.
        RefusedError: the directory holds links.
        UnwritableError: a step failed.
    """
    require_own_files(partition)
    require_writable(partition.path)
    wanted = _base_offsets(partition, base_offsets)
    names = [segment_file(base, suffix) for base in wanted for suffix in file_names.INDEXES]
    before = contents_of(partition)
    touched = [name for name in before if name in names or is_left_over(name)]
    with run.partition(partition, touched) as changing:
        remove_left_over(changing.changes, partition)
        staging = Staging(changing.changes, partition, file_names.INDEXES)
        try:
            comparing = _Comparing(partition, base_offsets, staging)
            start = _scan(partition, config, base_offsets, comparing, progress)
            new = {name: start.contents[name] for name in names if name in start.contents}
            Settlement(changing.changes, before, {**before, **new}, staging).perform()
        finally:
            staging.discard()
    return comparing.result()


class _Comparing:
    """Compares the indexes that a scan reports with those on disk, and passes them on."""

    def __init__(
        self,
        partition: PartitionDir,
        base_offsets: Collection[int] | None,
        tell: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self._path = partition.path
        self._wanted = _base_offsets(partition, base_offsets)
        self._tell = tell
        self._found: dict[str, IndexComparison] = {}

    def __call__(self, name: str, data: bytes) -> None:
        if (
            name.endswith(file_names.INDEXES)
            and (base_offset := offset_from_name(name)) in self._wanted
        ):
            path = os.path.join(self._path, name)
            self._found[path] = _comparison(path, base_offset, data)
        if self._tell is not None:
            self._tell(name, data)

    def result(self) -> tuple[IndexComparison, ...]:
        return tuple(sorted(self._found.values(), key=lambda it: (it.base_offset, it.path)))


def _scan(
    partition: PartitionDir,
    config: StartConfig | None,
    base_offsets: Collection[int] | None,
    tell: Callable[[str, bytes], None],
    progress: Callable[[int], None] | None,
) -> StartInProgress:
    """Return a clean start on the directory as if the segments had no offset index."""
    if any(
        entry.name.name.endswith((file_names.CLEANED, file_names.SWAP, file_names.DELETED))
        for entry in partition.files
    ):
        raise CorruptDataError(
            "A cleaning or a deletion was interrupted here.",
            path=partition.path,
            hint=f"`kafkalog recover {partition.path} --apply` finishes it.",
        )
    # A missing `.index` is what makes LogLoader rebuild all three, even after a clean shutdown.
    wanted = {
        segment_file(base, file_names.OFFSET_INDEX)
        for base in _base_offsets(partition, base_offsets)
    }
    without = tuple(entry for entry in partition.files if entry.name.name not in wanted)
    start = StartInProgress(
        replace(partition, files=without),
        # Only the segments without an index are scanned then, not what lies above the recovery
        # point.
        StartMode.CLEAN,
        config=with_clock(config or usual_config(partition)),
        tell=tell,
        progress=progress,
    )
    _require_sound(partition, start.end())
    return start


def _base_offsets(partition: PartitionDir, wanted: Collection[int] | None) -> list[int]:
    there = [segment.base_offset for segment in partition.segments]
    return there if wanted is None else [base for base in there if base in wanted]


def _require_sound(partition: PartitionDir, predicted: PredictedStart) -> None:
    """Raise `CorruptDataError` if the scan would cut the log, or could not end."""
    words = None
    if predicted.refusal is not None:
        words = f"{predicted.refusal.error}: {predicted.refusal.message}"
    # A broker would cut the log for the sake of an index; a rebuild of indexes must not.
    elif predicted.cuts:
        words = predicted.cuts[0].why
    if words is not None:
        raise CorruptDataError(
            f"The log is damaged: {words}.",
            path=partition.path,
            hint=f"`kafkalog recover {partition.path}` predicts what a broker would do; "
            f"`kafkalog salvage {partition.path} --to NEW` keeps what is sound after the "
            f"damage.",
        )


def _comparison(path: str, base_offset: int, data: bytes) -> IndexComparison:
    if not file_system.is_there(path):
        return IndexComparison(path, base_offset, Comparison.MISSING, None, len(data))
    result = Comparison.SAME
    with Source(path) as source:
        size = source.size_bytes
        if not is_same(path, data):
            result = Comparison.DIFFERENT
            if size > len(data) and source.read(0, len(data)) == data:
                # Transaction indexes are not preallocated: zeros there are entries.
                is_padded = not path.endswith(file_names.TRANSACTION_INDEX) and source.is_zero_from(
                    len(data)
                )
                result = Comparison.PADDED if is_padded else Comparison.DIFFERENT
    return IndexComparison(path, base_offset, result, size, len(data))


@dataclass(frozen=True, slots=True)
class IndexedPartition:
    """A partition, and how its indexes differ from those computed from the log.

    Attributes:
        is_done: whether they were rebuilt.
    """

    _row = (
        "partition.path",
        "partition.topic",
        "partition.partition",
        "indexes",
        "performed=is_done",
    )  # fmt: skip

    partition: PartitionDir
    indexes: tuple[IndexComparison, ...]
    is_done: bool = False

    @property
    def is_changed(self) -> bool:
        """Whether a rebuild changes any of them."""
        return any(index.is_changed for index in self.indexes)


class IndexRun(Maintenance):
    """One run over a partition, or over all partitions of a log directory.

    `plan` compares, `apply` rebuilds: the indexes that differ if `plan` was called before, else all
    of them in a single scan.

    Args:
        path: a log directory, a partition, or a `.log` file for that segment alone.
        options: the other arguments of `Maintenance`.

    Attributes:
        results: one per partition that could be scanned.
    """

    def __init__(
        self, path: str | os.PathLike[str], sources: ConfigSources, *, now_ms: int, **options: Any
    ) -> None:
        super().__init__(path, "rebuild-index", sources, of_log=True, **options)
        offset = parse_file_name(os.path.basename(self._path)).offset
        is_whole = file_system.is_directory(self._path)
        self._segments = None if is_whole or offset is None else (offset,)
        self._now_ms = now_ms
        self._results: dict[str, IndexedPartition] | None = None

    @property
    def results(self) -> list[IndexedPartition]:
        """The results so far, one per partition."""
        return [*(self._results or {}).values()]

    @property
    def wanted(self) -> list[PartitionDir]:
        """Partitions to scan next: all, or after `plan` those with an index that differs."""
        if self._results is None:
            return [partition for partition, _ in self._configured]
        return [one.partition for one in self.results if one.is_changed]

    @cached_property
    def _configured(self) -> list[tuple[PartitionDir, StartConfig]]:
        found = []
        for partition in self._partitions():
            if not partition.segments:
                continue
            with contained(partition.path, self._fail):
                configs = self.configs.of_topic(partition.topic)
                config, _ = start_config(partition, configs, self._now_ms)
                found.append((partition, config))
        return found

    def plan(self, progress: Callable[[int], None] | None = None) -> list[IndexedPartition]:
        """Compare the indexes of each partition without writing anything.

        Args:
            progress: called with the number of bytes scanned since the last call; `wanted` gives
                the total.
        """
        return self._scanned(None, progress)

    def apply(self, progress: Callable[[int], None] | None = None) -> list[IndexedPartition]:
        """Rebuild the indexes of each partition; arguments are those of `plan`.

        After a crash at any moment, each index is either the old or the new one. The listener
        receives the failure of a partition, and the others are still processed.
        """
        return self._scanned(self._changing(), progress)

    def _scanned(
        self, run: Run | None, progress: Callable[[int], None] | None
    ) -> list[IndexedPartition]:
        wanted = {partition.path for partition in self.wanted}
        self._results = self._results or {}
        for partition, config in self._configured:
            if partition.path not in wanted:
                continue
            with (
                contained(partition.path, self._fail),
                share_of(progress, partition.size_bytes) as advance,
            ):
                if run is None:
                    indexes = compare_indexes(partition, config, self._segments, advance)
                else:
                    indexes = rebuild_indexes(partition, run, config, self._segments, advance)
                found = IndexedPartition(partition, indexes, is_done=run is not None)
                self._results[partition.path] = found
        return self.results


def index_runs(
    paths: Iterable[str | os.PathLike[str]], *, backup: str | None = None, **options: Any
) -> Runs[IndexRun]:
    """Return the runs over some paths; options are those of `IndexRun`."""
    return Runs(partial(IndexRun, **options), paths, backup=backup)


def rebuild_index(
    *paths: str | os.PathLike[str],
    configs: Mapping[str, str] | ConfigSources | None = None,
    now: Time | None = None,
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Plan[IndexedPartition, Rows[IndexedPartition]]:
    """Plan to rebuild `.index`, `.timeindex` and `.txnindex`, as a broker does if one is missing.

    The plan compares them with those computed from the log.

    Args:
        paths: log directories, partitions, or a `.log` file for that segment alone.
        configs: configs of topics by name, or their sources.
        now: the clock; None for the current time.
        on_event: is passed everything reported besides the results, and what was read; without it
            the first failure is raised.
        progress: whether to draw a bar.

    Returns:
        One result per partition that has a log.

    Raises:
        KafkaLogError: a log is damaged, or a broker is using the log directory.
    """
    now_ms = clock_ms(now)

    def opened(**options: Any) -> Runs[IndexRun]:
        return index_runs(paths, sources=ConfigSources.of(configs), now_ms=now_ms, **options)

    return plan_of("rebuild-index", IndexedPartition, opened, on_event=on_event, progress=progress)
