"""The same random requests to `kafkalog serve` and to a real broker on the same logs."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.disk import tries_everything
from tests.kafka.conftest import new_seed
from tests.kafka.serve import served
from tests.kafka.serve.requests import Requests, known_by, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.serve.gathered import Gathered
    from tests.kafka.serve.served import Bridge, Server

pytestmark = pytest.mark.kafka

REQUESTS = 20_000 if tries_everything() else 500
SHOWN_MAX = 8
SETTLED_SECONDS = 60
OF_THE_NODE = ("throttleTimeMs", "brokers", "clusterId", "controllerId", "nodeEndpoints")
"""What two nodes never have in common: how busy they are, where they listen, who they are."""


@pytest.fixture(scope="module")
def broker_and_serve(
    gathered: Gathered, bridge: Bridge, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    """A broker, and ours on a copy of what the broker then had, with its metadata and epochs."""
    place = tmp_path_factory.mktemp("answers")
    logs = gathered.copied(place / "logs")
    with served.running_broker(logs, place / "broker") as broker:
        assert known_by(bridge, broker.port)
        copy = logs.copied(place / "copy")
        for log_dir in copy.log_dirs:
            shutil.copy(gathered.log_dirs[0] / ".kafka_cleanshutdown", log_dir)
        with served.running_serve(copy.log_dirs, place / "serve") as ours:
            yield broker, ours


def comparable(api: str, answer: dict[str, Any]) -> Any:
    """What has to be equal of an answer."""
    rest = {name: value for name, value in answer.items() if name not in OF_THE_NODE}
    if api == "Fetch":
        rest.pop("sessionId", None)  # drawn by the broker; a server may answer 0: no session
        for topic in rest.get("responses", ()):
            for part in topic["partitions"]:
                # A broker cuts where the size is reached, inside a batch, which clients drop.
                part.pop("part", None)
                part.pop("recordsSizeInBytes", None)
    if api == "Metadata":
        # Kafka's order is that of a hash map.
        rest["topics"] = sorted(rest.get("topics", ()), key=json.dumps)
        for topic in rest["topics"]:
            for part in topic["partitions"]:
                for name in ("replicaNodes", "isrNodes", "offlineReplicas"):
                    part[name] = len(part.get(name, ()))  # numbers of nodes
                part["leaderId"] = part["leaderId"] >= 0
            topic["partitions"].sort(key=lambda one: one["partitionIndex"])
    return rest


def test_both_speak_the_same_versions(
    bridge: Bridge, broker_and_serve: tuple[Server, Server]
) -> None:
    """So that no version is left out of the comparison."""
    broker, ours = broker_and_serve
    assert versions(bridge, ours.port) == versions(bridge, broker.port)


def test_answers_are_those_of_a_broker(
    bridge: Bridge, broker_and_serve: tuple[Server, Server], tell: Callable[[str], None]
) -> None:
    """Records to the last byte, errors, watermarks, epochs, aborted transactions, ids."""
    broker, ours = broker_and_serve
    seed = new_seed()
    print("seed", seed)
    requests = Requests(
        random.Random(seed), known_by(bridge, broker.port), versions(bridge, ours.port)
    )
    differences = []
    for _ in range(REQUESTS):
        api, version, body = requests.draw()
        wanted, found = (
            comparable(api, bridge.ask(one.port, api, version, body)) for one in (broker, ours)
        )
        if wanted != found:
            differences.append(
                f"{api} {version} {json.dumps(body)}\n  broker {wanted}\n  serve  {found}"
            )
    tell(f"{REQUESTS} requests to a broker and to serve")
    shown = "\n".join(differences[:SHOWN_MAX])
    assert not differences, f"{len(differences)} of {REQUESTS} answers differ:\n{shown}"
