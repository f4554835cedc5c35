"""DescribeConfigs: a topic's own configs, defaults, and configs that are withheld."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from formats.error_codes import ErrorCode
from tests.builders import batch, record, write_log
from tests.checkout import ROOT
from tests.kafkalog.change.resurrection.test_resurrect import TOPIC_ID, make, topic
from tests.kafkalog.wire.server.protocol import serving
from tests.kafkalog.wire.server.wire import Wire
from tests.metadata_logs import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXAMPLE = ROOT / "examples" / "log-dir"
TOPIC, BROKER, GROUP = 2, 4, 32
OWN, DEFAULT = 1, 5


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with serving(EXAMPLE) as running, Wire(running.address) as connected:
        yield connected


def described(wire: Wire, kind: int, name: str, **more: Any) -> dict[str, Any]:
    resource = {"resourceType": kind, "resourceName": name, "configurationKeys": None}
    keys = {one: more.pop(one) for one in ("configurationKeys",) if one in more}
    [answer] = wire.tell("DescribeConfigs", 4, resources=[resource | keys], **more)["results"]
    return answer


def test_own_configs_and_defaults(wire: Wire) -> None:
    """`ExampleData` made the topic `customers` compacted."""
    answer = described(wire, TOPIC, "customers")
    told = {one["name"]: one for one in answer["configs"]}
    assert answer["errorCode"] == ErrorCode.NONE
    policy = told["cleanup.policy"]
    assert (policy["value"], policy["configSource"], policy["configType"]) == ("compact", OWN, 7)
    days = told["retention.ms"]
    assert (days["value"], days["configSource"], days["configType"]) == ("604800000", DEFAULT, 5)
    assert told["min.cleanable.dirty.ratio"]["value"]
    assert told["preallocate"]["value"] == "false"
    assert all(one["readOnly"] and not one["isSensitive"] for one in told.values())
    assert not any(one["synonyms"] for one in told.values())


def test_chosen_configs_with_synonyms(wire: Wire) -> None:
    answer = described(
        wire, TOPIC, "customers", configurationKeys=["cleanup.policy"], includeSynonyms=True
    )
    [one] = answer["configs"]
    assert [(same["value"], same["source"]) for same in one["synonyms"]] == [
        ("compact", OWN), ("delete", DEFAULT),
    ]  # fmt: skip


@pytest.mark.parametrize("newest", ["a", "b"])
def test_the_newest_metadata_count(tmp_path: Path, newest: str) -> None:
    """An older metadata log may have the configs of a topic that was deleted since."""
    for node_id, name in enumerate(("a", "b"), 1):
        make(tmp_path / name, "t-0", [])
        properties = tmp_path / name / "meta.properties"
        properties.write_text(properties.read_text().replace("node.id=1", f"node.id={node_id}"))
        value = value_of(
            "ConfigRecord", resourceType=TOPIC, resourceName="t", name="retention.ms",
            value="1" if name == newest else "2",
        )  # fmt: skip
        values = [*topic("t", TOPIC_ID, 1, (1, 2)), value]
        records = [record(delta, None, value) for delta, value in enumerate(values)]
        place = tmp_path / name / "__cluster_metadata-0"
        write_log(place, batch(0, records, epoch=int(name == newest)))
    with serving(tmp_path / "a", tmp_path / "b") as running, Wire(running.address) as connected:
        answer = described(connected, TOPIC, "t", configurationKeys=["retention.ms"])
        assert [one["value"] for one in answer["configs"]] == ["1"]


def test_what_is_not_there(wire: Wire) -> None:
    unknown = described(wire, TOPIC, "none")
    assert unknown["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for kind, name in (BROKER, "77"), (GROUP, "billing"):
        answer = described(wire, kind, name)
        assert (answer["errorCode"], answer["configs"]) == (ErrorCode.NONE, [])


def test_what_the_metadata_log_sets_for_all_brokers(wire: Wire) -> None:
    """A Kafka 4.3 controller writes this config when it starts."""
    [one] = described(wire, BROKER, "")["configs"]
    assert (one["name"], one["value"], one["configSource"]) == ("min.insync.replicas", "1", 3)
