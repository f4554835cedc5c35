"""Findings of one moment: where files changed while they were read, they are judged again.

A broker appends, rolls, cleans and deletes under a reader, so that files that were read at several
moments contradict each other. A finding counts if nothing changed meanwhile, or if a second reading
finds it again in the same place: contradictions between moments do not come twice.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalog import places
from kafkalog.check.batch_checks import CheckedPartition
from kafkalog.check.identity import CheckedLogDir
from kafkalog.defects import make_defect
from kafkalog.errors import KafkaLogError, NotFoundError
from kafkalog.log_dir import LogDir, PartitionDir, list_partition, open_path
from kafkalog.model import Severity
from kafkalog.names import OFFSET_CHECKPOINTS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from kafkalog.model import Defect

Seen = TypeVar("Seen")
Result = TypeVar("Result")
Place = tuple[str, str, int | None, int | None]

READINGS_MAX: Final = 5
_HELD_MAX: Final = 1000
"""So many findings are held back at most; where there are more, they are no accident of time."""
_AROUND: Final = (*OFFSET_CHECKPOINTS, ".kafka_cleanshutdown", "meta.properties")


@dataclass(frozen=True)
class SeenPartition:
    """A partition's files at one moment, and what tells whether those around it have changed."""

    directory: PartitionDir
    around: tuple[tuple[int, ...], ...]


def of_one_moment(
    path: str,
    seen: Seen,
    look: Callable[[], Seen],
    judge: Callable[[Seen, int], Generator[Defect, None, Result]],
    is_whole: Callable[[Result], bool] = lambda _: True,
) -> Generator[Defect, None, tuple[Result, bool]]:
    """Yield the findings that no change on disk explains.

    Args:
        path: what is judged, for the note.
        seen: the listing of what is judged.
        look: lists it again; an equal listing means that nothing has changed.
        judge: called with what was seen, and how often it was called before; reads all of it.
        is_whole: whether a judgement has read all that was listed.

    Returns:
        The result of the last reading, and whether that was one of files that stayed the same, or
        of which nothing contradicts another reading.

    Cost:
        Where there is a finding above a note, another listing; where that differs, a reading more.
    """
    earlier: set[Place] = set()
    for reading in range(READINGS_MAX):
        judgement = judge(seen, reading)
        held: list[Defect] = []
        try:
            while len(held) < _HELD_MAX:
                held.append(next(judgement))
        except StopIteration as end:
            result: Result = end.value
        else:
            yield from held
            return (yield from judgement), True
        found = {_place(defect) for defect in held if _is_grave(defect)}
        before = seen
        if (found <= earlier and is_whole(result)) or (seen := look()) == before:
            yield from held
            return result, True
        confirmed, earlier = found & earlier, found
    yield from (one for one in held if not _is_grave(one) or _place(one) in confirmed)
    detail = f"Its files changed during {READINGS_MAX} readings: {len(found - confirmed)} findings "
    yield make_defect("changed-while-reading", path, f"{detail}of the last one are left out.")
    return result, False


def look_at_partition(directory: PartitionDir) -> SeenPartition:
    """List a partition as it is now; one that is gone has no files."""
    try:
        directory = list_partition(directory.path)
    except NotFoundError:
        directory = PartitionDir(directory.path, directory.name, ())
    except KafkaLogError:
        pass  # its files tell the same
    log_dir = os.path.dirname(places.absolute(directory.path))
    return SeenPartition(directory, tuple(_identity(log_dir, name) for name in _AROUND))


def _identity(log_dir: str, name: str) -> tuple[int, ...]:
    try:
        status = places.stat(os.path.join(log_dir, name))
    except (OSError, KafkaLogError):
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def look_at_log_dir(log_dir: LogDir) -> LogDir:
    """List a log directory as it is now."""
    try:
        found = open_path(log_dir.path)
    except KafkaLogError:
        return log_dir
    return found if isinstance(found, LogDir) else log_dir


def judged_together(
    walked: Sequence[CheckedLogDir],
    judge: Callable[[Sequence[CheckedLogDir]], Generator[Defect, None, None]],
) -> Generator[Defect, None, None]:
    """Yield what is found in log directories whose partitions were walked over, of one moment."""
    listed = [one.log_dir for one in walked]

    def judge_listed(seen: Sequence[LogDir], reading: int) -> Generator[Defect, None, None]:
        pairs = zip(walked, seen, strict=True)
        return judge([_walked_again(*pair) for pair in pairs] if reading else walked)

    def look() -> list[LogDir]:
        return [look_at_log_dir(one) for one in listed]

    yield from of_one_moment(listed[0].path, listed, look, judge_listed)


def _walked_again(walked: CheckedLogDir, log_dir: LogDir) -> CheckedLogDir:
    """Bring a log directory up to date whose partitions were walked over: see where they end."""
    there = {directory.path: directory for directory in log_dir.partitions}
    partitions = []
    for partition in walked.partitions:
        if partition.directory.path in there:
            again = CheckedPartition(there[partition.directory.path], partition.end_offset)
            try:
                again.end_offset = max(again.end_offset, again.log.log_end_offset)
            except KafkaLogError:
                continue  # it is gone
            partitions.append(again)
    return CheckedLogDir(log_dir, partitions)


def _is_grave(defect: Defect) -> bool:
    return defect.severity != Severity.NOTE


def _place(defect: Defect) -> Place:
    return defect.reference, defect.path, defect.position, defect.offset
