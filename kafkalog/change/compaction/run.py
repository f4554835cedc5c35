"""A run of `compact`: selects partitions, checks them, and cleans them in place or in a copy."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from formats.late_classes import dataclass
from kafkalog.change.compaction.candidates import cleaning_order
from kafkalog.change.compaction.model import (
    Candidate,
    Cleanable,
    Compaction,
    CompactionRequest,
    Tally,
)
from kafkalog.change.journal import Run
from kafkalog.change.journal.run import Maintenance
from kafkalog.change.journal.runs import Runs
from kafkalog.change.plan import plan_of
from kafkalog.errors import KafkaLogError, Note, UsageError, contained
from kafkalog.files.log_dir import LogDirListing, PartitionDir
from kafkalog.io.times import clock_ms
from kafkalog.node.configs import ConfigSources

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import ExitStack

    from kafkalog.change.plan import Plan
    from kafkalog.errors import OnEvent
    from kafkalog.io.engine import Engine
    from kafkalog.io.rows import Rows
    from kafkalog.io.times import Time


@dataclass(frozen=True)
class CompactedPartition:
    """A partition and the result for it, or the error that stopped the work on it.

    Attributes:
        partition: the directory as it was before.
        compaction: the plan or the result; None after an error.
        error: why it failed; None if it did not.
    """

    _in_repr = ("partition.path", "compaction.before_bytes", "compaction.after_bytes", "skipped")
    _row = (
        "partition.path", "partition.topic", "partition.partition", "performed=compaction.is_done",
        "cleanable.first_dirty_offset", "cleanable.first_uncleanable_offset",
        "compaction.next_dirty_offset", "compaction.passes", "compaction.keys",
        "tally.read_records", "tally.kept_records", "compaction.before_bytes",
        "compaction.after_bytes", "left_overs", "skipped",
    )  # fmt: skip

    partition: PartitionDir
    compaction: Compaction | None
    error: KafkaLogError | None = None

    @property
    def candidate(self) -> Candidate | None:
        """The facts determined before reading it; None if it was not examined."""
        return None if self.compaction is None else self.compaction.candidate

    @property
    def cleanable(self) -> Cleanable | None:
        """The part of its log that can be cleaned; None if it was not examined."""
        return None if self.candidate is None else self.candidate.cleanable

    @property
    def tally(self) -> Tally:
        """Counts of what was read and kept; all zero if it was not examined."""
        return Tally() if self.compaction is None else self.compaction.tally

    @property
    def left_overs(self) -> list[str]:
        """Names of files left by earlier deletions, which are removed as well."""
        if self.skipped is not None:
            return []
        return [entry.name.name for entry in self.partition.left_overs]

    @property
    def skipped(self) -> str | None:
        """Reason for skipping it; None if it is not skipped."""
        if self.error is not None:
            return f"{self.error.reference}: {self.error.message}"
        return None if self.candidate is None else self.candidate.why_skipped


class CompactionRun(Maintenance):
    """One run over a partition, or over those that a broker would clean in a log directory.

    Args:
        path: path of the log directory or partition.
        request: the options of the run, except the configs.
        to: a new directory; `apply` makes a copy there and changes only that.
        take_all: also compact partitions that are too clean for a broker to choose.
        engine: opens the engine whose tasks do the work; None to do it in this process.
        task_memory: maximum size of the offset map of a task in bytes.
        keeps_clock: continue a killed distributed run with its clock, so that the work that its
            tasks finished is not repeated.
        options: the other arguments of `Maintenance`.

    Attributes:
        request: the options, with the clock that is used.
        is_alone: whether no other run goes on at the same time.

    Raises:
        UsageError: the arguments contradict each other.
        KafkaLogError: as `Maintenance` and `working_copy`, when the block is entered.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        request: CompactionRequest,
        sources: ConfigSources,
        *,
        in_place: bool = False,
        to: str | None = None,
        take_all: bool = False,
        engine: Callable[[], Engine] | None = None,
        task_memory: int | None = None,
        keeps_clock: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(path, "compact", sources, in_place=in_place, **options)
        self._to = to
        self._take_all = take_all
        self._engine = engine
        self._task_memory = task_memory
        self._failures: list[CompactedPartition] = []
        self.is_alone = True
        if not 0 < request.load_factor <= 1:
            raise UsageError("A load factor lies above 0 and is at most 1.")
        if in_place and to is not None:
            raise UsageError("A partition is compacted in place or as a copy, not both.")
        self.target = self.first_listing
        self.request = request
        # Only then is there a staging directory whose results another clock would make useless.
        if keeps_clock and in_place and engine is not None:
            self.request = self._continued(request)
        _require_one_partition(self.target, request)

    @cached_property
    def candidates(self) -> list[Candidate]:
        """The partitions in the order in which a cleaner takes them, including skipped ones."""
        from kafkalog.change.compaction.log_dirs import find_candidates, named_candidate

        if isinstance(self.target, LogDirListing):
            return find_candidates(
                self._partitions(),
                self.configs.of_topic,
                self.request,
                take_all=self._take_all,
                failed=lambda *of: self._failures.append(CompactedPartition(of[0], None, of[1])),
            )
        return [
            named_candidate(one, self.configs.of_topic(one.topic), self.request)
            for one in self._partitions()
        ]

    @property
    def wanted(self) -> list[Candidate]:
        """Candidates that are not skipped."""
        return [one for one in self.candidates if one.skip is None]

    @property
    def has_changed(self) -> bool:
        return self._to is not None or super().has_changed

    def plan(
        self, candidates: Sequence[Candidate], progress: Callable[[int], None] | None = None
    ) -> Iterator[CompactedPartition]:
        """Yield the exact result for some candidates without writing anything.

        Args:
            candidates: some of `candidates`, or all.
            progress: called with the number of bytes read since the last call; each log is read up
                to three times.

        Raises:
            KafkaLogError: the only partition cannot be compacted.
        """
        return self._results(candidates, None, progress)

    def apply(
        self, candidates: Sequence[Candidate], progress: Callable[[int], None] | None = None
    ) -> Iterator[CompactedPartition]:
        """Compact candidates and yield the results; arguments are those of `plan`.

        The whole log is read and checked before any of it is changed. After a crash at any moment,
        the next run, or the next start of a broker, finds either the old segments or the new ones.
        """
        return self._results(candidates, self._changing(), progress)

    def failures(self) -> list[CompactedPartition]:
        """Return what could not be judged, only once."""
        found, self._failures = self._failures, []
        return found

    def _results(
        self,
        candidates: Sequence[Candidate],
        run: Run | None,
        progress: Callable[[int], None] | None,
    ) -> Iterator[CompactedPartition]:
        for candidate, found in self._compacted(candidates, run, progress):
            if not isinstance(found, KafkaLogError):
                yield CompactedPartition(candidate.partition, found)
            elif self.is_alone and self.is_one and not (run is not None and run.has_changed):
                raise found
            else:
                yield CompactedPartition(candidate.partition, None, found)

    def _compacted(
        self,
        candidates: Sequence[Candidate],
        run: Run | None,
        progress: Callable[[int], None] | None,
    ) -> Iterator[tuple[Candidate, Compaction | KafkaLogError]]:
        from kafkalog.change.compaction.compact import compact_partition
        from kafkalog.change.compaction.distributed import compact_partitions

        if self._engine is not None and any(one.skip is None for one in candidates):
            yield from compact_partitions(
                candidates,
                self.request,
                self._engine(),
                run,
                progress,
                task_memory=self._task_memory,
            )
            return
        for candidate in candidates:
            found: list[Compaction | KafkaLogError] = []
            with contained(candidate.partition.path, found.append):
                found.append(compact_partition(candidate, self.request, run, progress))
            yield candidate, found[0]

    def _hold(self, held: ExitStack) -> None:
        if self._to is None:
            super()._hold(held)
            return
        from kafkalog.change.compaction.log_dirs import working_copy

        self._configure()
        copy = held.enter_context(working_copy(self.target, self._to))
        # On the copy no backup is needed: the source is the backup.
        self._run = held.enter_context(Run(copy.path))
        self.log_dir = copy.path
        self.target = copy.partitions[0] if self.is_one else copy

    def _continued(self, request: CompactionRequest) -> CompactionRequest:
        """Return the request with the clock of a killed run, if there is one to continue."""
        from kafkalog.change.compaction.distributed import clock_of_stopped_run

        stopped = clock_of_stopped_run(self.target, request.now_ms)
        if stopped is None:
            return request
        self._listener.hear(Note(f"continuing a killed run, with its time: --now {stopped}"))
        return replace(request, now_ms=stopped)


