"""Invariants of an index file alone: its size, for which it need not be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import constants as c
from kafkalog.defects import make_defect
from kafkalog.names import FileKind

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        detail = f"The size {entry.size_bytes} is no multiple of {size}: {rest} bytes are over."
        yield make_defect(
            "index-size-not-multiple",
            entry.path,
            detail,
            position=entry.size_bytes - rest,
            size_bytes=rest,
        )
