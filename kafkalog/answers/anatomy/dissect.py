"""Finds what an anatomy is asked for, and goes through it: any file, or a place in a partition."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from formats.file_names import INDEX_KINDS, FileKind
from kafkalog.answers.anatomy.batches import log_items, position_before
from kafkalog.answers.anatomy.model import Item, Structure
from kafkalog.answers.anatomy.records import Shown
from kafkalog.answers.anatomy.side_files import index_items, snapshot_items, text_items
from kafkalog.errors import CorruptDataError, DataError, NothingFoundError, UsageError
from kafkalog.files.indexes import OffsetIndex
from kafkalog.files.log_dir import FileEntry, LogDirListing, open_path
from kafkalog.files.payloads.kinds import PayloadKind, payload_kind_at
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source
from kafkalog.io.paths.uris import is_object
from kafkalog.model import Isolation
from kafkalog.node.lookup import lookup_offset
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show_now

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.files.log_dir import PartitionDir, Target


_PLACE: Final = re.compile(r"(.+)@([0-9]{1,19})", re.DOTALL)
_LOGS: Final = (FileKind.LOG, FileKind.KRAFT_SNAPSHOT)
_SNAPSHOTS: Final = (FileKind.PRODUCER_SNAPSHOT, FileKind.REMOTE_LOG_SNAPSHOT)


def place_of(what: str) -> tuple[Target, int | None]:
    """Open what an anatomy is asked for; return it with the position or offset, if there is one.

    Args:
        what: a partition directory or a file; `FILE@POSITION`; `PARTITION@OFFSET`.

    Raises:
        NotFoundError, UnreadableError: it cannot be read.
        NotAKafkaFileError: it is no file of Kafka's.
    """
    match = _PLACE.fullmatch(what)
    # A store would take the place for a part of the URI's options.
    if match is None or (not is_object(what) and file_system.exists(what)):
        return open_path(what), None
    return open_path(match[1]), int(match[2])


def dissect(target: Target, place: int | None, limit: int) -> Iterator[Item]:
    """Yield the structures and fields of a file, in the order of their positions.

    Args:
        target: a file, or a partition directory.
        place: where to begin in the file; of a partition, the offset whose batch is wanted, in the
            log as the next start of a broker would show it.
        limit: maximum number of batches, lines or entries, and of records of each batch; the bytes
            that are left out are fields, too.

    Raises:
        NotFoundError, UnreadableError: it cannot be read.
        UsageError: it is a directory, and no offset is given.
    """
    if isinstance(target, FileEntry):
        yield from _file(target, place or 0, limit)
        return
    if isinstance(target, LogDirListing) or place is None:
        raise UsageError(
            "This is a directory.",
            path=target.path,
            hint="Name a file of it, FILE@POSITION, or PARTITION_DIR@OFFSET.",
        )
    yield from _at_offset(target, place, limit)


def _file(entry: FileEntry, position: int, limit: int) -> Iterator[Item]:
    kind = entry.name.kind
    if not entry.size_bytes:
        yield Structure(entry.path, 0, 0, 0, "file", "it is empty")
        return
    if position and kind not in (*_LOGS, *INDEX_KINDS):
        raise UsageError("Only logs and indexes have entries at positions.", path=entry.path)
    if kind not in (*_LOGS, *INDEX_KINDS, *_SNAPSHOTS, FileKind.LOCK):
        yield from text_items(entry, limit)
        return
    with Source(entry.path) as source:
        if position and position >= source.size_bytes:
            raise NothingFoundError(
                f"The file ends at position {source.size_bytes}.", path=entry.path
            )
        if kind in _LOGS:
            start = position_before(source, position, _indexed(entry, position))
            yield from log_items(source, start, limit, Shown(limit, None, _kind(entry.path)))
        elif kind in INDEX_KINDS:
            yield from index_items(source, entry, position, limit)
        elif kind in _SNAPSHOTS:
            yield from snapshot_items(source, entry, limit)


def _indexed(entry: FileEntry, position: int) -> int:
    """Return a position at or before the one wanted where the offset index has a batch, or 0."""
    if entry.name.kind != FileKind.LOG or not position:
        return 0
    name = entry.path.removesuffix(FileKind.LOG) + FileKind.OFFSET_INDEX
    with suppress(DataError), OffsetIndex(name, entry.name.offset) as index:
        number = index.first_at(position + 1) - 1
        if number >= 0:
            return max(index.entry(number).position, 0)
    return 0


def _at_offset(partition: PartitionDir, offset: int, limit: int) -> Iterator[Item]:
    log = UnifiedLog(show_now(partition).partition)
    try:
        found = lookup_offset(log, offset, Isolation.LOG)
        if found.batch is None or found.segment is None:
            reason = found.reason or "not found"
            raise NothingFoundError(f"Offset {offset}: {reason}.", path=partition.path)
        segment, position = found.segment, found.batch.position
    except CorruptDataError as error:  # the batch has the offset, but cannot be decoded
        if error.path is None or error.position is None:
            raise
        segment, position = error.path, error.position
    with Source(segment) as source:
        start = position_before(source, position, 0)
        yield from log_items(source, start, 1, Shown(limit, offset, _kind(segment)))


def _kind(path: str) -> PayloadKind | None:
    return payload_kind_at(file_system.absolute(path), is_file=True)
