"""Text checkpoints: the offset checkpoints of a log directory and leader-epoch-checkpoint.

Follows `CheckpointFile`, `OffsetCheckpointFile` and `LeaderEpochCheckpointFile` of Kafka 4.3: the
same files are accepted and the same ones rejected.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from kafkalog.errors import CorruptDataError, NotFoundError
from kafkalog.model import CheckpointEntry, EpochEntry
from kafkalog.names import OFFSET_CHECKPOINTS
from kafkalog.parsing import parse
from kafkalog.paths import file_system
from kafkalog.paths.reading_errors import reading_error
from kafkalog.paths.source import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_VERSION = 0
_SIZE_MAX = 1 << 24  # enough for several hundred thousand partitions
_AT_ONCE = 1 << 16
_LINE_END = re.compile(rb"\n|\r(?!\n)")


def read_offset_checkpoint(path: str) -> list[CheckpointEntry]:
    """Return the entries of an offset checkpoint in file order.

    Raises:
        CorruptDataError: Kafka would refuse the file (and take its log directory offline).
        NotFoundError, UnreadableError: the file cannot be read.
    """
    return [
        CheckpointEntry(topic, _number(partition, path, 32), _number(offset, path))
        for topic, partition, offset in _fields(path, 3)
    ]


def read_leader_epochs(path: str) -> list[EpochEntry]:
    """Return the entries of a leader-epoch-checkpoint. Raises as `read_offset_checkpoint`."""
    return [EpochEntry(epoch, offset) for epoch, offset in read_number_pairs(path)]


def epoch_end(epochs: Sequence[EpochEntry], end: int, epoch: int) -> tuple[int, int] | None:
    """Return the latest epoch up to this one, and where it ends; None if all known are earlier.

    Args:
        epochs: the epochs of a log.
        end: its log end offset.
        epoch: the epoch that is asked for.

    Source: `LeaderEpochFileCache.endOffsetFor`.
    """
    if epochs and epochs[-1].epoch == epoch:
        return epoch, end
    later = [entry for entry in epochs if entry.epoch > epoch]
    if not later:
        return None
    known = [entry.epoch for entry in epochs if entry.epoch <= epoch]
    return max(known, default=epoch), later[0].start_offset


def read_number_pairs(path: str) -> list[tuple[int, int]]:
    """Read any checkpoint with two numbers per line. Raises as `read_offset_checkpoint`."""
    return [(_number(first, path, 32), _number(second, path)) for first, second in _fields(path, 2)]


def checkpoint_text(entries: Sequence[Sequence[object]]) -> bytes:
    """Return a checkpoint with these entries, each a sequence of fields, as Kafka writes it."""
    lines = [str(_VERSION), str(len(entries))]
    lines += [" ".join(str(field) for field in entry) for entry in entries]
    return "".join(f"{line}\n" for line in lines).encode()


def _fields(path: str, count: int) -> Iterator[list[str]]:
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        return
    version = _number(first[0], path, 32) if len(first) == 1 else None
    if version != _VERSION:
        raise _malformed(path, "The first line is not a version that Kafka 4.3 knows.")
    second = next(lines, None)
    if second is None:
        return
    expected = _number(second[0], path, 32) if len(second) == 1 else None
    found = 0
    for line in lines:
        fields = _trimmed(line)
        found += 1
        if len(fields) != count:
            raise _malformed(path, f"Line {found + 2} has {len(fields)} fields, not {count}.")
        yield fields
    if expected != found:
        raise _malformed(path, f"The second line says {expected} entries, the file has {found}.")


def _lines(path: str) -> Iterator[list[str]]:
    """Yield the fields of each line, parsing a block of lines at a time to bound memory."""
    from formats.checkpoint import Checkpoint

    data = read_file(path, _SIZE_MAX)
    start = 0
    while start < len(data):
        last = _LINE_END.search(data, start + _AT_ONCE)
        end = last.end() if last else len(data)
        for line in parse(Checkpoint, data[start:end], path):
            yield line.fields
        start = end


def _trimmed(fields: list[str]) -> list[str]:
    """Drop the empty last field that trailing whitespace leaves, as Java's split does.

    Only entries are trimmed: Kafka parses the two lines before them as whole numbers.
    """
    return fields[:-1] if len(fields) > 1 and not fields[-1] else fields


def _number(text: str, path: str, bits: int = 64) -> int:
    """Parse an int or a long as Java does."""
    number = java_number(text, bits)
    if number is None:
        raise _malformed(path, f"{text!r} is not a number of {bits} bits.")
    return number


def java_number(text: str, bits: int) -> int | None:
    """Parse text as `Integer.parseInt` or `Long.parseLong` does; return None where they throw.

    They accept the decimal digits of any script, as long as a digit fits in one `char`.
    """
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdecimal() or max(digits) > "\uffff" or len(digits.lstrip("0")) > 19:
        return None
    number = int(digits) if text[0] != "-" else -int(digits)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def _malformed(path: str, message: str) -> CorruptDataError:
    return CorruptDataError(
        message,
        reference="checkpoint-malformed",
        path=path,
        hint="A broker takes the whole log directory offline over this file; move it away or "
        "rewrite it.",
    )


def checkpointed(log_dir: str, name: str, topic: str, partition: int | None) -> int | None:
    """Return a partition's offset in a checkpoint; None if missing or the file is malformed.

    Raises:
        UnreadableError: the file cannot be read.
    """
    path = os.path.join(log_dir, name)
    try:
        status = file_system.stat(path)
    except OSError as error:
        reading_error(error, path)  # reported
        return None
    version = status.st_ino, status.st_mtime_ns, status.st_size
    return _entries(path, version).get((topic, partition))


@lru_cache(len(OFFSET_CHECKPOINTS))
def _entries(path: str, _version: tuple[int, ...]) -> dict[tuple[str, int | None], int]:
    """Return the entries of a checkpoint, cached since every partition needs them."""
    try:
        found = read_offset_checkpoint(path)
    except (NotFoundError, CorruptDataError):
        return {}
    return {(entry.topic, entry.partition): entry.offset for entry in found}
