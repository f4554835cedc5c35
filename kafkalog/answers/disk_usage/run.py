"""A run of `du`: counts blocks as coreutils' `du` does, splits the sum, and looks ahead.

Symbolic links are counted and not followed; a file with several names is counted once.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime, tzinfo
from stat import S_ISREG
from typing import TYPE_CHECKING, Final

from formats.file_names import (
    DirectoryState,
    FileKind,
    FileState,
    is_staging,
    parse_directory_name,
    parse_file_name,
    partition_of,
)
from formats.late_classes import dataclass
from kafkalog.answers.disk_usage.ahead import Outlook, look_ahead
from kafkalog.answers.disk_usage.model import Entry, Place, Report, Share, SplitBy, Usage
from kafkalog.errors import DataError, KafkaLogError, Listener, contained
from kafkalog.files.log_dir import FileEntry, LogDirTop, PartitionDir, list_partition, look_at
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import reading_error
from kafkalog.io.paths.retry import tried
from kafkalog.io.paths.source import BLOCK_SIZE
from kafkalog.io.paths.uris import is_object
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.living import TRIES_MAX
from kafkalog.node.targets import look_at_targets, of_one_moment, open_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from formats.file_names import FileName
    from kafkalog.node.configs import ConfigSources


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
        self._counts_all = len(targets) > 1  # two targets can be one place, or lie in each other
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
        name = partition_of(file_system.absolute(path))
        if name is None:
            topic = os.path.basename(file_system.absolute(path))
            return Place(path, log_dir, topic, None, None, entries)
        return Place(path, log_dir, name.topic, name.partition, name.state, entries)

    def _itself(self, path: str) -> Iterator[Entry]:
        """Yield the directory's own blocks, unless it was counted before."""
        if is_object(path):
            return
        status = file_system.status(path)  # not lstat: a target may itself be a symbolic link
        if (status.st_dev, status.st_ino) not in self._seen:
            self._seen.add((status.st_dev, status.st_ino))
            yield Entry("", status.st_blocks * BLOCK_SIZE, 0)

    def _entry(self, path: str, name: str) -> Iterator[Entry]:
        try:
            status = file_system.stat(path) if is_object(path) else tried(path, os.lstat, path)
        except FileNotFoundError:  # a broker renames files to `.deleted` before it deletes them
            return  # a broker has deleted or renamed it
        except OSError as error:
            self._failed(reading_error(error, path))
            return
        yield from self._counted(path, name, status)

    def _counted(self, path: str, name: str, status: os.stat_result) -> Iterator[Entry]:
        is_directory = stat.S_ISDIR(status.st_mode)
        if is_object(path):
            if not is_directory:
                # Objects have no blocks, and prefixes no size.
                yield Entry(name, status.st_size, status.st_size)
        # Only what has several names can be met twice: a set of all files would be large.
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
            for inner_path, status in tried(path, _scanned, path):
                inner = prefix + os.path.basename(inner_path)
                if status.st_nlink == 1 and S_ISREG(status.st_mode) and not self._counts_all:
                    yield Entry(inner, status.st_blocks * BLOCK_SIZE, status.st_size)
                else:
                    yield from self._counted(inner_path, inner, status)
        except FileNotFoundError:
            return
        except OSError as error:
            self._failed(reading_error(error, path))
        except DataError as error:
            self._failed(error)


def _scanned(path: str) -> list[tuple[str, os.stat_result]]:
    scanned = []
    with os.scandir(path) as found:
        for one in found:
            with suppress(FileNotFoundError):  # a broker has deleted or renamed it
                scanned.append((one.path, one.stat(follow_symlinks=False)))
    return scanned


_DEAD: Final = (DirectoryState.DELETE, DirectoryState.STRAY)
_REMOVED: Final = (FileState.DELETED, FileState.CLEANED, FileState.TEMPORARY, FileState.PART)
_DIGITS: Final = 20  # of the offset in the name of a segment's file
_ZEROS: Final = "0" * _DIGITS


@dataclass(frozen=True, slots=True)
class Forecast:
    """How far a run looks ahead, and what it supposes.

    Attributes:
        until_ms: the end of what is counted as freed later.
        configs: the configs of topics by name, or their sources; None for those of the directory.
        disk_bytes: size of the disk of each log directory; None for what its file system says.
    """

    now_ms: int
    until_ms: int
    configs: Mapping[str, str] | ConfigSources | None = None
    disk_bytes: int | None = None


