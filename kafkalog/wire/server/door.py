"""Where connections come in: counted from the moment they are accepted.

When there are too many, a connection that has not sent a request or not authenticated is closed
first: sockets that are only opened keep nobody out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalog.errors import Note

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

_HANDSHAKE_SECONDS_MAX: Final = 10
_GOODBYE_SECONDS_MAX: Final = 5
_PAUSE_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 5
_BACKLOG: Final = 100
_OTHER_FILES: Final = 64
_FILES_EACH: Final = 4
"""Two for each connection, and as many for segments."""


@dataclass(eq=False)
class Visit:
    """A connection.

    Attributes:
        reader, writer: the streams, after the handshake of TLS.
        is_shut_out: whether it ends because others need its place.
    """

    socket: socket.socket
    reader: asyncio.StreamReader = field(init=False)
    writer: asyncio.StreamWriter = field(init=False)
    is_shut_out: bool = False


class Door:
    """Accepts connections.

    Args:
        serve: answers a connection until it ends; called in a task of its own.
        tls: how they are encrypted; None for not at all.
        hear: called with a warning, once for each kind of trouble.
    """

    def __init__(
        self,
        serve: Callable[[Visit], Awaitable[None]],
        connections_max: int,
        tls: ssl.SSLContext | None,
        hear: Callable[[Note], object],
    ) -> None:
        self._serve = serve
        self._wanted = self._connections_max = connections_max
        self._tls = tls
        self._hear = hear
        self._said: set[str] = set()
        self._listening: list[socket.socket] = []
        self._visits: dict[Visit, asyncio.Task[None]] = {}
        self._strangers: dict[Visit, None] = {}
        self._is_closed = self._is_resting = False

    async def bind(self, host: str, port: int) -> int:
        """Take an address, on which nobody is accepted yet; return its port.

        Raises:
            OSError: it cannot be taken.
        """
        self._loop = asyncio.get_running_loop()
        self._connections_max = min(self._wanted, _places(self._wanted))
        found = await self._loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        try:
            for family, address in dict.fromkeys((one[0], one[4]) for one in found):
                with contextlib.suppress(_NoSuchFamilyError):
                    self._listening.append(_bound(family, address))
        except OSError:
            self.close()
            raise
        if not self._listening:
            raise OSError("no address of this machine")
        return int(self._listening[0].getsockname()[1])

    def open(self) -> None:
        for listening in self._listening:
            listening.listen(_BACKLOG)
        self._go_on()

    def close(self) -> None:
        self._is_closed = True
        for listening in self._listening:
            if listening.fileno() >= 0:
                self._loop.remove_reader(listening)
            listening.close()

    async def end_all(self) -> None:
        """End the connections, which have a few seconds for it."""
        tasks = list(self._visits.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_GRACE_SECONDS)
        await asyncio.sleep(0)  # the loop closes their sockets

    def know(self, visit: Visit) -> None:
        """Note that a connection has shown what it is for: it keeps its place."""
        self._strangers.pop(visit, None)

    # Accepting -----------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):  # it has gone again
            return
        except OSError as error:
            # The socket stays ready: without a pause this would be called again and again.
            self._say(f"A connection cannot be accepted: {os.strerror(error.errno or 0)}.")
            self._rest()
            self._loop.call_later(_PAUSE_SECONDS, self._go_on)
            return
        accepted.setblocking(False)
        if len(self._visits) >= self._connections_max and not self._make_place():
            accepted.close()
            return
        visit = Visit(accepted)
        self._strangers[visit] = None
        task = self._loop.create_task(self._welcome(visit))
        self._visits[visit] = task
        task.add_done_callback(partial(self._ended, visit))
        if len(self._visits) > self._connections_max:
            self._rest()  # until the one that was shut out has gone

    def _make_place(self) -> bool:
        """End the connection that has been a stranger for longest; return whether there is one."""
        limit = "--max-connections N permits N."
        if self._connections_max < self._wanted:
            files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            limit = f"{files} open files (ulimit -n) permit no more."
        stranger = next(iter(self._strangers), None)
        # Those that have been answered keep their places.
        what = "more are closed at once" if stranger is None else "silent ones are closed for more"
        self._say(f"{self._connections_max} connections are open, {what}: {limit}")
        if stranger is None:
            return False
        del self._strangers[stranger]
        stranger.is_shut_out = True
        self._visits[stranger].cancel()
        return True

    def _rest(self) -> None:
        self._is_resting = True
        for listening in self._listening:
            self._loop.remove_reader(listening)

    def _go_on(self) -> None:
        self._is_resting = False
        if not self._is_closed:
            for listening in self._listening:
                self._loop.add_reader(listening, self._accept, listening)

    def _ended(self, visit: Visit, task: asyncio.Task[None]) -> None:
        del self._visits[visit]
        self._strangers.pop(visit, None)
        visit.socket.close()  # it was cancelled before it began
        if not task.cancelled():
            task.result()
        if self._is_resting and len(self._visits) <= self._connections_max:
            self._go_on()

    async def _welcome(self, visit: Visit) -> None:
        visit.reader = asyncio.StreamReader(loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(visit.reader, loop=self._loop)
        options = {}
        if self._tls is not None:
            options = {"ssl_handshake_timeout": _HANDSHAKE_SECONDS_MAX,
                       "ssl_shutdown_timeout": _GOODBYE_SECONDS_MAX}  # fmt: skip
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, visit.socket, ssl=self._tls, **options
            )
        except (OSError, asyncio.CancelledError):  # no handshake, or too late
            return
        visit.writer = asyncio.StreamWriter(transport, protocol, visit.reader, self._loop)
        await self._serve(visit)

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._hear(Note(text, is_warning=True))


class _NoSuchFamilyError(Exception):
    """The machine does not speak this family of addresses."""


def _bound(family: int, address: tuple[object, ...]) -> socket.socket:
    try:
        # With its protocol, without which asyncio would leave Nagle's algorithm on.
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise _NoSuchFamilyError from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setblocking(False)
        made.bind(address)
    except OSError:
        made.close()
        raise
    return made


def _places(wanted: int) -> int:
    """Return how many connections the limit of open files leaves room for, once it is raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    needed = wanted * _FILES_EACH + _OTHER_FILES
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (soft - _OTHER_FILES) // _FILES_EACH)
