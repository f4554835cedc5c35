"""Which files a plan is about, so that a later reader, or one on another machine, reads no others.

At the same path, a worker of a cluster can have another broker's disk or an older copy of the same
disk. Log directories and topics have ids (`MetaProperties`, `PartitionMetadataFile`). A copy has
the same ids but other files. The log of a living broker differs too once it is appended to,
compacted, moved or deleted; then the timestamps on the disk show that it changed after the plan.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from formats import file_names
from formats.file_names import partition_of
from formats.late_classes import dataclass
from kafkalog.errors import DataError, UnreadableError
from kafkalog.files.log_dir import PartitionDir, list_partition
from kafkalog.files.text_files import read_leader_epochs, read_properties, read_topic_id
from kafkalog.io.codecs import crc32c
from kafkalog.io.paths import file_system, uris
from kafkalog.io.paths.source import Source
from kafkalog.log.living import listed_again

if TYPE_CHECKING:
    from collections.abc import Mapping


HINT: Final = "Every worker must see the same files as the driver under the same path."
_IDS: Final = ("cluster.id", "node.id", "broker.id", "directory.id")
_TOPIC_ID: Final = "topic id"
_OF_LOG_DIR: Final = (*_IDS, file_names.META_PROPERTIES)
_CLOCK_SLACK_MS: Final = 20  # file systems take times from a coarser clock
_SAMPLE_SIZE: Final = 64  # covers the header of a batch, including its checksum
_ZEROS: Final = -1  # space that a broker may still fill
_UNREADABLE: Final = -2


@dataclass(frozen=True, slots=True)
class Claim:
    """A partition directory, or a part of one of its files, as a planner has found it.

    Attributes:
        directory: absolute path of the partition.
        ids: names and values of the ids of the cluster, the node, the directory and the topic.
        last_log: name and size of the last log; None without a log.
        closed_logs: checksum of the names and sizes of the logs before it.
        at_ms: when that was. A file that the disk dates later was changed by a living broker.
        path: the file, None if the claim is of the directory alone.
        size_bytes: size of the file.
        start, end: bounds of the part.
        first: checksum of the first bytes of the part; negative if they prove nothing.
        last: checksum of its last bytes, likewise.
        log_dirs: the other log directories of the run, to which the partition may move.
        lineage: the leader epochs of the log, each with the offset where it starts.
    """

    directory: str
    ids: tuple[tuple[str, str], ...]
    last_log: tuple[str, int] | None
    closed_logs: int
    at_ms: int
    path: str | None = None
    size_bytes: int = 0
    start: int = 0
    end: int = 0
    first: int = _ZEROS
    last: int = _ZEROS
    log_dirs: tuple[str, ...] = ()
    lineage: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, partition: PartitionDir, at_ms: int) -> Self | None:
        """Record a partition directory; None in a store or a tier, the same from every host.

        Args:
            partition: the directory as it was listed.
            at_ms: a time before it was listed.
        """
        directory = file_system.absolute(partition.path)
        if uris.is_object(directory) or partition.is_remote:
            return None
        last_log = None
        if partition.segments:
            log = partition.segments[-1].log
            last_log = (os.path.basename(log.path), log.size_bytes)
        return cls(
            directory, ids_of(directory), last_log, _closed_logs(partition, last_log), at_ms,
            log_dirs=tuple(map(file_system.absolute, partition.log_dirs)),
            lineage=_lineage_of(directory),
        )  # fmt: skip

    def of_part(self, source: Source, start: int, end: int) -> Self:
        """Record a part of a file in the directory, through a source that has it open.

        A view that cuts a log off opens it as shorter than the file is.
        """
        first, last = _samples(source, start, end)
        return replace(
            self, path=source.path, size_bytes=source.file_bytes, start=start, end=end,
            first=first, last=last,
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return its fields, from which `from_json` rebuilds it."""
        return {name: getattr(self, name) for name in self.__slots__}  # `asdict` copies each tuple

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Restore a claim from what `as_json` returned, possibly by way of JSON."""
        last = fields["last_log"]
        tuples = {
            "ids": tuple((name, value) for name, value in fields["ids"]),
            "last_log": None if last is None else tuple(last),
            "log_dirs": tuple(fields.get("log_dirs", ())),
            "lineage": tuple((epoch, start) for epoch, start in fields.get("lineage", ())),
        }
        return cls(**{**fields, **tuples})

    def has_same_records(self, partition: PartitionDir, first: int, end: int) -> bool:
        """Return whether a log has some offsets from the leader epochs that they had."""
        now = _lineage_of(partition.path)
        return not (now and self.lineage) or (
            _within(now, first, end) == _within(self.lineage, first, end)
        )

    @property
    def is_to_end_of_log(self) -> bool:
        """Whether the part ended where the last log did."""
        return self.path is not None and self._is_last(self.path) and self.end == self.size_bytes

    def listed_again(self, directory: str) -> PartitionDir:
        """List the partition, or a copy of it, wherever it is now. Raises as `listed_again`."""
        name = partition_of(directory)
        return listed_again(
            PartitionDir(
                directory, name, (), log_dirs=self.log_dirs, topic_id=dict(self.ids).get(_TOPIC_ID)
            )
        )

    def require(self) -> bool:
        """Check that this host has the claimed files.

        Returns:
            True if they are unchanged, False if a living broker has changed, moved or deleted them
            since: then `listed_again` looks for the partition.

        Raises:
            UnreadableError: there are other files here, or none.
        """
        difference = self._difference()
        if difference is not None and not self._was_changed_since():
            path = self.path or self.directory
            raise UnreadableError(other_files(f"{difference}."), path=path, hint=HINT)
        return difference is None

    def _difference(self) -> str | None:
        """Describe how the files here differ from the claimed ones; None if they do not."""
        ids = ids_of(self.directory)
        if ids != self.ids:
            return _difference(dict(self.ids), dict(ids))
        return self._changed_last_log() or self._changed_file()

    def _changed_last_log(self) -> str | None:
        """Describe how the last log differs; it is allowed to grow, and nothing else."""
        if self.last_log is None:
            return None
        name, size = self.last_log
        found = _size_of(os.path.join(self.directory, name))
        if found is None:
            return f"{name} is missing"
        return f"{name} has {found} bytes instead of {size}" if found < size else None

    def _changed_file(self) -> str | None:
        """Describe how the part of the file differs.

        For a claim of a directory alone, compare its closed segments.
        """
        if self.path is None:
            closed = _closed_logs(list_partition(self.directory), self.last_log)
            return None if closed == self.closed_logs else "its segments have other sizes"
        name = os.path.basename(self.path)
        size = _size_of(self.path)
        if size is None:
            return f"{name} is missing"
        if size < self.size_bytes or (size > self.size_bytes and not self._is_last(name)):
            return f"{name} has {size} bytes instead of {self.size_bytes}"
        with Source(self.path) as source:
            found = _samples(source, self.start, self.end)
        pairs = zip((self.first, self.last), found, strict=True)
        same = all(seen < 0 or now in (seen, _UNREADABLE) for seen, now in pairs)
        return None if same else f"{name} has other records"

    def _is_last(self, log: str) -> bool:
        """Return whether it is the log that a broker appends to."""
        return self.last_log is not None and os.path.basename(log) == self.last_log[0]

    def _was_changed_since(self) -> bool:
        """Return whether these are the claimed files, as a broker has left them since.

        That is, the log directory is the same one, and the disk says that something in the
        partition is newer than the claim; or, if the partition is not in it any more, something in
        the log directory is.
        """
        log_dir = os.path.dirname(self.directory)
        if log_dir_ids(log_dir) != {n: value for n, value in self.ids if n in _OF_LOG_DIR}:
            return False
        log = None if self.last_log is None else self.last_log[0]
        if any(self._is_later(one) for one in (self.path, log, self.directory) if one is not None):
            return True
        is_here = file_system.is_directory(self.directory) and ids_of(self.directory) == self.ids
        return not is_here and self._is_later(log_dir)

    def _is_later(self, path: str) -> bool:
        """Return whether the disk dates a change of a file, or of one of the directory, later."""
        with suppress(OSError, ValueError):
            status = file_system.stat(os.path.join(self.directory, path))
            return status.st_ctime_ns // 1_000_000 >= self.at_ms - _CLOCK_SLACK_MS
        return False


def other_files(reason: str) -> str:
    """Return the message that this host does not have the files of a plan."""
    from socket import gethostname

    return f"The worker on {gethostname()} has other files here than the driver: {reason}"


def _lineage_of(directory: str) -> tuple[tuple[int, int], ...]:
    with suppress(DataError):
        found = read_leader_epochs(os.path.join(directory, file_names.LEADER_EPOCHS))
        return tuple((one.leader_epoch, one.start_offset) for one in found)
    return ()


def _within(lineage: tuple[tuple[int, int], ...], first: int, end: int) -> list[tuple[int, int]]:
    """Return the leader epochs between two offsets."""
    ends = [start for _, start in lineage[1:]] + [end]
    pairs = zip(lineage, ends, strict=True)
    return [
        (epoch, max(start, first)) for (epoch, start), last in pairs if start < end and last > first
    ]


def _closed_logs(partition: PartitionDir, last_log: tuple[str, int] | None) -> int:
    """Compute a checksum of the names and sizes of the logs before the last claimed one."""
    logs = [
        (os.path.basename(segment.log.path), segment.log.size_bytes)
        for segment in partition.segments
    ]
    before = "" if last_log is None else last_log[0]
    lines = [f"{name} {size}\n" for name, size in logs if name < before]
    return crc32c("".join(lines).encode())


def ids_of(directory: str) -> tuple[tuple[str, str], ...]:
    """Read the ids of a log directory and a topic; an unreadable file is listed with its error."""
    ids = log_dir_ids(os.path.dirname(directory))
    try:
        ids[_TOPIC_ID] = read_topic_id(os.path.join(directory, file_names.PARTITION_METADATA))
    except DataError as error:
        ids[file_names.PARTITION_METADATA] = error.reference
    return tuple(ids.items())


def log_dir_ids(log_dir: str) -> dict[str, str]:
    """Read the ids of a log directory."""
    try:
        properties = read_properties(os.path.join(log_dir, file_names.META_PROPERTIES))
    except DataError as error:
        return {file_names.META_PROPERTIES: error.reference}
    return {name: properties[name] for name in _IDS if name in properties}


def _difference(seen: dict[str, str], found: dict[str, str]) -> str:
    names = [name for name in {**seen, **found} if seen.get(name) != found.get(name)]
    return ", ".join(
        f"{name} is {found.get(name, 'missing')} instead of {seen.get(name, 'missing')}"
        for name in names
    )


def _size_of(path: str) -> int | None:
    """Return the size of a file; None if it does not exist or no file can have its name."""
    try:
        return file_system.stat(path).st_size
    except (OSError, ValueError):
        return None


def _samples(source: Source, start: int, end: int) -> tuple[int, int]:
    """Compute the checksums of the first and the last bytes of a part."""
    size = min(_SAMPLE_SIZE, end - start)
    return _sample(source, start, size), _sample(source, end - size, size)


def _sample(source: Source, position: int, size: int) -> int:
    """Compute the checksum of some bytes; a negative number stands for no checksum."""
    try:
        data = source.read(position, size)
    except DataError:
        return _UNREADABLE  # a reader of the whole part reports it
    return crc32c(data) if any(data) else _ZEROS
