"""Log directories as public repositories hold them: old, cut short, or left by a crash.

Made from a seed with struct alone; nothing here comes from kafkalog.
"""

from __future__ import annotations

import base64
import random
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.builders import BASE_TIME, batch, message, record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

HEADING = "#\n#Sat Nov 21 03:13:47 UTC 2020\n"
SECOND_MS = 1000


@dataclass(frozen=True)
class OddLogDir:
    """One kind of directory.

    Attributes:
        name: the name of the kind.
        make: writes it to a path.
        findings: the expected findings above a note; none for what a broker wrote.
    """

    name: str
    make: Callable[[Path, random.Random], None]
    findings: frozenset[str] = frozenset()


@dataclass
class Log:
    """A partition that is written segment by segment."""

    directory: Path
    rng: random.Random
    offset: int = 0

    def segment(self, count: int, magic: int, *, epoch: int = 0, suffix: str = "") -> None:
        """Write records in one batch each, with the indexes of that release."""
        base, data, largest = self.offset, b"", (-1, 0)
        for _ in range(count):
            time = BASE_TIME + self.offset * SECOND_MS
            key, value = b"k%d" % self.rng.randrange(9), self.rng.randbytes(self.rng.randrange(40))
            if magic < 2:
                data += message(self.offset, key, value, magic=magic, time=time)
            else:
                one = record(0, key, value)
                data += batch(self.offset, [one], base_time=time, max_time=time, epoch=epoch)
            largest = time, self.offset - base
            self.offset += 1
        self.files(base, {"log": data, "index": b""}, suffix)
        if magic:
            self.files(base, {"timeindex": struct.pack(">qi", *largest)}, suffix)

    def files(self, base: int, contents: dict[str, bytes], suffix: str = "") -> None:
        """Write the files of a segment."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for kind, data in contents.items():
            (self.directory / f"{base:020d}.{kind}{suffix}").write_bytes(data)

    def name(self, base: int, kind: str) -> Path:
        """Return the path of a segment's file."""
        return self.directory / f"{base:020d}.{kind}"

    def text(self, name: str, *lines: str) -> None:
        """Write a checkpoint."""
        write_checkpoint(self.directory / name, *lines)


def write_checkpoint(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)))


def close(root: Path, logs: Sequence[Log], *, is_old: bool = False) -> None:
    """Write the files that a broker leaves when it shuts down cleanly."""
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        entries = [f"{log.directory.name.replace('-', ' ')} {log.offset}" for log in logs]
        write_checkpoint(root / name, *entries)
    if not is_old:
        write_checkpoint(root / "log-start-offset-checkpoint")
        write_checkpoint(root / "cleaner-offset-checkpoint")
    (root / ".kafka_cleanshutdown").touch()


def properties(root: Path, **values: object) -> None:
    lines = [f"{key.replace('_', '.')}={value}\n" for key, value in values.items()]
    (root / "meta.properties").write_text(HEADING + "".join(lines))


def identity(rng: random.Random) -> str:
    return base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")


def of_zookeeper(root: Path, rng: random.Random) -> None:
    """Brokers 0.10.1 to 2.7: `broker.id`, no topic ids, and the successive record formats."""
    logs = [Log(root / f"events-{number}", rng) for number in range(3)]
    for log in logs:
        log.segment(rng.randrange(5, 30), 1)
        first = log.offset
        log.segment(rng.randrange(5, 30), 2)
        log.segment(rng.randrange(5, 30), 2)
        log.text("leader-epoch-checkpoint", f"0 {first}")
    properties(root, version=0, broker_id=rng.randrange(1000), cluster_id=identity(rng))
    close(root, logs)


def before_time_indexes(root: Path, rng: random.Random) -> None:
    """Brokers 0.8.2 to 0.10.0: magic 0, no time indexes, no cluster id."""
    logs = [Log(root / f"clicks-{number}", rng) for number in range(2)]
    for log in logs:
        log.segment(rng.randrange(5, 30), 0)
        log.segment(rng.randrange(5, 30), 0)
    properties(root, version=0, broker_id=rng.randrange(1000))
    close(root, logs, is_old=True)


