"""Findings of one moment: if files change while they are read, they are judged again.

A broker appends, rolls, cleans and deletes under a reader, so files that were read at different
moments can contradict each other. A finding counts if nothing changed meanwhile, or if a second
reading finds it in the same place again: contradictions between moments do not repeat.
"""

from __future__ import annotations

import os
from dataclasses import replace
from time import monotonic, sleep, time
from typing import TYPE_CHECKING, Final, TypeVar

from formats import file_names
from formats.file_names import OFFSET_CHECKPOINTS
from formats.late_classes import dataclass
from kafkalog.check.identity import CheckedLogDir, listed_around
from kafkalog.check.registry import contained_all
from kafkalog.errors import DataError, GoneError
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir, open_path
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import reading_error
from kafkalog.io.wording import counted
from kafkalog.log.defects import make_defect
from kafkalog.log.living import listed_now
from kafkalog.model import Defect, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    CheckOfLogDirs = tuple[str, Callable[[Sequence[CheckedLogDir]], Iterator[Defect]]]

Seen = TypeVar("Seen")
Result = TypeVar("Result")
Place = tuple[str, str, tuple[int, ...], int | None, int | None]

READINGS_MAX: Final = 5
_PAUSE_S: Final = 0.05
_LOOK_EVERY_S: Final = 0.5
_RESTLESS_MS: Final = 2000
_HELD_MAX: Final = 1000
"""Maximum number of findings held back; more than that cannot be an accident of timing."""
_AROUND: Final = (*OFFSET_CHECKPOINTS, file_names.CLEAN_SHUTDOWN, file_names.META_PROPERTIES)