class Compactions(Runs[CompactionRun]):
    """Runs over log directories and partitions together, in the order of a broker's cleaner.

    Args:
        paths, backup: as for `Runs`.
        request, sources, to: as for `CompactionRun`, as are the other options.
    """

    def __init__(
        self,
        paths: Iterable[str | os.PathLike[str]],
        request: CompactionRequest,
        sources: ConfigSources,
        *,
        to: str | None = None,
        backup: str | None = None,
        engine: Callable[[], Engine] | None = None,
        **options: Any,
    ) -> None:
        begin = partial(
            CompactionRun, request=request, sources=sources, to=to, engine=engine, **options
        )
        given = {
            "--to": to,
            "--first-dirty-offset": request.first_dirty_offset,
            "--up-to": request.up_to_offset,
            "--high-watermark": request.high_watermark,
        }
        of_one = next((name for name, value in given.items() if value not in (None, "end")), None)
        super().__init__(begin, paths, backup=backup, of_one=of_one)
        self._has_engine = engine is not None

    @property
    def now_ms(self) -> int:
        """The clock that is used."""
        return self.runs[0].request.now_ms

    def plan(self, progress: Callable[[int], None] | None = None) -> Iterator[CompactedPartition]:
        """Yield the exact result for each partition without writing anything.

        Args:
            progress: as for `CompactionRun.plan`.

        Raises:
            KafkaLogError: the only partition cannot be compacted, or one that was named must not.
        """
        return self._results(CompactionRun.plan, progress)

    def apply(self, progress: Callable[[int], None] | None = None) -> Iterator[CompactedPartition]:
        """Compact each partition and yield the result; arguments and errors are those of `plan`."""
        return self._results(CompactionRun.apply, progress)

    def _results(
        self,
        step: Callable[..., Iterator[CompactedPartition]],
        progress: Callable[[int], None] | None,
    ) -> Iterator[CompactedPartition]:
        for run, candidates in self._turns():
            run.is_alone = len(self.runs) == 1
            yield from step(run, candidates, progress)
        for run in self.runs:
            yield from run.failures()

    def _turns(self) -> Iterator[tuple[CompactionRun, list[Candidate]]]:
        """Yield what is compacted in turn: a cleaner has one queue for all log directories."""
        pairs = [(run, one) for run in self.runs for one in run.candidates]
        if not self._has_engine:  # which does all partitions of a run at the same time
            pairs.sort(key=lambda pair: cleaning_order(pair[1]))
        for run, group in groupby(pairs, key=itemgetter(0)):
            yield run, [one for _, one in group]


