"""Small logs for Kafka's storage classes to write, and damage to them, all from one seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from pathlib import Path

START_MS = 1_700_000_000_000
CONFIG = {
    "segment.bytes": "900",
    "index.interval.bytes": "150",
    "segment.index.bytes": "4096",
    "message.timestamp.after.max.ms": str(1 << 62),
}
CODECS = ("none", "none", "gzip", "lz4", "snappy", "zstd")
TOPIC_ID = "hPk5UTdUQhK8GdCZGLpcnA"
LOG = ".log"


def workload(rng: random.Random) -> dict[str, Any]:
    """Draw operations for `KafkaOracle append`: producers with and without transactions, epochs."""
    operations: list[dict[str, Any]] = []
    sequences = dict.fromkeys(range(100, 106), 0)
    open_since: set[int] = set()
    now, epoch = START_MS, 0
    for _ in range(rng.randrange(15, 45)):
        now += rng.randrange(1, 2000)
        if rng.random() < 0.1:
            epoch += 1
        if open_since and rng.random() < 0.25:
            producer = rng.choice(sorted(open_since))
            open_since.discard(producer)
            kind = rng.choice(("ABORT", "COMMIT"))
            operations.append(
                {"op": "marker", "type": kind, "pid": producer, "ts": now, "leaderEpoch": epoch}
            )
            continue
        count = rng.randrange(1, 6)
        operation: dict[str, Any] = {
            "op": "append",
            "leaderEpoch": epoch,
            "codec": rng.choice(CODECS),
            "records": [
                {"k": f"k{rng.randrange(9)}", "v": {"random": rng.randrange(40)}, "ts": now - i}
                for i in range(count)
            ],
        }
        if rng.random() < 0.7:
            producer = rng.choice(sorted(sequences))
            operation |= {"pid": producer, "epoch": 0, "seq": sequences[producer]}
            sequences[producer] += count
            if producer >= 103:  # these write in transactions, always
                operation["txn"] = True
                open_since.add(producer)
        operations.append(operation)
        if rng.random() < 0.05:
            operations.append({"op": "snapshot"})
        if rng.random() < 0.05:
            operations.append({"op": "flush"})
    return {
        "config": CONFIG,
        "now": START_MS,
        "topicId": TOPIC_ID,
        "seed": rng.randrange(1 << 30),
        "crash": rng.random() < 0.5,
        "ops": operations,
    }


class Damage:
    """One or two things wrong with a partition directory; `words` describes them."""

    def __init__(self, partition: Path, rng: random.Random) -> None:
        self.partition = partition
        self.rng = rng
        self.words: list[str] = []
        for _ in range(rng.choice((1, 1, 2))):
            rng.choice(
                (self.cut, self.flip, self.flip, self.drop, self.grow, self.exchange, self.rename)
            )()

    def file(self, *suffixes: str) -> Path | None:
        """Choose a file that is not empty: mostly a log, mostly the newest."""
        if not suffixes and self.rng.random() < 0.5:
            suffixes = (LOG,)
        found = sorted(
            path
            for path in self.partition.iterdir()
            if path.stat().st_size and (not suffixes or path.suffix in suffixes)
        )
        if found and self.rng.random() < 0.4:
            return found[-1]
        return self.rng.choice(found) if found else None

    def say(self, what: str, path: Path) -> None:
        self.words.append(f"{what} {path.name}")

    def cut(self) -> None:
        if path := self.file():
            size = self.rng.randrange(path.stat().st_size)
            with path.open("r+b") as file:
                file.truncate(size)
            self.say(f"cut at {size}", path)

    def flip(self) -> None:
        if path := self.file():
            data = bytearray(path.read_bytes())
            used = len(data.rstrip(b"\0")) or len(data)
            bit = self.rng.randrange(8 * used)
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            self.say(f"bit {bit % 8} of byte {bit // 8} flipped in", path)

    def drop(self) -> None:
        if path := self.file():
            path.unlink()
            self.say("dropped", path)

    def grow(self) -> None:
        if path := self.file():
            size = self.rng.choice((1, 5, 17, 18, 100))
            data = path.read_bytes()
            more = self.rng.choice((bytes(size), self.rng.randbytes(size), data[-size:], data))
            path.write_bytes(data + more)
            self.say(f"{len(more)} bytes more in", path)

    def exchange(self) -> None:
        one = self.file()
        other = self.file(one.suffix) if one else None
        if one and other and one != other:
            first, second = one.read_bytes(), other.read_bytes()
            one.write_bytes(second)
            other.write_bytes(first)
            self.say(f"{one.name} exchanged with", other)

    def rename(self) -> None:
        if path := self.file():
            suffix = self.rng.choice((".deleted", ".cleaned", ".swap", ".bak"))
            path.rename(path.with_name(path.name + suffix))
            self.say(f"{suffix} appended to", path)