@dataclass(frozen=True)
class SeenPartition:
    """A partition's files at one moment, and the means to detect changes to those around it."""

    directory: PartitionDir
    around: tuple[tuple[int, ...], ...]
    has_lock: bool


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
        judge: called with a listing and the number of earlier readings; reads everything listed.
        is_whole: whether a judgement has read everything that was listed.

    Returns:
        The result of the last reading, and whether it is settled: the files did not change, or the
        findings were the same as in an earlier reading.

    Cost:
        After a finding above a note, another listing; if that differs, another reading.
    """
    earlier: set[Place] = set()
    told: set[Place] = set()
    for reading in range(READINGS_MAX):
        judgement = judge(seen, reading)
        held: list[Defect] = []
        passed_on: list[Defect] = []
        looked_s = monotonic()
        try:
            while len(held) < _HELD_MAX:
                defect = next(judgement)
                if _place(defect, {}) in told:
                    continue
                held.append(defect)
                # Findings of a long reading should not wait for its end.
                if _is_grave(defect) and monotonic() - looked_s > _LOOK_EVERY_S:
                    looked_s = monotonic()
                    if look() == seen and not _is_restless(seen):  # still the same moment
                        yield from held
                        passed_on += held
                        held = []
        except StopIteration as end:
            result: Result = end.value
        else:
            yield from held
            return (yield from judgement), True
        # Without the files' identity: what was passed on must not be repeated if the file is
        # replaced.
        told.update(_place(one, {}) for one in passed_on)
        files = _identities(seen) if held else {}
        found = {_place(defect, files) for defect in held if _is_grave(defect)}
        # Either no finding is new, or nothing moved: an accident of timing would not come back.
        is_settled = (found <= earlier and is_whole(result)) or (
            look() == seen and not _is_restless(seen)
        )
        if not is_settled:
            sleep(_PAUSE_S * 2**reading)  # let the broker finish what it is doing
            # Equal after the pause: a broker has the directory open, but changes nothing here.
            before, seen = seen, look()
            is_settled = seen == before
        if is_settled:
            yield from held
            return result, True
        confirmed, earlier = found & earlier, found
    # A note claims nothing wrong: it needs no second reading.
    yield from (one for one in held if not _is_grave(one) or _place(one, files) in confirmed)
    left_out = counted(len(found - confirmed), "finding")
    detail = f"Its files changed during {READINGS_MAX} readings; left out: {left_out} of the last."
    yield make_defect("changed-while-reading", path, detail)
    return result, False


def look_at_partition(directory: PartitionDir) -> SeenPartition:
    """List a partition as it is now, wherever it is; a partition that is gone has no files."""
    try:
        directory = listed_now(directory)
    except GoneError:
        directory = PartitionDir(directory.path, directory.name, ())
    except DataError:
        pass  # the errors of its files say the same
    log_dir = os.path.dirname(file_system.absolute(directory.path))
    around = tuple(_identity(log_dir, name) for name in _AROUND)
    return SeenPartition(directory, around, bool(_identity(log_dir, file_names.LOCK)))


def _identity(log_dir: str, name: str) -> tuple[int, ...]:
    path = os.path.join(log_dir, name)
    try:
        status = file_system.stat(path)
    except FileNotFoundError:
        return ()
    except OSError as error:
        reading_error(error, path)  # reported
        return ()
    except DataError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def look_at_log_dir(log_dir: LogDirListing) -> LogDirListing:
    """List a log directory as it is now."""
    try:
        found = open_path(log_dir.path)
    except DataError:
        return log_dir
    return found if isinstance(found, LogDirListing) else log_dir


def judged_together(
    walked: Sequence[CheckedLogDir], checks: Sequence[CheckOfLogDirs]
) -> Generator[Defect, None, None]:
    """Yield the findings of one moment about log directories whose partitions were walked over."""
    listed = [one.log_dir for one in walked]
    path = listed[0].path

    def judge(seen: Sequence[LogDirListing], reading: int) -> Generator[Defect, None, None]:
        pairs = zip(walked, seen, strict=True)
        judged = [_walked_again(*pair) for pair in pairs] if reading else walked
        for name, check in checks:
            yield from contained_all(path, f"The check {name}", check, judged)

    def look() -> list[LogDirListing]:
        return [
            listed_around(look_at_partition(one.partitions[0].directory).directory)
            if one.is_around
            else look_at_log_dir(one.log_dir)
            for one in walked
        ]

    yield from of_one_moment(path, listed, look, judge)


def _walked_again(walked: CheckedLogDir, log_dir: LogDirListing) -> CheckedLogDir:
    there = {directory.path: directory for directory in log_dir.partitions}
    partitions = []
    for partition in walked.partitions:
        if partition.directory.path in there:
            again = replace(partition, directory=there[partition.directory.path])
            try:
                # Appends since the walk raise the end; checkpoints written since may name it.
                again.end_offset = max(again.end_offset, again.log.log_end_offset)
            except DataError:
                continue  # it is gone
            partitions.append(again)
    return CheckedLogDir(log_dir, partitions)


def _is_restless(seen: object) -> bool:
    """Return whether a running broker may be in the middle of something."""
    # Without `.lock` no broker has the directory open.
    if not isinstance(seen, SeenPartition) or not seen.has_lock:
        return False
    changed_ms = max((entry.modified_timestamp for entry in seen.directory.files), default=0)
    # `abs`: the clock of a file server may be ahead of this one.
    return abs(time() * 1000 - changed_ms) < _RESTLESS_MS


def _is_grave(defect: Defect) -> bool:
    return defect.severity != Severity.NOTE


def _identities(seen: object) -> dict[str, FileEntry]:
    if isinstance(seen, SeenPartition):
        seen = seen.directory
    if isinstance(seen, list):
        return {path: entry for one in seen for path, entry in _identities(one).items()}
    if not isinstance(seen, LogDirListing | PartitionDir):
        return {}
    found = {entry.path: entry for entry in seen.files}
    if isinstance(seen, LogDirListing):
        for one in seen.partitions:
            found |= _identities(one)
    return found


def _place(defect: Defect, files: dict[str, FileEntry]) -> Place:
    """Return the place of a finding, which includes the file's identity besides its name."""
    file = files.get(defect.path)
    identity: tuple[int, ...] = () if file is None else (file.inode,)
    if file is not None and defect.reference == "file-unreadable":
        identity += (file.size_bytes, file.modified_timestamp)  # inode numbers are reused
    return defect.reference, defect.path, identity, defect.position, defect.offset