@dataclass
class _Sums:
    """The sums so far."""

    by: SplitBy
    zone: tzinfo
    failed: Callable[[KafkaLogError], None]
    shares: dict[tuple[str | None, str | None], Share] = field(default_factory=dict)
    of_log_dirs: dict[str, int] = field(default_factory=dict)

    def add(self, place: Place) -> None:
        for name, usage in self._parts(place):
            self._share(place, name).usage.add(usage)
            size = usage.disk_bytes
            self.of_log_dirs[place.log_dir] = self.of_log_dirs.get(place.log_dir, 0) + size
        if place.topic is not None and self.by in (SplitBy.TOPIC, SplitBy.PARTITION):
            self._share(place, None).usage.copies += 1

    def add_outlook(self, log_dir: str, path: str, outlook: Outlook) -> None:
        place = Place(path, log_dir, outlook.topic, outlook.partition, None, ())
        self._share(place, None).usage.add(outlook.usage)

    def _share(self, place: Place, name: str | None) -> Share:
        key: tuple[str | None, str | None] = (name, None)
        if self.by == SplitBy.TOPIC:
            key = (place.topic, None)
        elif self.by == SplitBy.PARTITION:
            key = (os.path.basename(file_system.absolute(place.path)), place.log_dir)
            key = key if place.topic is not None else (None, place.log_dir)
        if key not in self.shares:
            known = place.topic is not None
            is_one = self.by == SplitBy.PARTITION
            self.shares[key] = Share(
                str(self.by),
                key[0],
                Usage(),
                place.topic if known and self.by in (SplitBy.TOPIC, SplitBy.PARTITION) else None,
                place.partition if known and is_one else None,
                place.log_dir if is_one else None,
            )
        return self.shares[key]

    def _parts(self, place: Place) -> Iterator[tuple[str | None, Usage]]:
        """Yield the sums of a place, each with the day or the kind if that is asked for."""
        is_dead = place.state in _DEAD or is_staging(os.path.basename(place.path))
        days = self._days(place) if self.by == SplitBy.DAY else {}
        parts: dict[str | None, Usage] = {}
        for entry in place.entries:
            name = _parsed(entry.name, with_offset=self.by == SplitBy.DAY)
            part = None
            if self.by == SplitBy.DAY:
                part = days.get(name.offset)
            elif self.by == SplitBy.KIND:
                part = _kind(entry, name, place, is_dead=is_dead)
            usage = parts.setdefault(part, Usage())
            usage.disk_bytes += entry.disk_bytes
            usage.size_bytes += entry.size_bytes
            if is_dead or name.state in _REMOVED:
                usage.leftover_bytes += entry.disk_bytes
        yield from parts.items()

    def _days(self, place: Place) -> dict[int | None, str | None]:
        if place.topic is None:
            return {}
        days: dict[int | None, str | None] = {}
        with contained(place.path, self.failed):
            for segment in list_partition(place.path).segments:
                with OpenSegment(segment) as opened:
                    latest, _ = opened.largest_timestamp(recovered=segment.is_active)
                # As retention does: `LogSegment.largestTimestamp` falls back to the time of the
                # file.
                latest = segment.log.modified_timestamp if latest < 0 else latest
                days[segment.base_offset] = _day(latest, self.zone)
        return days


def disk_usage(
    *paths: str | os.PathLike[str],
    by: SplitBy | str = SplitBy.TOPIC,
    forecast: Forecast | None = None,
    zone: tzinfo = UTC,
    listener: Listener | None = None,
    progress: Callable[[int, int], object] = lambda *_: None,
) -> Report:
    """Return what uses space below some paths: blocks on disk, as `du` counts them.

    Args:
        paths: log directories, parents of these, partition directories, or files.
        by: how the sum is split.
        forecast: also measure growth, and predict what retention frees and when a disk is full.
        zone: where days begin and end.
        listener: receives everything reported besides the results; it may let the run continue
            after a failure.
        progress: called with the number of partitions that a forecast has measured, and of all.

    Raises:
        KafkaLogError: a path cannot be opened, or something in it cannot be read.

    Cost:
        A `stat` per file. By day, and with a forecast, also a few reads per segment.
    """
    hears = listener or Listener()
    tops = look_at_targets(paths, hears.hear)
    for _ in range(TRIES_MAX):
        sums = _Sums(SplitBy(by), zone, hears.hear)
        walk = Walk(hears.hear)
        for place in walk.places(tops):
            sums.add(place)
        before, tops = tops, of_one_moment(tops, look_at)
        if tops == before:  # else a partition may have moved past the walk
            break
    report = Report(links=walk.links)
    if forecast is not None:
        targets = open_targets([top.path for top in tops], hear=hears.hear)
        ahead = look_ahead(
            targets,
            now_ms=forecast.now_ms,
            until_ms=forecast.until_ms,
            configs=forecast.configs,
            listener=hears,
            progress=progress,
        )
        for outlook in ahead.outlooks:
            if sums.by in (SplitBy.TOPIC, SplitBy.PARTITION):
                sums.add_outlook(outlook.log_dir, outlook.path, outlook)
            report.total.add(outlook.usage)
        report.over = sorted(ahead.over, key=lambda one: -one.over_bytes)
        report.disks = ahead.disks(sums.of_log_dirs, forecast.disk_bytes)
    for share in sums.shares.values():
        _add_blocks(report.total, share.usage)
    report.shares = _sorted(list(sums.shares.values()), sums.by)
    return report


def _add_blocks(total: Usage, usage: Usage) -> None:
    """Add what was measured on disk; the outlook is added once, however the sum is split."""
    total.add(Usage(usage.disk_bytes, usage.size_bytes, usage.leftover_bytes, copies=usage.copies))


def _sorted(shares: list[Share], by: SplitBy) -> list[Share]:
    if by == SplitBy.DAY:
        return sorted(shares, key=lambda one: (one.name is not None, one.name or ""))
    return sorted(shares, key=lambda one: (-one.usage.disk_bytes, one.name or ""))


def _kind(entry: Entry, name: FileName, place: Place, *, is_dead: bool) -> str:
    """Return what an entry is: the kind of a live file, else the state that makes it a leftover."""
    if is_dead:
        return str(place.state or DirectoryState.DELETE)
    if name.state != FileState.LIVE:
        return str(name.state)
    if name.kind == FileKind.UNKNOWN and not entry.name:
        return "directory"
    return str(name.kind)


def _parsed(name: str, *, with_offset: bool) -> FileName:
    """Parse the name of an entry; without its offset it is known from others of its kind."""
    name = name.rpartition("/")[2]
    if with_offset:
        return parse_file_name(name)
    offset = name[:_DIGITS]
    is_numbered = len(offset) == _DIGITS and offset.isascii() and offset.isdigit()
    return parse_file_name(_ZEROS + name[_DIGITS:] if is_numbered else name)


def _day(timestamp_ms: int, zone: tzinfo) -> str | None:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, zone).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return None
