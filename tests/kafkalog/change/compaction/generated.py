"""Seeded logs without Java: all codecs, transactions, tombstones, records without a key."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from formats import constants as c
from kafkalog.change.compaction.swap import NewSegment
from kafkalog.io.codecs import compress
from tests.builders import BASE_TIME, batch, record

if TYPE_CHECKING:
    import random
    from pathlib import Path

CODECS = (c.NONE, c.GZIP, c.SNAPPY, c.LZ4, c.ZSTD)
PRODUCERS = (1, 2, 3)
_ENTRY = struct.Struct(">hqqqq")


@dataclass
class Generator:
    """Draws a log, batch after batch.

    Attributes:
        rng: the random numbers that decide everything.
        keys: how many keys there are.
        batch_records: how many records a batch has at most.
        segment_batches: how many batches a closed segment has.
    """

    rng: random.Random
    keys: int = 50
    batch_records: int = 6
    segment_batches: int = 40
    codecs: tuple[int, ...] = CODECS
    _offset: int = 0
    _firsts: dict[int, int] = field(default_factory=dict)
    _sequences: dict[int, int] = field(default_factory=dict)
    _aborted: list[bytes] = field(default_factory=list)

    def partition(self, directory: Path, segments: int) -> None:
        """Write this number of closed segments, and an active one with one batch."""
        directory.mkdir(parents=True)
        for _ in range(segments):
            self._segment(directory, self.segment_batches)
        for producer in sorted(self._firsts):
            self._write(directory, self._offset, [self._marker(producer)])
        self._write(directory, self._offset, [self._plain()])

    def _segment(self, directory: Path, count: int) -> None:
        base = self._offset
        self._write(directory, base, [self._batch() for _ in range(count)])

    def _write(self, directory: Path, base: int, batches: list[bytes]) -> None:
        stem = directory / f"{base:020}"
        made = NewSegment(base, 4096)
        made.extend(b"".join(batches))
        made.close()
        stem.with_suffix(".log").write_bytes(b"".join(batches))
        stem.with_suffix(".index").write_bytes(made.offset_index)
        stem.with_suffix(".timeindex").write_bytes(made.time_index)
        if self._aborted:
            stem.with_suffix(".txnindex").write_bytes(b"".join(self._aborted))
            self._aborted = []

    def _batch(self) -> bytes:
        chance = self.rng.random()
        if self._firsts and chance < 0.15:
            return self._marker(self.rng.choice(sorted(self._firsts)))
        if chance < 0.4:
            return self._transactional(self.rng.choice(PRODUCERS))
        return self._plain()

    def _plain(self) -> bytes:
        return self._data(0, (-1, -1, -1))

    def _transactional(self, producer: int) -> bytes:
        self._firsts.setdefault(producer, self._offset)
        sequence = self._sequences.get(producer, 0)
        before = self._offset
        data = self._data(c.TRANSACTIONAL_MASK, (producer, 0, sequence))
        self._sequences[producer] = sequence + self._offset - before
        return data

    def _data(self, attributes: int, producer: tuple[int, int, int]) -> bytes:
        rng = self.rng
        count = rng.randrange(1, self.batch_records + 1)
        codec = rng.choice(self.codecs)
        records = b"".join(self._record(number) for number in range(count))
        base, self._offset = self._offset, self._offset + count
        return batch(
            base,
            payload=compress(records, codec),
            count=count,
            attributes=attributes | codec,
            producer=producer,
            base_time=BASE_TIME + base,
            max_time=BASE_TIME + base + count - 1,
        )

    def _record(self, number: int) -> bytes:
        rng = self.rng
        key = None if rng.random() < 0.03 else b"key-%d" % rng.randrange(self.keys)
        value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(30))
        headers = [(b"h", rng.choice((None, b"", b"x")))] if rng.random() < 0.1 else []
        return record(number, key, value, time_delta=number, headers=headers)

    def _marker(self, producer: int) -> bytes:
        is_commit = self.rng.random() < 0.5
        first, offset = self._firsts.pop(producer), self._offset
        self._offset += 1
        if not is_commit:
            stable = min([*self._firsts.values(), offset + 1])
            self._aborted.append(_ENTRY.pack(0, producer, first, offset, stable))
        key, value = struct.pack(">hh", 0, is_commit), struct.pack(">hi", 0, 0)
        return batch(
            offset,
            [record(0, key, value)],
            attributes=c.TRANSACTIONAL_MASK | c.CONTROL_MASK,
            producer=(producer, 0, -1),
            base_time=BASE_TIME + offset,
            max_time=BASE_TIME + offset,
        )
