"""What a planner saw at a path, so that a task elsewhere refuses to read anything else.

Workers of a cluster can have another broker's disk, or an older copy of the same one, at the same
path. Log directories have ids (`MetaProperties`), topics have, too (`PartitionMetadataFile`). A
copy has the same ids: it differs in its files. So does the log of a living broker that was appended
to, compacted or deleted from since; then the disk itself says that it changed after the plan.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self

from formats import file_names
from kafkalog.checksums import crc32c
from kafkalog.errors import KafkaLogError, UnreadableError
from kafkalog.log_dir import list_partition
from kafkalog.metadata_files import read_properties, read_topic_id
from kafkalog.paths import file_system, uris
from kafkalog.paths.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.log_dir import PartitionDir

HINT: Final = "Every worker must see the same files as the driver under the same path."
_IDS: Final = ("cluster.id", "node.id", "broker.id", "directory.id")
_OF_LOG_DIR: Final = (*_IDS, file_names.META_PROPERTIES)
_CLOCK_SLACK_MS: Final = 20  # file systems note times by a coarser clock
_SAMPLE_SIZE: Final = 64  # holds the header of a batch, with its checksum
_ZEROS: Final = -1  # room that a broker may fill
_UNREADABLE: Final = -2


@dataclass(frozen=True, slots=True)
class Sighting:
    """A partition directory, or a part of one of its files, as a planner saw it.

    Attributes:
        directory: of the partition, absolute.
        ids: those of the cluster, the node, the directory and the topic, as name and value.
        last_log: name of the last log, and its size; None without a log.
        closed_logs: checksum of the names and sizes of the logs before it.
        at_ms: when it was seen. What the disk says it changed later was changed by a living broker.
        path: the file, None where the sighting is of the directory alone.
        size_bytes: of the file.
        start, end: of the part.
        first: checksum of the first bytes of the part, negative where they tell nothing.
        last: that of its last bytes.
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

    @classmethod
    def of(cls, partition: PartitionDir, at_ms: int) -> Self | None:
        """Record a partition directory; None in an object store, which is the same from everywhere.

        Args:
            partition: as it was listed.
            at_ms: a time before it was listed.
        """
        directory = file_system.absolute(partition.path)
        if uris.is_object(directory):
            return None
        last_log = None
        if partition.segments:
            log = partition.segments[-1].log
            last_log = (log.name.name, log.size_bytes)
        return cls(directory, ids_of(directory), last_log, _closed_logs(partition, last_log), at_ms)

    def of_part(self, source: Source, start: int, end: int) -> Self:
        """See a part of a file of the directory; the source is open on it.

        A view that cuts a log off opens it as shorter than the file is.
        """
        first, last = _samples(source, start, end)
        return replace(
            self, path=source.path, size_bytes=source.file_bytes, start=start, end=end,
            first=first, last=last,
        )  # fmt: skip

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """What `asdict` gave, also by way of JSON."""
        ids = tuple((name, value) for name, value in fields["ids"])
        last = fields["last_log"]
        return cls(**{**fields, "ids": ids, "last_log": None if last is None else tuple(last)})

    def require_same(self) -> bool:
        """Look whether the same is here.

        Returns:
            Whether it is unchanged; else a living broker has changed it since.

        Raises:
            UnreadableError: something else is here, or nothing.
        """
        reason = self.other_disk()
        if reason is not None:
            raise UnreadableError(
                f"The worker on {socket.gethostname()} has other files here than the driver: "
                f"{reason}.",
                path=self.path or self.directory,
                hint=HINT,
            )
        return self._change() is None

    def other_disk(self) -> str | None:
        """Say what shows that something else is here; None where the same is, or what became of it.

        A living broker changes files as well: then the disk says that it was changed since.
        """
        if self._was_deleted_since():
            return None
        ids = ids_of(self.directory)
        if ids != self.ids:
            if self._was_deleted_since():  # while its ids were read
                return None
            return _difference(dict(self.ids), dict(ids))
        change = self._change()
        return None if change is None or self._was_changed_since() else change

    def _change(self) -> str | None:
        return self._changed_last_log() or self._changed_file()

    def _changed_last_log(self) -> str | None:
        """Say what is wrong with the last log: it can grow, and nothing else."""
        if self.last_log is None:
            return None
        name, size = self.last_log
        found = _size_of(os.path.join(self.directory, name))
        if found is None:
            return f"{name} is missing"
        return f"{name} has {found} bytes instead of {size}" if found < size else None

    def _changed_file(self) -> str | None:
        """Say what is wrong with the part of the file: what was seen must still be there.

        Of a directory: what is wrong with its closed segments.
        """
        if self.path is None:
            closed = _closed_logs(list_partition(self.directory), self.last_log)
            return None if closed == self.closed_logs else "its segments have other sizes"
        name = os.path.basename(self.path)
        size = _size_of(self.path)
        if size is None:
            return f"{name} is missing"
        grows = self.last_log is not None and name == self.last_log[0]
        if size < self.size_bytes or (size > self.size_bytes and not grows):
            return f"{name} has {size} bytes instead of {self.size_bytes}"
        with Source(self.path) as source:
            found = _samples(source, self.start, self.end)
        pairs = zip((self.first, self.last), found, strict=True)
        same = all(seen < 0 or now in (seen, _UNREADABLE) for seen, now in pairs)
        return None if same else f"{name} has other records"

    def _was_deleted_since(self) -> bool:
        """Return whether the partition directory is missing in the log directory where it was.

        The disk says that something was renamed or removed there after the sighting.
        """
        log_dir = os.path.dirname(self.directory)
        if os.path.isdir(self.directory) or log_dir_ids(log_dir) != self._log_dir_ids():
            return False
        with suppress(OSError, ValueError):
            return self._is_later(os.stat(log_dir))
        return False

    def _log_dir_ids(self) -> dict[str, str]:
        return {name: value for name, value in self.ids if name in _OF_LOG_DIR}

    def _is_later(self, status: os.stat_result) -> bool:
        return status.st_ctime_ns // 1_000_000 >= self.at_ms - _CLOCK_SLACK_MS

    def _was_changed_since(self) -> bool:
        """Return whether the file or its directory was changed after the sighting."""
        for path in (self.path, self.last_log and self.last_log[0], ""):
            with suppress(OSError, ValueError):
                if self._is_later(os.stat(os.path.join(self.directory, path or ""))):
                    return True
        return False


