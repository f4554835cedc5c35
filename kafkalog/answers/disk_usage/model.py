"""What uses space on disks, and what will: sums of blocks, growth, and when a disk is full."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from formats.late_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from formats.file_names import DirectoryState

HOUR_MS: Final = 3_600_000
HOURS: Final = 24
"""How many hours before the clock growth is measured over."""


class SplitBy(StrEnum):
    """What the sum is split by."""

    TOPIC = "topic"
    PARTITION = "partition"
    DAY = "day"
    KIND = "kind"


class Entry(NamedTuple):  # made per file, and cheaper than a dataclass
    """A file or directory in a place.

    Attributes:
        name: its path below the place; empty for the place itself.
        disk_bytes: the blocks it occupies.
        size_bytes: its length; 0 for a directory.
    """

    name: str
    disk_bytes: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """A partition directory with all that is in it, or what a log directory holds besides these.

    Attributes:
        path: the directory.
        log_dir: the log directory around it, or itself.
        topic, partition: those of a partition directory; None for the rest of a log directory.
        state: that of a partition directory.
        entries: everything in it, itself included; a file with several links only once in a run.
    """

    path: str
    log_dir: str
    topic: str | None
    partition: int | None
    state: DirectoryState | None
    entries: Sequence[Entry]


@dataclass(slots=True)
class Usage:
    """A sum over files and directories.

    Attributes:
        disk_bytes: blocks on disk, as `du` counts them.
        size_bytes: apparent size: the length of the files.
        leftover_bytes: blocks of leftovers, which nothing reads any more.
        copies: number of partition directories.
        growth_bytes: bytes appended in each of the last hours, oldest first; empty if not measured.
        freed_now_bytes: bytes that retention deletes at its next check.
        freed_later_bytes: bytes that time alone makes retention delete until the end of the
            forecast.
        dirty_bytes: bytes that the cleaner has not compacted yet.
    """

    disk_bytes: int = 0
    size_bytes: int = 0
    leftover_bytes: int = 0
    copies: int = 0
    growth_bytes: tuple[int, ...] = ()
    freed_now_bytes: int = 0
    freed_later_bytes: int = 0
    dirty_bytes: int = 0

    @property
    def hourly_growth_bytes(self) -> int | None:
        """Mean of the measured hours; None if none was measured."""
        return sum(self.growth_bytes) // len(self.growth_bytes) if self.growth_bytes else None

    def add(self, other: Usage) -> None:
        self.disk_bytes += other.disk_bytes
        self.size_bytes += other.size_bytes
        self.leftover_bytes += other.leftover_bytes
        self.copies += other.copies
        self.freed_now_bytes += other.freed_now_bytes
        self.freed_later_bytes += other.freed_later_bytes
        self.dirty_bytes += other.dirty_bytes
        if not self.growth_bytes:
            self.growth_bytes = other.growth_bytes
        elif other.growth_bytes:
            self.growth_bytes = tuple(
                map(sum, zip(self.growth_bytes, other.growth_bytes, strict=True))
            )


@dataclass(frozen=True, slots=True)
class Share:
    """A part of what uses disk space: what it is depends on how the sum is split.

    Attributes:
        by: `topic`, `partition`, `day` or `kind`.
        name: the topic, the directory's name, the day or the kind; None for files of a log
            directory itself, or without a day.
        topic, partition, log_dir: of a single partition directory, else None.
    """

    by: str
    name: str | None
    usage: Usage
    topic: str | None = None
    partition: int | None = None
    log_dir: str | None = None


@dataclass(frozen=True, slots=True)
class OverLimit:
    """A partition that is larger or older than its retention allows, and why it still is.

    Attributes:
        over_bytes: how many bytes are above the limit.
        reason: what keeps them.
    """

    path: str
    topic: str
    partition: int | None
    over_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk, or what stands for one, and when it is full.

    Attributes:
        used_bytes: blocks that they occupy.
        free_bytes: what is free; None if unknown.
        hourly_growth_bytes: how fast they grow.
        full_timestamp: when the disk is full at this rate; None if not within ten years.
    """

    log_dirs: tuple[str, ...]
    used_bytes: int
    free_bytes: int | None
    hourly_growth_bytes: int
    full_timestamp: int | None


@dataclass(slots=True)
class Report:
    """The answer of a run.

    Attributes:
        shares: the parts, largest first.
        total: the sum of them.
        over: partitions above their limits, the largest excess first.
        disks: the disks, if a forecast was asked for.
        links: number of symbolic links, whose targets are not counted.
    """

    shares: list[Share] = field(default_factory=list)
    total: Usage = field(default_factory=Usage)
    over: list[OverLimit] = field(default_factory=list)
    disks: list[Disk] = field(default_factory=list)
    links: int = 0
