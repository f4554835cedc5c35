"""A run of `recover`: plans all partitions together, then recovers them in place."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from formats.late_classes import dataclass
from kafkalog.configs import ConfigSources, ConfigValue
from kafkalog.errors import InternalError, KafkaLogError, ShortageError, contained
from kafkalog.journal.run import Maintenance, share_of
from kafkalog.log_dir import LogDirListing, PartitionDir, open_path
from kafkalog.model import present_ms
from kafkalog.recovery import Hosting, StartMode, Verdict, read_hosting, start_config, start_line
from kafkalog.repair.model import RecoveryPlan, require_performable
from kafkalog.repair.plan import plan_recovery
from kafkalog.repair.recover import RecoveryDone, perform_recovery

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.targets import Listener


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """A partition, what a recovery would do with it, and what it did.

    Attributes:
        plan: the plan for it.
        configs: the configs that affect the recovery.
        refused: why it must not be recovered; None if it may be.
        done: the completed recovery; None in a plan.
    """

    plan: RecoveryPlan
    configs: Sequence[ConfigValue] = ()
    refused: KafkaLogError | None = None
    done: RecoveryDone | None = None

    @property
    def log_end_offset(self) -> int | None:
        """Offset that the next record gets after the start; None if a broker refuses the log."""
        loaded = self.plan.predicted.loaded
        return loaded.log_end_offset if loaded else None


class RecoveryRun(Maintenance):
    """One run over a partition, or over all partitions of a log directory: `plan`, then `apply`.

    Args:
        path: a log directory, a partition, or a `.log` file for its partition.
        mode: the start of a broker to imitate.
        sources: the sources of the configs.
        now_ms: the clock of the start.
        forced: also truncate below the high watermark.
        metadata_dir: the log directory with the cluster's metadata, if different.
        options: the other arguments of `Maintenance`.

    Attributes:
        results: one per partition that could be planned.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: StartMode,
        sources: ConfigSources,
        *,
        now_ms: int,
        forced: bool = False,
        metadata_dir: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, "recover", sources, of_log=True, **options)
        self._mode = mode
        self._now_ms = now_ms
        self._forced = forced
        self._metadata_dir = metadata_dir
        self._has_failed = False
        self.results: list[RecoveredPartition] = []

    @property
    def plans(self) -> list[RecoveryPlan]:
        return [one.plan for one in self.results]

    @property
    def refused(self) -> dict[str, KafkaLogError]:
        """Why partitions must not be recovered, by path."""
        return {one.plan.partition.path: one.refused for one in self.results if one.refused}

    @property
    def wanted(self) -> list[RecoveryPlan]:
        """Plans that change something."""
        return [plan for plan in self.plans if plan.changes]

    @property
    def may_apply(self) -> bool:
        """Whether all may be recovered: a refused one prevents the recovery of all others.

        A failure of kafkalog itself on one partition does not prevent the others' recovery.
        """
        stops = self.refused.values()
        return not self._has_failed and all(isinstance(one, InternalError) for one in stops)

    @property
    def has_losses(self) -> bool:
        """Whether records are lost, or something is left to do."""
        if self.is_plan:
            return any(plan.verdict != Verdict.NOTHING for plan in self.plans)
        return any(
            bool(plan.changes and plan.predicted.records_lost) or plan.predicted.stray is not None
            for plan in self.plans
        )

    @cached_property
    def partitions(self) -> list[PartitionDir]:
        return list(self._partitions())

    def plan(self, progress: Callable[[int], None] | None = None) -> list[RecoveredPartition]:
        """Plan each partition without writing anything.

        Args:
            progress: called with the number of bytes scanned since the last call; each partition is
                scanned once.
        """
        # Once for all partitions: the metadata log is the same.
        hosting = self._hosting()
        for partition in self.partitions:
            with (
                contained(partition.path, self._fail),
                share_of(progress, partition.size_bytes) as advance,
            ):
                configs = self.configs.of_topic(partition.topic)
                config, values = start_config(partition, configs, self._now_ms)
                plan = plan_recovery(
                    partition, self._mode, config, hosting=hosting, progress=advance
                )
                self.results.append(RecoveredPartition(plan, values, self._refusal(plan)))
        return self.results

    def apply(self, progress: Callable[[int], None] | None = None) -> list[RecoveredPartition]:
        """Carry out the plans, one partition after another.

        After a crash at any moment, another recovery, or the start of a broker, produces the same
        result. The listener receives the failure of a partition; the others are still recovered.

        Args:
            progress: called with the number of bytes scanned since the last call; each partition is
                scanned twice.

        Raises:
            UsageError: the run only plans.
            KafkaLogError: a partition must not be recovered.
        """
        run = self._changing()
        if not self.may_apply:
            raise next(iter(self.refused.values()), KafkaLogError("A partition was not planned."))
        for number, one in enumerate(self.results):
            partition = one.plan.partition
            if not one.plan.changes:
                continue
            with (
                contained(partition.path, self._fail),
                share_of(progress, 2 * partition.size_bytes) as advance,
            ):
                done = perform_recovery(one.plan, run, forced=self._forced, progress=advance)
                self.results[number] = replace(one, done=done)
        for one in self.results:
            if one.done is not None and not one.done.is_settled:
                words = f"the next start will {start_line(one.done.after)}"
                self._listener.noted(f"{one.plan.partition.path}: {words}")
        return self.results

    def _fail(self, error: KafkaLogError) -> None:
        self._has_failed |= not isinstance(error, InternalError)
        super()._fail(error)

    def _hosting(self) -> Hosting | None:
        """Return which partitions the broker hosts; None if the log directories do not say."""
        paths = (self.log_dir, self._metadata_dir)
        own, other = (None if path is None else open_path(path) for path in paths)
        if not isinstance(own, LogDirListing):
            return None
        return read_hosting(own, other if isinstance(other, LogDirListing) else None)

    def _refusal(self, plan: RecoveryPlan) -> KafkaLogError | None:
        """Return why a partition must not be recovered.

        A partition that is left to the broker is refused only if it was named.
        """
        is_left = plan.untouched is not None and plan.is_loadable
        if is_left and (not self.is_one or plan.verdict == Verdict.NOTHING):
            return None
        try:
            require_performable(plan, forced=self._forced)
        except ShortageError:
            raise
        except KafkaLogError as stop:
            return stop
        return None


