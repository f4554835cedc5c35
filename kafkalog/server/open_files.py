"""Segments that are kept open: the ones that were read last, of all logs together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from kafkalog.batches.segment import OpenSegment

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.log_dir import Segment
    from kafkalog.model import Defect

SEGMENTS_MAX: Final = 256
"""Each has a log and an index open: 512 files."""
_HINTS_MAX: Final = 1024


class ServedSegment(OpenSegment):
    """A segment that stays open until nobody holds it any more: a response may still be sent.

    Attributes:
        sound: a range of positions whose batches were checked.
        hints: positions of offsets at which the next fetch may begin.
    """

    def __init__(self, segment: Segment, damaged: Callable[[Defect], object]) -> None:
        super().__init__(segment, damaged=damaged)
        self.sound = (0, 0)
        self.hints: dict[int, int] = {}

    def hint(self, offset: int, position: int) -> None:
        """Note where an offset is."""
        if len(self.hints) >= _HINTS_MAX:
            self.hints.clear()
        self.hints[offset] = position

    def __del__(self) -> None:
        """Close the files."""
        self._files.close()


class OpenFiles:
    """Keeps the segments open that were read last."""

    def __init__(self) -> None:
        self._segments: OrderedDict[tuple[str, int, int | None], ServedSegment] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, segment: Segment, damaged: Callable[[Defect], object]) -> ServedSegment:
        """Return a segment, open; `damaged` hears of defects that lookups in it meet.

        Raises:
            KafkaLogError: it cannot be opened.
        """
        key = (segment.log.path, segment.log.inode, segment.log.end or segment.log.size_bytes)
        with self._lock:
            found = self._segments.get(key)
            if found is None:
                found = self._segments[key] = ServedSegment(segment, damaged)
                while len(self._segments) > SEGMENTS_MAX:
                    self._segments.popitem(last=False)
            self._segments.move_to_end(key)
        return found
