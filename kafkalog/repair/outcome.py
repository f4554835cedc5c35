"""The files of a partition before and after, as a repair compares them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.names import is_staged
from kafkalog.recovery.directory import Content
from kafkalog.recovery.indexes import OffsetSlots, TimeSlots

if TYPE_CHECKING:
    from kafkalog.log_dir import PartitionDir

_ENTRY_SIZES = {
    file_names.OFFSET_INDEX: OffsetSlots.entry.size,
    file_names.TIME_INDEX: TimeSlots.entry.size,
}


def is_left_over(name: str) -> bool:
    """Whether a file is what a repair that was killed left."""
    return is_staged(name)


def contents_of(partition: PartitionDir) -> dict[str, Content]:
    """The files as they are on disk."""
    return {
        entry.name.name: Content(entry.path, 0, entry.size_bytes)
        for entry in partition.files
        if entry.error is None
    }


def whole_entries(contents: dict[str, Content]) -> dict[str, Content]:
    """The same, with the indexes cut to whole entries, as the next shutdown of a broker does."""
    found = dict(contents)
    for name, content in contents.items():
        for suffix, size in _ENTRY_SIZES.items():
            rest = content.size_bytes % size if name.endswith(suffix) else 0
            if rest:
                found[name] = dataclasses.replace(content, end=content.end - rest)
    return found
