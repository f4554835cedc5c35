"""The parts of a report: what it says about a segment, a partition, a group, a finding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.compaction.model import Candidate
    from kafkalog.inventory import PartitionRow
    from kafkalog.model import Defect
    from kafkalog.retention.simulate import PartitionRetention
    from kafkalog.state.model import Group, OffsetLag


@dataclass(frozen=True, slots=True)
class CodecBatches:
    """The batches of one codec: their number and their size in the log."""

    batches: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentContents:
    """What the batch headers of a segment say.

    Attributes:
        base_offset: of the segment.
        batches, records: batches with data, and the records in them.
        size_bytes: size of these batches.
        batch_size_max: size of the largest one.
        control_batches: number of control batches.
        first_timestamp, last_timestamp: the smallest and the largest `max_timestamp`; None without
            any.
        codecs: batches with data by codec.
        minutes: bytes by minute since 1970, from the `max_timestamp` of each batch.
    """

    base_offset: int
    batches: int
    records: int
    size_bytes: int
    batch_size_max: int
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
        defect: what was found.
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
