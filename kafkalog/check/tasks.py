"""The walk over partitions as tasks of an engine, on this machine or on others.

A task walks over some partitions with `Verification` itself. The logs of a larger partition are
read in pieces by tasks of their own; the task that walks over it then uses their columns instead of
reading the logs.

The tasks run the checks of partitions, which are most of the work. This process checks the files
around them, compares the log directories with each other, and reports everything in walk order.
"""

from __future__ import annotations

import itertools
import pickle
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalog.check.schedule import Schedule
from kafkalog.check.verify import Verification
from kafkalog.check.walk import Walked
from kafkalog.errors import DataError, UnreadableError
from kafkalog.files.log_dir import LogDirListing, PartitionDir, Segment, list_partition
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading import reading
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.segment import OpenSegment, cut_positions
from kafkalog.model import Defect, Level, present_ms
from kafkalog.node.claims import Claim, other_files

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from kafkalog.check.walk import ReadColumns
    from kafkalog.io.engine import Engine

SPLIT_BYTES: Final = 128 << 20
"""Up to this size one task reads a whole partition; small partitions share a task."""

_TASKS_PER_WORKER: Final = 4
_COST_OF_A_PARTITION: Final = 4 << 20  # bytes read in the time that its small files take
_DEFECTS_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How tasks read.

    Attributes:
        threads: number of checking threads per task; None for one per processor.
        rate_limit: bytes per second per task, None for no limit.
        leaves_cache: as in `source.reading`.
    """

    threads: int | None = 1
    rate_limit: int | None = None
    leaves_cache: bool = False


@dataclass(frozen=True, slots=True)
class Unseen:
    """A partition directory that a task does not find, or finds with other files.

    Attributes:
        message: what it found, and on which host.
    """

    message: str


Told = list[Defect] | Walked | Unseen
"""What tasks report of a partition: its defects, then one `Walked` or `Unseen`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks of a run.

    Attributes:
        tasks: each has `partitions` and, if its partition is read in pieces, `pieces`.
        partitions: the partitions of the targets, by the numbers that tasks report.
    """

    tasks: tuple[Mapping[str, Any], ...]
    partitions: tuple[PartitionDir, ...]


def plan_tasks(
    schedule: Schedule, workers: int, options: ReadOptions, split_bytes: int = SPLIT_BYTES
) -> Plan:
    """Plan the tasks for the partitions of a schedule's targets, in walk order.

    Args:
        schedule: the level at which each part is read; without a history.
        split_bytes: minimum size of a piece, and of a partition that is read in pieces. Partitions
            of at most a quarter of a worker's share are never divided.

    Cost:
        A few reads per piece. The plan holds the paths of all partitions, and of the segments of
        those that are read in pieces.
    """
    partitions: list[PartitionDir] = []
    for target in schedule.targets:
        if isinstance(target, PartitionDir):
            partitions.append(target)
        elif isinstance(target, LogDirListing):
            partitions += schedule.in_order(target.partitions)
    total = sum(map(_cost, partitions))
    share = total // (_TASKS_PER_WORKER * workers) + 1
    how = {
        "level": schedule.level,
        "threads": options.threads,
        "rate_limit": options.rate_limit,
        "leaves_cache": options.leaves_cache,
    }
    large = max(split_bytes, share)
    tasks: list[dict[str, Any]] = []
    room = 0
    for number, partition in enumerate(partitions):
        cost, described = _cost(partition), _described(number, partition, schedule)
        if cost > large:
            pieces = [
                {**how, "claim": described["claim"], "parts": parts}
                for parts in _pieces(partition, schedule, large)
            ]
            tasks.append({**how, "partitions": [described], "pieces": pieces})
            room = 0
            continue
        if cost > room:
            tasks.append({**how, "partitions": []})
            room = min(split_bytes, share)
        tasks[-1]["partitions"].append(described)
        room -= cost
    return Plan(tuple(tasks), tuple(partitions))


def walk_partitions(task: Mapping[str, Any], made: Iterator[bytes]) -> Iterator[bytes]:
    """Yield a task's report, for `told_of`; `made` holds the results of its pieces in order."""
    with _reading(task):
        for described in task["partitions"]:
            for told in _walk(task, described, made if "pieces" in task else None):
                yield pickle.dumps((described["number"], told), pickle.HIGHEST_PROTOCOL)


