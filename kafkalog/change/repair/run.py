"""Runs of `recover`: plan all partitions of a node together, then recover them in place."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass
from kafkalog.change.journal.run import Maintenance, share_of
from kafkalog.change.journal.runs import Runs
from kafkalog.change.plan import plan_of
from kafkalog.change.repair.model import RecoveryPlan, require_performable
from kafkalog.change.repair.plan import plan_recovery
from kafkalog.change.repair.recover import RecoveryDone, perform_recovery
from kafkalog.errors import (
    InternalError,
    KafkaLogError,
    Note,
    ShortageError,
    UnreadableError,
    contained,
)
from kafkalog.files.log_dir import LogDirListing, PartitionDir, open_path
from kafkalog.io.times import clock_ms
from kafkalog.model import named_member
from kafkalog.node.configs import ConfigSources, ConfigValue
from kafkalog.node.recovery import (
    Hosting,
    NodeDir,
    NodeStart,
    StartMode,
    Verdict,
    is_passed_over,
    nodes_of,
    start_config,
    start_line,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import ExitStack

    from kafkalog.change.plan import Plan
    from kafkalog.errors import OnEvent
    from kafkalog.io.rows import Rows
    from kafkalog.io.times import Time
    from kafkalog.node.targets import Target

_FLUSHED_BY: Final = ("flush.messages", "flush.ms")
"""Configs that limit what is above the recovery point, where somebody sets them."""


@dataclass(frozen=True, slots=True)
class RecoveredPartition:
    """A partition, what a recovery would do with it, and what it did.

    Attributes:
        configs: the configs that affect the recovery.
        refused: why it must not be recovered; None if it may be.
        done: the completed recovery; None in a plan.
    """

    _in_repr = ("plan.partition.path", "log_end_offset", "plan.lost_from")
    _row = (
        "plan.partition.path", "plan.partition.topic", "plan.partition.partition",
        "plan.predicted.mode", "plan.predicted.recovery_point", "plan.high_watermark",
        "plan.verdict", "plan.detail", "log_end_offset", "plan.lost_from",
        "plan.predicted.lost_records", "plan.predicted.lost_bytes", "plan.scan_bytes",
        "plan.drops_mark", "refusal=refused",
    )  # fmt: skip

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
        mode: the start of a broker to imitate; None for the one that the clean shutdown mark calls
            for.
        forced: also truncate below the high watermark.
        options: the other arguments of `Maintenance`.

    Attributes:
        results: one per partition that could be planned.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: StartMode | None,
        sources: ConfigSources,
        *,
        now_ms: int,
        forced: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(path, "recover", sources, of_log=True, **options)
        self._mode = mode
        self._now_ms = now_ms
        self._forced = forced
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
        return [plan for plan in self.plans if plan.changes]

    @property
    def may_apply(self) -> bool:
        """Whether all may be recovered: a refused one prevents the recovery of all others.

        A partition that cannot be read, and a failure of kafkalog itself, cost only that one.
        """
        stops = self.refused.values()
        return not self._has_failed and all(isinstance(one, InternalError) for one in stops)

    @cached_property
    def partitions(self) -> list[PartitionDir]:
        return [one for one in self._partitions() if not is_passed_over(one)]

    def plan(
        self, hosting: Hosting | None, progress: Callable[[int], None] | None = None
    ) -> list[RecoveredPartition]:
        """Plan each partition without writing anything.

        Args:
            hosting: the partitions assigned to the broker; None if that is unknown.
            progress: called with the number of bytes scanned since the last call; each partition is
                scanned once.
        """
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
                values += tuple(configs[name] for name in _FLUSHED_BY if configs.is_set(name))
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
                self._listener.hear(Note(f"{one.plan.partition.path}: {words}"))
        return self.results

    def _fail(self, error: KafkaLogError) -> None:
        self._has_failed |= not isinstance(error, InternalError | UnreadableError)
        super()._fail(error)

    def _refusal(self, plan: RecoveryPlan) -> KafkaLogError | None:
        """Return why a partition must not be recovered.

        A partition that is left to the broker is refused only if it was named and would be changed.
        """
        is_left = plan.untouched is not None and plan.is_loadable
        if is_left and (self.is_plan or not self.is_one or plan.verdict == Verdict.NOTHING):
            return None
        try:
            require_performable(plan, forced=self._forced)
        except ShortageError:
            raise
        except KafkaLogError as stop:
            return stop
        return None


class Recovery(Runs[RecoveryRun]):
    """Recoveries of log directories and partitions together, which know the nodes of them.

    Args:
        paths, backup: as for `Runs`.
        mode, now_ms: as for `RecoveryRun`.
        sources: the sources of the configs; of them, the metadata log of the node counts for all of
            its log directories.
        metadata_dir: the log directory with the cluster's metadata, if different.
        options: the other arguments of `RecoveryRun`.

    Attributes:
        nodes: the starts of the nodes that the log directories belong to.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        mode: StartMode | None,
        sources: ConfigSources,
        *,
        now_ms: int,
        metadata_dir: str | None = None,
        backup: str | None = None,
        **options: Any,
    ) -> None:
        begin = partial(RecoveryRun, mode=mode, sources=sources, now_ms=now_ms, **options)
        super().__init__(begin, paths, backup=backup)
        self.nodes: list[NodeStart] = []
        self._sources = sources
        self._metadata_dir = metadata_dir

    @property
    def plans(self) -> list[RecoveryPlan]:
        return [one.plan for one in self.results]

    @property
    def partitions(self) -> list[PartitionDir]:
        return [one for run in self.runs for one in run.partitions]

    @property
    def refused(self) -> dict[str, KafkaLogError]:
        """Why partitions must not be recovered, by path."""
        return {path: stop for run in self.runs for path, stop in run.refused.items()}

    @property
    def may_apply(self) -> bool:
        """Whether all may be recovered: see `RecoveryRun`."""
        return all(run.may_apply for run in self.runs)

    @property
    def asked(self) -> list[NodeStart]:
        """The nodes of which whole log directories are recovered."""
        asked = {run.log_dir for run in self.runs if not run.is_one and run.takes_all}
        return [node for node in self.nodes if any(one.log_dir.path in asked for one in node.dirs)]

    def plan(self, progress: Callable[[int], None] | None = None) -> list[RecoveredPartition]:
        """Plan each partition without writing anything; `progress` is as for `RecoveryRun`."""
        for run in self.runs:
            hosting = next(
                (
                    node.hosting
                    for node in self.nodes
                    if any(one.log_dir.path == run.log_dir for one in node.dirs)
                ),
                None,
            )
            run.plan(hosting, progress)
        return self.results

    def apply(self, progress: Callable[[int], None] | None = None) -> list[RecoveredPartition]:
        """Carry out the plans: see `RecoveryRun`."""
        if not self.may_apply:
            raise next(iter(self.refused.values()), KafkaLogError("A partition was not planned."))
        for run in self.runs:
            run.apply(progress)
        return self.results

    def _hold(self, held: ExitStack) -> None:
        super()._hold(held)
        log_dirs = [run.log_dir for run in self.runs if run.log_dir is not None]
        self.nodes = self._starts(log_dirs, [run.target for run in self.runs])

    def _homes(self, log_dirs: list[str]) -> dict[str, str]:
        return {
            one.log_dir.path: node.home.log_dir.path
            for node in self._starts(log_dirs, [run.first_listing for run in self.runs])
            for one in node.dirs
            if node.home is not None
        }

    def _starts(self, log_dirs: Iterable[str], targets: Iterable[Target]) -> list[NodeStart]:
        """Return the starts of the nodes that log directories belong to, some of them targets."""
        there = {one.path: one for one in targets}
        dirs = [
            NodeDir(listed)
            for path in dict.fromkeys(log_dirs)
            if isinstance(listed := there.get(path) or open_path(path), LogDirListing)
        ]
        around = None if self._metadata_dir is None else open_path(self._metadata_dir)
        metadata_dir = NodeDir(around) if isinstance(around, LogDirListing) else None
        return nodes_of(dirs, metadata_dir, self._sources.node_id)


