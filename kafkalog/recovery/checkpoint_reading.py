"""Text checkpoints as a start reads them, down to the exception at the first thing that is wrong.

Follows `CheckpointFile.CheckpointReadBuffer`, `LeaderEpochCheckpointFile` and
`OffsetCheckpointFile` of Kafka 4.3.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalog.checkpoints import java_number
from kafkalog.java_text import java_lines
from kafkalog.recovery.model import StartRefusedError
from kafkalog.source import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        name: what messages call it.
        field_count: how many fields an entry has.

    Raises:
        StartRefusedError: `KafkaStorageException` of an I/O error, which to Kafka is everything
            that is wrong but the numbers of an entry and a negative number of entries.
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
