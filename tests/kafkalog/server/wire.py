"""A client that says exactly what a test wants it to say, and hears exactly what was answered."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any, Self

from formats.message_codec import Output, decode, encoder
from formats.message_schema import message

if TYPE_CHECKING:
    import ssl

SECONDS_MAX = 60
_API_VERSIONS = 18


class Wire:
    """One connection to a broker; use it as a context manager."""

    def __init__(
        self, address: tuple[str, int], client_id: str = "wire", tls: ssl.SSLContext | None = None
    ) -> None:
        self._socket = socket.create_connection(address, SECONDS_MAX)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        self._answers = self._socket.makefile("rb")
        self._client_id = client_id.encode()
        self._asked: list[tuple[str, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()

    def send(self, api: str, version: int, **request: Any) -> None:
        """Send a request; fields that are missing have their defaults."""
        found = message(f"{api}Request")
        is_flexible = version in found.flexible_versions
        output = Output()
        output.buffer += struct.pack(">hhi", found.api_key, version, 0)
        output.buffer += struct.pack(">h", len(self._client_id)) + self._client_id
        output.buffer += b"\0" * is_flexible
        encoder(f"{api}Request", version)(output, request)
        self.send_bytes(b"".join(output.end()))
        self._asked.append((api, version))

    def send_bytes(self, data: bytes) -> None:
        """Send what need not be a request, after its size."""
        self._socket.sendall(struct.pack(">i", len(data)) + data)

    def receive(self) -> dict[str, Any]:
        """Return the answer to the first request that has none yet."""
        api, version = self._asked.pop(0)
        head = self._answers.read(4)
        if len(head) < 4:
            raise ConnectionResetError(f"no answer to {api}")
        data = self._answers.read(*struct.unpack(">i", head))
        is_flexible = version in message(f"{api}Response").flexible_versions
        start = 5 if is_flexible and message(f"{api}Request").api_key != _API_VERSIONS else 4
        return decode(f"{api}Response", version, data, start)

    def ask(self, api: str, version: int, **request: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        self.send(api, version, **request)
        return self.receive()
