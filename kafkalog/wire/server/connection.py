"""One connection: requests in, responses out, in order.

A request is a size, a header and a body; the header says which API and version the body is, and
a number that the response repeats. Follows `SocketServer`, `RequestHeader` and `ResponseHeader` of
Kafka: what is malformed ends the connection, and nothing else.
"""

from __future__ import annotations

import asyncio
import struct
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from formats.error_codes import ErrorCode
from formats.message_codec import Input, Output, decoder, encoder
from kafkalog.wire.server.meter import Meter
from kafkalog.wire.server.model import Begun, Client, as_it_is, nothing
from kafkalog.wire.server.room import OWN_SIZE
from kafkalog.wire.server.security import BEFORE_AUTHENTICATION
from kafkalog.wire.server.sending import Sender

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kafkalog.wire.server.model import Answer, Api, Fields
    from kafkalog.wire.server.pace import Pace
    from kafkalog.wire.server.room import Room
    from kafkalog.wire.server.security import SaslPlain

REQUEST_SIZE_MAX: Final = 16 << 20
"""What a client asks for fits; a broker takes 100 MiB, for records that nobody can write here."""
_SMALL_SIZE: Final = 1 << 12
"""Larger requests wait for room, so that many clients cannot fill the memory."""
_GROWTH: Final = 32  # how many bytes of memory a byte of a request may take
_REQUEST_SECONDS_MAX: Final = 60
_IDLE_SECONDS_MAX: Final = 600
"""`connections.max.idle.ms` of a broker, by default."""
_STRANGER_SIZE_MAX: Final = 512 << 10  # `sasl.server.max.receive.size`, by default
_STRANGER_SECONDS_MAX: Final = 30
"""A client that has not authenticated, or never asked, is not waited for longer."""
_GONE_SECONDS: Final = 0.5
"""How often it is seen whether a client still waits for its answer."""
_SIZE: Final = struct.Struct(">i")
_SIZES: Final = struct.Struct(">ii")
_HEADER: Final = struct.Struct(">hhi")
_API_VERSIONS: Final = 18  # its key


class MalformedRequestError(Exception):
    """The bytes are no request; the connection ends."""


