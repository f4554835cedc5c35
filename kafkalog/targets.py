"""The targets of a run: what is at its paths; a parent stands for the log directories in it."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from kafkalog.errors import contained, raised
from kafkalog.log_dir import FileEntry, LogDirListing, LogDirTop, PartitionDir, look_at, open_any
from kafkalog.names import parse_directory_name
from kafkalog.parents import Parent
from kafkalog.paths import file_system

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.errors import KafkaLogError

T = TypeVar("T")

Target = LogDirListing | PartitionDir | FileEntry


def open_targets(
    paths: Iterable[str | os.PathLike[str]],
    *,
    failed: Callable[[KafkaLogError], None] = raised,
    parents: Callable[[Parent], object] = lambda _: None,
) -> list[Target]:
    """Open what is at several paths.

    Args:
        paths: log directories, partition directories, files, and directories that hold log
            directories at most `kafkalog.parents.DEPTH_MAX` levels below them.
        failed: called with the error of a path or log directory that is left out; without it the
            first error is raised.
        parents: called with each directory that stands for the log directories below it.

    Raises:
        KafkaLogError: as `open_path`, unless `failed` takes the error.
    """
    return _each(open_any, paths, failed, parents)


def look_at_targets(
    paths: Iterable[str | os.PathLike[str]],
    *,
    failed: Callable[[KafkaLogError], None] = raised,
    parents: Callable[[Parent], object] = lambda _: None,
) -> list[LogDirTop | PartitionDir | FileEntry]:
    """Do what `open_targets` does, without listing the partitions of log directories."""
    return _each(look_at, paths, failed, parents)


def _each(
    opens: Callable[[str], T | Parent],
    paths: Iterable[str | os.PathLike[str]],
    failed: Callable[[KafkaLogError], None],
    parents: Callable[[Parent], object],
) -> list[T]:
    targets: list[T] = []
    for path in [os.fspath(one) for one in paths]:
        with contained(path, failed):
            found = opens(path)
            if not isinstance(found, Parent):
                targets.append(found)
                continue
            parents(found)
            for inner in found.log_dirs:
                with contained(inner, failed):
                    below = opens(inner)
                    assert not isinstance(below, Parent), "a log directory is no parent"
                    targets.append(below)
    return targets


@lru_cache(maxsize=1024)
def partition_around(path: str) -> PartitionDir:
    """Return the partition directory around a file by its name, not listed."""
    directory = os.path.dirname(file_system.absolute(path))
    return PartitionDir(directory, parse_directory_name(os.path.basename(directory)), ())
