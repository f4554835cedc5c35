"""Segments that are kept open: the ones that were read last, of all logs together."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from formats.constants import NO_EPOCH
from kafkalog.io.paths.uris import is_object
from kafkalog.log.batches.segment import OpenSegment

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.files.log_dir import Segment
    from kafkalog.model import Defect

SEGMENTS_MAX: Final = 256
"""Each has a log and an index open: 512 files."""
_HINTS_MAX: Final = 1024
_HELD_SIZE_MAX: Final = 1 << 21


class ServedSegment(OpenSegment):
    """A segment that stays open until nobody holds it any more: a response may still be sent.

    Attributes:
        path: of the log.
        sound: a range of positions whose batches were checked.
        low: the lowest offset that what follows them can have; None if unknown.
        epoch: the leader epoch of the last of them, `NO_EPOCH` if unknown.
        hints: positions of offsets at which the next fetch may begin.
        held: where bytes of an object begin that were read last, and these: to read them again
            would be another request.
    """

    def __init__(self, segment: Segment, damaged: Callable[[Defect], object]) -> None:
        super().__init__(segment, damaged=damaged)
        self.sound = (0, 0)
        self.low: int | None = None
        self.epoch = NO_EPOCH
        self.hints: dict[int, int] = {}
        self.held = (0, b"")
        self.path = segment.log.path

    def hold(self, position: int, data: memoryview) -> None:
        """Hold bytes that were read, of an object."""
        if not is_object(self.segment.log.path):
            return
        start, before = self.held
        if not 0 <= position - start <= len(before):
            start, before = position, b""
        both = before[: position - start] + data
        left = both[-_HELD_SIZE_MAX:]
        self.held = start + len(both) - len(left), left

    def held_at(self, position: int, size: int) -> bytes | None:
        """Return some of the bytes that are held; None if not all of them are."""
        start, data = self.held
        at = position - start
        return data[at : at + size] if 0 <= at <= len(data) - size else None

    def hint(self, offset: int, position: int) -> None:
        """Note where an offset is."""
        if len(self.hints) >= _HINTS_MAX:
            self.hints.clear()
        self.hints[offset] = position

    def read(self, position: int, size: int) -> bytes:
        """Return bytes of the log, held ones if possible. Raises as `Source.read`."""
        held = self.held_at(position, min(size, self.source.size_bytes - position))
        return self.source.read(position, size) if held is None else held

    def __del__(self) -> None:
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
        # A log that was replaced, or has grown, is another segment.
        key = (segment.log.path, segment.log.inode, segment.log.end or segment.log.size_bytes)
        with self._lock:
            found = self._segments.get(key)
            if found is None:
                found = self._segments[key] = ServedSegment(segment, damaged)
                while len(self._segments) > SEGMENTS_MAX:
                    self._segments.popitem(last=False)
            self._segments.move_to_end(key)
        return found
