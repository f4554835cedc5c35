"""Large log directories in an object store: requests, and the time until work begins.

`python -m benchmarks.stores --help`. The store is a process on this machine that answers each
request after a delay, and counts it. Its log directory was closed cleanly: partitions of several
segments, each with its indexes and its snapshot. A command runs until its first row or file is
there; then it is stopped. The store says what it was asked for, and when a task first read: no plan
reads a segment that is not the active one.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.processes import exit_on_signals
from kafkalog.io.codecs import crc32c
from tests.builders import BASE_TIME, batch, record
from tests.counted_store import CountedStore, serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BATCHES: Final = 48
VALUE_BYTES: Final = 4000
TOPIC_PARTITIONS: Final = 100
PREFIX: Final = "kafka"
_FIRST_LOG: Final = f"{0:020d}.log"
_QUIET_S: Final = 2.0
_IN_SPARK: Final = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from kafkalog.spark import KafkaLogDataSource
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.dataSource.register(KafkaLogDataSource)
session.range(1).collect()
print("ready", flush=True)
frame = session.read.format("kafkalog").load(sys.argv[1])
print(frame.select("topic", "partition", "offset").take(1), flush=True)
"""


def log_dir(partitions: int, segments: int) -> dict[str, bytes]:
    """Return the objects of a log directory that was closed cleanly; partitions share contents."""
    inside: dict[str, bytes] = {
        "leader-epoch-checkpoint": b"0\n1\n0 0\n",
        "partition.metadata": b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
    }
    count = struct.pack(">i", 0)
    snapshot = struct.pack(">hI", 1, crc32c(count)) + count
    for number in range(segments):
        base = number * BATCHES
        batches = [
            batch(
                base + i,
                [record(0, b"key-%02d" % i, b"v" * VALUE_BYTES)],
                base_time=BASE_TIME + base + i,
                max_time=BASE_TIME + base + i,
            )
            for i in range(BATCHES)
        ]
        size = len(batches[0])
        entries = range(1, BATCHES)
        name = f"{base:020d}"
        inside[f"{name}.log"] = b"".join(batches)
        inside[f"{name}.index"] = b"".join(struct.pack(">ii", i, i * size) for i in entries)
        inside[f"{name}.timeindex"] = b"".join(
            struct.pack(">qi", BASE_TIME + base + i, i) for i in entries
        )
        inside[f"{base + BATCHES:020d}.snapshot"] = snapshot
    names = [
        (f"topic-{number // TOPIC_PARTITIONS}", number % TOPIC_PARTITIONS)
        for number in range(partitions)
    ]
    end = segments * BATCHES
    at_end = "".join(f"{topic} {number} {end}\n" for topic, number in names)
    found = {
        f"{PREFIX}/.kafka_cleanshutdown": b'{"version":0,"brokerEpoch":1}',
        f"{PREFIX}/meta.properties": b"version=1\ncluster.id=c\nnode.id=1\n",
        f"{PREFIX}/cleaner-offset-checkpoint": b"0\n0\n",
        f"{PREFIX}/log-start-offset-checkpoint": b"0\n0\n",
        f"{PREFIX}/recovery-point-offset-checkpoint": f"0\n{partitions}\n{at_end}".encode(),
        f"{PREFIX}/replication-offset-checkpoint": f"0\n{partitions}\n{at_end}".encode(),
    }
    for topic, number in names:
        found |= {f"{PREFIX}/{topic}-{number}/{name}": data for name, data in inside.items()}
    return found


class TimedStore(CountedStore):
    """A store that knows when a task first read a segment since it was last asked for counts."""

    read_ms = 0

    def answer(
        self, method: str, target: str, headers: Mapping[str, str]
    ) -> tuple[int, str, bytes]:
        """Do what `CountedStore` does; the counts say when a task began to read, in epoch ms."""
        status, head, body = super().answer(method, target, headers)
        if target == "/_counts":
            body += f" read-ms={self.read_ms}".encode()
            self.read_ms = 0
        elif method == "GET" and target.endswith(_FIRST_LOG):
            self.read_ms = self.read_ms or time.time_ns() // 1_000_000
        return status, head, body


@dataclass(frozen=True)
class Command:
    """What is measured: its words, and how it is seen that its work has begun."""

    name: str
    words: tuple[str, ...]
    sees_file: bool = False


