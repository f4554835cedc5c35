"""Threads of a generator, which ends them wherever it is ended itself.

A generator that was given up in a cycle of references, as the frames of an error that is kept are,
is ended where Python happens to collect garbage: also in a thread that works for it, which must not
wait for itself.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future


class Crew(ThreadPoolExecutor):
    """A pool that its own threads can end, without waiting.

    Args:
        count: how many threads.
        name: how their names begin.
    """

    def __init__(self, count: int, name: str) -> None:
        members: set[int] = set()
        super().__init__(count, name, initializer=lambda: members.add(threading.get_ident()))
        self._members = members

    @property
    def _is_here(self) -> bool:
        return threading.get_ident() in self._members

    def wait_for(self, future: Future[Any]) -> None:
        """Wait for the end of a future, whatever comes of it."""
        if not self._is_here:
            future.exception()

    def forget(self, futures: Iterable[Future[Any]]) -> None:
        """Cancel what was not begun, and wait for the rest."""
        for future in futures:
            if not future.cancel():
                self.wait_for(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads, and wait for them."""
        super().shutdown(wait and not self._is_here, cancel_futures=cancel_futures)