def recover(
    *paths: str | os.PathLike[str],
    mode: StartMode | str | None = None,
    allow_loss: bool = False,
    configs: Mapping[str, str] | ConfigSources | None = None,
    metadata_dir: str | None = None,
    now: Time | None = None,
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Plan[RecoveredPartition, Rows[RecoveredPartition]]:
    """Plan to recover logs as a broker does when it starts.

    Args:
        paths: log directories, parents of several, partitions, or `.log` files for their
            partitions.
        mode: `unclean`: scan from the recovery point; `full`: everything; `clean`: nothing; None:
            what the clean shutdown mark calls for.
        allow_loss: also truncate below the high watermark.
        configs: configs of topics by name, or their sources.
        metadata_dir: the log directory with the cluster's metadata, if different.
        now: the clock of the start; None for the current time.
        on_event: is passed everything reported besides the results, and what was read; without it
            the first failure is raised.
        progress: whether to draw a bar.

    Returns:
        One result per partition, with the completed recovery if it was applied.

    Raises:
        KafkaLogError: a partition must not be recovered, so none was; or a broker is using the
            log directory.
    """
    start = None if mode is None else named_member(StartMode, mode)
    now_ms = clock_ms(now)

    def opened(**options: Any) -> Recovery:
        return Recovery(
            paths,
            start,
            ConfigSources.of(configs),
            now_ms=now_ms,
            forced=allow_loss,
            metadata_dir=metadata_dir,
            **options,
        )

    def answers(run: Recovery, advance: Callable[[int], None] | None) -> list[RecoveredPartition]:
        planned = run.plan(advance)
        return planned if run.is_plan else run.apply(advance)

    return plan_of(
        "recover", RecoveredPartition, opened, answers, on_event=on_event, progress=progress
    )
