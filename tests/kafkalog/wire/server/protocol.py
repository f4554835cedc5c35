"""A server in a thread, and a client that encodes and decodes the protocol with the schemas."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from formats.message_schema import message, schema
from kafkalog.errors import Event, KafkaLogError, Note
from kafkalog.model import Defect
from kafkalog.wire.server.catalog import Catalog
from kafkalog.wire.server.model import Address, ServeListener, ServeOptions
from kafkalog.wire.server.run import Server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Self

    from kafkalog.wire.server.meter import Meter

SECONDS_MAX = 60


@dataclass
class Heard(ServeListener):
    """What a server reported to its listener."""

    errors: list[KafkaLogError] = field(default_factory=list)
    defects: list[Defect] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def hear(self, event: Event) -> None:
        match event:
            case KafkaLogError():
                self.errors.append(event)
            case Defect():
                self.defects.append(event)
            case Note(is_warning=True):
                self.warnings.append(event.text)


@dataclass
class Serving:
    """A running server."""

    address: Address
    heard: Heard
    server: Server
    thread: threading.Thread

    def partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions that the server offers."""
        found = self.server.catalog.topics.get(topic)
        return [*found.partitions] if found is not None else []


@contextmanager
def serving(*paths: Path | str, meter: Meter | None = None, **options: Any) -> Iterator[Serving]:
    """Serve paths on a free port until the block ends."""
    heard, ready = Heard(), threading.Event()
    chosen = replace(ServeOptions(listen=Address("127.0.0.1", 0)), **options)
    running: list[Serving] = []
    loop = asyncio.new_event_loop()

    async def run() -> None:
        server = Server(Catalog(map(str, paths), chosen, heard), chosen, heard, meter)
        await server.start()
        running.append(Serving(server.address, heard, server, threading.current_thread()))
        ready.set()
        await server.run()

    def run_all() -> None:
        try:
            loop.run_until_complete(run())
        finally:
            ready.set()

    thread = threading.Thread(target=run_all)
    thread.start()
    assert ready.wait(SECONDS_MAX)
    try:
        yield running[0]
    finally:
        if running and thread.is_alive():
            loop.call_soon_threadsafe(running[0].server.stop)
        thread.join(SECONDS_MAX)
        loop.close()


class Connected:
    """A client connection; use it as a context manager."""

    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection(address, timeout=SECONDS_MAX)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, api: str, version: int, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the response, decoded with the schemas."""
        found = message(f"{api}Request")
        assert found.api_key is not None
        self._correlation += 1
        flexible = version in found.flexible_versions
        head = struct.pack(">hhi", found.api_key, version, self._correlation)
        head += struct.pack(">h", 4) + b"test" + (b"\0" if flexible else b"")
        body = schema(f"{api}Request", version).build(request)
        self.send(struct.pack(">i", len(head) + len(body)) + head + body)
        answer = self.receive()
        assert answer is not None
        assert struct.unpack(">i", answer[:4])[0] == self._correlation
        skipped = 4 + (flexible and api != "ApiVersions")
        parsed: dict[str, Any] = schema(f"{api}Response", version).parse(answer[skipped:])
        return parsed

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def finish(self) -> None:
        """Shut down sending, and wait until the server closes the connection."""
        self._socket.shutdown(socket.SHUT_WR)
        while self._exactly(1) is not None:
            pass

    def receive(self) -> bytes | None:
        """Return the next frame without its size, or None if the connection was closed."""
        head = self._exactly(4)
        return None if head is None else self._exactly(struct.unpack(">i", head)[0])

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                piece = self._socket.recv(size - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                return None
            data += piece
        return bytes(data)
