"""The blocks of all files below some directories, as coreutils' `du` counts them.

Symbolic links are counted and not followed; a file with several names is counted once.
"""

from __future__ import annotations

import os
import stat
from stat import S_ISREG
from typing import TYPE_CHECKING

from kafkalog.disk_usage.model import Entry, Place
from kafkalog.errors import KafkaLogError
from kafkalog.log_dir import FileEntry, LogDirTop, PartitionDir
from kafkalog.names import parse_directory_name
from kafkalog.paths import file_system
from kafkalog.paths.reading_errors import reading_error
from kafkalog.paths.source import BLOCK_SIZE
from kafkalog.paths.uris import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Walk:
    """A walk over places; each directory and each file with several links is counted once.

    Args:
        failed: called with the error of each directory that cannot be listed.

    Attributes:
        links: number of symbolic links so far.
    """

    def __init__(self, failed: Callable[[KafkaLogError], None]) -> None:
        self.links = 0
        self._failed = failed
        self._seen: set[tuple[int, int]] = set()
        self._counts_all = False  # whether files with one name may be met twice, too

    def places(self, targets: Iterable[LogDirTop | PartitionDir | FileEntry]) -> Iterator[Place]:
        """Yield the partition directories of targets, and what log directories hold besides these.

        Cost:
            A listing per directory and a `stat` per file; memory for one directory.
        """
        targets = list(targets)
        self._counts_all = len(targets) > 1
        for target in targets:
            if isinstance(target, LogDirTop):
                yield from self._log_dir(target)
            elif isinstance(target, PartitionDir):
                yield self._partition(target.path, target.log_dir)
            else:
                directory = os.path.dirname(target.path) or os.curdir
                entries = list(self._entry(target.path, target.name.name))
                yield self._place(directory, PartitionDir(directory, None, ()).log_dir, entries)

    def _log_dir(self, top: LogDirTop) -> Iterator[Place]:
        if is_object(top.path):
            file_system.prefetch_listing(top.path)
        rest = list(self._itself(top.path))
        for name in [one.name.name for one in top.files]:
            rest += self._entry(os.path.join(top.path, name), name)
        for name in top.directories:
            path = os.path.join(top.path, name)
            if parse_directory_name(name) is None:
                rest += self._entry(path, name)
            else:
                yield self._partition(path, top.path)
        yield Place(top.path, top.path, None, None, None, rest)

    def _partition(self, path: str, log_dir: str) -> Place:
        return self._place(path, log_dir, list(self._entry(path, "")))

    def _place(self, path: str, log_dir: str, entries: list[Entry]) -> Place:
        name = parse_directory_name(os.path.basename(file_system.absolute(path)))
        if name is None:
            topic = os.path.basename(file_system.absolute(path))
            return Place(path, log_dir, topic, None, None, entries)
        return Place(path, log_dir, name.topic, name.partition, name.state, entries)

    def _itself(self, path: str) -> Iterator[Entry]:
        """Yield the directory's own blocks, unless it was counted before."""
        if is_object(path):
            return
        status = os.stat(path)
        if (status.st_dev, status.st_ino) not in self._seen:
            self._seen.add((status.st_dev, status.st_ino))
            yield Entry("", status.st_blocks * BLOCK_SIZE, 0)

    def _entry(self, path: str, name: str) -> Iterator[Entry]:
        """Yield a file, or a directory with all that is in it."""
        try:
            status = file_system.stat(path) if is_object(path) else os.lstat(path)
        except FileNotFoundError:
            return  # a broker has deleted or renamed it
        except OSError as error:
            self._failed(reading_error(error, path))
            return
        yield from self._counted(path, name, status)

    def _counted(self, path: str, name: str, status: os.stat_result) -> Iterator[Entry]:
        is_directory = stat.S_ISDIR(status.st_mode)
        if is_object(path):
            if not is_directory:
                yield Entry(name, status.st_size, status.st_size)
        elif is_directory or status.st_nlink > 1 or self._counts_all:
            place = (status.st_dev, status.st_ino)
            if place in self._seen:
                return
            self._seen.add(place)
        if not is_object(path):
            self.links += stat.S_ISLNK(status.st_mode)
            size = 0 if is_directory else status.st_size
            yield Entry(name, status.st_blocks * BLOCK_SIZE, size)
        if is_directory:
            yield from self._inside(path, name)

    def _inside(self, path: str, name: str) -> Iterator[Entry]:
        try:
            if is_object(path):
                names = file_system.names(path)
                for inner in names:
                    yield from self._entry(os.path.join(path, inner), os.path.join(name, inner))
                return
            prefix = os.path.join(name, "")
            with os.scandir(path) as found:
                for one in found:
                    try:
                        status = one.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    inner = prefix + one.name
                    if status.st_nlink == 1 and S_ISREG(status.st_mode) and not self._counts_all:
                        yield Entry(inner, status.st_blocks * BLOCK_SIZE, status.st_size)
                    else:
                        yield from self._counted(one.path, inner, status)
        except FileNotFoundError:
            return
        except OSError as error:
            self._failed(reading_error(error, path))
        except KafkaLogError as error:
            self._failed(error)