def compact(
    *paths: str | os.PathLike[str],
    to: str | None = None,
    take_all: bool = False,
    configs: Mapping[str, str] | ConfigSources | None = None,
    now: Time | None = None,
    engine: Engine | None = None,
    task_memory: int | None = None,
    on_event: OnEvent | None = None,
    progress: bool = False,
    **request: Any,
) -> Plan[CompactedPartition, Rows[CompactedPartition]]:
    """Plan to compact partitions as a broker's cleaner does: exactly what the result would be.

    Args:
        paths: partitions; or log directories, to compact the partitions a broker would choose.
        to: a new directory, to compact a copy of the only path that is made there; None to change
            the logs themselves.
        take_all: also compact partitions that are too clean for a broker to choose.
        configs: configs of topics by name, or their sources.
        now: the clock; None for the current time.
        engine: runs a task per partition; None to do the work in this process.
        task_memory: maximum size of the offset map of a task in bytes.
        on_event: is passed what is reported apart from the results, and what was read.
        progress: whether to draw a bar.
        request: the other fields of `CompactionRequest`.

    Returns:
        One result per partition. Unless it is the only path, a partition that fails has an
        `error`, and the others are still compacted.

    Raises:
        KafkaLogError: the named partition must not or cannot be compacted, or a broker is using
            the log directory.
    """
    asked = CompactionRequest(clock_ms(now), **request)

    def opened(**options: Any) -> Compactions:
        return Compactions(
            paths,
            asked,
            ConfigSources.of(configs),
            take_all=take_all,
            engine=None if engine is None else lambda: engine,
            task_memory=task_memory,
            keeps_clock=now is None,
            **options,
        )

    return plan_of(
        "compact", CompactedPartition, opened, to=to, on_event=on_event, progress=progress
    )


def _require_one_partition(
    target: LogDirListing | PartitionDir, request: CompactionRequest
) -> None:
    """Raise `UsageError` if offsets are given for a log directory."""
    given = (request.first_dirty_offset, request.up_to_offset)
    if isinstance(target, LogDirListing) and (
        any(one is not None for one in given) or isinstance(request.high_watermark, int)
    ):
        raise UsageError(
            "Offsets can only be given for one partition.",
            path=target.path,
            hint="Name the partition directory; --high-watermark end may stand for all.",
        )
