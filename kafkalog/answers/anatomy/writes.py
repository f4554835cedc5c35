"""How a log was written: whether batches follow one another in offsets, in time, on the disk.

Asking Linux for the extents of a file needs no privilege and changes nothing: the file is not
synced, so what is not on the disk yet may count as one extent.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from formats.late_classes import dataclass
from kafkalog.io.paths.source import Source
from kafkalog.io.paths.uris import is_object
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.headers import BatchColumns, batch_columns
from kafkalog.model import Level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.files.log_dir import PartitionDir

_FIEMAP: Final = 0xC020660B  # FS_IOC_FIEMAP
_REQUEST: Final = struct.Struct("=QQIIII")  # start, length, flags, mapped, room, reserved
_EVERYTHING: Final = 2**64 - 1  # FIEMAP_MAX_OFFSET


def extent_count(path: str) -> int | None:
    """Return the number of extents of a file; None if the file system does not say."""
    if is_object(path):
        return None
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return None
    # With room for no extent the kernel only counts them.
    request = bytearray(_REQUEST.pack(0, _EVERYTHING, 0, 0, 0, 0))
    with suppress(OSError):
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            fcntl.ioctl(opened, _FIEMAP, request)
            return int(_REQUEST.unpack(request)[3])
        finally:
            os.close(opened)
    return None


@dataclass(frozen=True, slots=True)
class SegmentWrites:
    """How a segment was written.

    Attributes:
        size_bytes: its length.
        batches_in_order: number of batches whose offsets are above those of the one before; the
            first counts.
        batches_in_time: number of batches whose largest timestamp is not below that of the one
            before.
        unframed_bytes: bytes in which there is no batch.
        extents: number of pieces of the disk it lies in; None if the file system does not say.
        damage: kind of the first defect; None if there is a batch everywhere.
    """

    path: str
    base_offset: int
    size_bytes: int
    batches: int
    batches_in_order: int
    batches_in_time: int
    unframed_bytes: int
    extents: int | None
    damage: str | None


def writes_of(partition: PartitionDir) -> Iterator[SegmentWrites]:
    """Yield how each segment of a partition was written.

    Raises:
        UnreadableError: a log cannot be read.

    Cost:
        Reads the headers of all batches.
    """
    for segment in partition.segments:
        batches = batches_in_order = batches_in_time = bad = 0
        damage = None
        last_offset, last_time = segment.base_offset - 1, -(1 << 63)
        with Source(segment.log.path) as source:
            for found in batch_columns(source, Level.QUICK):
                if isinstance(found, BatchColumns):
                    headers = found.headers
                    firsts, lasts = headers[h.BASE_OFFSET], headers[h.LAST_OFFSET]
                    times = headers[h.MAX_TIMESTAMP]
                    before = np.concatenate(([last_offset], lasts[:-1]))
                    earlier = np.concatenate(([last_time], times[:-1]))
                    batches += found.count
                    batches_in_order += int((firsts > before).sum())
                    batches_in_time += int((times >= earlier).sum())
                    last_offset, last_time = int(lasts[-1]), int(times[-1])
                else:
                    bad += found.size_bytes or 0
                    damage = damage or found.reference
            yield SegmentWrites(
                source.path,
                segment.base_offset,
                source.size_bytes,
                batches,
                batches_in_order,
                batches_in_time,
                bad,
                extent_count(source.path),
                damage,
            )
