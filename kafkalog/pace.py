"""A limit on how many bytes a second are read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_BURST_S: Final = 0.1


class Pace:
    """A token bucket: whoever spends more than it holds waits until it has filled up again.

    Not for several threads at a time.

    Args:
        rate: bytes a second, at least 1.
        clock: seconds, rising.
        sleep: waits for some seconds.
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
        """So many bytes were read: wait until the pace is kept.

        After a pause at most a tenth of a second's bytes come for nothing.
        """
        now = self._clock()
        self._paid_until = max(self._paid_until, now - _BURST_S) + size_bytes / self.rate
        if self._paid_until > now:
            self._sleep(self._paid_until - now)