def read_piece(piece: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the sound batches of some parts of logs, as columns."""
    from kafkalog.check.walk import read_range

    with _reading(piece):
        _require(piece["claim"])
        for part in piece["parts"]:
            yield from read_range(part, piece["threads"])


def _require(claim: Mapping[str, Any] | None) -> None:
    if claim is not None:
        Claim.from_json(claim).require()


def told_of(row: bytes) -> tuple[int, Told]:
    """Decode a task's report: the number of a partition, and what is said of it."""
    number, told = pickle.loads(row)  # noqa: S301 # made by `walk_partitions`
    return number, told


def _cost(partition: PartitionDir) -> int:
    return _COST_OF_A_PARTITION + partition.size_bytes


def _described(number: int, partition: PartitionDir, schedule: Schedule) -> dict[str, Any]:
    path = file_system.absolute(partition.path)
    claim, at_ms = None, present_ms()
    with suppress(DataError):  # it is gone, as the tasks will find
        claim = Claim.of(list_partition(path), at_ms)
    return {
        "number": number,
        "path": path,
        "log_dirs": tuple(map(file_system.absolute, partition.log_dirs)),
        "claim": None if claim is None else claim.as_json(),
        "left_out": [
            file_system.absolute(segment.log.path)
            for segment in partition.segments
            if schedule.level_of(segment) != schedule.level
        ],
    }


def _pieces(
    partition: PartitionDir, schedule: Schedule, split_bytes: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield consecutive parts of logs, grouped so that each task has enough to do."""
    piece: list[dict[str, Any]] = []
    size_bytes = 0
    for segment in partition.segments:
        level = schedule.level_of(segment)
        for start, end in itertools.pairwise(_bounds(segment, split_bytes)):
            is_last = end >= segment.log.size_bytes
            piece.append(
                {
                    "path": file_system.absolute(segment.log.path),
                    "base_offset": segment.base_offset,
                    "start": start,
                    # To wherever the file ends by then, as a run without tasks reads it.
                    "end": None if is_last else end,
                    "level": level,
                }
            )
            size_bytes += end - start
            if size_bytes >= split_bytes:
                yield piece
                piece, size_bytes = [], 0
    if piece:
        yield piece


def _bounds(segment: Segment, split_bytes: int) -> list[int]:
    size_bytes = segment.log.size_bytes
    try:
        with OpenSegment(segment) as opened:
            return [0, *cut_positions(opened, 0, size_bytes, split_bytes), size_bytes]
    except DataError:
        return [0, size_bytes]


def _walk(
    task: Mapping[str, Any], described: Mapping[str, Any], made: Iterator[bytes] | None
) -> Iterator[Told]:
    try:
        directory = replace(list_partition(described["path"]), log_dirs=described["log_dirs"])
    except DataError as error:
        yield Unseen(other_files(error.message))
        return
    try:
        _require(described["claim"])
    except DataError as error:
        yield Unseen(error.message)
        return
    run = Verification(
        schedule=Schedule(level=Level(task["level"]), left_out=described["left_out"]),
        threads=task["threads"],
        read=None if made is None else _put_together(made, task["threads"]),
    )
    walk = run.verify_partition(directory)
    found: list[Defect] = []
    while True:
        try:
            found.append(next(walk))
        except StopIteration as end:
            yield found
            yield Walked(end.value, run.summary, run.next_starts)
            return
        if len(found) == _DEFECTS_AT_ONCE:
            yield found
            found = []


def _put_together(made: Iterator[bytes], threads: int | None) -> ReadColumns:
    from kafkalog.check.walk import PrecomputedColumns

    return PrecomputedColumns(made, threads).read


def _reading(task: Mapping[str, Any]) -> AbstractContextManager[None]:
    return reading(rate_limit=task["rate_limit"], leaves_cache=task["leaves_cache"])


_HINT = (
    "Every worker reads the log directories itself: they must exist under the same paths and be "
    "readable."
)


class WalkedByTasks:
    """The partitions of a run, walked over by tasks; a context manager that stops running tasks.

    Args:
        engine: runs the tasks, from the time the first partition is asked for.
        schedule: its targets hold the partitions; without a history or a duration.
        split_bytes: as in `plan_tasks`.

    Cost:
        Memory for one task's report, as the engine streams it; the defects are passed on.
    """

    def __init__(
        self,
        engine: Engine,
        schedule: Schedule,
        options: ReadOptions,
        split_bytes: int = SPLIT_BYTES,
    ) -> None:
        plan = plan_tasks(schedule, engine.workers, options, split_bytes)
        self._partitions = plan.partitions  # kept alive: `id` identifies them
        self._numbers = {id(partition): n for n, partition in enumerate(plan.partitions)}
        self._rows = engine.stream(walk_partitions, plan.tasks, read_piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def walk(self, directory: PartitionDir) -> Generator[Defect, None, Walked | None]:
        """Yield the defects of a partition; to be called in walk order.

        Returns:
            None if the directory is gone, for the tasks and for this process.

        Raises:
            UnreadableError: a worker does not see the files that this process sees.
        """
        number = self._numbers[id(directory)]
        path = file_system.absolute(directory.path)
        for row in self._rows:
            of, told = told_of(row)
            if of < number:
                continue  # of a target that was given up
            if isinstance(told, Unseen):
                _require_gone(directory, told)
                return None
            if isinstance(told, Walked):
                starts = [
                    replace(start, path=directory.path + start.path.removeprefix(path))
                    for start in told.next_starts
                ]
                return replace(told, next_starts=starts)
            for defect in told:
                if defect.reference == "file-unreadable":
                    _require_unreadable(defect)
                yield replace(defect, path=directory.path + defect.path.removeprefix(path))
        raise UnreadableError("No task reported on the partition.", path=directory.path)


def _require_gone(directory: PartitionDir, unseen: Unseen) -> None:
    """Raise unless the directory is gone here as well: deleted, or moved by a broker."""
    try:
        list_partition(directory.path)
    except DataError:
        return
    raise UnreadableError(unseen.message, path=directory.path, hint=_HINT)


def _require_unreadable(defect: Defect) -> None:
    """Raise if this process can read what a worker cannot: then it is not a defect."""
    try:
        with Source(defect.path) as source:
            source.read(defect.position or 0, 1)
    except DataError:
        return
    raise UnreadableError(
        "A worker cannot read a file that the driver can read.",
        path=defect.path,
        note=defect.detail,
        hint=_HINT,
    )
