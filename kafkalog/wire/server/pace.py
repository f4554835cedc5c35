"""A limit on bytes per second, shared by all clients."""

from __future__ import annotations

import asyncio
import time


class Pace:
    """Lets bytes pass at a rate.

    Args:
        rate: bytes per second; None for no limit.
    """

    def __init__(self, rate: int | None) -> None:
        self._rate = rate
        self._free_at = 0.0

    @property
    def is_limited(self) -> bool:
        return self._rate is not None

    async def take(self, size: int) -> None:
        if self._rate is None:
            return
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + size / self._rate
        await asyncio.sleep(self._free_at - now)
