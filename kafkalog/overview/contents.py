"""What the batch headers of a partition say: records, codecs, and bytes by time."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from formats.constants import (
    COMPRESSION_MASK,
    COMPRESSION_NAMES,
    CONTROL_MASK,
    NO_TIMESTAMP,
)
from kafkalog.columns import header_table as h
from kafkalog.columns.headers import BatchColumns, batch_columns
from kafkalog.overview.model import CodecBatches, SegmentContents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.check.batches import CheckedLog
    from kafkalog.log_dir import Segment
    from kafkalog.model import Defect, Level
    from kafkalog.paths.source import Source

MINUTE_MS: Final = 60_000
_MINUTES_MAX: Final = 4096  # per segment: more come from damaged or made-up timestamps


class Contents:
    """What the batch headers of logs say, as the checks read them.

    Args:
        threads: as for `batch_columns`.
    """

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._known: dict[str, SegmentContents] = {}

    def read(
        self, log: CheckedLog, source: Source, level: Level
    ) -> Iterator[BatchColumns | Defect]:
        """Yield the batches and the damage of a log, as `batch_columns` does, and count them."""
        counts = _Counts()
        for found in batch_columns(source, level, self._threads):
            if isinstance(found, BatchColumns):
                counts.add(found.headers)
            yield found
        if log.base_offset is not None:
            self._known[log.path] = counts.of_segment(log.base_offset)

    def of(self, segment: Segment) -> SegmentContents | None:
        """Return what a segment holds; None if its log was not read to the end."""
        return self._known.get(segment.log.path)


class _Counts:
    """Counts over the batches of a segment."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._size_max = 0
        self._times: list[int] = []
        self._codecs: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        self._minutes: Counter[int] = Counter()
        self._minutes_per_slot = 1

    def add(self, headers: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
        """Add batches: a header table."""
        is_control = (headers[h.MAGIC] >= 2) & ((headers[h.ATTRIBUTES] & CONTROL_MASK) != 0)
        data = headers[:, ~is_control]
        sizes = data[h.SIZE]
        self._sums["control_batches"] += int(is_control.sum())
        self._sums["batches"] += int(data.shape[1])
        self._sums["records"] += int(data[h.COUNT].sum())
        self._sums["size_bytes"] += int(sizes.sum())
        if len(sizes):
            self._size_max = max(self._size_max, int(sizes.max()))
        codecs = data[h.ATTRIBUTES] & COMPRESSION_MASK
        for codec in np.unique(codecs).tolist():
            chosen = codecs == codec
            self._codecs[codec][0] += int(chosen.sum())
            self._codecs[codec][1] += int(sizes[chosen].sum())
        is_known = headers[h.MAX_TIMESTAMP] > NO_TIMESTAMP
        times = headers[h.MAX_TIMESTAMP][is_known]
        if len(times):
            self._times += [int(times.min()), int(times.max())]
            slots, inverse = np.unique(times // MINUTE_MS, return_inverse=True)
            sums = np.bincount(inverse, weights=headers[h.SIZE][is_known])
            for minute, size in zip(slots.tolist(), sums.tolist(), strict=True):
                self._minutes[minute // self._minutes_per_slot * self._minutes_per_slot] += int(
                    size
                )
            self._shorten()

    def _shorten(self) -> None:
        while len(self._minutes) > _MINUTES_MAX:
            self._minutes_per_slot *= 2
            before, self._minutes = self._minutes, Counter()
            for minute, size in before.items():
                self._minutes[minute // self._minutes_per_slot * self._minutes_per_slot] += size

    def of_segment(self, base_offset: int) -> SegmentContents:
        """Return the counts."""
        return SegmentContents(
            base_offset=base_offset,
            batches=self._sums["batches"],
            records=self._sums["records"],
            size_bytes=self._sums["size_bytes"],
            batch_size_max=self._size_max,
            control_batches=self._sums["control_batches"],
            first_timestamp=min(self._times, default=None),
            last_timestamp=max(self._times, default=None),
            codecs={
                _codec_name(codec): CodecBatches(*counts)
                for codec, counts in sorted(self._codecs.items())
            },
            minutes=dict(self._minutes),
        )


def _codec_name(codec: int) -> str:
    return COMPRESSION_NAMES[codec] if codec < len(COMPRESSION_NAMES) else f"codec {codec}"
