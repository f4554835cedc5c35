"""The walk over a log in columns where it is plain, batch by batch where it is odd.

Both say the same; the reading of odd batches is Kafka's own, as `batches.frames` has it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from kafkalog.columnar import rule
from kafkalog.model import Level
from kafkalog.recovery.batches import frames

if TYPE_CHECKING:
    from kafkalog.columnar.headers import Stretch
    from kafkalog.recovery.batches import Frame
    from kafkalog.source import Source

# So much is read one by one before columns are tried, at first and after an odd batch: most walks
# are short, and a log that is odd throughout must not begin anew at each batch.
_ONE_BY_ONE: Final = 256
_BYTES_ONE_BY_ONE: Final = 4 << 20
_WORTH_A_SEEK: Final = 1 << 15  # of batches so large headers alone are read, one by one


class Walker(ABC):
    """Who takes batches in, in the order of the log."""

    @abstractmethod
    def columns(self, stretch: Stretch) -> int:
        """Take batches in; how many, fewer than there are where the next is to come by itself."""

    @abstractmethod
    def frame(self, source: Source, frame: Frame) -> bool:
        """Take one batch in; false where no more is wanted."""


def walk(source: Source, position: int, end: int, level: Level, walker: Walker) -> None:
    """Give the batches from `position` up to `end`, positions in the file, to a walker.

    Args:
        source: the log.
        position: where the first begins.
        end: where the log ends.
        level: quick reads headers, standard also checks that checksums of columns match; of a
            batch that comes by itself nothing is checked.
        walker: who takes them.

    Raises:
        CorruptRecordError: a length field is smaller than any message; or what the walker raises.

    Cost:
        That of `plain_stretches`; where batches are large and their headers alone are read, a read
        of 4 KiB for each.
    """
    while True:
        begin, count, is_over = position, 0, True
        for frame in frames(source, position, end):
            position = frame.end_position
            if not walker.frame(source, frame):
                return
            count += 1
            if count == _ONE_BY_ONE or position - begin > _BYTES_ONE_BY_ONE:
                is_over = False
                break
        if is_over:
            return
        is_sparse = level == Level.QUICK and position - begin > count * _WORTH_A_SEEK
        if not is_sparse and rule.is_worth_it(end - position):
            position = _in_columns(source, position, end, level, walker)


def _in_columns(source: Source, position: int, end: int, level: Level, walker: Walker) -> int:
    from kafkalog.columnar.headers import plain_stretches

    stretches = plain_stretches(source, level, position, end)
    try:
        for stretch in stretches:
            count = walker.columns(stretch)
            if count < stretch.count:
                return position + (stretch.part(0, count).size_bytes if count else 0)
            position += stretch.size_bytes
    finally:
        stretches.close()
    return position