def recover(
    path: str | os.PathLike[str],
    *,
    in_place: bool = False,
    backup: str | None = None,
    mode: StartMode | str = StartMode.UNCLEAN,
    forced: bool = False,
    configs: Mapping[str, str] | ConfigSources | None = None,
    metadata_dir: str | None = None,
    now_ms: int | None = None,
    listener: Listener | None = None,
) -> list[RecoveredPartition]:
    """Recover logs as a broker does after an unclean shutdown.

    Without `in_place`, nothing is written.

    Args:
        path: a log directory, a partition, or a `.log` file for its partition.
        in_place: change the logs themselves.
        backup: directory that keeps what is removed, so that `kafkalog.undo` can restore it.
        mode: `unclean`: scan from the recovery point; `full`: everything; `clean`: nothing.
        forced: also truncate below the high watermark.
        configs: configs of topics by name, or their sources.
        metadata_dir: the log directory with the cluster's metadata, if different.
        now_ms: the clock of the start in milliseconds; None for the current time.
        listener: receives everything reported besides the results; it may let the run continue
            after a failure.

    Returns:
        One result per partition, with the completed recovery if `in_place`.

    Raises:
        KafkaLogError: a partition must not be recovered, so none was; or a broker is using the
            log directory.
    """
    with RecoveryRun(
        path,
        StartMode(mode),
        ConfigSources.of(configs),
        now_ms=present_ms() if now_ms is None else now_ms,
        in_place=in_place,
        backup=backup,
        forced=forced,
        metadata_dir=metadata_dir,
        listener=listener,
    ) as run:
        run.plan()
        return run.results if run.is_plan else run.apply()
