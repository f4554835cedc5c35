"""Blocks of text that kernels fill: whole lines, in reusable buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from formats.late_classes import dataclass
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.scan_steps import Part
from kafkalog.log.text.kafka_kernels import DONE, FULL, ODD, STATE_NEXT, STATE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray


BLOCK_SIZE_MIN: Final = 1 << 14
BLOCK_SIZE_MAX: Final = 1 << 24
"""Text of a chunk fits in one: each further call of a kernel has to wait for the GIL twice."""
_KEPT_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Text:
    """Lines, valid until the next part is requested.

    Attributes:
        buffer: holds the lines between `start` and `end`.
        ends: end of each row's line.
    """

    buffer: NDArray[np.uint8]
    start: int
    end: int
    ends: NDArray[np.int64]

    @property
    def view(self) -> memoryview:
        """The bytes of the lines."""
        return self.buffer.data[self.start : self.end]

    @property
    def rows(self) -> int:
        return len(self.ends)

    def cut(self, first: int, last: int) -> Text:
        """Return the lines of some rows, including anything after the last row."""
        start = int(self.ends[first - 1]) if first else self.start
        end = self.end if last == len(self.ends) else int(self.ends[last - 1]) if last else start
        return Text(self.buffer, start, end, self.ends[first:last])


class TextFormat:
    """Base of the formats that produce text: manages their buffers."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []

    def cut(self, content: Text, first: int, last: int) -> Text:
        """See `scan_steps.Format`."""
        return content.cut(first, last)

    def release(self, content: Text | None) -> None:
        """See `scan_steps.Format`."""
        if content is None or len(self._free) == _KEPT_MAX:
            return
        if content.buffer.flags.writeable and len(content.buffer) <= BLOCK_SIZE_MAX:
            self._free.append(content.buffer)

    def _take(self, size: int) -> NDArray[np.uint8]:
        try:
            kept = self._free.pop()
        except IndexError:
            kept = None
        return kept if kept is not None and len(kept) >= size else np.empty(size, np.uint8)

    def _fill(
        self,
        first: int,
        last: int,
        kernel: Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]], int],
        line: Callable[[int], bytes],
        expected: int,
        more: tuple[int, ...] = (),
    ) -> Iterator[Part]:
        """Yield parts of text of the rows from `first` up to `last`.

        Args:
            kernel: formats from a state on: state, ends of the rows' lines, buffer.
            line: formats a row that the kernel leaves to the reference.
            expected: size of the text, about; what is longer takes more blocks.
            more: the kernel's state besides the next row and the size.
        """
        state = np.array((first, 0, *more), np.int64)
        ends = np.empty(last, np.int64)
        # In few sizes, so that a block serves again for another chunk: new memory is slow.
        block = size = min(max(1 << expected.bit_length(), BLOCK_SIZE_MIN), BLOCK_SIZE_MAX)
        out = self._take(size)
        done = first
        while True:
            why = kernel(state, ends, out)
            row, at = int(state[STATE_NEXT]), int(state[STATE_SIZE])
            if why == ODD:
                text = line(row)
                if at + len(text) <= len(out):
                    out[at : at + len(text)] = np.frombuffer(text, np.uint8)
                    ends[row] = at + len(text)
                    state[STATE_NEXT], state[STATE_SIZE] = row + 1, at + len(text)
                    continue
                size = max(block, len(text))
            elif why == FULL and not at:
                size = 2 * len(out)  # one line is larger than the block
            else:
                size = block
            if at:
                yield Part(Text(out, 0, at, ends[done:row]), row - done, at)
            if why == DONE:
                return
            done = row
            state[STATE_SIZE] = 0
            del out  # a part holds it, or it was too small
            out = self._take(size)

    def _lines(self, lines: list[bytes]) -> Part:
        """Return a part of lines from the reference."""
        text = b"".join(lines)
        ends = np.cumsum([len(line) for line in lines], dtype=np.int64)
        return Part(Text(np.frombuffer(text, np.uint8), 0, len(text), ends), len(lines), len(text))


def size_of_bytes(table: NDArray[np.int64]) -> int:
    """Return the size of all keys and values of the rows."""
    sizes = table[[k.KEY_SIZE, k.VALUE_SIZE]]
    return int(np.maximum(sizes, 0).sum())


def whole(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the contiguous table of which this is all or the first columns."""
    if table.flags.c_contiguous:
        return table
    assert isinstance(table.base, np.ndarray), "a slice of a workspace's table"
    return table.base
