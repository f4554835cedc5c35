"""Limits on how much of a log is in memory at a time, whatever it decompresses into.

The memory bound of each command, which `docs/memory.md` states, rests on these numbers.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.model import Record

LARGE_SIZE: Final = 1 << 24
"""A batch that decompresses to more waits until its chunk is the first in line: one at a time."""

IN_FLIGHT_MAX: Final = 1 << 26
"""Bytes of a log that may be in flight in a pool, plus one chunk."""

SIZE_AT_ONCE: Final = 1 << 23
"""Rows are passed on once their keys and values reach this size, however few they are."""


def record_size(record: Record) -> int:
    """Return the bytes of a record's key, value and headers."""
    headers = sum(len(one.key) + len(one.value or b"") for one in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


class Turnstile:
    """Lets one thread at a time hold large batches; its holder may pass again.

    It is a courtesy, not a lock: a consumer that never comes back delays others for a while, not
    forever.
    """

    def __init__(self, patience_s: float = 60.0) -> None:
        self._patience_s = patience_s
        self._change = threading.Condition()
        self._holder = 0
        self._depth = 0

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Wait for the others, then make them wait."""
        me = threading.get_ident()
        with self._change:
            self._change.wait_for(lambda: self._holder in (0, me), self._patience_s)
            self._holder = me
            self._depth += 1
        try:
            yield
        finally:
            with self._change:
                self._depth -= 1
                if not self._depth:
                    self._holder = 0
                    self._change.notify_all()
