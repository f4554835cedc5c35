"""How much of a log may be in memory at a time, and how much it will be when decompressed.

Each command's bound, which `docs/design/memory.md` states, rests on these numbers.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from formats.constants import RECORD_BATCH_OVERHEAD
from kafkalog.errors import CorruptDataError, DataError, LimitExceededError
from kafkalog.io.codecs import decompress
from kafkalog.io.jit.fast_path import FAST_SIZE_MIN
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.model import Batch, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_PATIENCE_S: Final = 60.0
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

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._holder = 0
        self._depth = 0

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Wait for the others, then make them wait."""
        me = threading.get_ident()
        with self._change:
            self._change.wait_for(lambda: self._holder in (0, me), _PATIENCE_S)
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


# What a record costs to decode, in bytes of an uncompressed log, however few bytes it has.
_RECORD_SIZE: Final = 32
_UNPACKED_MAX: Final = 1 << 20
"""More than this in the compressed batches of a small log is decoded by the kernels, however few
records it is: one record can have a million headers.
"""
_LEGACY_RATIO: Final = 100
"""Assumed number of messages in a compressed message of magic 0 or 1, which does not state it."""


def size_to_decode(source: Source, position: int = 0, end: int | None = None) -> int:
    """Estimate the size of an uncompressed log that would take as long to decode.

    Reads the batch headers of a small log, whose claims need not be true, and decompresses some of
    it.
    """
    end = source.size_bytes if end is None else min(end, source.size_bytes)
    size = min(source.stored_bytes, end - position)
    # Large enough: what it decompresses to cannot make it small again.
    if size >= FAST_SIZE_MIN:
        return size
    room = _UNPACKED_MAX
    with suppress(DataError):  # reported when the log is read
        for batch in scan_batches(source, position, end):
            if not isinstance(batch, Batch) or not batch.compression:
                continue
            # Messages cannot be counted without decompressing them.
            if batch.magic < 2:
                size += _LEGACY_RATIO * batch.size_bytes
                continue
            size += _RECORD_SIZE * max(batch.records, 0)
            if batch.records > 0 and size < FAST_SIZE_MIN:
                room -= _unpacked_size(source, batch, room)
            if room < 0:
                return max(size, FAST_SIZE_MIN)
    return size


def _unpacked_size(source: Source, batch: Batch, limit: int) -> int:
    """Return the size of a decompressed batch, one more than the limit if it is larger."""
    start = batch.position + RECORD_BATCH_OVERHEAD
    data = source.read(start, batch.end_position - start)
    try:
        return len(decompress(data, batch.compression, magic=batch.magic, limit=limit))
    except LimitExceededError:
        return limit + 1
    except CorruptDataError:
        return 0


def logs_to_decode(paths: Iterable[str]) -> int:
    """Sum `size_to_decode` over several logs; a log that cannot be opened counts as 0."""
    size = 0
    for path in paths:
        with suppress(DataError), Source(path) as source:
            size += size_to_decode(source)
            if size >= FAST_SIZE_MIN:
                break
    return size
