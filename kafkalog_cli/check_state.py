"""The file of `verify --state`: what earlier runs checked, read before a run and replaced after."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.check.schedule import History
from kafkalog.errors import UnwritableError, UsageError
from kafkalog.log_dir import LogDir, PartitionDir
from kafkalog.paths.source import read_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.log_dir import FileEntry

_SIZE_MAX = 1 << 30


def read_history(path: str, targets: Sequence[LogDir | PartitionDir | FileEntry]) -> History:
    """What the file says; an empty history where there is none yet.

    Raises:
        UsageError: the file would lie in what is checked, where nothing is ever written.
        UnwritableError: it could not be written after the run.
        NotAKafkaFileError: it is something else.
    """
    place = os.path.realpath(path)
    for target in targets:
        if place.startswith(os.path.join(os.path.realpath(target_path(target)), "")):
            raise UsageError(
                "The state file lies inside the checked directory.",
                path=path,
                hint="Put it elsewhere: kafkalog never writes to what it reads.",
            )
    if not os.access(os.path.dirname(place), os.W_OK):
        raise UnwritableError("The state file cannot be written there.", path=path)
    if not os.path.lexists(path):
        return History()
    text = read_file(path, _SIZE_MAX).decode("utf-8", "surrogateescape")
    return History.from_json(text, path)


def write_history(
    history: History, path: str, targets: Sequence[LogDir | PartitionDir | FileEntry]
) -> None:
    """Replace the file; segments that are gone are forgotten. Raises `UnwritableError`.

    A crash leaves the old file or the new one.
    """
    from kafkalog.storage import NewFile

    for target in targets:
        if isinstance(target, LogDir):
            history.forget_missing(target.partitions, [target.path])
        elif isinstance(target, PartitionDir):
            history.forget_missing([target], [target.path])
    with NewFile(path, replaces=True) as new:
        new.file.write(history.to_json().encode("utf-8", "surrogateescape"))


def target_path(target: LogDir | PartitionDir | FileEntry) -> str:
    """The directory whose files are read."""
    is_directory = isinstance(target, LogDir | PartitionDir)
    return target.path if is_directory else os.path.dirname(target.path) or "."
