"""What a check of batches is: fed stretches of columns in file order, it tells defects.

A check keeps only what it needs of the past, so that memory does not grow with the log.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from kafkalog.errors import BytesUnreadableError
from kafkalog.model import Level
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.columnar.headers import Stretch
    from kafkalog.configs import TopicConfigs
    from kafkalog.indexes import OffsetIndex, TimeIndex
    from kafkalog.log_dir import PartitionDir
    from kafkalog.model import Defect

# A defect, after the number of the batch in its stretch at which it shows.
Found = tuple[int, "Defect"]


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """A log and what lies beside it; None stands for what is missing or no base for a check.

    Attributes:
        path: the log file.
        base_offset: of the segment, None for a log that is no live segment.
        offset_index: its entries are in order.
        time_index: its entries are in order.
        next_base_offset: of the segment that follows, None for an active segment.
        is_closed: whether nothing is appended to it any more: another segment follows, or the
            broker was shut down cleanly.
    """

    path: str
    base_offset: int | None = None
    offset_index: OffsetIndex | None = None
    time_index: TimeIndex | None = None
    next_base_offset: int | None = None
    is_closed: bool = False


@dataclass
class CheckedPartition:
    """A partition directory that is walked through.

    Attributes:
        directory: its files.
        end_offset: the offset behind all batches that were walked over so far.
        configs: those of its topic; None where they cannot be read.
        is_judged: whether its batches were checked, and no check failed; otherwise its end proves
            nothing.
    """

    directory: PartitionDir
    end_offset: int = 0
    configs: TopicConfigs | None = None
    is_judged: bool = True

    @cached_property
    def log(self) -> UnifiedLog:
        """What the files around its batches say: checkpoints, leader epochs, log start offset."""
        return UnifiedLog(self.directory)


class BatchCheck(ABC):
    """One invariant of batches; the first line of a check's docstring is its claim.

    Attributes:
        level: the lowest level at which the check is made.
    """

    level: ClassVar[Level] = Level.QUICK

    @abstractmethod
    def stretch(self, stretch: Stretch) -> Iterator[Found]:
        """What is wrong with these batches, given those before them; by rising numbers."""

    def damage(self, defect: Defect) -> None:  # noqa: B027 # most need not know
        """Something that is no batch comes between those of the log, or after them."""

    def end(self) -> Iterator[Defect]:
        """What is wrong now that all batches have been seen."""
        return iter(())


class SegmentCheck(BatchCheck):
    """An invariant of one segment, or of any log file."""

    def __init__(self, log: CheckedLog) -> None:
        self.log = log

    @classmethod
    def applies(cls, log: CheckedLog) -> bool:  # noqa: ARG003 # most hold for any log
        """Whether the log has all that the check compares."""
        return True


class PartitionCheck(BatchCheck):
    """An invariant of a whole partition: it sees the segments one after the other.

    Attributes:
        partition: what lies around the batches.
        log: the segment whose batches come now.
    """

    log: CheckedLog

    def __init__(self, partition: CheckedPartition) -> None:
        self.partition = partition

    @classmethod
    def applies(cls, partition: CheckedPartition) -> bool:  # noqa: ARG003 # most hold for any
        """Whether the partition has all that the check compares."""
        return True

    def begin(self, log: CheckedLog) -> None:
        """The batches of a segment follow."""
        self.log = log


def defects_of_stretch(checks: Sequence[BatchCheck], stretch: Stretch) -> Iterator[Defect]:
    """What all checks have to say: batch after batch, of one batch in the order of the checks."""
    found = [check.stretch(stretch) for check in checks]
    for _, defect in heapq.merge(*found, key=itemgetter(0)):
        yield defect


def unread_range(defect: Defect) -> range | None:
    """The positions of a log that the disk does not give; None where the damage is another."""
    if defect.reference != BytesUnreadableError.reference:
        return None
    position = defect.position or 0
    return range(position, position + (defect.size_bytes or 0))


def running_max(before: int, column: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest value in front of each batch, and behind the last; `before`: of the past."""
    return np.maximum.accumulate(np.concatenate(([before], column)))
