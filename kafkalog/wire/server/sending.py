"""How the bytes of a response get to a client: by the kernel, or through memory.

A response with bytes of files is begun in the thread that found them: a change of threads for each
response costs more than the bytes. What the client does not take at once is left to the event loop,
so that a slow client keeps no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import select
import socket
import threading
import time
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, Final, Self, cast

from kafkalog.wire.server.model import FileRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.wire.server.pace import Pace

_PIECE_SIZE: Final = 1 << 20
_SMALL_PIECE_SIZE: Final = 1 << 18
"""It is still in the processor's cache when it is sent."""
_STALL_SECONDS: Final = 0.05
_THREAD_SECONDS_MAX: Final = 1
_NO_SENDFILE: Final = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOVERFLOW}
_HEAD_SIZE_MAX: Final = 1 << 12
_MORE: Final = getattr(socket, "MSG_MORE", 0)
"""Where there is such a flag, what is sent by it waits for what follows, for a fuller packet."""


class Sender:
    """Sends responses on one connection, each after the one before it; a context manager.

    Args:
        by_kernel: whether the kernel may send bytes of files; else they pass through memory.
    """

    def __init__(self, writer: asyncio.StreamWriter, pace: Pace, *, by_kernel: bool = True) -> None:
        self._writer = writer
        self._pace = pace
        # What the kernel sends does not pass through TLS.
        self._is_plain = writer.get_extra_info("ssl_object") is None and not pace.is_limited
        self._by_kernel = by_kernel
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._is_closed = self._is_sending = False

    def __enter__(self) -> Self:
        """Take a descriptor of its own: that of the stream may be another's when it is used."""
        if self._is_plain:
            self._socket = self._writer.get_extra_info("socket").dup()
        return self

    def __exit__(self, *_: object) -> None:
        """Close it, unless a thread is sending, which will."""
        with self._lock:
            self._is_closed = True
            if self._socket is not None and not self._is_sending:
                self._socket.close()

    def begin(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Send what the client takes at once, in any thread; return the rest.

        Nothing else may be sent meanwhile.

        Raises:
            KafkaLogError, OSError: as `send`.
        """
        parts = [_in_memory(part) for part in parts]
        # What the event loop still has to send comes first.
        if self._socket is None or self._writer.transport.get_write_buffer_size():
            return parts
        with self._lock:
            if self._is_closed:
                return parts
            self._is_sending = True
        try:
            return self._begin(self._socket, [part for part in parts if len(part)])
        finally:
            with self._lock:
                self._is_sending = False
                if self._has_ended():
                    self._socket.close()

    def _has_ended(self) -> bool:
        """Return whether the connection was closed, which another thread may do."""
        return self._is_closed

    def _begin(self, target: socket.socket, left: list[Any]) -> list[Any]:
        since = time.monotonic()
        poll = None
        while left and not self._has_ended():
            try:
                left[:1] = self._send_some(target, left[0], is_last=len(left) == 1)
            except BlockingIOError:
                if poll is None:
                    poll = select.poll()
                    poll.register(target, select.POLLOUT)
                # A thread must not wait long for a slow client: the event loop does that.
                if not poll.poll(_STALL_SECONDS * 1000):
                    break
                if time.monotonic() - since > _THREAD_SECONDS_MAX:
                    break
        return left

    def _send_some(self, target: socket.socket, part: Any, *, is_last: bool) -> list[Any]:
        if not isinstance(part, FileRange):
            waits = len(part) <= _HEAD_SIZE_MAX and not is_last
            sent = target.send(part, _MORE if waits else 0)
            return [memoryview(part)[sent:]] if sent < len(part) else []
        if self._by_kernel:
            try:
                sent = os.sendfile(target.fileno(), _descriptor(part), part.position, part.size)
            except io.UnsupportedOperation:  # an object, which has no descriptor
                self._by_kernel = False
            except OSError as error:
                if error.errno not in _NO_SENDFILE:
                    raise
                self._by_kernel = False
            else:
                if not sent:
                    raise ConnectionAbortedError("a file became shorter while it was sent")
                return _after(part, sent)
        piece = memoryview(bytearray(min(part.size, _SMALL_PIECE_SIZE)))
        part.source.read_into(part.position, piece)
        return [piece, *_after(part, len(piece))]

    async def send(self, parts: Sequence[Any]) -> None:
        """Send parts, in the event loop.

        Raises:
            KafkaLogError: bytes of a file cannot be read.
            OSError: the connection broke.
        """
        for part in map(_in_memory, parts):
            if isinstance(part, FileRange):
                await self._send_range(part)
            elif len(part):
                self._writer.write(part)
                if self._pace.is_limited:
                    await self._pace.take(len(part))
        await self._writer.drain()

    async def _send_range(self, part: FileRange) -> None:
        if self._is_plain and self._by_kernel:
            await self._writer.drain()
            loop = asyncio.get_running_loop()
            # Else it is sent piece by piece.
            with contextlib.suppress(asyncio.SendfileNotAvailableError, io.UnsupportedOperation):
                file = cast("IO[bytes]", part.source)  # its descriptor is all that is used
                sent = await loop.sendfile(
                    self._writer.transport, file, part.position, part.size, fallback=False
                )
                if sent < part.size:  # the file ended
                    raise ConnectionAbortedError("a file became shorter while it was sent")
                return
        position, end = part.position, part.position + part.size
        while position < end:
            piece = bytearray(min(end - position, _PIECE_SIZE))
            await asyncio.to_thread(part.source.read_into, position, memoryview(piece))
            self._writer.write(piece)
            await self._writer.drain()
            await self._pace.take(len(piece))
            position += len(piece)


def _in_memory(part: Any) -> Any:
    return part.held if isinstance(part, FileRange) and part.held is not None else part


def _descriptor(part: FileRange) -> int:
    return part.source.fileno()


def _after(part: FileRange, size: int) -> list[FileRange]:
    if size == part.size:
        return []
    return [replace(part, position=part.position + size, size=part.size - size)]
