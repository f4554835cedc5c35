"""Objects read ahead, so that the latencies of requests overlap.

A read that does not start where another ended fetches little. During forward reading, more and more
is fetched in advance, in pieces.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE_SIZE_MIN: Final = 1 << 17
PIECE_SIZE_MAX: Final = 8 << 20
AHEAD_MAX: Final = 4 * PIECE_SIZE_MAX
TOGETHER_MAX: Final = 1 << 29
_THREADS: Final = 8
_SKIP_MAX: Final = 1 << 20  # largest skip that still counts as forward reading
_STEPS: Final = 3  # this many consecutive reads count as forward reading
_RUN: Final = 1 << 22  # or this many bytes


class _Piece(NamedTuple):
    start: int
    end: int
    data: Future[bytes]


class ReadAhead:
    """The bytes of one file by position.

    At most `AHEAD_MAX` bytes and the piece that is being read are held: 40 MiB per file. What is
    read ahead of all files of the process together is about `TOGETHER_MAX` at most, and up to eight
    requests are in progress.

    Args:
        fetch: maps position and size to exactly that many bytes; called by other threads.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size_bytes: int) -> None:
        self._fetch = fetch
        self._size_bytes = size_bytes
        self._pieces: deque[_Piece] = deque()  # consecutive, in order
        self._end = 0  # where the last read ended
        self._run = 0  # bytes since forward reading began
        self._steps = 0
        self._lock = Lock()

    def read_into(self, position: int, buffer: memoryview) -> None:
        """Fill the buffer from `position`; the file must be that long. Raises as `fetch`."""
        with self._lock:
            end = position + len(buffer)
            self._follow(position, end)
            while len(buffer):
                self._request(position, end)
                piece = self._pieces[0]
                at = position - piece.start
                part = memoryview(self._result(piece))[at : at + len(buffer)]
                buffer[: len(part)] = part
                buffer = buffer[len(part) :]
                position += len(part)

    def close(self) -> None:
        """Request nothing more; let requests in progress finish, and ignore them."""
        # A request in progress cannot be cancelled: its thread ends it, and nobody looks.
        _forward.discard(self)
        self._drop_before(self._size_bytes)

    def _result(self, piece: _Piece) -> bytes:
        try:
            return piece.data.result()
        except BaseException:  # raised again: a later read, even after Ctrl-C, requests it again
            self.close()
            raise

    def _follow(self, position: int, end: int) -> None:
        """Detect forward reading; drop what lies before the position."""
        held_from = self._pieces[0].start if self._pieces else self._end
        held_to = self._pieces[-1].end if self._pieces else self._end
        if held_from <= position <= max(held_to, self._end) + _SKIP_MAX:
            self._run += max(end - self._end, 0)
            self._steps += 1
        else:
            self._run, self._steps = end - position, 1
            self.close()
        if position >= held_to:
            self.close()
        self._end = end

    def _request(self, position: int, end: int) -> None:
        """Request pieces from `position` on: those wanted now, and those expected next."""
        self._drop_before(position)
        is_forward = self._steps >= _STEPS or self._run >= _RUN
        ahead = 0
        if is_forward:
            _forward.add(self)
            ahead = min(2 * self._run, AHEAD_MAX, TOGETHER_MAX // len(_forward))
        # What is ahead comes in about four pieces, so that requests overlap.
        size = min(max(ahead // 4, PIECE_SIZE_MIN), PIECE_SIZE_MAX)
        known = self._pieces[-1].end if self._pieces else position
        limit = min(max(end, position + ahead), position + AHEAD_MAX)
        while known < self._size_bytes and (
            known < min(end, limit) or (known + size <= limit and ahead)
        ):
            wanted = max(size, min(end - known, PIECE_SIZE_MAX))
            following = min(known + wanted, self._size_bytes)
            if ahead or self._pieces or following < min(end, self._size_bytes):
                data = _pool(os.getpid()).submit(self._fetch, known, following - known)
            else:  # nothing is fetched meanwhile
                data = _done(self._fetch, known, following - known)
            self._pieces.append(_Piece(known, following, data))
            known = following

    def _drop_before(self, position: int) -> None:
        while self._pieces and self._pieces[0].end <= position:
            self._pieces.popleft().data.cancel()


_forward: WeakSet[ReadAhead] = WeakSet()
"""What is read forward now."""


def _done(fetch: Callable[[int, int], bytes], position: int, size: int) -> Future[bytes]:
    done: Future[bytes] = Future()
    try:
        done.set_result(fetch(position, size))
    except Exception as error:  # noqa: BLE001 # raised where the piece is used
        done.set_exception(error)
    return done


@lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:
    """Return the threads of this process: a child process has none of its parent's."""
    return ThreadPoolExecutor(_THREADS, "read-ahead")
