"""Compactions of many partitions by the tasks of an engine; only the driver changes a log.

The driver plans. A task judges a partition and writes its new segments into a staging directory on
the same disk. The driver verifies their checksums and swaps them in, as a compaction in one process
does: after a crash at any moment there is the old log or the new one.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from functools import partial
from operator import setitem
from typing import TYPE_CHECKING, Final

from formats.file_names import staging_name
from formats.late_classes import dataclass
from kafkalog.change.compaction import tasks
from kafkalog.change.compaction.compact import PartitionWork, left_as_it_is
from kafkalog.change.compaction.plan import PassPlan, require_known_layout
from kafkalog.change.compaction.staged import StagedPass, plan_of_result
from kafkalog.change.compaction.tasks import Staging
from kafkalog.errors import DataError, KafkaLogError, contained
from kafkalog.files.log_dir import LogDirListing, PartitionDir
from kafkalog.io.engine import Engine, told_error
from kafkalog.io.storage import StagingDirectory, free_space, require_writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.change.compaction.model import Candidate, Cleanable, Compaction, CompactionRequest
    from kafkalog.change.compaction.tasks import Staged
    from kafkalog.change.journal.run import Run

    Found = Compaction | KafkaLogError

_READ_TIMES: Final = 3  # judged, cleaned, read back
# A day, the default of delete.retention.ms: with an older clock, horizons would be stamped in the
# past, and tombstones go before consumers saw them.
_RESUMED_FOR_MS: Final = 86_400_000


def compact_partitions(
    candidates: Sequence[Candidate],
    request: CompactionRequest,
    engine: Engine,
    run: Run | None = None,
    done: Callable[[int], None] | None = None,
    *,
    task_memory: int | None = None,
) -> Iterator[tuple[Candidate, Found]]:
    """Compact partitions of one log directory, or compute exactly what would result.

    The results are those of `compact_partition`, byte for byte. A run that was killed is continued:
    tasks that it completed are not repeated, as long as the partition and everything that decides
    the result (including the clock) are the same.

    Args:
        candidates: the partitions, as `find_candidate` returned them.
        request: as for `find_candidate`.
        engine: runs a task for each partition; its workers must see the same files.
        run: holds the lock of the log directory, if there is one. If None, nothing is written.
        done: called with the number of bytes read of the logs, as tasks end.
        task_memory: bytes that the map of a task may take. A partition with more keys is judged by
            one task that writes their hashes into buckets, followed by a task per bucket and a
            task per new segment. If None, a map takes what it needs.

    Yields:
        Each candidate in order with its result, or with the error that stopped the work on it.

    Raises:
        DestinationExistsError: another run is using the staging directory.
        UnwritableError: the staging directory cannot be made.

    Cost:
        A task takes the memory of `compact_partition`; with `task_memory` that and about 200 MB,
        and a byte per record of the segment that it cleans. Buckets take 24 bytes of disk per
        record with a key; a plan puts them into the worker's temporary directory. New segments are
        on disk together with the old ones: as many partitions at a time as fit.
    """
    found: dict[str, Found] = {}
    work = [one for one in candidates if one.skip is None and one.cleanable is not None]
    waiting = list(_planned(work, request, found, writes=run is not None))
    with ExitStack() as held:
        if run is None or not waiting:
            ended = _said(waiting, engine, done, task_memory)
        else:
            # In the log directory itself: segments get into place by links, which do not cross file
            # systems.
            staging = held.enter_context(StagingDirectory(_around(work[0].partition)))
            ended = _Driver(request, engine, run, staging, done, task_memory).perform(waiting)
        for candidate, one in ended:
            found[candidate.partition.path] = one
    for candidate in candidates:
        yield candidate, found.get(candidate.partition.path) or left_as_it_is(candidate)


def clock_of_stopped_run(target: LogDirListing | PartitionDir, now_ms: int) -> int | None:
    """Return the clock of a killed run that can be continued, None if none.

    A clock that is more than a day old, or in the future, does not count.
    """
    place = os.path.join(_around(target), staging_name())
    clocks = []
    with suppress(OSError):
        for name in os.listdir(place):
            with suppress(DataError):
                clocks.append(plan_of_result(os.path.join(place, name)).request.now_ms)
    return max((one for one in clocks if 0 <= now_ms - one < _RESUMED_FOR_MS), default=None)


def _around(target: LogDirListing | PartitionDir) -> str:
    """Return the directory around the partitions, in which new segments are staged."""
    if isinstance(target, LogDirListing):
        return target.path
    return os.path.dirname(os.path.abspath(target.path))


@dataclass(frozen=True)
class _Waiting:
    """A partition with the plan of its first pass."""

    candidate: Candidate
    plan: PassPlan

    @property
    def size_bytes(self) -> int:
        """Size of the logs that are cleaned."""
        upper = self.plan.cleanable.first_uncleanable_offset
        segments = self.candidate.partition.segments
        return sum(one.log.size_bytes for one in segments if one.base_offset < upper)

    @property
    def room(self) -> int:
        """Bytes that the new segments may need, with their indexes; few records grow."""
        return self.size_bytes + self.size_bytes // 8

    def failed(self, error: KafkaLogError) -> KafkaLogError:
        """Return a task's error with the path as the caller gave it."""
        path, given = self.plan.path, self.candidate.partition.path
        if error.path is not None:
            # Tasks run elsewhere and know only the absolute path.
            error.path = error.path.replace(path, given)
        if error.hint is not None:
            error.hint = error.hint.replace(path, given)
        return error


