"""Kafka's tools and the clients of its newer group protocols against `kafkalog serve`."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.kafka import broker_data
from tests.kafkalog.wire.server.protocol import SECONDS_MAX, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.broker_data import BrokerData

pytestmark = pytest.mark.kafka

TOOLS = "org.apache.kafka.tools"
LOGGING = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
OPTIONS = (*(one for one in broker_data.JVM_OPTIONS if "defaultLogLevel" not in one), LOGGING)
TOPIC = "codec-none"
TRANSACTIONS = "a.b_c-1"


@pytest.fixture(scope="module")
def address(broker: BrokerData) -> Iterator[str]:
    with serving(broker.log_dir("clean")) as running:
        yield str(running.address)


def run(address: str, tool: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a tool, which must end by itself."""
    words = [f"{TOOLS}.{tool}", "--bootstrap-server", address, *args]
    return subprocess.run(
        broker_data.java_command(*words, options=OPTIONS),
        capture_output=True, text=True, timeout=SECONDS_MAX, check=False,
    )  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("tool", "args", "wanted"), [
    ("MetadataQuorumCommand", "describe --status",
     ("LeaderId:               1", "MaxFollowerLag:         0", '"endpoints": ["CONTROLLER://')),
    ("MetadataQuorumCommand", "describe --replication", ("Leader",)),
    ("TransactionsCommand", "list", ("tx-a ", "CompleteCommit", "Ongoing")),
    ("TransactionsCommand", "describe --transactional-id tx-a", ("tx-a ", "600000")),
    ("TransactionsCommand", f"describe-producers --topic {TRANSACTIONS} --partition 0",
     ("CurrentTransactionStartOffset", "None")),
    ("TransactionsCommand", f"find-hanging --topic {TRANSACTIONS}", ("StartOffset",)),
    ("GroupsCommand", "--list", ("classic-group", "Classic", "Consumer")),
])  # fmt: skip
def test_a_tool_shows_what_the_files_say(
    address: str, tool: str, args: str, wanted: tuple[str, ...]
) -> None:
    done = run(address, tool, *args.split())
    assert done.returncode == 0, done.stderr
    assert not [one for one in wanted if one not in done.stdout], done.stdout


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("tool", "args"), [
    ("consumer.ConsoleConsumer", "--consumer-property group.protocol=consumer"),
    ("consumer.ConsoleShareConsumer", "--timeout-ms 3000"),
    ("streams.StreamsGroupCommand", "--describe --group streams"),
])  # fmt: skip
def test_a_client_of_a_newer_protocol_ends_with_the_reason(
    address: str, tool: str, args: str
) -> None:
    """These clients try again what they take for an error that passes."""
    topic = [] if "Command" in tool else ["--topic", TOPIC]
    done = run(address, tool, *topic, *args.split())
    assert "UnsupportedVersionException" in done.stdout + done.stderr
    assert "Processed a total of 0 messages" in done.stderr or "Command" in tool
