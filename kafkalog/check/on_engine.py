"""A run whose partitions are walked over by the tasks of an engine, on this machine or on others.

The tasks run the checks of partitions, which are most of the work; this process checks the files
around them and the log directories against each other, and tells all in the order of the walk.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Self

from kafkalog import places
from kafkalog.check.elsewhere import Walked
from kafkalog.check.tasks import (
    SPLIT_BYTES,
    Unseen,
    plan_tasks,
    read_piece,
    told_of,
    walk_partitions,
)
from kafkalog.errors import KafkaLogError, UnreadableError
from kafkalog.log_dir import list_partition
from kafkalog.source import Source

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkalog.check.schedule import Schedule
    from kafkalog.check.tasks import Manner
    from kafkalog.engine import Engine
    from kafkalog.log_dir import PartitionDir
    from kafkalog.model import Defect

_HINT = (
    "Every worker reads the log directories itself: they must exist under the same paths and be "
    "readable."
)


class WalkedByTasks:
    """The partitions of a run, walked over by tasks; a context manager that ends what is under way.

    Args:
        engine: runs the tasks; they begin when the first partition is asked for.
        schedule: its targets hold the partitions; without a history or a duration.
        manner: how the tasks read.
        split_bytes: as that of `plan_tasks`.

    Cost:
        Memory for what is told of one task, as the engine streams it; the defects are passed on.
    """

    def __init__(
        self, engine: Engine, schedule: Schedule, manner: Manner, split_bytes: int = SPLIT_BYTES
    ) -> None:
        plan = plan_tasks(schedule, engine.workers, manner, split_bytes)
        self._partitions = plan.partitions  # alive, so that none takes the identity of another
        self._numbers = {id(partition): n for n, partition in enumerate(plan.partitions)}
        self._rows = engine.stream(walk_partitions, plan.tasks, read_piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def walk(self, directory: PartitionDir) -> Generator[Defect, None, Walked | None]:
        """The defects of a partition; to be asked for in the order of the walk.

        Returns:
            None where the directory is there no more, for the tasks as for this process.

        Raises:
            UnreadableError: a worker does not see what this process sees.
        """
        number = self._numbers[id(directory)]
        path = places.absolute(directory.path)
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
    """It went away, or a broker moved it; unless only the worker does not see it."""
    try:
        list_partition(directory.path)
    except KafkaLogError:
        return
    raise UnreadableError(
        f"The worker on {unseen.host} sees other files: {unseen.reason}",
        path=directory.path,
        hint=_HINT,
    )


def _require_unreadable(defect: Defect) -> None:
    """What a worker cannot read is no defect if it can be read here."""
    try:
        with Source(defect.path) as source:
            source.read(defect.position or 0, 1)
    except KafkaLogError:
        return
    raise UnreadableError(
        "A worker cannot read a file that the driver can read.",
        path=defect.path,
        note=defect.detail,
        hint=_HINT,
    )
