"""Memory for requests, shared by connections: taken as bytes arrive, then for what they say."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

SIZE: Final = 64 << 20
STRANGERS_SIZE: Final = SIZE >> 4
OWN_SIZE: Final = 1 << 16
"""So much of a request may arrive on each connection, whatever the others do."""


class Arrivals:
    """Bytes of requests that are not whole yet, or still wait for room.

    Nobody waits for others here: a client may take as long as it likes for its request. If there
    are too many bytes, the connection ends that has been silent for longest.

    Args:
        size: how many bytes there may be, beyond those that each connection may have.
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._held: dict[asyncio.Task[object], int] = {}

    def hold(self, task: asyncio.Task[object], size: int) -> None:
        """Note how many bytes a connection has by now, which is the last to be ended."""
        self.release(task)
        self._held[task] = size
        self._left -= size
        while self._left < 0:
            silent = next(iter(self._held))
            self.release(silent)
            silent.cancel()

    def release(self, task: asyncio.Task[object]) -> None:
        """Note that a connection has none any more."""
        self._left += self._held.pop(task, 0)


class Room:
    """Memory for what requests say, and where their bytes wait for it."""

    def __init__(self, size: int = SIZE) -> None:
        self.arrivals = Arrivals(size // 2)
        self._size = self._left = size
        self._changed = asyncio.Condition()
        self._telling: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[Callable[[], None]]:
        """Take some while the block runs; wait until there is as much.

        The block gets a function that gives it back earlier.
        """
        # Whatever it wants, a request alone fits.
        wanted = min(size, self._size)
        async with self._changed:
            await self._changed.wait_for(lambda: self._left >= wanted)
            self._left -= wanted

        def give_back() -> None:
            nonlocal wanted
            self._left += wanted
            wanted = 0
            # `notify_all` needs the lock, for which this caller cannot wait.
            task = asyncio.create_task(self._tell())
            self._telling.add(task)  # asyncio keeps only weak references to tasks
            task.add_done_callback(self._telling.discard)

        try:
            yield give_back
        finally:
            give_back()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
