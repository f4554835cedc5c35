"""One reading of what `serve` or a broker serves: `python -m benchmarks.serving --help`.

The server is started on a log directory, a client on the same machine reads the topic `orders`, and
JSON says how long that took, and what the server took for it. The client is librdkafka
(confluent-kafka) or kafka-consumer-perf-test, as they are by default. A broker, which has links to
the same files, has been read once before; `serve` checks every batch in the reading that counts.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.processes import exit_on_signals
from benchmarks.replaying import running_broker
from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC: Final = "orders"
_CLIENT_OPTIONS: Final = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SECONDS_MAX: Final = 300
_AT_A_TIME: Final = 100_000
_RECONNECT: Final = {"reconnect.backoff.ms": 5, "reconnect.backoff.max.ms": 5}
_THROUGH_MEMORY: Final = """
import sys
from functools import partial
from kafkalog.wire.server import model
model.ServeOptions = partial(model.ServeOptions, by_kernel=False)
from kafkalog_cli.main import run
sys.exit(run(sys.argv[1:]))
"""
"""A program is never told so: it finds out where the kernel cannot."""
_PEAK: Final = re.compile(r"VmHWM:\s+(\d+) kB")
_MADE_HERE: Final = "partition.metadata"


@dataclass(frozen=True)
class Serving:
    """A server that runs."""

    bootstrap: str
    pid: int

    @property
    def cpu_s(self) -> float:
        """What it has taken so far, of users and system."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / _TICKS

    @property
    def peak_mb(self) -> float:
        """The most memory that it had."""
        [kilobytes] = _PEAK.findall(Path(f"/proc/{self.pid}/status").read_text())
        return int(kilobytes) * 1024 / 1e6