def commands(to: Path) -> list[Command]:
    """All commands, in the order of the table."""
    query = 'SELECT topic, partition, "offset" FROM records LIMIT 1'
    filtered = "SELECT topic, partition, offset FROM records WHERE partition >= 0"
    kafkalog = (sys.executable, "-m", "kafkalog_cli")
    in_spark = (*kafkalog, "sql", "--spark", "local[*]", "--format", "ndjson", "-c")
    export = (*kafkalog, "export", "{uri}", "--to", str(to), "-q")
    return [
        Command("find", (*kafkalog, "find", "{uri}", "--key", "key-00", "--limit", "1")),
        Command("sql", (*kafkalog, "sql", "-c", query, "{uri}")),
        Command("sql --spark", (*in_spark, filtered, "{uri}")),
        Command("export", export, sees_file=True),
        Command("export --spark", (*export, "--spark", "local[*]"), sees_file=True),
        Command('spark.read.format("kafkalog")', (sys.executable, "-c", _IN_SPARK, "{uri}")),
    ]


def measured(
    command: Command, store: CountedStore, to: Path
) -> tuple[float, float, dict[str, int]]:
    """Return the seconds until a task reads and until its result, and the requests until then."""
    words = [word.replace("{uri}", store.uri(PREFIX)) for word in command.words]
    before = _settled(store)
    began = time.time()
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            if command.sees_file:
                while process.poll() is None and not any(to.rglob("*.parquet")):
                    time.sleep(0.05)
            else:
                line = process.stdout.readline()
                if line == b"ready\n":  # a session of Spark takes some seconds to start
                    began = time.time()
                    line = process.stdout.readline()
            took, now = time.time() - began, asked_of(store)
            peak = _peak_mb(process.pid)
            if process.poll():
                raise SystemExit(f"{command.name} ended with status {process.returncode}.")
        finally:
            with_children(process.pid, signal.SIGKILL)
    counts = {kind: now[kind] - before.get(kind, 0) for kind in now if kind != "at-once"}
    reads = now["read-ms"] / 1000 - began if now["read-ms"] else took
    return reads, took, {**counts, "at-once": now["at-once"], "MB": peak}


def with_children(pid: int, number: int) -> None:
    """Send a signal to a process that leads a group, and to all of that."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _peak_mb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 // 1_000_000 if found else 0


def asked_of(store: CountedStore) -> dict[str, int]:
    """Ask the store what it was asked for."""
    connection = http.client.HTTPConnection("127.0.0.1", store.port)
    connection.request("GET", "/_counts")
    words = connection.getresponse().read().decode().split()
    connection.close()
    return {kind: int(number) for kind, _, number in (word.partition("=") for word in words)}


def _settled(store: CountedStore) -> dict[str, int]:
    """Return what the store was asked for, once workers of the last command no longer ask."""
    while (before := asked_of(store)) and sum(before.values()):
        time.sleep(_QUIET_S)
        now = asked_of(store)
        if all(now.get(kind) == before.get(kind) for kind in ("LIST", "HEAD", "GET")):
            return now
    return before


def main() -> None:
    """Start the store, measure command after command, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=__doc__)
    parser.add_argument("--partitions", type=int, default=5000)
    parser.add_argument("--segments", type=int, default=10)
    parser.add_argument("--delay", type=float, default=25, help="of each answer, in ms (25)")
    parser.add_argument("--only", default="", metavar="REGEX", help="commands like this")
    parser.add_argument("--serve", action="store_true", help="be the store")
    options = parser.parse_args()
    exit_on_signals()
    if options.serve:
        asyncio.run(_serve(options))
        return
    words = [f"--{name}={getattr(options, name)}" for name in ("partitions", "segments", "delay")]
    store = CountedStore({})
    command = [sys.executable, "-m", "benchmarks.stores", "--serve", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            store.port = int(server.stdout.readline())
            print("\n".join(_table(store, options)))
        finally:
            server.terminate()


def _table(store: CountedStore, options: argparse.Namespace) -> Iterator[str]:
    segments = options.partitions * options.segments
    titles = ("command", "s until a task reads", "s", "LIST", "HEAD", "GET", "a segment", "at once")
    yield f"| {' | '.join(titles)} | memory, MB |"
    yield "|---" * (len(titles) + 1) + "|"
    with tempfile.TemporaryDirectory(prefix="kafkalog-stores-") as scratch:
        for number, one in enumerate(commands(Path(scratch) / "to")):
            if not re.search(options.only, one.name):
                continue
            to = Path(scratch) / f"to-{number}"
            words = tuple(word.replace(str(Path(scratch) / "to"), str(to)) for word in one.words)
            reads, took, found = measured(Command(one.name, words, one.sees_file), store, to)
            asked = [found.get(kind, 0) for kind in ("LIST", "HEAD", "GET")]
            each = sum(asked) / segments
            cells = [f"`{one.name}`", f"{reads:.1f}", f"{took:.1f}", *map(str, asked)]
            yield f"| {' | '.join(cells)} | {each:.2f} | {found['at-once']} | {found['MB']} |"


async def _serve(options: argparse.Namespace) -> None:
    store = TimedStore(log_dir(options.partitions, options.segments), options.delay / 1000)
    server = await serve(store)
    print(store.port, flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    main()
