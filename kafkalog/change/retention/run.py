"""A run of `retention`: plans the partitions of a log directory, then trims them in place."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from formats.late_classes import dataclass
from kafkalog.change.journal.requirements import require_live
from kafkalog.change.journal.run import Maintenance
from kafkalog.change.journal.runs import Runs
from kafkalog.change.plan import plan_of
from kafkalog.change.retention.apply import TrimPlan, perform_trim, plan_trim
from kafkalog.errors import Note, RefusedError, UsageError, contained
from kafkalog.files.log_dir import LogDirListing
from kafkalog.io.times import clock_ms
from kafkalog.node.configs import ConfigSources

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from kafkalog.change.plan import Plan
    from kafkalog.errors import OnEvent
    from kafkalog.io.rows import Rows
    from kafkalog.io.times import Time


@dataclass(frozen=True, slots=True)
class TrimmedPartition:
    """A partition, and what retention deletes from it.

    Attributes:
        plan: what is deleted, and why.
        is_done: whether it was deleted.
    """

    _row = (
        "plan.partition.path", "plan.partition.topic", "plan.partition.partition",
        "performed=is_done", "plan.freed_bytes", "plan.freed_side_bytes", "plan.left_overs",
        "plan.log_start_offset", "plan.found.log.log_end_offset",
    )  # fmt: skip

    plan: TrimPlan
    is_done: bool = False


class RetentionRun(Maintenance):
    """One run over a partition, or over all partitions of a log directory: `plan`, then `apply`.

    Args:
        path: a log directory or a partition.
        high_watermark: replaces that of the checkpoint: an offset, or `end` for the log end.
        log_start_offset: the new log start offset, as after DeleteRecords; for one partition.
        keep_deleted: leave `.deleted` files; a broker deletes them when it starts.
        options: the other arguments of `Maintenance`.

    Attributes:
        results: one per partition that could be planned.

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
        super().__init__(path, "retention", sources, **options)
        if log_start_offset is not None and isinstance(self.first_listing, LogDirListing):
            raise UsageError("--log-start-offset needs one partition.", hint="Name a partition.")
        self._now_ms = now_ms
        self._high_watermark = high_watermark
        self._log_start_offset = log_start_offset
        self._keep_deleted = keep_deleted
        self.results: list[TrimmedPartition] = []

    @property
    def wanted(self) -> list[TrimPlan]:
        return [one.plan for one in self.results if not one.plan.is_empty]

    def plan(self) -> list[TrimmedPartition]:
        """Plan each partition without writing anything; note those that are left alone."""
        for partition in self._partitions():
            if not partition.segments:
                continue
            try:
                if not self.is_one:
                    # In a log directory they are skipped with a note; one that was named is refused
                    # by `plan_trim`.
                    require_live(partition)
            except RefusedError as stop:
                self._listener.hear(Note(f"{partition.path} is left alone: {stop.message}"))
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
        """Carry out the plans, one partition after another.

        After a crash at any moment, the next start of a broker finds either the old or the new log.
        The listener receives the failure of a partition; the others are still trimmed.
        """
        run = self._changing()
        for number, one in enumerate(self.results):
            if one.plan.is_empty:
                continue
            with contained(one.plan.partition.path, self._fail):
                perform_trim(run, one.plan)
                self.results[number] = replace(one, is_done=True)
        return self.results


def retention_runs(
    paths: Iterable[str | os.PathLike[str]],
    *,
    backup: str | None = None,
    log_start_offset: int | None = None,
    **options: Any,
) -> Runs[RetentionRun]:
    """Return the runs over some paths; options are those of `RetentionRun`."""
    begin = partial(RetentionRun, log_start_offset=log_start_offset, **options)
    of_one = None if log_start_offset is None else "--log-start-offset"
    return Runs(begin, paths, backup=backup, of_one=of_one)


def retention(
    *paths: str | os.PathLike[str],
    keep_deleted: bool = False,
    high_watermark: int | Literal["end"] | None = None,
    log_start_offset: int | None = None,
    configs: Mapping[str, str] | ConfigSources | None = None,
    now: Time | None = None,
    on_event: OnEvent | None = None,
) -> Plan[TrimmedPartition, Rows[TrimmedPartition]]:
    """Plan to delete the segments that a broker's retention would delete.

    Args:
        paths: log directories or partitions.
        keep_deleted: leave `.deleted` files; a broker deletes them when it starts.
        high_watermark: replaces that of the checkpoint: an offset, or `end` for the log end.
        log_start_offset: the new log start offset, as after DeleteRecords; for one partition.
        configs: configs of topics by name, or their sources.
        now: the clock; None for the current time.
        on_event: is passed everything reported besides the results; without it the first failure is
            raised.

    Returns:
        One result per partition that has a log.

    Raises:
        KafkaLogError: a partition cannot be planned or changed, or a broker is using the log
            directory.
    """
    now_ms = clock_ms(now)

    def opened(**options: Any) -> Runs[RetentionRun]:
        return retention_runs(
            paths,
            sources=ConfigSources.of(configs),
            now_ms=now_ms,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            keep_deleted=keep_deleted,
            **options,
        )

    def answers(run: Runs[RetentionRun], _: object) -> Iterable[TrimmedPartition]:
        planned = run.plan()
        return planned if run.is_plan else run.apply()

    return plan_of("retention", TrimmedPartition, opened, answers, on_event=on_event)
