"""New files of a partition until they are put in place; the split of a segment that is too wide.

Follows `LocalLog.splitOverflowedSegment` and `replaceSegments` of Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from formats import file_names
from formats.file_names import segment_file, staged_name
from kafkalog.change.repair.model import index_data, is_left_over
from kafkalog.change.repair.plan import is_same
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source

if TYPE_CHECKING:
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.io.storage import Changes
    from kafkalog.node.recovery import SegmentPart, SplitSegment, StartConfig


_COPIED_AT_ONCE = 1 << 20


class Staging:
    """Takes the files that a prediction reports and writes those that differ on disk.

    Each is synced. Until they are put in place nothing else has changed; after a crash the next
    repair removes them, and brokers ignore them.

    Args:
        changes: changes to the partition directory.
        partition: the directory as it is.
        suffixes: suffixes of the files to write.

    Attributes:
        names: names of the written files by ordinal among the reported ones; empty files of a new
            segment, which are not reported, by their names.
    """

    def __init__(
        self, changes: Changes, partition: PartitionDir, suffixes: tuple[str, ...] = ("",)
    ) -> None:
        self.names: dict[int | str, str] = {}
        self._changes = changes
        self._suffixes = suffixes
        self._count = 0
        self._written = 0
        self._latest: dict[str, int] = {}  # the latest number under which a name was reported
        there = [entry.path for entry in partition.files if entry.error is None]
        self._like = next((path for path in there if path.endswith(file_names.LOG)), None)
        self._like = self._like or next(iter(there), None)

    def __call__(self, name: str, data: bytes) -> None:
        """Add a file; it supersedes an earlier one of the same name."""
        number, self._count = self._count, self._count + 1
        # A start may write a file several times (snapshots, epochs); only the last one is wanted.
        self._drop(self._latest.pop(name, None))
        # What is equal stays as it is, with its time.
        if not name.endswith(self._suffixes) or is_same(self._changes.path(name), data):
            return
        self._write(number, name, data)
        self._latest[name] = number

    def make_empty(self, name: str) -> None:
        """Add an empty file that was not reported."""
        self._write(name, name, b"")

    def shorten(self, name: str, size_bytes: int) -> None:
        """Put a copy of the beginning of a file in its place."""
        path = self._changes.path(name)
        staged = self._next_name()
        with Source(path) as source, self._changes.create(staged, like=path) as file:
            starts = range(0, size_bytes, _COPIED_AT_ONCE)
            sizes = (min(_COPIED_AT_ONCE, size_bytes - start) for start in starts)
            file.writelines(source.read(*piece) for piece in zip(starts, sizes, strict=True))
        self._changes.rename(staged, name)

    def _next_name(self) -> str:
        self._written += 1
        return staged_name(self._written)

    def _write(self, key: int | str, name: str, data: bytes) -> None:
        path = self._changes.path(name)
        staged = self._next_name()
        with self._changes.create(
            staged, like=path if file_system.is_there(path) else self._like
        ) as file:
            file.write(data)
        self.names[key] = staged

    def discard(self) -> None:
        """Remove the files that have not been put in place."""
        for key in list(self.names):
            self._drop(key)

    def put(self, number: int | None, name: str) -> bool:
        """Put a file in place if it was written; return whether it was."""
        staged = self.names.pop(name if number is None else number, None)
        if staged is not None:
            self._changes.rename(staged, name)
        return staged is not None

    def _drop(self, key: int | str | None) -> None:
        if key is not None and key in self.names:
            self._changes.remove(self.names.pop(key), missing_ok=True)


def remove_left_over(changes: Changes, partition: PartitionDir) -> None:
    """Remove the leftovers of a killed repair."""
    for entry in partition.files:
        if is_left_over(entry.name.name):
            changes.remove(entry.name.name)


_SUFFIXES = (file_names.LOG, file_names.OFFSET_INDEX, file_names.TIME_INDEX)


def write_parts(changes: Changes, action: SplitSegment, config: StartConfig) -> None:
    """Write the parts of a segment, up to the point where their files are called `.swap`.

    A start, or `tidy`, then replaces the segment by them. After a crash there are `.cleaned` files,
    which a start rolls back to the segment, or only `.swap` files, which it completes to the parts:
    these get their names from the last part to the first, because a part that is still called
    `.cleaned` rolls back those after it.
    """
    log = changes.path(segment_file(action.base_offset, file_names.LOG))
    # LocalLog.splitOverflowedSegment sets the time of the old log: retention goes by it.
    modified_ms = file_system.status(log).st_mtime_ns // 1_000_000
    with Source(log) as source:
        for part in action.parts:
            _write(changes, source, part, config, modified_ms)
    # All parts durable as `.cleaned` before the first becomes `.swap`: from a mix a start rolls
    # back.
    changes.sync_directory()
    for part in sorted(action.parts, key=lambda part: part.base_offset, reverse=True):
        for suffix in _SUFFIXES:
            name = segment_file(part.base_offset, suffix)
            changes.rename(name + file_names.CLEANED, name + file_names.SWAP)
        # One part after the other, so that a crash cannot keep a later rename without an earlier
        # one.
        changes.sync_directory()


def _write(
    changes: Changes, source: Source, part: SegmentPart, config: StartConfig, modified_ms: int
) -> None:
    data = index_data(source, part.start, part.end, part.base_offset, config)
    for suffix in _SUFFIXES:
        name = segment_file(part.base_offset, suffix) + file_names.CLEANED
        with changes.create(name, like=source.path, modified_timestamp=modified_ms) as file:
            if suffix == file_names.LOG:
                _copy(source, part, file)
            else:
                file.write(data[suffix])


def _copy(source: Source, part: SegmentPart, file: BinaryIO) -> None:
    starts = range(part.start, part.end, _COPIED_AT_ONCE)
    sizes = (min(_COPIED_AT_ONCE, part.end - start) for start in starts)
    file.writelines(source.read(*piece) for piece in zip(starts, sizes, strict=True))
