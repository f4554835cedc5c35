"""Logs, indexes, snapshots and texts made from parts, mostly sound enough to be decoded deeply."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import crc32c as wheel

from kafkalog.errors import KafkaLogError
from kafkalog.io.codecs import compress, decompress
from tests.builders import BASE_TIME, SEGMENT, batch, message, record
from tests.soak import real
from tests.soak.mutations import mutated, number, resealed, with_field_changed

if TYPE_CHECKING:
    from random import Random

    from tests.soak.real import Files

_UNPACKED_MAX = 100_000


def log(rng: Random) -> bytes:
    """Return a log of a few real or made batches, most of them sound, often in order."""
    if rng.random() < 0.15:
        pieces = list(rng.choice(real.batches()))
        start = rng.randrange(len(pieces))
        pieces = pieces[start : start + rng.randint(1, 8)]
    else:
        pieces = [_real(rng) if rng.random() < 0.5 else made(rng) for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.8:
        pieces[rng.randrange(len(pieces))] = hurt(rng.choice(pieces), rng)
    if rng.random() < 0.5:
        pieces = in_order(pieces, rng.randrange(20))
    data = b"".join(pieces)
    if rng.random() < 0.35:
        data = mutated(data, rng, rng.choice(pieces))
    if rng.random() < 0.1:
        data += bytes(rng.randrange(200))
    return data


def _real(rng: Random) -> bytes:
    return rng.choice(rng.choice(real.kinds_of_batches()))


def in_order(pieces: list[bytes], offset: int) -> list[bytes]:
    """Give the batches rising offsets; a checksum does not cover base offsets."""
    found = []
    for data in pieces:
        if len(data) < 61 or data[16] != 2:
            found.append(offset.to_bytes(8, "big") + data[8:])
            offset += 1
            continue
        found.append(offset.to_bytes(8, "big") + data[8:])
        offset += 1 + min(max(int.from_bytes(data[23:27], "big", signed=True), 0), 1000)
    return found


def hurt(data: bytes, rng: Random) -> bytes:
    """Damage a batch at some depth: on the disk, in its fields, records or compression."""
    if len(data) < 61:
        return mutated(data, rng)
    kind = rng.randrange(6)
    if kind == 0:
        return mutated(data, rng)
    if kind == 1:
        return resealed(data[:61] + mutated(data[61:], rng, data), length=rng.random() < 0.9)
    if kind == 2:
        return with_field_changed(data, rng)
    if kind == 3 and rng.random() < 0.3:
        return resealed(mutated(data, rng))
    return _repacked(data, rng)


def _repacked(data: bytes, rng: Random) -> bytes:
    """Mutate the content of a batch and compress it again, perhaps with another codec."""
    magic = data[16]
    if magic < 2:
        return _rewrapped(data, rng)
    codec = data[22] & 7
    try:
        body = decompress(data[61:], codec, magic=2, limit=_UNPACKED_MAX)
    except KafkaLogError:
        return mutated(data, rng)
    body = mutated(body, rng, body)
    codec = codec if rng.random() < 0.5 else rng.randrange(5)
    packed = compress(body, codec)
    if rng.random() < 0.1:
        packed = mutated(packed, rng, data)
    attributes = bytes((data[21], data[22] & ~7 | codec))
    return resealed(data[:21] + attributes + data[23:61] + packed)


def _rewrapped(data: bytes, rng: Random) -> bytes:
    """Wrap mutated old messages again."""
    magic, codec = data[16] & 1, rng.choice((1, 2, 3))
    inner = mutated(data, rng) if rng.random() < 0.5 else data
    if rng.random() < 0.7:
        inner = resealed(inner)
    others = [message(n, b"k", b"v", magic=magic) for n in range(rng.randrange(3))]
    body = compress(b"".join([*others, inner]), codec, magic=magic)
    if rng.random() < 0.1:
        body = mutated(body, rng)
    return message(number(rng), None, body, magic=magic, attributes=codec | rng.choice((0, 8)))


def made(rng: Random) -> bytes:
    """Make a batch or message from parts; its records may exceed every limit."""
    if rng.random() < 0.25:
        magic = rng.randrange(2)
        inner = message(number(rng), _field(rng), _field(rng), magic=magic,
                        attributes=rng.choice((0, 0, 8, 0x10, -128)), time=_time(rng))  # fmt: skip
        return _rewrapped(inner, rng) if rng.random() < 0.4 else inner
    records = [_record(rng, n) for n in range(rng.randrange(6))]
    body = b"".join(records)
    codec = rng.choice((0, 0, 0, 1, 2, 3, 4, 5, 7))
    if rng.random() < 0.2:
        body = mutated(body, rng)
    count = len(records) if rng.random() < 0.85 else number(rng, 32)
    delta = max(len(records) - 1, 0) if rng.random() < 0.8 else number(rng, 32)
    producer = rng.choice(((-1, -1, -1), (7, 1, 0), (7, 1, 2**31 - 2)))
    if rng.random() < 0.1:
        producer = (number(rng), number(rng, 16), number(rng, 32))
    return batch(
        rng.randrange(100) if rng.random() < 0.8 else number(rng),
        payload=compress(body, codec) if codec < 5 else body,
        count=count,
        last_delta=delta,
        attributes=codec | rng.choice((0, 0, 0, 8, 16, 32, 48, 64, 0x80, -256)),
        base_time=_time(rng),
        max_time=_time(rng),
        producer=producer,
        epoch=rng.choice((0, 0, 1, -1, 2**31 - 1)),
        magic=rng.choice((2, 2, 2, 2, 2, 2, 3, 127)),
    )


def _record(rng: Random, delta: int) -> bytes:
    if rng.random() < 0.1:  # a control record
        key = struct.pack(">hh", *(number(rng, 16) if rng.random() < 0.2 else rng.randrange(7)
                                   for _ in range(2)))  # fmt: skip
        return record(delta, key, rng.randbytes(rng.randrange(12)))
    headers = [(_field(rng) or b"", _field(rng)) for _ in range(rng.choice((0, 0, 1, 3)))]
    time = rng.randrange(9) if rng.random() < 0.9 else number(rng)
    delta = delta if rng.random() < 0.9 else number(rng, 32)
    return record(delta, _field(rng), _field(rng), time_delta=time, headers=headers)


_TEXTS = (
    b"",
    b"\x00",
    b"\xff\xfe",
    b'"quoted"\n,',
    "\u202e\x1bé😀".encode(),
    b"\xed\xa0\x80",
    b"1",
)


def _field(rng: Random) -> bytes | None:
    kind = rng.randrange(5)
    if kind == 0:
        return None
    if kind == 1:
        return rng.choice(_TEXTS)
    return rng.randbytes(rng.choice((1, 2, 7, 8, 9, 16, 17, 40)))


def _time(rng: Random) -> int:
    return BASE_TIME + rng.randrange(9) if rng.random() < 0.8 else number(rng)


def entries(rng: Random, layout: str) -> bytes:
    """Return index entries, rising or arbitrary, in the widths of a `struct` layout."""
    rows = []
    row = [0] * len(layout)
    for _ in range(rng.randrange(20)):
        if rng.random() < 0.85:
            row = [value + rng.randrange(1, 90) for value in row]
        else:
            row = [number(rng, 8 * struct.calcsize(code)) for code in layout]
        rows.append(b"".join(
            struct.pack(f">{code}", min(value, 2 ** (8 * struct.calcsize(code) - 1) - 1))
            for code, value in zip(layout, row, strict=True)
        ))  # fmt: skip
    data = b"".join(rows) + bytes(rng.choice((0, 0, 0, 8, 24, 120)))
    return mutated(data, rng) if rng.random() < 0.3 else data


INDEXES = {"index": "ii", "timeindex": "qi", "txnindex": "hqqqq"}


def index(rng: Random, suffix: str) -> bytes:
    """Return a mutated real index, or a made one."""
    if rng.random() < 0.5:
        return mutated(rng.choice(real.files(f".{suffix}")), rng)
    return entries(rng, INDEXES[suffix])


def snapshot(rng: Random) -> bytes:
    """Return a producer snapshot, mostly with a correct checksum."""
    data = rng.choice(real.files(".snapshot"))
    if rng.random() < 0.9:
        data = mutated(data, rng, data)
    if rng.random() < 0.8:
        data = b"\0\1" + struct.pack(">I", wheel.crc32c(data[6:])) + data[6:]
    return data


def partition(rng: Random) -> Files:
    """Return the files of one partition, some of them changed, missing or foreign."""
    found = dict(rng.choice(real.partitions()))
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(sorted(found))
        suffix = name.rpartition(".")[2]
        kind = rng.randrange(8)
        if kind == 0:
            found[name] = log(rng) if suffix == "log" else mutated(found[name], rng)
        elif kind == 1 and suffix in INDEXES:
            found[name] = index(rng, suffix)
        elif kind == 2 and suffix == "snapshot":
            found[name] = snapshot(rng)
        elif kind == 3 and len(found) > 1:
            del found[name]
        elif kind == 4:
            found[rng.choice(NAMES)] = found[name]
        elif suffix == "log" and len(found[name]) > 61:
            found[name] = _hurt_log(found[name], rng)
        else:
            found[name] = mutated(found[name], rng, rng.choice(sorted(found.values())))
    return found


def _hurt_log(data: bytes, rng: Random) -> bytes:
    """Damage one batch of a log at some depth."""
    pieces = []
    position = 0
    while position + 17 < len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if not 26 <= size <= len(data) - position:
            break
        pieces.append(data[position : position + size])
        position += size
    if pieces:
        at = rng.randrange(len(pieces))
        pieces[at] = hurt(pieces[at], rng)
    return b"".join(pieces) + data[position:]


NAMES = (
    f"{SEGMENT}.log", f"{7:020d}.log", f"{7:020d}.index", f"{SEGMENT}.timeindex",
    f"{SEGMENT}.txnindex", f"{9:020d}.snapshot", f"{2**63 - 1:020d}.log", f"{2**63:020d}.log",
    f"{SEGMENT}.log.cleaned", f"{SEGMENT}.log.swap", f"{SEGMENT}.index.swap",
    f"{SEGMENT}.log.deleted", f"{7:020d}.index.cleaned", "leader-epoch-checkpoint",
    "partition.metadata", "leader-epoch-checkpoint.tmp", "x.log", "x", ".log", f"{2**31:020d}.log",
    f"{7:020d}-{3:010d}.checkpoint", "quorum-state",
)  # fmt: skip
