"""Seeded random logs for Kafka's storage classes to write: operations for `KafkaOracle append`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

START_MS = 1_700_000_000_000
TOPIC_ID = "hPk5UTdUQhK8GdCZGLpcnA"
CODECS = ("none", "gzip", "lz4", "snappy", "zstd")
LEVELS = {"gzip": (1, 6, 9), "lz4": (1, 9, 17), "zstd": (-5, 3, 19)}
IDEMPOTENT, TRANSACTIONAL = range(100, 103), range(200, 203)

Operation = dict[str, Any]


@dataclass
class Manner:
    """What the operations of one log are like, drawn once for it.

    Attributes:
        codecs: of producers' batches.
        magics: of batches, in turn: a log is upgraded, never downgraded.
        leads: share of appends as the leader of the partition, who validates and may compress.
        keys: how many there are.
        keyless, tombstones: shares of records without a key, without a value.
        gaps: share of appends with offsets missing before, in or after them.
        producers: share of appends by producers with an id.
        stamp_spread_ms: how far timestamps are off the clock.
        stamped_by_broker: whether a follower's batches carry LogAppendTime.
        begins: offsets before the first batch; if there are many, offsets exceed positions.
    """

    codecs: tuple[str, ...]
    magics: tuple[int, ...]
    leads: float
    keys: int
    keyless: float
    tombstones: float
    gaps: float
    producers: float
    stamp_spread_ms: int
    stamped_by_broker: bool
    begins: int

    @classmethod
    def drawn(cls, rng: random.Random) -> Manner:
        return cls(
            codecs=rng.choice((("none",), CODECS, (rng.choice(CODECS), "none"))),
            magics=rng.choice(((2,),) * 7 + ((0, 2), (1, 2), (1,), (0, 1, 2))),
            leads=rng.choice((0, 0, 0.5, 1)),
            keys=rng.choice((2, 5, 12, 40)),
            keyless=rng.choice((0, 0, 0.1)),
            tombstones=rng.choice((0, 0.15, 0.5)),
            gaps=rng.choice((0, 0, 0.2)),
            producers=rng.choice((0, 0.5, 0.9)),
            stamp_spread_ms=rng.choice((0, 0, 1000, 100_000)),
            stamped_by_broker=rng.random() < 0.15,
            begins=rng.choice((0, 0, 100_000)),
        )


@dataclass
class LogWriter:
    """Draws operations one after the other; transactions, sequences and the clock go on.

    Attributes:
        config: the topic's configs.
        now_ms: the clock.
    """

    rng: random.Random
    manner: Manner
    config: dict[str, str]
    now_ms: int = START_MS
    _epochs: dict[int, int] = field(default_factory=dict)
    _sequences: dict[int, int] = field(default_factory=dict)
    _open: set[int] = field(default_factory=set)
    _leader_epoch: int = 0
    _has_begun: bool = False

    def spec(self, count: int) -> dict[str, Any]:
        """Return `count` more operations, as KafkaOracle reads them."""
        start = self.now_ms
        magics = self.manner.magics
        operations = [self._operation(magics[i * len(magics) // count]) for i in range(count)]
        if self.manner.begins and not self._has_begun and operations[0]["op"] == "append":
            operations[0] |= {"gap": self.manner.begins, "mode": "follower"}
        self._has_begun = True
        if self.rng.random() < 0.15:
            operations.append({"op": "logstart", "offset": self.rng.randrange(20), "mayFail": True})
        return {
            "config": self.config,
            "now": start,
            "topicId": TOPIC_ID,
            "seed": self.rng.randrange(1 << 30),
            "ops": operations,
        }

    def _operation(self, magic: int) -> Operation:
        rng = self.rng
        self.now_ms += rng.randrange(1, 2000)
        self._leader_epoch += rng.random() < 0.05
        common: Operation = {
            "now": self.now_ms, "leaderEpoch": self._leader_epoch, "mayFail": True,
            "mode": "leader" if rng.random() < self.manner.leads else "follower",
        }  # fmt: skip
        chance = rng.random()
        if chance < 0.04:
            return common | {"op": "roll"}
        if magic < 2:
            return common | self._append(magic)
        if self._open and chance < 0.2:
            producer = rng.choice(sorted(self._open))
            self._open.discard(producer)
            return common | self._marker(producer)
        if chance > 0.98 and self.manner.producers:
            return common | self._marker(rng.choice(TRANSACTIONAL))  # of no transaction
        return common | self._append(magic)

    def _marker(self, producer: int) -> Operation:
        kind = self.rng.choice(("ABORT", "COMMIT"))
        epoch = self._epochs.get(producer, 0)
        return {"op": "marker", "type": kind, "pid": producer, "epoch": epoch, "ts": self.now_ms}

    def _append(self, magic: int) -> Operation:
        rng, manner = self.rng, self.manner
        codec = rng.choice(manner.codecs)
        if magic < 2 and codec == "zstd":
            codec = "none"  # old formats do not know it
        count = rng.choice((1, 1, 2, 3, 6))
        operation: Operation = {
            "op": "append",
            "magic": magic,
            "codec": codec,
            "records": [self._record(magic) for _ in range(count)],
        }
        if codec in LEVELS and rng.random() < 0.5:
            operation["level"] = rng.choice(LEVELS[codec])
        if magic == 2 and rng.random() < manner.producers:
            operation |= self._produced(count)
        if rng.random() < manner.gaps:
            operation["gap"] = rng.choice((0, 1, 7))
            if magic == 2:
                operation["records"][-1]["skip"] = rng.choice((0, 1, 3))
                operation["lastGap"] = rng.choice((0, 0, 2))
        if manner.stamped_by_broker and magic > 0:
            operation |= {"timestampType": "LogAppendTime", "logAppendTime": self.now_ms}
        return operation

    def _produced(self, count: int) -> Operation:
        rng = self.rng
        producer = rng.choice((*IDEMPOTENT, *TRANSACTIONAL))
        if producer not in self._open and rng.random() < 0.05:
            self._epochs[producer] = self._epochs.get(producer, 0) + 1
            self._sequences[producer] = 0
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + count
        fields: Operation = {
            "pid": producer, "epoch": self._epochs.get(producer, 0), "seq": sequence
        }  # fmt: skip
        if producer in TRANSACTIONAL:
            self._open.add(producer)
            fields["txn"] = True
        return fields

    def _record(self, magic: int) -> Operation:
        rng, manner = self.rng, self.manner
        key: Any = f"k{rng.randrange(manner.keys)}"
        if rng.random() < manner.keyless:
            key = None
        elif rng.random() < 0.03:
            key = rng.choice(("", {"hex": "00ff"}, {"rep": ["k", 40]}))
        value: Any = {"random": rng.choice((0, 3, 20, 20, 60))}
        if rng.random() < manner.tombstones:
            value = None
        elif rng.random() < 0.3:
            value = {"rep": ["ab", rng.randrange(1, 60)]}
        spread = manner.stamp_spread_ms
        stamp = self.now_ms + (rng.randrange(-spread, spread + 1) if spread else 0)
        if spread and rng.random() < 0.1:
            stamp = rng.choice((-1, 0, 1 << 41))
        record = {"k": key, "v": value, "ts": stamp}
        if magic == 2 and rng.random() < 0.2:
            record["h"] = [["h", rng.choice((None, "", "x"))]] * rng.randrange(1, 3)
        return record
