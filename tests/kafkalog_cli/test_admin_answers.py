"""`metadata`, `groups` and `transactions` of a node with every feature against Admin's answers."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from formats.releases import METADATA_VERSION, metadata_levels
from tests.conftest import CORPUS, State, state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

STATES: Final = sorted(
    (path.parent.name, path.name.removesuffix(".expected.tar.xz"))
    for path in CORPUS.glob("kafka-*/features-*.expected.tar.xz")
)
"""Releases, and states with the answers of an admin client in `admin.json`."""
ACL: Final = re.compile(
    r"resourceType=(\w+), (?:resourceN|n)ame=([^,]*), patternType=(\w+)\W+(?:entry=\()?"
    r"principal=([^,]*), host=([^,]*), operation=(\w+), permissionType=(\w+)"
)


@pytest.fixture(params=STATES, ids="-".join)
def node(request: pytest.FixtureRequest, corpus_dir: Path) -> State:
    return state(corpus_dir, *request.param)


@pytest.fixture
def told(node: State) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((node.expected / "admin.json").read_text())
    return found


def rows(kafkalog: Run, *argv: object) -> list[dict[str, Any]]:
    result = kafkalog(*argv, "--format", "ndjson")
    assert result.status == 0, result.stderr
    assert "warning" not in result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def fields(text: str, *names: str) -> list[str]:
    """Return values from a `toString`, in the order of their names."""
    return [re.findall(rf"\b{name}=(?:Optional\w+\[)?([\w.-]*)", text)[0] for name in names]


def acls(texts: Iterable[str]) -> list[tuple[str, ...]]:
    return sorted(found.groups() for text in texts if (found := ACL.search(text)))


Leaves = dict[tuple[str, ...], str]


@pytest.fixture
def leaves(node: State, kafkalog: Run) -> Leaves:
    """Return the texts of the metadata by their paths below `/image`."""
    found = rows(kafkalog, "metadata", node.root, "--tree", "/image")
    return {tuple(row["path"].split("/")[2:]): row["text"] for row in found}


def test_topics_and_configs_are_what_an_admin_client_is_told(
    node: State, told: dict[str, Any], leaves: Leaves, kafkalog: Run
) -> None:
    """With the configs that 4.4 added, of topics, groups and brokers."""
    assert {
        row["topic"]: {
            "topic_id": row["topic_id"],
            "partitions": row["partitions"],
            "configs": row["topic_configs"],
        }
        for row in rows(kafkalog, "metadata", node.root)
    } == {
        name: {"topic_id": one["topicId"], **{key: one[key] for key in ("partitions", "configs")}}
        for name, one in told["topics"].items()
    }

    configs: dict[str, dict[str, str]] = {}
    for path, text in leaves.items():
        if path[0] == "configs" and not path[1].startswith("TOPIC:"):
            # A client gets those of all brokers with those of each.
            configs.setdefault("BROKER:1" if path[1] == "BROKER" else path[1], {})[path[2]] = text
    assert configs == told["configs"]


def test_features_are_what_an_admin_client_is_told(told: dict[str, Any], leaves: Leaves) -> None:
    """The level of metadata.version by its name."""
    features = {
        path[1].removeprefix("finalized_"): int(text)
        for path, text in leaves.items()
        if path[0] == "features" and path[1].startswith("finalized_")
    }
    level = told["features"][METADATA_VERSION]
    assert leaves["features", "metadataVersion"] == f"Optional[{metadata_levels()[level]}]"
    others = {METADATA_VERSION, "kraft.version"}  # an image does not hold the second
    assert features == {k: v for k, v in told["features"].items() if k not in others}
    supported = ", ".join(f"{k}: {v}" for k, v in sorted(told["supportedFeatures"].items()))
    assert f"supportedFeatures={{{supported}}}" in leaves["cluster", "brokers", "1"]


def test_who_may_do_how_much_is_what_an_admin_client_is_told(
    told: dict[str, Any], leaves: Leaves
) -> None:
    """ACLs, with ranges of hosts, quotas and credentials."""
    found = [text for path, text in leaves.items() if path[0] == "acls"]
    assert acls(found) == acls(told["acls"])
    assert len(acls(found)) == len(told["acls"]) > 1

    quotas = [(*path[1:], text) for path, text in leaves.items() if path[0] == "clientQuotas"]
    assert sorted(quotas) == sorted(
        (entity_name(entity), *quota.split("="))
        for one in told["quotas"]
        for entity, values in re.findall(r"\{(.*?)\} \{(.*?)\}", one)
        for quota in values.split(", ")
    )
    assert sorted(
        (path[2], path[1], fields(text, "iterations")[0])
        for path, text in leaves.items()
        if path[0] == "scram"
    ) == sorted(
        (fields(one.replace("'", ""), "name")[0], mechanism.replace("_", "-"), iterations)
        for one in told["scram"]
        for mechanism, iterations in re.findall(r"mechanism=(\w+), iterations=(\d+)", one)
    )


def entity_name(text: str) -> str:
    """Return an entity, `client-id=c1, user=alice` say, as the tree names it."""
    parts = [one.split("=") for one in text.split(", ")]
    return "_".join(f"{kind.replace('client-id', 'clientId')}({name})" for kind, name in parts)


def test_a_controller_that_was_unregistered_is_gone(
    node: State, told: dict[str, Any], kafkalog: Run
) -> None:
    """The quorum still lists it as an observer, whose record 29 has removed it from the image."""
    assert "ReplicaState(replicaId=2," in told["quorum"]
    paths = [
        row["path"]
        for row in rows(kafkalog, "metadata", node.root, "--tree", "/image/cluster/controllers")
    ]
    assert paths == ["/image/cluster/controllers/1"]
    before = rows(kafkalog, "metadata", node.root, "--since", "0@119")
    gone = next(row for row in before if row["path"] == "/image/cluster/controllers/2")
    assert (gone["offset"], gone["after"]) == (119, None)


def test_groups_are_what_an_admin_client_is_told(
    node: State, told: dict[str, Any], kafkalog: Run
) -> None:
    """Groups of each protocol, their offsets, and how far share groups lag."""
    lines = rows(kafkalog, "groups", node.root)
    assert {row["group_id"] for row in lines if row["type"] == "group"} == {*told["groups"]}
    for name, wanted in told["groups"].items():
        found = rows(kafkalog, "groups", node.root, "--group", name)
        [group] = [row for row in found if row["type"] == "group"]
        assert group["group_type"] == wanted["type"].lower()
        assert group["state"] == wanted["state"]
        assert group["members"] == 0
        assert "members=," in wanted["describe"]
        if "groupEpoch=null" not in wanted["describe"]:
            assert [str(group["group_epoch"])] == fields(wanted["describe"], "groupEpoch")
        offsets = {
            f"{row['topic']}-{row['partition']}": row
            for row in found
            if row["type"] == "group_offset"
        }
        committed, starts = wanted.get("committed", {}), wanted.get("startOffsets", {})
        assert offsets.keys() == {*committed, *starts}
        for place, text in committed.items():
            row = offsets[place]
            epoch = "null" if row["leader_epoch"] == -1 else row["leader_epoch"]
            assert text == (
                f"OffsetAndMetadata{{offset={row['offset']}, leaderEpoch={epoch}, "
                f"metadata='{row['metadata']}'}}"
            )
        for place, text in starts.items():
            row = offsets[place]
            assert text == (
                f"SharePartitionOffsetInfo{{startOffset={row['offset']}, "
                f"leaderEpoch={row['leader_epoch']}, lag={row['lag']}}}"
            )


def test_transactions_are_what_an_admin_client_is_told(
    node: State, told: dict[str, Any], kafkalog: Run
) -> None:
    """Both ids with their states, and the data that a producer has open."""
    found = rows(kafkalog, "transactions", node.root)
    assert {
        row["transactional_id"]: f"TransactionDescription(coordinatorId=1, state={row['state']}, "
        f"producerId={row['producer_id']}, producerEpoch={row['producer_epoch']}, "
        f"transactionTimeoutMs={row['timeout_ms']}, "
        f"transactionStartTimeMs=OptionalLong[{row['start_timestamp']}], "
        f"topicPartitions=[{', '.join(row['topic_partitions'])}])"
        for row in found
        if row["type"] == "transactional_id"
    } == told["transactions"]
    opened = {
        (f"{row['topic']}-{row['partition']}", str(row["producer_id"]), str(row["first_offset"]))
        for row in found
        if row["type"] == "open_transaction"
    }
    assert opened == {
        (place, *fields(one, "producerId", "currentTransactionStartOffset"))
        for place, producers in told["producers"].items()
        for one in re.findall(r"ProducerState\(.*?\)", producers)
        if "currentTransactionStartOffset=OptionalLong[" in one
    }
    assert opened
