"""A partition directory as a start sees and changes it: pending changes, small files.

Nothing is written: each change is an `Action`, and later reads see its effect. File names are read
as `LogFileUtils` of Kafka 4.3 reads them, which is laxer than the names Kafka gives.

Follows `CheckpointFile.CheckpointReadBuffer`, `LeaderEpochCheckpointFile` and
`OffsetCheckpointFile` of Kafka 4.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from formats import file_names
from formats.constants import INT64_MAX
from kafkalog.checkpoints import java_number
from kafkalog.metadata_files import NoTopicIdError, read_topic_id
from kafkalog.paths.source import Source, read_file
from kafkalog.payloads.java_text import java_lines
from kafkalog.recovery.model import RemoveFile, RenameFile, StartRefusedError, WriteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.log_dir import PartitionDir
    from kafkalog.model import ProducerState
    from kafkalog.recovery.model import Action


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds: bytes `start` to `end` of a file on disk, or made bytes.

    Made bytes that nobody will read again are not kept: `data` and `path` are None. `told` is the
    ordinal of the reported file that they are; None for none, and then they are empty.
    """

    path: str | None
    start: int
    end: int
    data: bytes | None = None
    told: int | None = None

    @property
    def size_bytes(self) -> int:
        """Length of the file."""
        return self.end - self.start

    def read(self, position: int, size: int) -> bytes:
        """Bytes from `position`, fewer where the file ends."""
        if self.path is None:
            assert self.data is not None, "only what is kept is read"
            return self.data[position : position + size]
        with Source(self.path) as source:
            wanted = max(min(size, self.size_bytes - position), 0)
            return source.read_exactly(self.start + position, wanted)


class Directory:
    """The files by name, the changes to them, and the callback that receives the bytes written.

    Args:
        partition: the directory on disk.
        tell: called with the name and bytes of each file that would be written; may be None.
    """

    def __init__(
        self, partition: PartitionDir, tell: Callable[[str, bytes], None] | None = None
    ) -> None:
        self.actions: list[Action] = []
        self.producer_snapshots: dict[str, tuple[ProducerState, ...]] = {}
        self._tell = tell
        self._told_count = 0
        self._snapshots: dict[int, str] | None = None  # as `snapshots`; None: list again
        self.contents = {
            entry.name.name: Content(entry.path, 0, entry.size_bytes)
            for entry in partition.files
            if entry.error is None
        }

    def __contains__(self, name: str) -> bool:
        return name in self.contents

    def names(self, *suffixes: str) -> list[str]:
        """The names that are there, sorted; those with one of the suffixes where some are given."""
        return sorted(
            name for name in self.contents if not suffixes or name.endswith(tuple(suffixes))
        )

    def snapshots(self) -> dict[int, str]:
        """Return the producer snapshots by offset, sorted by name; of equal offsets the last name.

        Kept up to date: a start asks for them at each segment, of which there may be thousands.

        Raises:
            StartRefusedError: a file with the suffix of a snapshot has no number for a name.
        """
        if self._snapshots is not None:
            return dict(self._snapshots)
        names = self.names(file_names.SNAPSHOT)
        found = {offset_from_name(name): name for name in names}
        if len(found) == len(names):
            self._snapshots = dict(found)
        return found

    def _forget_snapshot(self, name: str) -> None:
        """A file is gone."""
        if self._snapshots is not None and name.endswith(file_names.SNAPSHOT):
            del self._snapshots[offset_from_name(name)]

    def _note_snapshot(self, name: str) -> None:
        """Append a new snapshot if it comes after all listed ones; else have them listed again."""
        if self._snapshots is None or not name.endswith(file_names.SNAPSHOT):
            return
        offset = offset_from_name(name)
        if offset not in self._snapshots and name > max(self._snapshots.values(), default=""):
            self._snapshots[offset] = name
        else:
            self._snapshots = None

    def remove(self, name: str, why: str, *, routine: bool = False) -> None:
        """Delete a file, if present."""
        if self.contents.pop(name, None) is not None:
            self.producer_snapshots.pop(name, None)
            self._forget_snapshot(name)
            self.actions.append(RemoveFile(name, why, routine))

    def rename(self, name: str, new_name: str, why: str) -> None:
        """Give a file another name."""
        self.contents[new_name] = self.contents.pop(name)
        if name.endswith(file_names.SNAPSHOT) or new_name.endswith(file_names.SNAPSHOT):
            self._snapshots = None
        self.actions.append(RenameFile(name, new_name, why))

    def write(
        self, name: str, data: bytes, why: str, *, routine: bool = False, keep: bool = False
    ) -> None:
        """Write a file; its bytes are kept only for those who will read them."""
        if name not in self.contents:
            self._note_snapshot(name)
        self.actions.append(WriteFile(name, len(data), why, routine))
        self.make(name, data, keep=keep)

    def make(self, name: str, data: bytes, *, keep: bool = False) -> None:
        """Put in place what the last action writes, and report its content."""
        kept = data if keep else None
        self.contents[name] = Content(None, 0, len(data), kept, self._told_count)
        self._told_count += 1
        if self._tell is not None:
            self._tell(name, data)


