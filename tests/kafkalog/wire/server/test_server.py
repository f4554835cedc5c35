"""Connections, ApiVersions, Metadata and refusals of a running server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import random
import selectors
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

from formats.error_codes import ErrorCode
from formats.message_table import requests
from kafkalog.wire.server.apis import REFUSALS
from kafkalog.wire.server.catalog import Catalog
from kafkalog.wire.server.connection import Connection
from kafkalog.wire.server.model import Address, ServeListener, ServeOptions
from kafkalog.wire.server.run import Server
from tests.checkout import ROOT
from tests.kafkalog.wire.server.protocol import Connected, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kafkalog.wire.server.protocol import Serving


EXAMPLE = ROOT / "examples" / "log-dir"
STOP_SECONDS_MAX = 10
"""`docker stop` kills what has not ended by then."""


@pytest.fixture(scope="module")
def served(corpus_dir: Path) -> Iterator[Serving]:
    with serving(corpus_dir / "kafka-4.3" / "txn") as running:
        yield running


@pytest.fixture
def client(served: Serving) -> Iterator[Connected]:
    with Connected(served.address) as connected:
        yield connected


def test_versions_are_those_of_the_table(client: Connected):
    """ApiVersions returns the versions of Kafka 4.4's table."""
    answer = client.ask("ApiVersions", 3, {"clientSoftwareName": "t", "clientSoftwareVersion": "1"})
    offered = {one["apiKey"]: range(one["minVersion"], one["maxVersion"] + 1)
               for one in answer["apiKeys"]}  # fmt: skip
    table = {one.api_key: one.versions for one in requests().values()}
    assert {key: versions for key, versions in offered.items() if table[key] != versions} == {}
    assert {0, 3, 10, 18, 60, 75} <= offered.keys()


def test_a_newer_client_learns_the_versions(client: Connected):
    """An unknown ApiVersions version is answered in version 0, as by Kafka."""
    client.send(struct.pack(">ihhi", 10, 18, 99, 7) + b"\xff\xff")
    answer = client.receive()
    assert answer is not None
    assert struct.unpack(">ihi hhh", answer) == (7, ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, 5)


@pytest.mark.parametrize("version", [0, 1, 5, 9, 12, 13])
def test_metadata_names_topics_and_this_node(client: Connected, served: Serving, version: int):
    """All topics but the internal ones, with their ids from `partition.metadata`."""
    request: dict[str, Any] = {"topics": [] if version == 0 else None}
    if version >= 4:
        request["allowAutoTopicCreation"] = False
    if version >= 8:
        request["includeTopicAuthorizedOperations"] = False
    if 8 <= version <= 10:
        request["includeClusterAuthorizedOperations"] = False
    answer = client.ask("Metadata", version, request)
    [node] = answer["brokers"]
    assert (node["host"], node["port"]) == served.address
    [topic] = answer["topics"]
    assert topic["name"] == "txn"
    assert [one["partitionIndex"] for one in topic["partitions"]] == [0, 1, 2]
    assert {one["leaderId"] for one in topic["partitions"]} == {node["nodeId"]}
    if version >= 12:
        assert topic["topicId"] != "A" * 22
        by_id = {**request, "topics": [{"topicId": topic["topicId"], "name": None}]}
        assert client.ask("Metadata", version, by_id)["topics"] == [topic]