@contextmanager
def kafkalog(log_dir: Path, port: int = 0, *, by_kernel: bool = True) -> Iterator[Serving]:
    """`kafkalog serve`, which may listen a little later."""
    command = [sys.executable, "-m", "kafkalog_cli"]
    if not by_kernel:
        command = [sys.executable, "-c", _THROUGH_MEMORY]
    command += ["serve", str(log_dir), "--listen", f"127.0.0.1:{port}",
                "--high-watermark", "end", "--quiet"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            bootstrap = f"127.0.0.1:{port}"
            if not port:
                bootstrap = process.stdout.readline().strip().partition("=")[2]
            yield Serving(bootstrap, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


@contextmanager
def broker(log_dir: Path) -> Iterator[Serving]:
    """A broker whose topic has links to the same logs, and was read once."""
    names = sorted(path.name for path in log_dir.glob(f"{TOPIC}-*"))
    place = Path(tempfile.mkdtemp(prefix="kafkalog-serving-", dir=log_dir.parent))
    try:
        with running_broker(place) as (bootstrap, _):
            create_topic(bootstrap, len(names))
            await_topic(bootstrap, len(names))
        for name in names:
            copy = place / "log" / name
            for path in copy.iterdir():
                if path.name != _MADE_HERE:
                    path.unlink()
            for path in (log_dir / name).iterdir():
                if path.suffix == ".log":
                    (copy / path.name).hardlink_to(path)
                elif path.name != _MADE_HERE:
                    shutil.copy2(path, copy)
        with running_broker(place) as (bootstrap, pid):
            await_topic(bootstrap, len(names))
            librdkafka(bootstrap)
            yield Serving(bootstrap, pid)
    finally:
        shutil.rmtree(place)


def create_topic(bootstrap: str, partitions: int) -> None:
    """Create the topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(TOPIC, num_partitions=partitions, replication_factor=1)
    admin.create_topics([topic])[TOPIC].result(60)


def await_topic(bootstrap: str, partitions: int) -> None:
    """Wait until all partitions have leaders."""
    consumer = new_consumer(bootstrap)
    deadline = time.monotonic() + _SECONDS_MAX
    while time.monotonic() < deadline:
        known = consumer.list_topics(timeout=_SECONDS_MAX).topics.get(TOPIC)
        found = known.partitions.values() if known else ()
        if len(found) == partitions and all(one.leader >= 0 for one in found):
            consumer.close()
            return
        time.sleep(0.1)
    raise SystemExit(f"{TOPIC} has no leaders")


def librdkafka(bootstrap: str) -> int:
    """Read the topic with librdkafka; return the number of records."""
    consumer = new_consumer(bootstrap)
    known = consumer.list_topics(TOPIC, timeout=_SECONDS_MAX).topics[TOPIC].partitions
    unread = set(known)
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in unread])
    count = 0
    while unread:
        for one in consumer.consume(_AT_A_TIME, timeout=1):
            error = one.error()
            if error is None:
                count += 1
            elif error.name() == "_PARTITION_EOF":
                unread.discard(one.partition())
            else:
                raise SystemExit(str(error))
    consumer.close()
    return count


def new_consumer(bootstrap: str, **config: object) -> Consumer:
    """A consumer that commits nothing and says nothing."""
    silent = logging.getLogger("librdkafka")
    silent.disabled = True
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "serving", "enable.auto.commit": False,
         "enable.partition.eof": True, "auto.offset.reset": "earliest", **config},
        logger=silent,
    )  # fmt: skip


def perf_test(bootstrap: str, records: int) -> tuple[int, float]:
    """Read the topic with kafka-consumer-perf-test: its records and seconds, as it states them."""
    done = subprocess.run(
        broker_data.java_command(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--bootstrap-server", bootstrap, "--topic", TOPIC, "--messages", str(records)),
            *("--timeout", "60000", "--hide-header"),
            options=_CLIENT_OPTIONS,
        ),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    words = done.stdout.splitlines()[-1].split(", ")
    return int(words[4]), int(words[7]) / 1000


def read_whole(server: Serving, client: str, records: int) -> dict[str, float]:
    """Let a client read the topic; return what that took the server."""
    before, since = server.cpu_s, time.monotonic()
    if client == "perf-test":
        count, seconds = perf_test(server.bootstrap, records)
    else:
        count = librdkafka(server.bootstrap)
        seconds = time.monotonic() - since
    if count != records:
        raise SystemExit(f"{count} records came, and not {records}")
    return {"wall_s": seconds, "cpu_s": server.cpu_s - before, "peak_mb": server.peak_mb}


def first_record(log_dir: Path) -> dict[str, float]:
    """Start `serve`; return what it took until a client, which was there before, has a record."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    consumer = new_consumer(f"127.0.0.1:{port}", **_RECONNECT)
    last = len([*log_dir.glob(f"{TOPIC}-*")]) - 1
    consumer.assign([TopicPartition(TOPIC, last, 0)])
    since = time.monotonic()
    with kafkalog(log_dir, port) as server:
        message = None
        while message is None or message.error() is not None:
            message = consumer.poll(1)
            if time.monotonic() - since > _SECONDS_MAX:
                raise SystemExit("no record came")
        seconds = time.monotonic() - since
        taken = {"wall_s": seconds, "cpu_s": server.cpu_s, "peak_mb": server.peak_mb}
    consumer.close()
    return taken


def main() -> None:
    """Serve, read, say what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("server", choices=("serve", "serve-through-memory", "broker"))
    parser.add_argument("client", choices=("librdkafka", "perf-test", "first-record"))
    parser.add_argument("log_dir", type=Path)
    parser.add_argument("records", type=int, help="of each partition")
    given = parser.parse_args()
    exit_on_signals()
    records = given.records * len([*given.log_dir.glob(f"{TOPIC}-*")])
    if given.client == "first-record":
        taken = first_record(given.log_dir)
    elif given.server == "broker":
        with broker(given.log_dir) as server:
            taken = read_whole(server, given.client, records)
    else:
        with kafkalog(given.log_dir, by_kernel=given.server == "serve") as server:
            taken = read_whole(server, given.client, records)
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
