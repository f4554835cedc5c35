"""`replay` beside kafka-producer-perf-test on the same broker: `python -m benchmarks.replaying`.

A broker is started on loopback. kafka-producer-perf-test fills a topic with records of each size,
which are then replayed into another topic; both go into topics of one partition, in turns. The
second figure of Kafka's tool is with the batches that `replay` uses. `replay` is the whole program,
from its start to its end; Kafka's tool states its own figure, without the start of its JVM.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.processes import exit_on_signals
from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES: Final = {100: 3_000_000, 1000: 600_000}
ALIKE: Final = ("batch.size=1000000", "linger.ms=20", "buffer.memory=67108864")
BROKER_OPTIONS: Final = ("-Xms512m", "-Xmx1g")
_RATE: Final = re.compile("([0-9.]+) records/sec")


@contextmanager
def running_broker(place: Path) -> Iterator[tuple[str, int]]:
    """A broker on loopback with the log directory `place / "log"`: its address and process id."""
    (place / "cwd").mkdir(exist_ok=True)
    options = (*BROKER_OPTIONS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
    with subprocess.Popen(
        broker_data.java_command(
            "kafkalog.harness.RunningBroker", str(place / "log"), options=options
        ),
        cwd=place / "cwd", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "KAFKALOG_KAFKA_LOG": "off"},
    ) as broker:  # fmt: skip
        assert broker.stdin is not None
        assert broker.stdout is not None
        assert broker.stdout.readline() == "running\n"
        broker.stdin.write("port\n")
        broker.stdin.flush()
        yield f"127.0.0.1:{int(broker.stdout.readline())}", broker.pid
        broker.stdin.close()


def perf_test(bootstrap: str, topic: str, count: int, size: int, *properties: str) -> float:
    """Produce with Kafka's tool; return records per second, as it states them."""
    command = broker_data.java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(count), "--record-size", str(size)),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}", *properties),
        options=("-Xmx512m",),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(_RATE.findall(done.stdout)[-1])


def replayed(bootstrap: str, log: Path, old: str, new: str, count: int, place: Path) -> float:
    """Replay a log; return records per second, start and end of the program included."""
    since = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "kafkalog_cli", "replay", str(log), "--bootstrap", bootstrap,
         "--progress", str(place / f"{new}.progress"), "--topic-map", f"{old}={new}",
         "--isolation", "log", "--keep-partitions", "--quiet", "--apply", "--yes"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return count / (time.monotonic() - since)


def measure(bootstrap: str, place: Path, scale: float, rounds: int) -> None:
    """Print a row per size of records."""
    print("| records | perf-test | perf-test, batches alike | `replay` | of the better one |")
    print("|---|---|---|---|---|")
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def new_topic(name: str) -> str:
        topic = NewTopic(name, num_partitions=1, replication_factor=1)
        admin.create_topics([topic])[name].result(60)
        return name

    for size, whole in SIZES.items():
        count = int(whole * scale)
        source = new_topic(f"source-{size}")
        perf_test(bootstrap, source, count, size, *ALIKE)
        rates: list[tuple[float, float, float]] = []
        for number in range(rounds):
            names = [new_topic(f"{one}-{size}-{number}") for one in ("plain", "alike", "replay")]
            rates.append(
                (
                    perf_test(bootstrap, names[0], count, size),
                    perf_test(bootstrap, names[1], count, size, *ALIKE),
                    replayed(
                        bootstrap, place / "log" / f"{source}-0", source, names[2], count, place
                    ),
                )
            )
        plain, alike, ours = (median(some) for some in zip(*rates, strict=True))
        share = ours / max(plain, alike)
        print(
            f"| {count:,} of {size} B | {plain:,.0f}/s | {alike:,.0f}/s | {ours:,.0f}/s "
            f"| {share:.2f} × |",
            flush=True,
        )


def main() -> None:
    """Start a broker, measure, and remove everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records")
    parser.add_argument("--rounds", type=int, default=3, help="how often; the median counts")
    given = parser.parse_args()
    exit_on_signals()
    broker_data.build()
    place = Path(tempfile.mkdtemp(prefix="kafkalog-replaying-"))
    try:
        with running_broker(place) as (bootstrap, _):
            measure(bootstrap, place, given.scale, given.rounds)
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
