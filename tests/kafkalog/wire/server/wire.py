"""A client that sends exactly what a test specifies, and can read the answers later."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from formats.message_codec import Output, decode, encoder
from formats.message_schema import message
from tests.kafkalog.wire.server.protocol import Connected

if TYPE_CHECKING:
    import ssl

    from kafkalog.wire.server.model import Address


class Wire(Connected):
    """A connection whose requests may be answered later; use it as a context manager.

    Fields missing from a request get their defaults.
    """

    def __init__(
        self, address: Address, client_id: str = "wire", tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(address)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address.host)
        self._client_id = client_id.encode()
        self._asked: list[tuple[str, int]] = []

    def request(self, api: str, version: int, **request: Any) -> None:
        """Send a request."""
        found = message(f"{api}Request")
        output = Output()
        output.buffer += struct.pack(">hhi", found.api_key, version, 0)
        output.buffer += struct.pack(">h", len(self._client_id)) + self._client_id
        output.buffer += b"\0" * (version in found.flexible_versions)
        encoder(f"{api}Request", version)(output, request)
        data = b"".join(output.end())
        self.send(struct.pack(">i", len(data)) + data)
        self._asked.append((api, version))

    def answer(self) -> dict[str, Any]:
        """Return the answer to the oldest unanswered request."""
        api, version = self._asked.pop(0)
        data = self.receive()
        if data is None:
            raise ConnectionResetError(f"no answer to {api} {version}")
        is_flexible = version in message(f"{api}Response").flexible_versions
        start = 5 if is_flexible and api != "ApiVersions" else 4
        return decode(f"{api}Response", version, data, start)

    def tell(self, api: str, version: int, **request: Any) -> dict[str, Any]:
        """Send a request and return its answer."""
        self.request(api, version, **request)
        return self.answer()