def segment_file(base_offset: int, suffix: str) -> str:
    """Name of a segment's file or of a snapshot; the number has 20 digits or more."""
    return f"{base_offset:021d}{suffix}" if base_offset < 0 else f"{base_offset:020d}{suffix}"


def offset_from_name(name: str) -> int:
    """Return the number before the first dot, as `Long.parseLong` reads it.

    Raises:
        StartRefusedError: it is missing.
    """
    text = name.partition(".")[0]
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isdecimal() and len(digits) < 256 and -INT64_MAX - 1 <= int(text) <= INT64_MAX:
        return int(text)
    raise StartRefusedError("NumberFormatException", f'For input string: "{text}" (file {name})')


def check_partition_metadata(directory: Directory) -> None:
    """Raise `StartRefusedError` where Kafka cannot read partition.metadata."""
    content = directory.contents.get(file_names.PARTITION_METADATA)
    if content is None or content.path is None:
        return
    try:
        read_topic_id(content.path)
    except NoTopicIdError as error:
        raise StartRefusedError(
            error.thrown,
            "Error while reading partition metadata file "
            f"{file_names.PARTITION_METADATA}: {error.message}",
            is_storage=error.thrown == "KafkaStorageException",
        ) from error


_VERSION = 0
_HEADER_LINES = 2
_CAPACITY_MAX = (1 << 31) - 3  # of a Java array, which is made before an entry is read
_WHITE_SPACE = re.compile(r"[ \t\v\f]+")


def checkpoint_lines(
    path: str, name: str, field_count: int
) -> Iterator[tuple[list[str], int, int]]:
    """Yield the fields of each entry, and the last two of them as numbers, of 32 and 64 bits.

    Args:
        path: of the file.
        name: its name in messages.
        field_count: how many fields an entry has.

    Raises:
        StartRefusedError: `KafkaStorageException` of an I/O error, which to Kafka is every defect
            but the numbers of an entry and a negative number of entries.
    """
    lines = _lines(path, name)
    version = next(lines, None)
    if version is None:
        return
    if java_number(version, 32) != _VERSION:
        raise _io_error(name, "the first line is not a version that Kafka 4.3 knows")
    second = next(lines, None)
    if second is None:
        return
    expected = java_number(second, 32)
    if expected is None:
        raise _io_error(name, "the second line is not a number of entries")
    if expected > _CAPACITY_MAX:
        raise StartRefusedError("OutOfMemoryError", "Requested array size exceeds VM limit")
    if expected < 0:
        raise StartRefusedError("IllegalArgumentException", f"Illegal Capacity: {expected}")
    found = 0
    for line in lines:
        found += 1
        fields = _WHITE_SPACE.split(line.rstrip(" \t\v\f"))  # an empty first field counts in Java
        if len(fields) != field_count:
            place = f"line {found + _HEADER_LINES}"
            raise _io_error(name, f"{place} has {len(fields)} fields, not {field_count}")
        first, last = java_number(fields[-2], 32), java_number(fields[-1], 64)
        if first is None or last is None:
            raise StartRefusedError(
                "NumberFormatException", f'For input string in {name}: "{line}"'
            )
        yield fields, first, last
    if found != expected:
        raise _io_error(name, f"the second line says {expected} entries, the file has {found}")


def _lines(path: str, name: str) -> Iterator[str]:
    """Yield the lines of a file, and raise where Kafka's reader throws."""
    try:
        yield from java_lines(read_file(path))
    except UnicodeDecodeError as error:
        raise _io_error(name, "it is not UTF-8") from error


def _io_error(name: str, detail: str) -> StartRefusedError:
    return StartRefusedError(
        "KafkaStorageException",
        f"Error while reading checkpoint file {name}: {detail}",
        is_storage=True,
    )
