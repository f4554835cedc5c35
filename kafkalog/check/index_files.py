"""Invariants of an index file alone: its size, and the order of its entries."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from formats import constants as c
from kafkalog.defects import make_defect
from kafkalog.indexes import OffsetIndex, TimeIndex
from kafkalog.names import FileKind
from kafkalog.plurals import counted

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from contextlib import ExitStack

    from kafkalog.check.batches import CheckedLog
    from kafkalog.log_dir import FileEntry
    from kafkalog.model import Defect

ENTRY_SIZES = {
    FileKind.OFFSET_INDEX: c.OFFSET_INDEX_ENTRY_SIZE,
    FileKind.TIME_INDEX: c.TIME_INDEX_ENTRY_SIZE,
    FileKind.TRANSACTION_INDEX: c.ABORTED_TXN_SIZE,
}


def size_is_multiple(entry: FileEntry) -> Iterator[Defect]:
    """The size of an index is a multiple of 8, 12 or 34 bytes."""
    size = ENTRY_SIZES[entry.name.kind]
    rest = entry.size_bytes % size
    if rest:
        detail = f"The size {entry.size_bytes} is not a multiple of {size}: "
        detail += f"{counted(rest, 'byte')} too many."
        yield make_defect(
            "index-size-not-multiple",
            entry.path,
            detail,
            position=entry.size_bytes - rest,
            size_bytes=rest,
        )


def index_alone(
    entry: FileEntry, log: CheckedLog, files: ExitStack
) -> Generator[Defect, None, CheckedLog]:
    """Check an index by itself, and attach it to its log if its entries are in order.

    Args:
        entry: the index.
        log: the log it belongs to.
        files: keeps the index open.

    Returns:
        The log, with the index if that can be compared with it.
    """
    from kafkalog.check import index_order

    yield from size_is_multiple(entry)
    base_offset, is_active = log.base_offset, log.next_base_offset is None
    assert base_offset is not None, "an index lies beside a segment"
    if entry.name.kind == FileKind.OFFSET_INDEX:
        offsets = files.enter_context(OffsetIndex(entry.path, base_offset))
        yield from index_order.padding_is_sound(offsets, is_active=is_active)
        if not (yield from _tell(index_order.offset_index_is_monotonic(offsets))):
            log = replace(log, offset_index=offsets)
    elif entry.name.kind == FileKind.TIME_INDEX:
        times = files.enter_context(TimeIndex(entry.path, base_offset))
        yield from index_order.padding_is_sound(times, is_active=is_active)
        if not (yield from _tell(index_order.time_index_is_monotonic(times))):
            log = replace(log, time_index=times)
    else:
        yield from index_order.transaction_index_is_sound(entry.path, base_offset)
    return log


def _tell(defects: Iterator[Defect]) -> Generator[Defect, None, bool]:
    """Yield all defects; return whether there were any."""
    told = False
    for defect in defects:
        told = True
        yield defect
    return told
