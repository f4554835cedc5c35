"""Log directories whose every part is well-formed and whose fields say anything: checksums match.

A batch is built from values, any of which may be off, and sealed; indexes, snapshots, epochs and
checkpoints are made for the batches, then changed the same way. So the first checks let them pass,
and the code after them has to cope.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import crc32c as wheel

from kafkalog.io.codecs import compress
from tests.builders import BASE_TIME, batch, message, record, varint
from tests.soak.mutations import mutated, number

if TYPE_CHECKING:
    from random import Random

    from tests.soak.real import Files

TOPICS = ("t-0", "t-0", "t-0", "__consumer_offsets-0", "__transaction_state-3",
          "__cluster_metadata-0", "__share_group_state-1", "__remote_log_metadata-0")  # fmt: skip
_COMMIT, _ABORT = 1, 0
_KEYS = (b"a", b"b", b"c", b"dd", b"", b"a" * 40, b"\xff\x00")
_CODECS = (0, 0, 0, 1, 2, 3, 4)
_TRANSACTIONAL, _CONTROL, _APPEND_TIME, _HORIZON = 16, 32, 8, 64


@dataclass
class Writer:
    """A minimal broker: appends batches, and keeps the data for its side files."""

    rng: Random
    wrong: float
    """How likely any one field is off."""
    old: bool
    """Whether messages of magic 0 and 1 are among the batches."""
    offset: int = 0
    clock: int = BASE_TIME
    epoch: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    def any(self, value: int, bits: int) -> int:
        """Return the value, or rarely one at a limit or slightly off."""
        if self.rng.random() >= self.wrong:
            return value
        if self.rng.random() < 0.5:
            return number(self.rng, bits)
        limit = 1 << bits - 1
        return (value + self.rng.choice((-2, -1, 1, 2, 7)) + limit) % (2 * limit) - limit

    def append(self) -> bytes:
        """Return the next batch, sealed."""
        rng = self.rng
        self.clock += rng.choice((0, 1, 5, 1000, -3))
        self.offset += rng.choice((0, 0, 0, 0, 1, 5))
        if rng.random() < 0.05 or not self.epochs:
            self.epoch += bool(self.epochs)
            self.epochs.append((self.epoch, self.offset))
        kind = rng.random()
        if self.old and kind < 0.6:
            return self._message()
        if kind < 0.25 and self.begun:
            return self._marker()
        return self._data()

    def _message(self) -> bytes:
        rng = self.rng
        magic = rng.randrange(2)
        codec = rng.choice((0, 0, 1, 2, 3)) if rng.random() > self.wrong else rng.randrange(8)
        attributes = rng.choice((0, 0, 8)) if magic else 0
        if not codec:
            data = message(
                self.any(self.offset, 64), self._key(), self._value(), magic=magic,
                attributes=self.any(attributes, 8), time=self.any(self.clock, 64),
            )  # fmt: skip
            self.offset += 1
            return data
        count = rng.randint(1, 4)
        inner = b"".join(
            message(self.any(n if magic else self.offset + n, 64), self._key(), self._value(),
                    magic=magic if rng.random() > self.wrong else 1 - magic,
                    attributes=self.any(0, 8), time=self.any(self.clock, 64))
            for n in range(count)
        )  # fmt: skip
        if rng.random() < self.wrong:
            inner = mutated(inner, rng, inner)
        last = self.any(self.offset + count - 1, 64)
        self.offset += count
        body = compress(inner, codec if codec < 4 else 0, magic=magic)
        return message(last, None, body, magic=magic, attributes=codec | attributes,
                       time=self.any(self.clock, 64))  # fmt: skip

    def _data(self) -> bytes:
        rng = self.rng
        count = rng.choice((0, 1, 1, 2, 3, 5)) if rng.random() < 0.3 else rng.randint(1, 4)
        records = [
            record(
                self.any(n, 32), self._key(), self._value(), time_delta=self.any(n, 64),
                headers=[(rng.choice(_KEYS), self._value()) for _ in range(rng.choice((0, 0, 2)))],
            )
            for n in range(count)
        ]  # fmt: skip
        producer, attributes = (-1, -1, -1), 0
        if rng.random() < 0.5:
            who = rng.choice((7, 8, 9))
            sequence = self.sequences.get(who, 0)
            self.sequences[who] = (sequence + max(count, 1)) % (1 << 31)
            producer = (self.any(who, 64), self.any(0, 16), self.any(sequence, 32))
            if rng.random() < 0.6:
                attributes |= _TRANSACTIONAL
                self.begun.setdefault(who, self.offset)
        return self._seal(records, count, attributes, producer)

    def _marker(self) -> bytes:
        rng = self.rng
        who = rng.choice(sorted(self.begun))
        first = self.begun.pop(who)
        kind = rng.choice((_COMMIT, _ABORT))
        if kind == _ABORT:
            self.aborted.append((who, first, self.offset, min([*self.begun.values(), self.offset])))
        key = struct.pack(">hh", self.any(0, 16), self.any(kind, 16))
        value: bytes | None = struct.pack(">hi", self.any(0, 16), self.any(1, 32))
        if rng.random() < self.wrong:
            value = rng.choice((None, b"", value[:3], value + b"\0\0"))  # type: ignore[index,operator]
        records = [record(0, key, value)] * (1 if rng.random() > self.wrong else rng.randrange(3))
        attributes = _TRANSACTIONAL | _CONTROL
        return self._seal(records, len(records), attributes, (who, self.any(0, 16), -1))

    def _seal(
        self, records: list[bytes], count: int, attributes: int, producer: tuple[int, int, int]
    ) -> bytes:
        rng = self.rng
        body = b"".join(records)
        if rng.random() < self.wrong:
            body = rng.choice((mutated(body, rng, body), body + varint(number(rng, 32)), body * 2))
        codec = rng.choice(_CODECS)
        packed = compress(body, codec)
        if codec and rng.random() < self.wrong / 2:
            packed = mutated(packed, rng, packed)
        if rng.random() < 0.1:
            attributes |= _APPEND_TIME
        base_time = self.clock
        if rng.random() < 0.15:
            attributes |= _HORIZON
            base_time += rng.choice((-10, 10**6))
        last = max(count - 1, 0)
        data = batch(
            self.any(self.offset, 64), payload=packed, count=self.any(count, 32),
            last_delta=self.any(last, 32), attributes=self.any(attributes | codec, 16),
            base_time=self.any(base_time, 64), max_time=self.any(self.clock + last, 64),
            producer=producer, epoch=self.any(self.epoch, 32),
        )  # fmt: skip
        self.offset += max(count, 1)
        return data

    def _key(self) -> bytes | None:
        return None if self.rng.random() < 0.1 else self.rng.choice(_KEYS)

    def _value(self) -> bytes | None:
        return None if self.rng.random() < 0.2 else self.rng.randbytes(self.rng.choice((0, 1, 30)))


def partition(rng: Random, topic: str = "t-0") -> tuple[Files, int]:
    """Return the files of a partition, by name, and its log end offset."""
    wrong = rng.choice((0.0, 0.003, 0.01, 0.03, 0.1))
    start = rng.choice((0, 0, 0, 5, 2**31, 2**62)) if rng.random() < 0.3 else 0
    writer = Writer(rng, wrong, old=rng.random() < 0.2 and not topic.startswith("__"), offset=start)
    files: Files = {}
    for number_of_segment in range(rng.randint(1, 3)):
        base = writer.offset
        name = f"{base:020d}"
        aborted_before = len(writer.aborted)
        if number_of_segment and rng.random() < 0.8:
            files[f"{name}.snapshot"] = snapshot(writer, base)
        log, index, times = b"", b"", b""
        for _ in range(rng.randint(0 if number_of_segment else 1, 8)):
            if log and rng.random() < 0.4:
                index += struct.pack(">ii", *_wrapped(writer, writer.offset - base - 1, len(log)))
                times += struct.pack(">q", writer.any(writer.clock, 64))
                times += struct.pack(">i", *_wrapped(writer, writer.offset - base - 1))
            log += writer.append()
        files[f"{name}.log"] = log + bytes(rng.choice((0, 0, 0, 0, 40)))
        padding = bytes(rng.choice((0, 0, 8, 24)))
        if rng.random() < 0.8:
            files[f"{name}.index"] = index + padding
        if rng.random() < 0.8:
            files[f"{name}.timeindex"] = times + padding[:12] * (len(padding) // 12)
        if writer.aborted[aborted_before:] and rng.random() < 0.9:
            files[f"{name}.txnindex"] = b"".join(
                struct.pack(">hqqqq", writer.any(0, 16), *(writer.any(one, 64) for one in entry))
                for entry in writer.aborted[aborted_before:]
            )
    if rng.random() < 0.7:
        files[f"{writer.offset:020d}.snapshot"] = snapshot(writer, writer.offset)
    if rng.random() < 0.8:
        lines = [f"{writer.any(e, 32)} {writer.any(o, 64)}" for e, o in writer.epochs]
        files["leader-epoch-checkpoint"] = "\n".join(["0", str(len(lines)), *lines, ""]).encode()
    if rng.random() < 0.5:
        files["partition.metadata"] = b"version: 0\ntopic_id: cmVhbGx5IGEgdG9waWMgaQ\n"
    for name in sorted(files):
        if rng.random() < wrong:
            files[rng.choice((name, name + ".deleted", name + ".swap", name + ".cleaned"))] = (
                files.pop(name)
            )
    return files, writer.offset


def _wrapped(writer: Writer, *values: int) -> tuple[int, ...]:
    return tuple((writer.any(one, 32) + 2**31) % 2**32 - 2**31 for one in values)


def snapshot(writer: Writer, offset: int) -> bytes:
    """Return a producer snapshot with a correct checksum."""
    rows = [
        struct.pack(
            ">qhiqiqiq", writer.any(who, 64), writer.any(0, 16), writer.any(sequence - 1, 32),
            writer.any(offset - 1, 64), writer.any(0, 32), writer.any(writer.clock, 64),
            writer.any(-1, 32), writer.any(writer.begun.get(who, -1), 64),
        )
        for who, sequence in writer.sequences.items()
    ]  # fmt: skip
    body = struct.pack(">i", writer.any(len(rows), 32)) + b"".join(rows)
    return struct.pack(">hI", writer.any(1, 16), wheel.crc32c(body)) + body


def log_dir(rng: Random) -> Files:
    """Return the files of a log directory with one partition or two, by their paths in it."""
    found: Files = {}
    ends: list[tuple[str, int]] = []
    for topic in dict.fromkeys(rng.choice(TOPICS) for _ in range(rng.choice((1, 1, 1, 2)))):
        files, end = partition(rng, topic)
        found |= {f"{topic}/{name}": data for name, data in files.items()}
        name, _, number_of_partition = topic.rpartition("-")
        ends.append((f"{name} {number_of_partition}", end))
    ends.sort()
    for name, share in (
        ("replication-offset-checkpoint", 1.0), ("recovery-point-offset-checkpoint", 0.6),
        ("log-start-offset-checkpoint", 0.2), ("cleaner-offset-checkpoint", 0.6),
    ):  # fmt: skip
        if rng.random() < (0.15 if share == 0.2 else 0.7):
            lines = [f"{where} {_point(rng, end, share)}" for where, end in ends]
            found[name] = "\n".join(["0", str(len(lines)), *lines, ""]).encode()
    if rng.random() < 0.5:
        found["meta.properties"] = b"version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
    return dict(sorted(found.items()))


def _point(rng: Random, end: int, share: float) -> int:
    if rng.random() < 0.05:
        return number(rng)
    return end if share == 1.0 else rng.randrange(max(end, 1)) if end < 1000 else end
