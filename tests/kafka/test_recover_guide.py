"""The command lines of `docs/guide/recover-a-cluster.md` that need a cluster or a client."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from docgen.pages import DOCS
from docgen.scenes import scene
from tests.kafka.broker_data import java_command
from tests.kafka.test_replayed_logs import target

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.test_replayed_logs import Broker

__all__ = ["target"]

pytestmark = pytest.mark.kafka

RECORDS: Final = {"customers": 60, "orders": 1000, "payments": 36}
"""What `ExampleData.java` produced into the topics of `examples/log-dir`."""


def lines_of(number: int) -> list[list[str]]:
    """Return the words of each shell line in a numbered section."""
    text = (DOCS / "guide" / "recover-a-cluster.md").read_text()
    [section] = [part for part in text.split("\n## ") if part.startswith(f"{number}. ")]
    [block] = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]


def program(words: list[str], where: Path) -> subprocess.Popen[str]:
    """Start kafkalog with the words of a line."""
    assert words[0] == "kafkalog"
    return subprocess.Popen(
        [sys.executable, "-m", "kafkalog_cli", *words[1:]],
        cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_client_reads_what_is_served(harness: None) -> None:
    """Kafka's own console consumer, with the options of the guide."""
    assert harness is None
    serve, consume = lines_of(6)
    with scene("lost-metadata") as where:
        serve[serve.index("127.0.0.1:9092")] = "127.0.0.1:0"
        server = program(serve, where)
        try:
            assert server.stdout is not None
            address = server.stdout.readline().strip().removeprefix("bootstrap.servers=")
            consume[consume.index("127.0.0.1:9092")] = address
            count = RECORDS[consume[consume.index("--topic") + 1]]
            assert consume[0] == "kafka-console-consumer.sh"
            done = subprocess.run(
                java_command(
                    "org.apache.kafka.tools.consumer.ConsoleConsumer",
                    *consume[1:], "--max-messages", str(count + 1), "--timeout-ms", "20000",
                ),
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert len(done.stdout.splitlines()) == count, done.stderr
        finally:
            server.send_signal(signal.SIGTERM)
            _, errors = server.communicate(timeout=60)
    assert server.returncode == 0, errors


def test_a_cluster_has_what_is_replayed(target: Broker) -> None:
    """Topics are created, each record is there once, and the group goes on."""
    [replay] = lines_of(7)
    replay[replay.index("localhost:9092")] = target.bootstrap
    with scene("lost-metadata") as where:
        done = program(replay, where)
        _, errors = done.communicate(timeout=300)
    assert done.returncode == 0, errors
    assert {topic: len(target.read(topic)) for topic in RECORDS} == RECORDS
    assert target.committed("billing") == {("orders", 0): 400}
