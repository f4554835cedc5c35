"""Batches, messages and small files made with struct alone: nothing here comes from kafkalog."""

from __future__ import annotations

import struct
import subprocess
import zlib
from typing import TYPE_CHECKING

import crc32c as wheel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import State

BASE_TIME = 1_700_000_000_000
SEGMENT = "00000000000000000000"
# Every state a broker left behind but the one that was cut and flipped on purpose.
HURT = {"crash-1-torn"}


def varint(number: int) -> bytes:
    """Encode a zigzag varint in base 128, see kafka-formats §2.1."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(0x80 | (rest & 0x7F))
        rest >>= 7
    return bytes((*encoded, rest))


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    offset_delta: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    *,
    time_delta: int = 0,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> bytes:
    """Build one record of magic 2, see kafka-formats §2.2."""
    body = b"\0" + varint(time_delta) + varint(offset_delta) + sized(key) + sized(value)
    body += varint(len(headers))
    body += b"".join(sized(name) + sized(content) for name, content in headers)
    return varint(len(body)) + body


def batch(
    base_offset: int = 0,
    records: Sequence[bytes] = (),
    *,
    payload: bytes | None = None,
    count: int | None = None,
    last_delta: int | None = None,
    attributes: int = 0,
    base_time: int = BASE_TIME,
    max_time: int = BASE_TIME,
    producer: tuple[int, int, int] = (-1, -1, -1),
    epoch: int = 0,
    magic: int = 2,
) -> bytes:
    """Build one batch of magic 2 with a correct checksum, see kafka-formats §1.1."""
    body = b"".join(records) if payload is None else payload
    count = len(records) if count is None else count
    last_delta = max(count - 1, 0) if last_delta is None else last_delta
    rest = struct.pack(
        ">hiqqqhii", attributes, last_delta, base_time, max_time, *producer, count
    ) + body  # fmt: skip
    head = struct.pack(">qiibI", base_offset, 9 + len(rest), epoch, magic, wheel.crc32c(rest))
    return head + rest


def message(
    offset: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    *,
    magic: int = 1,
    attributes: int = 0,
    time: int = BASE_TIME,
) -> bytes:
    """Build one message of magic 0 or 1 with a correct checksum, see kafka-formats §4."""
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", time)
    for data in (key, value):
        body += struct.pack(">i", -1 if data is None else len(data)) + (data or b"")
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def write_log(directory: Path, *batches: bytes, name: str = SEGMENT) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.log"
    path.write_bytes(b"".join(batches))
    return path


def frames(data: bytes) -> list[tuple[int, int]]:
    """Return position and size of each batch in sound bytes, by the length fields alone."""
    found, position = [], 0
    while position < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        found.append((position, size))
        position += size
    return found


def repeated(data: bytes, times: int) -> bytes:
    """Return batches of magic 2 several times over, with offsets that go on rising."""
    heads = [(at, *struct.unpack_from(">q15xi", data, at)) for at, _ in frames(data)]
    span = max(base + delta for _, base, delta in heads) + 1
    copies = []
    for number in range(times):
        copy = bytearray(data)
        for at, base, _ in heads:
            struct.pack_into(">q", copy, at, base + number * span)
        copies.append(bytes(copy))
    return b"".join(copies)


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def healthy(state: State) -> bool:
    return state.name not in HURT


def copy_tree(source: Path, target: Path) -> Path:
    """Copy a tree, and keep holes and times."""
    subprocess.run(["cp", "-a", "--sparse=always", source, target], check=True)
    return target


def seconds(time_ms: int | str) -> str:
    """Return milliseconds as a command line takes them, however few digits they have."""
    number = abs(int(time_ms))
    return f"@{'-' if int(time_ms) < 0 else ''}{number // 1000}.{number % 1000:03}"