def of_kraft(root: Path, rng: random.Random, cluster_id: str | None = None) -> list[Log]:
    logs = [Log(root / f"orders-{number}", rng) for number in range(2)]
    topic_id = identity(rng)
    for log in logs:
        for _ in range(rng.randrange(1, 4)):
            log.segment(rng.randrange(5, 30), 2)
        log.text("leader-epoch-checkpoint", "0 0")
        (log.directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    cluster_id = cluster_id or identity(rng)
    properties(root, node_id=1, version=1, cluster_id=cluster_id, directory_id=identity(rng))
    close(root, logs)
    return logs


def named_cluster(root: Path, rng: random.Random) -> None:
    """A cluster id that a person made up, as compose files have it."""
    of_kraft(root, rng, rng.choice(("my-cluster", "dev", "5L6g3nShT-eMCtK--X86sw!", "a b")))


def emptied(root: Path, rng: random.Random) -> None:
    """The machine stopped before the small files were on disk.

    Their names exist without content.
    """
    logs = of_kraft(root, rng)
    (root / ".kafka_cleanshutdown").unlink()
    for path in [*root.glob("*checkpoint"), root / "meta.properties"]:
        path.write_bytes(b"")
    for log in logs:
        (log.directory / "leader-epoch-checkpoint").write_bytes(b"")


def overlapping(root: Path, rng: random.Random) -> None:
    """A segment that was copied back next to the one that replaced it."""
    log = of_kraft(root, rng)[0]
    end = log.offset
    log.offset = rng.randrange(1, 5)
    while log.name(log.offset, "log").exists():
        log.offset += 1
    log.segment(end + 5, 2)
    write_checkpoint(root / "recovery-point-offset-checkpoint")
    (root / ".kafka_cleanshutdown").unlink()


def in_mid_swap(root: Path, rng: random.Random) -> None:
    """The broker was killed while its cleaner replaced two segments by a cleaned one."""
    logs = of_kraft(root, rng)
    log = Log(root / "orders-2", rng)
    log.segment(10, 2)
    log.segment(10, 2)
    kept = [offset for offset in range(20) if rng.random() < 0.6]
    times = {offset: BASE_TIME + offset * SECOND_MS for offset in kept}
    data = b"".join(
        batch(offset, [record(0, b"k", b"v")], base_time=time, max_time=time)
        for offset, time in times.items()
    )
    log.segment(5, 2)
    last = kept[-1] if kept else 0
    entry = struct.pack(">qi", times.get(last, -1), last)
    log.files(0, {"log": data, "index": b"", "timeindex": entry}, ".swap")
    if rng.random() < 0.5:
        for kind in ("log", "index", "timeindex"):
            log.name(0, kind).rename(log.name(0, f"{kind}.deleted"))
    log.text("leader-epoch-checkpoint", "0 0")
    topic = logs[0].directory / "partition.metadata"
    (log.directory / "partition.metadata").write_bytes(topic.read_bytes())
    close(root, [*logs, log])
    (root / ".kafka_cleanshutdown").unlink()


ODD_LOG_DIRS = (
    OddLogDir("of-zookeeper", of_zookeeper),
    OddLogDir("before-time-indexes", before_time_indexes),
    OddLogDir("named-cluster", named_cluster),
    OddLogDir("emptied", emptied, frozenset({"log-dir-not-formatted", "leader-epochs-missing"})),
    OddLogDir("overlapping", overlapping, frozenset({"segments-overlap"})),
    OddLogDir("in-mid-swap", in_mid_swap),
)


def make(kind: OddLogDir, root: Path, seed: int) -> Path:
    """Make a directory of a kind from a seed."""
    root.mkdir(parents=True)
    kind.make(root, random.Random(f"{kind.name} {seed}"))
    return root
