"""How files are read: as fast as possible, or gently."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol

from formats.late_classes import dataclass
from kafkalog.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.io.paths.source import Source

_BURST_S: Final = 0.1


class RateLimiter:
    """A token bucket: a reader that spends more than it holds waits until it is filled again.

    Not thread-safe.

    Args:
        rate: bytes per second, at least 1.
        clock: returns seconds, monotonic.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        rate: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert rate > 0
        self.rate = rate
        self._clock = clock
        self._sleep = sleep
        self._paid_until = clock()

    def spend(self, size_bytes: int) -> None:
        """Account for bytes read, and wait as long as the rate limit requires.

        After a pause at most a tenth of a second's bytes are free.
        """
        now = self._clock()
        self._paid_until = max(self._paid_until, now - _BURST_S) + size_bytes / self.rate
        if self._paid_until > now:
            self._sleep(self._paid_until - now)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read.

    Attributes:
        limiter: limits the speed, None for no limit.
        leaves_cache: whether pages that were not in the page cache are evicted after the read.
    """

    limiter: RateLimiter | None = None
    leaves_cache: bool = False


AS_FAST_AS_IT_GOES = ReadOptions()


_current: ContextVar[ReadOptions | None] = ContextVar("read options", default=None)
_everywhere = [AS_FAST_AS_IT_GOES]


def read_options() -> ReadOptions:
    """Return how a file that is opened here and now is read."""
    return _current.get() or _everywhere[-1]


@contextmanager
def reading(
    *, rate_limit: int | None = None, leaves_cache: bool = False, everywhere: bool = False
) -> Iterator[None]:
    """Read files opened in the block gently, to spare a broker that needs the disk.

    What is not given stays as it is around the block.

    Args:
        rate_limit: bytes per second, of all files together; None for no limit of its own.
        leaves_cache: pages that were not in the page cache are evicted once they are read, those
            that were there stay: neither the broker's memory nor what its consumers read is pushed
            out. The kernel reports what is cached only to owners and writers of a file. For others,
            pages that a fast disk delivers at once stay, too; and if the file system has no
            `RWF_NOWAIT`, every page that was read is evicted. Pages larger than 4096 bytes may stay
            at the edges of what was read.
        everywhere: also for threads that other libraries start.

    Raises:
        UnsupportedError: the system has no `posix_fadvise`.

    Cost:
        With `leaves_cache` the kernel does not read ahead.
    """
    if leaves_cache and not (hasattr(os, "posix_fadvise") and hasattr(os, "RWF_NOWAIT")):
        raise UnsupportedError("This system does not let programs control the page cache.")
    around = read_options()
    limiter = around.limiter if rate_limit is None else RateLimiter(rate_limit)
    options = ReadOptions(limiter, leaves_cache or around.leaves_cache)
    token = None if everywhere else _current.set(options)
    if everywhere:
        _everywhere.append(options)
    try:
        yield
    finally:
        if token is None:
            _everywhere.pop()
        else:
            _current.reset(token)


class Keeper(Protocol):
    """Keeps files of this machine that were read already."""

    def keep(self, source: Source) -> bytes:
        """Take a file that has been opened; return its bytes if they were read, else nothing."""


keeper: ContextVar[Keeper | None] = ContextVar("keeper", default=None)
