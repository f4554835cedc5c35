"""Files that the broker's user cannot open, although it can open others in the same directory.

A broker reads and writes logs and indexes (`FileRecords.open`, `AbstractIndex`), and only reads the
other files of a partition. A check that runs as root sees no difference.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from typing import TYPE_CHECKING, Final

from formats.file_names import INDEX_KINDS, FileKind
from kafkalog.check.batches import CheckedPartition, directory_check, log_dir_check
from kafkalog.io.paths import file_system
from kafkalog.io.paths.uris import is_object
from kafkalog.log.defects import make_defect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.files.log_dir import FileEntry, LogDirListing
    from kafkalog.model import Defect

_WRITTEN: Final = (FileKind.LOG, *INDEX_KINDS)
_READ, _WRITE, _SEARCH = 4, 2, 1
_ROOT: Final = 0


@directory_check
def partition_files_have_one_owner(partition: CheckedPartition) -> Iterator[Defect]:
    """The user of the broker can open each file of a partition, or none."""
    wanted = [
        (entry.path, _READ | _WRITE if entry.name.kind in _WRITTEN else _READ)
        for entry in _openable(partition.directory.files)
    ]
    yield from _closed_to_the_broker(partition.directory.path, wanted)


@log_dir_check
def log_dir_files_have_one_owner(
    log_dir: LogDirListing, partitions: Sequence[CheckedPartition]
) -> Iterator[Defect]:
    """The user of the broker can open each file and partition of a log directory, or none."""
    wanted = [(entry.path, _READ) for entry in _openable(log_dir.files)]
    wanted += [(one.directory.path, _READ | _WRITE | _SEARCH) for one in partitions]
    yield from _closed_to_the_broker(log_dir.path, wanted)


def _openable(files: Sequence[FileEntry]) -> Iterator[FileEntry]:
    return (entry for entry in files if entry.error is None)


def _closed_to_the_broker(directory: str, wanted: list[tuple[str, int]]) -> Iterator[Defect]:
    """Yield a finding for each path that lets the broker's user do less than it wants."""
    if is_object(directory) or file_system.is_part(directory):
        return
    found = [(path, bits, status) for path, bits in wanted if (status := _status(path))]
    around = _status(directory)
    if around is None or not found:
        return
    # Who makes the directory makes its files. Root's says nothing: it may have been copied as root.
    uid, gid = around.st_uid, around.st_gid
    if uid == _ROOT:
        (uid, gid), _ = Counter((one.st_uid, one.st_gid) for *_, one in found).most_common(1)[0]
    if uid == _ROOT:  # it opens everything
        return
    by_bits = {bits: [one for one in found if one[1] == bits] for _, bits, _ in found}
    for bits, alike in by_bits.items():
        closed = [one for one in alike if _granted(one[2], uid, gid) & bits < bits]
        # All are read-only: a copy, on which nobody starts a broker.
        if len(closed) == len(alike) and all(one.st_uid == uid for *_, one in closed):
            continue
        what = "read and write" if bits & _WRITE else "read"
        for path, _, status in closed:
            yield make_defect(
                "owner-differs",
                path,
                f"It belongs to user {status.st_uid}, group {status.st_gid}, with mode "
                f"{stat.S_IMODE(status.st_mode):03o}: user {uid} cannot {what} it.",
            )


def _granted(status: os.stat_result, uid: int, gid: int) -> int:
    """Return what the permissions let a user do; groups that it has besides are unknown."""
    if status.st_uid == uid:
        return status.st_mode >> 6 & 7
    return status.st_mode >> 3 & 7 if status.st_gid == gid else status.st_mode & 7


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None  # reported by the check that reads it, or gone