def _closed_logs(partition: PartitionDir, last_log: tuple[str, int] | None) -> int:
    """Compute a checksum of the names and sizes of the logs before the last that was seen."""
    logs = [segment.log for segment in partition.segments]
    before = "" if last_log is None else last_log[0]
    lines = [f"{log.name.name} {log.size_bytes}\n" for log in logs if log.name.name < before]
    return crc32c("".join(lines).encode())


def now_ms() -> int:
    """Return the time for sightings of what is listed after this call."""
    return time.time_ns() // 1_000_000


def ids_of(directory: str) -> tuple[tuple[str, str], ...]:
    """Read what tells log directories and topics apart; a file that is malformed counts as such."""
    ids = log_dir_ids(os.path.dirname(directory))
    try:
        ids["topic id"] = read_topic_id(os.path.join(directory, file_names.PARTITION_METADATA))
    except KafkaLogError as error:
        ids[file_names.PARTITION_METADATA] = error.reference
    return tuple(ids.items())


def log_dir_ids(log_dir: str) -> dict[str, str]:
    """Read what tells log directories apart."""
    try:
        properties = read_properties(os.path.join(log_dir, file_names.META_PROPERTIES))
    except KafkaLogError as error:
        return {file_names.META_PROPERTIES: error.reference}
    return {name: properties[name] for name in _IDS if name in properties}


def _difference(seen: dict[str, str], found: dict[str, str]) -> str:
    names = [name for name in {**seen, **found} if seen.get(name) != found.get(name)]
    return ", ".join(
        f"{name} is {found.get(name, 'missing')} instead of {seen.get(name, 'missing')}"
        for name in names
    )


def _size_of(path: str) -> int | None:
    """Size of a file; None where there is none, also of a name that no file can have."""
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return None


def _samples(source: Source, start: int, end: int) -> tuple[int, int]:
    """Compute the checksums of the first and the last bytes of a part."""
    size = min(_SAMPLE_SIZE, end - start)
    return _sample(source, start, size), _sample(source, end - size, size)


def _sample(source: Source, position: int, size: int) -> int:
    """Compute a checksum; a negative number says that there is none."""
    try:
        data = source.read(position, size)
    except KafkaLogError:
        return _UNREADABLE  # whoever reads all of it says so
    return crc32c(data) if any(data) else _ZEROS
