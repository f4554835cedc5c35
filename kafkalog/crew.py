"""A thread pool for generators, which may be closed from any thread, even one of the pool's own.

A generator that is kept alive only by a reference cycle, such as the frames of a stored exception,
is closed wherever the garbage collector happens to run. That can be a thread of its own pool, which
must not wait for itself.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future


class Crew(ThreadPoolExecutor):
    """A thread pool that its own threads can shut down without waiting for themselves.

    Args:
        count: number of threads.
        name: prefix of the threads' names.
    """

    def __init__(self, count: int, name: str) -> None:
        members: set[int] = set()
        super().__init__(count, name, initializer=lambda: members.add(threading.get_ident()))
        self._members = members

    @property
    def _is_here(self) -> bool:
        return threading.get_ident() in self._members

    def wait_for(self, future: Future[Any]) -> None:
        """Wait until a future is done, and ignore its result."""
        if not self._is_here:
            future.exception()

    def forget(self, futures: Iterable[Future[Any]]) -> None:
        """Cancel the futures that have not started, and wait for the others."""
        for future in futures:
            if not future.cancel():
                self.wait_for(future)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut the pool down, and wait for its threads unless called by one of them."""
        super().shutdown(wait and not self._is_here, cancel_futures=cancel_futures)
