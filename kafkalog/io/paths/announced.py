"""Objects fetched before they are read: who knows what will be read says so, in order.

So the latencies of many small objects overlap, though one reader takes them one after another.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.io.paths.buckets import bucket_at
from kafkalog.io.paths.object_cache import CONTENT_SIZE_MAX
from kafkalog.io.paths.requests import requests

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from kafkalog.io.paths.buckets import Listed
    from kafkalog.io.paths.object_cache import Version

AHEAD_MAX: Final = 128
"""How many objects are fetched before their turn, 16 MiB: `CONTENT_SIZE_MAX` of each at most. As
many are kept behind it, for readers that come in another order."""


Place = tuple[str, "Listed | None", int]
"""A path, what is known of the object, and a position in it."""


class _Fetched(NamedTuple):
    number: int
    path: str
    listed: Listed | None
    position: int
    answer: Future[tuple[Listed, bytes]]


class _Announcement:
    """What will be read in a block.

    Args:
        places: paths, what is known of them, and positions, in the order in which they will be
            read; taken as they are needed.
    """

    def __init__(self, places: Iterable[Place]) -> None:
        self._left = iter(places)
        self._by_path: dict[str, _Fetched] = {}
        self._order: deque[_Fetched] = deque()
        self._number = 0
        self._lock = Lock()
        self.reach(0)

    def of(self, path: str) -> _Fetched | None:
        """Return what was fetched of an object, or is on its way."""
        return self._by_path.get(path)

    def reach(self, number: int) -> None:
        """Fetch what comes after a number that a reader has come to; drop what is long behind."""
        with self._lock:
            while self._order and self._order[0].number < number - AHEAD_MAX:
                self._drop(self._order.popleft())
            while self._number < number + AHEAD_MAX and self._fetch_next():
                self._number += 1

    def close(self) -> None:
        """Fetch nothing more."""
        with self._lock:
            self._left = iter(())
            while self._order:
                self._drop(self._order.popleft())

    def _drop(self, one: _Fetched) -> None:
        one.answer.cancel()
        if self._by_path.get(one.path) is one:
            del self._by_path[one.path]

    def _fetch_next(self) -> bool:
        """Request the next object that nobody has; return whether there is one."""
        for path, listed, position in self._left:
            if any(one.of(path) is not None for one in (self, *_active)):
                continue
            if not requests().spare():
                return False
            answer = bucket_at(path).ahead(path, listed, position, CONTENT_SIZE_MAX)
            fetched = _Fetched(self._number, path, listed, position, answer)
            self._by_path[path] = fetched
            self._order.append(fetched)
            return True
        return False


_active: list[_Announcement] = []


@contextmanager
def announced(places: Iterable[Place]) -> Iterator[None]:
    """Fetch ahead in the block what will be read, at places as `_Announcement` takes them."""
    one = _Announcement(places)
    _active.append(one)
    try:
        yield
    finally:
        _active.remove(one)
        one.close()


def opened(path: str) -> Listed | None:
    """Return what an object is that was announced without being listed; None if it was not."""
    answer = _answer(path)
    return None if answer is None else answer[1]


def taken(version: Version, position: int) -> tuple[int, bytes] | None:
    """Return a piece of an object that was announced, and where it begins.

    None if nothing was announced that has the position, or if fetching it failed.
    """
    answer = _answer(version[0])
    if answer is None or answer[1] != version[1]:
        return None
    fetched, _, data = answer
    has_it = fetched.position <= position < fetched.position + len(data)
    return (fetched.position, data) if has_it else None


def _answer(path: str) -> tuple[_Fetched, Listed, bytes] | None:
    for one in _active:
        fetched = one.of(path)
        if fetched is None:
            continue
        one.reach(fetched.number)
        try:
            listed, data = fetched.answer.result()
        except Exception:  # noqa: BLE001 # the reader asks itself, and learns why
            return None
        return fetched, fetched.listed or listed, data
    return None