def _planned(
    candidates: Sequence[Candidate],
    request: CompactionRequest,
    found: dict[str, Found],
    *,
    writes: bool,
) -> Iterator[_Waiting]:
    """Yield the plans of the first passes; errors of planning are added to `found`."""
    for candidate in candidates:
        assert candidate.cleanable is not None, "there is something to clean"
        plan = None
        with contained(candidate.partition.path, partial(setitem, found, candidate.partition.path)):
            require_known_layout(candidate.partition)
            if writes:
                require_writable(candidate.partition.path)
            plan = PassPlan.of(candidate, request, candidate.partition, candidate.cleanable)
        if plan is not None:
            yield _Waiting(candidate, plan)


def _said(
    waiting: Sequence[_Waiting],
    engine: Engine,
    done: Callable[[int], None] | None,
    memory: int | None,
) -> Iterator[tuple[Candidate, Found]]:
    """Yield what would result for each partition."""
    given = [tasks.task_of(one.plan, memory) for one in waiting]
    for number, answer in engine.run(tasks.plan_partition, given):
        one = waiting[number]
        if done is not None:
            done(_READ_TIMES * one.size_bytes)
        if "error" in answer:
            yield one.candidate, one.failed(told_error(answer["error"]))
        else:
            yield one.candidate, tasks.said_compaction(answer, one.candidate)


class _Driver:
    """The work done under the lock of the log directory."""

    def __init__(
        self,
        request: CompactionRequest,
        engine: Engine,
        run: Run,
        staging: StagingDirectory,
        done: Callable[[int], None] | None,
        memory: int | None,
    ) -> None:
        self._request = request
        self._run = run
        self._staging = staging
        self._done = done
        self._steps = Staging(engine, staging, memory)

    def perform(self, waiting: Sequence[_Waiting]) -> Iterator[tuple[Candidate, Found]]:
        """Compact all partitions, as many at a time as there is room for."""
        # Results of plans that differ in any way, the clock included, are of no use to this run.
        self._staging.keep({one.plan.digest for one in waiting})
        left = list(waiting)
        while left:
            wave = self._wave(left)
            left = left[len(wave) :]
            by_digest = {one.plan.digest: one for one in wave}
            for plan, staged in self._steps.stage([one.plan for one in wave]):
                one = by_digest[plan.digest]
                yield one.candidate, self._put(one, staged)

    def stage(self, plan: PassPlan, partition: PartitionDir) -> StagedPass:
        """Run a task that makes a later pass, and return what it staged."""
        [(_, staged)] = self._steps.stage([plan])
        if isinstance(staged, KafkaLogError):
            raise staged
        return _whole(staged, partition)

    def _wave(self, left: Sequence[_Waiting]) -> list[_Waiting]:
        free = free_space(os.path.join(self._staging.path, "new"))
        count, room = 1, left[0].room
        # Always one, even without room for it: the write then fails with the error that says so.
        while count < len(left) and room + left[count].room <= free:
            room += left[count].room
            count += 1
        return list(left[:count])

    def _put(self, one: _Waiting, staged: Staged) -> Found:
        """Put the new segments of a partition in place, once its first pass is staged."""
        candidate = one.candidate
        if self._done is not None:
            self._done(_READ_TIMES * one.size_bytes)
        found: list[Found] = []
        with contained(candidate.partition.path, lambda error: found.append(one.failed(error))):
            if isinstance(staged, KafkaLogError):
                raise staged
            # Tasks took their time: nothing is swapped into a partition that has changed since it
            # was judged.
            one.plan.candidate()
            first = _whole(staged, candidate.partition)
            work = PartitionWork(
                candidate, self._request, _StagedPasses(self, candidate, self._request, first)
            )
            with self._run.partition(candidate.partition, work.touched()) as changing:
                work.perform(changing)
            # At once, not at the end: the room is needed for the next wave.
            self._staging.remove(one.plan.digest)
            found.append(work.result(is_done=True))
        return found[0]


def _whole(paths: Sequence[str], partition: PartitionDir) -> StagedPass:
    staged = StagedPass(paths, partition)
    # The checksums that the task took: a network disk, or a worker's memory, may have damaged the
    # files.
    staged.require_whole()
    return staged


class _StagedPasses:
    """The passes over a partition: each is staged once the one before it is in place.

    Only a limited map takes more than one.
    """

    def __init__(
        self, driver: _Driver, candidate: Candidate, request: CompactionRequest, first: StagedPass
    ) -> None:
        self._driver = driver
        self._candidate = candidate
        self._request = request
        self._sound = first.sound
        self._first: StagedPass | None = first

    def begin(self, partition: PartitionDir, cleanable: Cleanable) -> StagedPass:
        """Return the next pass over the partition as it is listed."""
        first, self._first = self._first, None
        if first is not None:
            return first
        plan = PassPlan.of(self._candidate, self._request, partition, cleanable, self._sound)
        return self._driver.stage(plan, partition)
