"""What is known of objects without asking again: what they are, their ends, and for how long."""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Final

from kafkalog.io.paths.buckets import Listed

if TYPE_CHECKING:
    from collections.abc import Iterator

Version = tuple[str, Listed]
"""Path of an object, and what it is."""

LISTED_FOR_S: Final = 30.0
"""How long a listing, and the content of a small object, is trusted, in seconds."""
CONTENT_SIZE_MAX: Final = 1 << 17
"""Objects up to this size are read whole, with one request, and kept for a while."""
CONTENTS_SIZE_MAX: Final = 32 << 20
"""How much of small objects, and of the ends of larger ones, is kept, in all."""
SEEN_MAX: Final = 1024
"""How many objects are known that no listing shows."""

_holds: list[float] = []  # when those began who hold listings
_last: list[tuple[float, float]] = []  # when the last of them began, and ended


def is_fresh(since: float) -> bool:
    """Return whether what was asked for at a time is still trusted; 0 for what never was.

    What was held is as good as new when the hold ends: a run that has planned reads next.
    """
    since_s = since + LISTED_FOR_S
    now = time.monotonic()
    if since_s > now or not since:
        return bool(since)
    if any(since_s > began for began in _holds):
        return True
    return any(since_s > began and ended + LISTED_FOR_S > now for began, ended in _last)


def held_since() -> float | None:
    """Return when the run began that trusts what it has listed, None if there is none."""
    return min(_holds, default=None)


@contextmanager
def listings_held() -> Iterator[None]:
    """Trust listings as long as the block takes: a run that plans is about one moment."""
    began = time.monotonic()
    _holds.append(began)
    try:
        yield
    finally:
        _holds.remove(began)
        _last[:] = [(began, time.monotonic())]


class Contents:
    """Small objects that were read lately, and the ends of larger ones.

    A check opens an index or a checkpoint several times, and several questions about a log look at
    its end. They are trusted as long as a listing. Those read longest ago go first.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Version, tuple[float, bytes]] = OrderedDict()
        self._size_bytes = 0
        self._lock = RLock()

    def get(self, version: Version) -> bytes | None:
        """Return the last bytes of an object, if not all; None if it has to be read."""
        if not version[1].size_bytes:
            return b""
        with self._lock:
            since, data = self._kept.get(version, (0.0, b""))
        return data if is_fresh(since) else None

    def keep(self, version: Version, data: bytes) -> None:
        """Keep the last bytes of an object, unless more are kept; `CONTENTS_SIZE_MAX` in all."""
        more = self.get(version)
        if more is not None and len(more) > len(data):
            return
        with self._lock:
            _, old = self._kept.pop(version, (0.0, b""))
            self._kept[version] = (time.monotonic(), data)
            self._size_bytes += len(data) - len(old)
            while self._size_bytes > CONTENTS_SIZE_MAX:
                _, (_, oldest) = self._kept.popitem(last=False)
                self._size_bytes -= len(oldest)

    def clear(self) -> None:
        """Forget all contents."""
        with self._lock:
            self._kept.clear()
            self._size_bytes = 0


class Seen:
    """What single objects were when they were asked about, `SEEN_MAX` of them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[float, Listed]] = OrderedDict()
        self._lock = RLock()

    def get(self, path: str) -> Listed | None:
        """Return what an object is, None if that is not known or was long ago."""
        with self._lock:
            since, listed = self._kept.get(path, (0.0, None))
        return listed if is_fresh(since) else None

    def keep(self, path: str, listed: Listed) -> None:
        """Keep what an object has just been."""
        with self._lock:
            self._kept[path] = time.monotonic(), listed
            self._kept.move_to_end(path)
            while len(self._kept) > SEEN_MAX:
                self._kept.popitem(last=False)

    def drop(self, path: str) -> None:
        """Forget an object."""
        with self._lock:
            self._kept.pop(path, None)

    def clear(self) -> None:
        """Forget all objects."""
        with self._lock:
            self._kept.clear()
