"""One request of Kafka's protocol over a socket, which none of Kafka's own clients would send."""

from __future__ import annotations

import socket
import struct

_PRODUCE, _VERSION = 0, 3
_SECONDS_MAX = 60


def produce(
    port: int, topic: str, partition: int, records: bytes, transactional_id: str | None = None
) -> tuple[int, int]:
    """Send a batch unchanged; return the broker's error code and the offset that it assigned."""
    name = topic.encode()
    owner = (transactional_id or "").encode()
    body = struct.pack(">hhih", _PRODUCE, _VERSION, 1, -1)  # header: correlation, no client id
    body += struct.pack(">h", -1 if transactional_id is None else len(owner)) + owner
    body += struct.pack(">hi", -1, 10_000)  # all replicas, so long
    body += struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iii", 1, partition, len(records)) + records
    with socket.create_connection(("127.0.0.1", port), _SECONDS_MAX) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as answers:
            answer = answers.read(struct.unpack(">i", answers.read(4))[0])
    # correlation, one topic, its name, one partition: its number, error and base offset
    error, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(name) + 4 + 4)
    return error, offset