class Connection:
    """Answers the requests of one client until it goes away.

    Args:
        strangers_room: the same, for those of clients that have not authenticated.
        identified: called once, when the client has said who it is.
        known: called once, when it has authenticated, or was answered where nobody has to.
        meter: counts what is answered.
        guard: says who may ask what; None for everybody.
        by_kernel: whether the kernel may send bytes of files.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        apis: Mapping[int, Api],
        pace: Pace,
        room: Room,
        strangers_room: Room,
        identified: Callable[[Client], object] = lambda _: None,
        known: Callable[[], object] = nothing,
        meter: Meter | None = None,
        guard: SaslPlain | None = None,
        *,
        by_kernel: bool = True,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._sender = Sender(writer, pace, by_kernel=by_kernel)
        self._apis = apis
        self._rooms = strangers_room, room
        self._identified = identified
        self._known = known
        self._is_identified = self._is_known = False
        self._meter = meter or Meter()
        self._guard = guard
        host, port = writer.get_extra_info("peername")[:2]
        self.client = Client(host, port)

    async def run(self) -> None:
        """Answer until the client goes away, or sends what is no request.

        Raises:
            MalformedRequestError, MessageError: the client sent something else than a request.
            ConnectionError, OSError: the connection broke.
        """
        with self._sender:
            while await self._answer_one():
                if not self._is_known and self._has_authenticated():
                    self._is_known = True
                    self._known()

    def _has_authenticated(self) -> bool:
        return self._guard is None or self._guard.knows(self.client)

    async def _answer_one(self) -> bool:
        try:
            async with asyncio.timeout(
                _IDLE_SECONDS_MAX if self._is_known else _STRANGER_SECONDS_MAX
            ):
                begin = await self._reader.readexactly(1)
        # The client has gone, or was silent too long.
        except (asyncio.IncompleteReadError, TimeoutError):
            return False
        is_stranger = not self._has_authenticated()
        task = asyncio.current_task()
        assert task is not None, "a connection is a task"
        room = self._rooms[not is_stranger]
        try:
            data = await self._received(begin, is_stranger, task, room)
            if len(data) <= _SMALL_SIZE:
                return await self._answer(data)
            async with room.taken(len(data) * _GROWTH) as give_back:
                room.arrivals.release(task)
                self.client.forget_request = give_back
                try:
                    return await self._answer(data)
                finally:
                    self.client.forget_request = nothing
        except asyncio.IncompleteReadError:  # it went in the middle of a request
            return False
        finally:
            room.arrivals.release(task)

    async def _received(
        self, begin: bytes, is_stranger: bool, task: asyncio.Task[object], room: Room
    ) -> bytes:
        try:
            async with asyncio.timeout(
                _STRANGER_SECONDS_MAX if is_stranger else _REQUEST_SECONDS_MAX
            ):
                head = begin + await self._reader.readexactly(_SIZE.size - len(begin))
                (size,) = _SIZE.unpack(head)
                size_max = _STRANGER_SIZE_MAX if is_stranger else REQUEST_SIZE_MAX
                if not _HEADER.size <= size <= size_max:
                    raise MalformedRequestError(f"a request of {size} bytes")
                if size <= OWN_SIZE:
                    return await self._reader.readexactly(size)
                data = bytearray()
                while len(data) < size:
                    piece = await self._reader.read(min(size - len(data), OWN_SIZE))
                    if not piece:
                        raise asyncio.IncompleteReadError(b"", size)
                    data += piece
                    # What a client announces costs nothing until it comes.
                    room.arrivals.hold(task, len(data))
                return bytes(data)
        except TimeoutError:
            raise MalformedRequestError("a request did not come in time") from None

    async def _answer(self, data: bytes) -> bool:
        key, version, correlation = _HEADER.unpack_from(data)
        api = self._apis.get(key)
        if api is None:
            raise MalformedRequestError(f"API {key} is not served")
        if self._guard is not None and not self._guard.permits(key, self.client):
            raise MalformedRequestError(f"{api.name} of a client that has not authenticated")
        begin = time.monotonic()
        if version not in api.versions:
            if key != _API_VERSIONS:
                raise MalformedRequestError(f"{api.name} has no version {version}")
            # A client that is newer than this server learns so, and asks again.
            unsupported = {"errorCode": ErrorCode.UNSUPPORTED_VERSION, "apiKeys": [
                {"apiKey": key, "minVersion": api.versions.start,
                 "maxVersion": api.versions.stop - 1},
            ]}  # fmt: skip
            # Version 0 is the one that each client can read.
            await self._send(api, 0, correlation, unsupported)
            return True
        source = Input(data, _HEADER.size)
        self.client.client_id = _client_id(source)
        # Tagged fields of the header; none is known.
        if api.is_flexible(version):
            for _ in range(source.varint()):
                source.varint()
                source.take(source.varint())
        request = decoder(api.request, version)(source)
        del data, source
        if key not in BEFORE_AUTHENTICATION and not self._is_identified:
            self._is_identified = True
            self._identified(self.client)
        self.client.begin = partial(self._begin, api, version, correlation)
        handling = api.handler(request, version, self.client)
        del request
        response = await self._unless_gone(handling)
        self.client.begin = as_it_is
        if response is None:
            return False
        size = 0
        if response is not NO_ANSWER:
            size = await self._send(api, version, correlation, response)
        self._meter.answered(api.name, time.monotonic() - begin, size)
        return True

    async def _unless_gone(self, handling: Awaitable[Answer]) -> Answer:
        """Await an answer; None if the client goes away meanwhile, which frees its place."""
        task = asyncio.current_task()
        assert task is not None, "a connection is a task"
        loop = asyncio.get_running_loop()
        has_gone = False
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal has_gone, timer
            if self._reader.at_eof() or self._writer.is_closing():
                has_gone = True
                task.cancel()
            else:
                timer = loop.call_later(_GONE_SECONDS, look)

        timer = loop.call_later(_GONE_SECONDS, look)
        try:
            return await handling
        except asyncio.CancelledError:
            # `look` has cancelled it, and nobody else.
            if has_gone and task.uncancel() == 0:
                return None
            raise
        finally:
            timer.cancel()

    def _begin(self, api: Api, version: int, correlation: int, response: Fields) -> Begun:
        """Encode a response and begin to send it, in any thread."""
        output = Output()
        output.buffer += _SIZES.pack(0, correlation)
        # The header of this response has none: a client does not know yet what the server speaks.
        if api.is_flexible(version) and api.key != _API_VERSIONS:
            output.buffer.append(0)  # no tagged fields
        encoder(api.response, version)(output, response)
        parts = output.end()
        size = sum(map(len, parts)) - _SIZE.size
        _SIZE.pack_into(parts[0], 0, size)
        return Begun(self._sender.begin(parts), size)

    async def _send(
        self, api: Api, version: int, correlation: int, response: Fields | Begun
    ) -> int:
        if not isinstance(response, Begun):
            response = self._begin(api, version, correlation, response)
        await self._sender.send(response.left)
        return response.size


def _client_id(source: Input) -> str | None:
    """Read the client id of a request's header, which is in the old encoding in all versions."""
    (size,) = struct.unpack(">h", source.take(2))
    return None if size < 0 else source.take(size).decode("utf-8", "replace")


NO_ANSWER: Final[Fields] = {}
"""What a handler returns if the client waits for no response: Produce with acks=0."""
