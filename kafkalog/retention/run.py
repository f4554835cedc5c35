"""A run of `apply-retention`: the partitions of a log directory planned, then trimmed in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from kafkalog.configs import ConfigSources
from kafkalog.errors import RefusedError, UsageError, contained
from kafkalog.journal.maintenance import Maintenance, present_ms
from kafkalog.journal.requirements import require_live
from kafkalog.log_dir import LogDirListing, open_path
from kafkalog.retention.apply import TrimPlan, perform_trim, plan_trim

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from kafkalog.listener import Listener


@dataclass(frozen=True, slots=True)
class TrimmedPartition:
    """A partition, and what retention takes of it.

    Attributes:
        plan: what goes, and why.
        is_done: whether it is gone.
    """

    plan: TrimPlan
    is_done: bool = False


class RetentionRun(Maintenance):
    """One run over a partition, or over all partitions of a log directory: `plan`, then `apply`.

    Args:
        path: path of the log directory or partition.
        sources: the sources of the configs.
        now_ms: the clock.
        high_watermark: instead of the checkpoint's: an offset, or `end` for the log end.
        log_start_offset: where the log shall start, as after DeleteRecords; for one partition.
        keep_deleted: leave `.deleted` files; a broker deletes them when it starts.
        options: the other arguments of `Maintenance`.

    Attributes:
        results: of each partition that could be planned.

    Raises:
        UsageError: a log start offset is given for a log directory.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        sources: ConfigSources,
        *,
        now_ms: int,
        high_watermark: int | Literal["end"] | None = None,
        log_start_offset: int | None = None,
        keep_deleted: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(path, "apply-retention", sources, **options)
        if log_start_offset is not None and isinstance(open_path(self._path), LogDirListing):
            raise UsageError("--log-start-offset needs one partition.", hint="Name a partition.")
        self._now_ms = now_ms
        self._high_watermark = high_watermark
        self._log_start_offset = log_start_offset
        self._keep_deleted = keep_deleted
        self.results: list[TrimmedPartition] = []

    @property
    def wanted(self) -> list[TrimPlan]:
        """The plans that change something."""
        return [one.plan for one in self.results if not one.plan.is_empty]

    def plan(self) -> list[TrimmedPartition]:
        """Plan each partition. Nothing is written; what is left alone is noted."""
        for partition in self._partitions():
            if not partition.segments:
                continue
            try:
                if not self.is_one:
                    require_live(partition)
            except RefusedError as stop:
                self._listener.noted(f"{partition.path} is left alone: {stop.message}")
                continue
            with contained(partition.path, self._fail):
                configs = self.configs.of_topic(partition.topic)
                plan = plan_trim(
                    partition,
                    configs,
                    now_ms=self._now_ms,
                    high_watermark=self._high_watermark,
                    log_start_offset=self._log_start_offset,
                    keep_deleted=self._keep_deleted,
                )
                self.results.append(TrimmedPartition(plan))
        return self.results

    def apply(self) -> list[TrimmedPartition]:
        """Do what the plans say, partition by partition.

        After a crash at any moment the next start of a broker finds the old log or the new one. A
        partition on which the work fails is heard by the listener, and costs no other.
        """
        run = self._changing()
        for number, one in enumerate(self.results):
            if one.plan.is_empty:
                continue
            with contained(one.plan.partition.path, self._fail):
                perform_trim(run, one.plan)
                self.results[number] = replace(one, is_done=True)
        return self.results


def apply_retention(
    path: str | os.PathLike[str],
    *,
    in_place: bool = False,
    backup: str | None = None,
    keep_deleted: bool = False,
    high_watermark: int | Literal["end"] | None = None,
    log_start_offset: int | None = None,
    configs: Mapping[str, str] | ConfigSources | None = None,
    now_ms: int | None = None,
    listener: Listener | None = None,
) -> list[TrimmedPartition]:
    """Delete the segments that a broker's retention would delete.

    Without `in_place` nothing is written.

    Args:
        path: a log directory or a partition.
        in_place: change them.
        backup: keeps what is removed, so that `kafkalog.undo` can restore it.
        keep_deleted: leave `.deleted` files; a broker deletes them when it starts.
        high_watermark: instead of the checkpoint's: an offset, or `end` for the log end.
        log_start_offset: where the log of a partition shall start, as after DeleteRecords.
        configs: configs of topics by name, or their sources.
        now_ms: the clock, milliseconds; the present if None.
        listener: hears what is said besides results, and lets a run survive what fails.

    Returns:
        A result per partition that has a log.

    Raises:
        KafkaLogError: a partition cannot be planned or changed; a broker has the log directory.
    """
    with RetentionRun(
        path,
        ConfigSources.of(configs),
        now_ms=present_ms() if now_ms is None else now_ms,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        keep_deleted=keep_deleted,
        in_place=in_place,
        backup=backup,
        listener=listener,
    ) as run:
        run.plan()
        return run.results if run.is_plan else run.apply()