def test_topics_that_are_not_there(client: Connected):
    """Unknown name, illegal name, unknown id: Kafka's errors. With an id, names are ignored."""
    request = {
        "topics": [
            {"topicId": "A" * 22, "name": "nothing"},
            {"topicId": "A" * 22, "name": "no/topic"},
        ],
        "allowAutoTopicCreation": True,
        "includeTopicAuthorizedOperations": False,
    }
    assert [one["errorCode"] for one in client.ask("Metadata", 12, request)["topics"]] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    request["topics"].append({"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "name": None})
    assert [one["errorCode"] for one in client.ask("Metadata", 12, request)["topics"]] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


REFUSED: dict[str, dict[str, Any]] = {
    "Produce": {"transactionalId": None, "acks": 1, "timeoutMs": 1, "topicData": [
        {"name": "txn", "partitionData": [{"index": 0, "records": b""}]}]},
    "CreateTopics": {"topics": [{"name": "new", "numPartitions": 1, "replicationFactor": 1,
                                 "assignments": [], "configs": []}],
                     "timeoutMs": 1, "validateOnly": False},
    "DeleteTopics": {"topicNames": ["txn"], "timeoutMs": 1},
    "DeleteRecords": {"topics": [{"name": "txn", "partitions": [
        {"partitionIndex": 0, "offset": 1}]}], "timeoutMs": 1},
    "InitProducerId": {"transactionalId": None, "transactionTimeoutMs": 1, "producerId": -1,
                       "producerEpoch": -1},
    "AlterConfigs": {"resources": [{"resourceType": 2, "resourceName": "txn", "configs": []}],
                     "validateOnly": False},
    "CreatePartitions": {"topics": [{"name": "txn", "count": 9, "assignments": None}],
                         "timeoutMs": 1, "validateOnly": False},
    "DeleteGroups": {"groupsNames": ["g"]},
    "IncrementalAlterConfigs": {"resources": [{"resourceType": 2, "resourceName": "txn",
                                               "configs": []}], "validateOnly": False},
}  # fmt: skip
REFUSED_VERSIONS = {
    "Produce": 9, "DeleteTopics": 5,
}  # fmt: skip


@pytest.mark.parametrize("api", REFUSALS)
def test_what_would_write_is_refused(client: Connected, api: str):
    """Each request is answered, with an error in each of its parts."""
    newest = requests()[f"{api}Request"].versions[-1]
    answer = client.ask(api, REFUSED_VERSIONS.get(api, newest), REFUSED[api])
    codes = set(error_codes(answer)) - {ErrorCode.NONE}
    assert codes
    assert codes <= {ErrorCode.POLICY_VIOLATION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def error_codes(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for one in value:
            yield from error_codes(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name.lower().endswith("errorcode"):
                yield one
            yield from error_codes(one)


@pytest.mark.parametrize(
    "frame",
    [
        struct.pack(">i", -1),
        struct.pack(">i", (16 << 20) + 1),
        struct.pack(">i", 0),
        struct.pack(">ihhi", 8, 999, 0, 1),
        struct.pack(">ihhi", 8, 3, 99, 1),
        struct.pack(">ihhi", 12, 3, 1, 1) + b"\xff\xff\xff\xff",
        struct.pack(">ihhi", 14, 3, 1, 1) + b"\xff\xff\x7f\xff\xff\xff",
    ],
)
def test_a_malformed_request_ends_the_connection_only(served: Serving, frame: bytes):
    """False sizes, unknown APIs and versions, truncated bodies."""
    with Connected(served.address) as bad, Connected(served.address) as good:
        bad.send(frame)
        assert bad.receive() is None
        assert good.ask("FindCoordinator", 0, {"key": "g"})["errorCode"] == ErrorCode.NONE


def test_random_frames_end_connections_only(served: Serving):
    """Frames of every API with random bytes."""
    drawn = random.Random(4711)
    keys = sorted({one.api_key for one in requests().values() if one.api_key is not None})
    for _ in range(300):
        body = drawn.randbytes(drawn.randrange(60))
        head = struct.pack(">hhi", drawn.choice(keys), drawn.randrange(12), 1)
        with Connected(served.address) as bad:
            bad.send(struct.pack(">i", len(head) + len(body) + 2) + head + b"\xff\xff" + body)
            bad.finish()
    with Connected(served.address) as good:
        assert good.ask("FindCoordinator", 0, {"key": "g"})["errorCode"] == ErrorCode.NONE
    assert [error for error in served.heard.errors if error.exit_code == 70] == []


@pytest.mark.sampled(10)
@pytest.mark.parametrize("_", range(20))
def test_a_connection_that_has_just_been_accepted_is_closed(_: int):
    """A server that ends leaves no socket open: Python's warning about it would be an error."""
    with serving(EXAMPLE) as running:
        opened = [socket.create_connection(running.address) for _ in range(10)]
    for one in opened:
        one.close()
    gc.collect()


class JumpingSelector(selectors.DefaultSelector):
    """Does not sleep until the next timer of an event loop: sets the loop's clock to it."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Without a timer the loop waits for a thread, which looks up an address.
        found = super().select(STOP_SECONDS_MAX if timeout is None else 0)
        if not found:
            self.now_s += math.inf if timeout is None else timeout
            assert self.now_s < STOP_SECONDS_MAX
        return found


def test_a_connection_that_does_not_end_holds_up_the_end_for_seconds_only(
    monkeypatch: pytest.MonkeyPatch,
):
    """The clock is that of the event loop."""
    released = asyncio.Event()

    async def go_on(_: Connection) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await released.wait()
        await released.wait()

    async def serve_and_stop() -> None:
        options, listener = ServeOptions(listen=Address("127.0.0.1", 0)), ServeListener()
        server = Server(Catalog([str(EXAMPLE)], options, listener), options, listener)
        await server.start()
        with Connected(server.address):
            visits = server._door._visits
            while not any(hasattr(one, "writer") for one in visits):
                await asyncio.sleep(0)
            server.stop()
            await server.run()
        going_on = list(visits.values())
        released.set()
        await asyncio.gather(*going_on)
        assert len(going_on) == 1

    monkeypatch.setattr(Connection, "run", go_on)
    selector = JumpingSelector()
    with contextlib.closing(asyncio.SelectorEventLoop(selector)) as loop:
        monkeypatch.setattr(loop, "time", lambda: selector.now_s)
        loop.run_until_complete(serve_and_stop())


def test_more_connections_than_permitted_are_told_once():
    with (
        serving(EXAMPLE, max_connections=2) as running,
        Connected(running.address) as first,
        Connected(running.address) as second,
    ):
        for one in (first, second):
            one.ask("ApiVersions", 0, {})
        for _ in range(3):
            with Connected(running.address) as third:
                assert third.receive() is None
        assert running.heard.warnings == [
            "2 connections are open, more are closed at once: --max-connections N permits N."
        ]
        for one in (first, second):
            one.ask("ApiVersions", 0, {})
