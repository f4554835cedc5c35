"""The parts of a report, and what the batch headers of a partition say: records, codecs, bytes."""

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
from formats.late_classes import dataclass
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.headers import BatchColumns, batch_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalog.change.compaction.model import Candidate
    from kafkalog.change.retention.partition import PartitionRetention
    from kafkalog.check.batches import CheckedLog
    from kafkalog.files.log_dir import Segment
    from kafkalog.io.paths.source import Source
    from kafkalog.model import Defect, Level
    from kafkalog.node.inventory import PartitionRow
    from kafkalog.node.state.model import Group, OffsetLag

    Column = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class CodecBatches:
    """The batches of one codec: their number and their size in the log."""

    batches: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentContents:
    """What the batch headers of a segment say.

    Attributes:
        batches, records: batches with data, and the records in them.
        size_bytes: size of these batches.
        max_batch_bytes: size of the largest one.
        first_timestamp, last_timestamp: the smallest and the largest `max_timestamp`; None without
            any.
        codecs: batches with data by codec.
        minutes: bytes by minute since 1970, from the `max_timestamp` of each batch.
    """

    base_offset: int
    batches: int
    records: int
    size_bytes: int
    max_batch_bytes: int
    control_batches: int
    first_timestamp: int | None
    last_timestamp: int | None
    codecs: Mapping[str, CodecBatches]
    minutes: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition directory.

    Attributes:
        listed: as `ls` lists it.
        used: bytes by base offset of a segment, for its log, indexes and snapshot; under None the
            other files.
        retention: what retention would do; None if it cannot be judged.
        cleaning: what a cleaner would take; None if it cannot be judged.
        contents: by segment; without those whose log could not be read.
        growth: bytes appended in each of the last 24 hours; empty if not known.
    """

    listed: PartitionRow
    used: Mapping[int | None, int]
    retention: PartitionRetention | None
    cleaning: Candidate | None
    contents: tuple[SegmentContents, ...]
    growth: tuple[int, ...]

    @property
    def name(self) -> str:
        """Topic and partition, as the directory is named while it is live."""
        number = self.listed.partition
        return self.listed.topic if number is None else f"{self.listed.topic}-{number}"


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group and its committed offsets with their lag; `lag` is None if one is not known."""

    group: Group
    offsets: tuple[OffsetLag, ...]
    lag: int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding.

    Attributes:
        alike: how many more of its kind in the same file are not listed.
        command: the next command line: what repairs, or explains.
    """

    defect: Defect
    alike: int
    command: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A question that could not be answered: about what, and why."""

    about: str
    why: str


MINUTE_MS: Final = 60_000
_MINUTES_MAX: Final = 4096  # per segment: more come from damaged or made-up timestamps


class Contents:
    """What the batch headers of logs say, as the checks read them."""

    def __init__(self, threads: int | None) -> None:
        self._threads = threads
        self._known: dict[str, SegmentContents] = {}
        self._places: defaultdict[str, list[str]] = defaultdict(list)

    def read(
        self, log: CheckedLog, source: Source, level: Level
    ) -> Iterator[BatchColumns | Defect]:
        """Yield the batches and the damage of a log, as `batch_columns` does, and count them."""
        counts = _Counts()
        for found in batch_columns(source, level, self._threads):
            if isinstance(found, BatchColumns):
                counts.add(found.headers)
            yield found
        if log.base_offset is not None:  # a log without an offset in its name has no segment
            self._known[log.path] = counts.of_segment(log.base_offset)
            self._places[_in_log_dir(log.path)].append(log.path)

    def of(self, segment: Segment) -> SegmentContents | None:
        """Return what a segment holds; None if its log was not read to the end."""
        return self._known.get(self._place_of(segment.log.path))

    def _place_of(self, path: str) -> str:
        """Return where a log was read: a broker may have moved its partition before or since."""
        places = self._places.get(_in_log_dir(path), [])
        return places[0] if len(places) == 1 else path


def _in_log_dir(path: str) -> str:
    return path[path.rfind("/", 0, path.rfind("/")) :]


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
        # Before version 2 the attributes have neither flag, and a batch is one record or a set of
        # them.
        flags = np.where(headers[h.MAGIC] >= 2, headers[h.ATTRIBUTES], 0)
        data = headers
        if flags.any():
            data = headers[:, (flags & CONTROL_MASK) == 0]
        sizes = data[h.SIZE]
        self._sums["control_batches"] += headers.shape[1] - data.shape[1]
        self._sums["batches"] += data.shape[1]
        self._sums["records"] += int(data[h.COUNT].sum())
        self._sums["size_bytes"] += int(sizes.sum())
        if len(sizes):
            self._size_max = max(self._size_max, int(sizes.max()))
        codecs = data[h.ATTRIBUTES] & COMPRESSION_MASK
        for codec, (count, size) in _sums_by(codecs, sizes):
            self._codecs[codec][0] += count
            self._codecs[codec][1] += size
        is_known = headers[h.MAX_TIMESTAMP] > NO_TIMESTAMP
        times = headers[h.MAX_TIMESTAMP][is_known]
        if len(times):
            self._times += [int(times.min()), int(times.max())]
            for minute, (_, size) in _sums_by(times // MINUTE_MS, headers[h.SIZE][is_known]):
                self._minutes[minute // self._minutes_per_slot * self._minutes_per_slot] += size
            self._shorten()

    def _shorten(self) -> None:
        # Minutes are joined by twos until they fit: coarser, but no byte is lost.
        while len(self._minutes) > _MINUTES_MAX:
            self._minutes_per_slot *= 2
            before, self._minutes = self._minutes, Counter()
            for minute, size in before.items():
                self._minutes[minute // self._minutes_per_slot * self._minutes_per_slot] += size

    def of_segment(self, base_offset: int) -> SegmentContents:
        return SegmentContents(
            base_offset=base_offset,
            batches=self._sums["batches"],
            records=self._sums["records"],
            size_bytes=self._sums["size_bytes"],
            max_batch_bytes=self._size_max,
            control_batches=self._sums["control_batches"],
            first_timestamp=min(self._times, default=None),
            last_timestamp=max(self._times, default=None),
            codecs={
                _codec_name(codec): CodecBatches(*counts)
                for codec, counts in sorted(self._codecs.items())
            },
            minutes=dict(self._minutes),
        )


def _sums_by(keys: Column, sizes: Column) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield each key with the number of its batches and their size; there is mostly one."""
    if not len(keys):
        return
    if (keys == keys[0]).all():
        yield int(keys[0]), (len(keys), int(sizes.sum()))
        return
    found, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    sums = np.zeros(len(found), np.int64)
    np.add.at(sums, inverse, sizes)
    pairs = zip(counts.tolist(), sums.tolist(), strict=True)
    yield from zip(found.tolist(), pairs, strict=True)


def _codec_name(codec: int) -> str:
    return COMPRESSION_NAMES[codec] if codec < len(COMPRESSION_NAMES) else f"codec {codec}"
