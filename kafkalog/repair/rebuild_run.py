"""A run of `rebuild-index`: compares indexes with the log, then rebuilds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kafkalog.configs import ConfigSources
from kafkalog.errors import contained
from kafkalog.journal.run import Maintenance, present_ms, segment_at, share_of
from kafkalog.recovery import start_config
from kafkalog.repair.rebuild import IndexComparison, compare_indexes, rebuild_indexes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from kafkalog.journal import Run
    from kafkalog.log_dir import PartitionDir
    from kafkalog.recovery import StartConfig
    from kafkalog.targets import Listener


@dataclass(frozen=True, slots=True)
class IndexedPartition:
    """A partition, and how its indexes differ from those computed from the log.

    Attributes:
        partition: the directory.
        indexes: the indexes of its segments.
        is_done: whether they were rebuilt.
    """

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
        sources: the sources of the configs.
        now_ms: the clock.
        options: the other arguments of `Maintenance`.

    Attributes:
        results: one per partition that could be scanned.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        sources: ConfigSources,
        *,
        now_ms: int,
        **options: Any,
    ) -> None:
        super().__init__(path, "rebuild-index", sources, of_log=True, **options)
        segment = segment_at(self._path)
        self._segments = None if segment is None else (segment,)
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
        """Partitions that have a log, with the configs of their topics."""
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


def rebuild_index(
    path: str | os.PathLike[str],
    *,
    in_place: bool = False,
    backup: str | None = None,
    configs: Mapping[str, str] | ConfigSources | None = None,
    now_ms: int | None = None,
    listener: Listener | None = None,
) -> list[IndexedPartition]:
    """Rebuild `.index`, `.timeindex` and `.txnindex`, as a broker does if one is missing.

    Without `in_place`, the existing indexes are only compared with those computed from the log.

    Args:
        path: a log directory, a partition, or a `.log` file for that segment alone.
        in_place: replace them in the partitions themselves.
        backup: directory that keeps what is replaced, so that `kafkalog.undo` can restore it.
        configs: configs of topics by name, or their sources.
        now_ms: the clock in milliseconds; None for the current time.
        listener: receives everything reported besides the results; it may let the run continue
            after a failure.

    Returns:
        One result per partition that has a log.

    Raises:
        KafkaLogError: a log is damaged, or a broker is using the log directory.
    """
    with IndexRun(
        path,
        ConfigSources.of(configs),
        now_ms=present_ms() if now_ms is None else now_ms,
        in_place=in_place,
        backup=backup,
        listener=listener,
    ) as run:
        return run.plan() if run.is_plan else run.apply()
