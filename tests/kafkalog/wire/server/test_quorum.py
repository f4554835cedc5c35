"""DescribeQuorum, from one and several metadata logs; and the node that clients expect."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from formats.error_codes import ErrorCode
from tests.builders import batch, record, write_log
from tests.kafkalog.wire.server.protocol import serving
from tests.kafkalog.wire.server.wire import Wire
from tests.metadata_logs import value_of
from tests.nodes import CLUSTER, METADATA, control, uuid, voters_of

if TYPE_CHECKING:
    from pathlib import Path

ASKED = [{"topicName": "__cluster_metadata", "partitions": [{"partitionIndex": 0}]}]
NO_ID = "A" * 22
LEADER_CHANGE = 2


def write_node(log_dir: Path, node_id: int, operations: int, voters: list[int]) -> Path:
    """Write a log directory: node 2 leads in epoch 7 of those that voted then, 1 and 2."""
    message = {
        "version": 0, "leaderId": 2, "voters": [{"voterId": 1}, {"voterId": 2}],
        "grantingVoters": [],
    }  # fmt: skip
    batches = [control(0, LEADER_CHANGE, "LeaderChangeMessage", message, epoch=7)]
    if voters:
        batches.append(voters_of(1, voters, epoch=7))
    first = len(batches)
    noop = record(0, None, value_of("NoOpRecord"))
    batches += [batch(first + number, [noop], epoch=7) for number in range(operations)]
    write_log(log_dir / METADATA, *batches)
    (log_dir / METADATA / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    properties = ["version=1", f"cluster.id={CLUSTER}", f"node.id={node_id}"]
    properties += [f"directory.id={uuid(node_id)}", ""]
    (log_dir / "meta.properties").write_text("\n".join(properties))
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    return log_dir


def described(*log_dirs: Path, version: int = 2) -> dict[str, Any]:
    with serving(*log_dirs) as running, Wire(running.address) as wire:
        return wire.tell("DescribeQuorum", version, topics=ASKED)


def test_voters_and_the_ends_of_their_logs(tmp_path: Path) -> None:
    """The third voter's log is not there; without `quorum-state` two of three prove nothing."""
    nodes = [write_node(tmp_path / str(one), one, 5 + one, [1, 2, 3]) for one in (1, 2)]
    answer = described(*nodes)
    [partition] = answer["topics"][0]["partitions"]
    assert (answer["errorCode"], partition["errorCode"]) == (0, 0)
    assert (partition["leaderId"], partition["leaderEpoch"]) == (2, 7)
    assert partition["highWatermark"] == 0
    assert partition["observers"] == []
    assert [
        (one["replicaId"], one["replicaDirectoryId"], one["logEndOffset"])
        for one in partition["currentVoters"]
    ] == [(1, uuid(1), 8), (2, uuid(2), 9), (3, uuid(3), -1)]
    assert answer["nodes"] == [
        {"nodeId": one, "listeners": [
            {"name": "CONTROLLER", "host": f"node{one}", "port": 9093},
        ]} for one in (1, 2, 3)
    ]  # fmt: skip


def test_the_last_record_of_voters_counts(tmp_path: Path) -> None:
    """Two voted for the leader, and one of them left the quorum since: all that it wrote counts."""
    answer = described(write_node(tmp_path / "2", 2, 4, [2]))
    [partition] = answer["topics"][0]["partitions"]
    assert [one["replicaId"] for one in partition["currentVoters"]] == [2]
    assert partition["highWatermark"] == 6


def test_static_voters_have_no_directory_ids(tmp_path: Path) -> None:
    answer = described(write_node(tmp_path / "2", 2, 4, []))
    [partition] = answer["topics"][0]["partitions"]
    assert [
        (one["replicaId"], one["replicaDirectoryId"], one["logEndOffset"])
        for one in partition["currentVoters"]
    ] == [(1, NO_ID, -1), (2, NO_ID, 5)]
    assert answer["nodes"] == [{"nodeId": one, "listeners": []} for one in (1, 2)]


def test_a_leader_whose_message_is_deleted_is_in_the_quorum_state(tmp_path: Path) -> None:
    node = write_node(tmp_path / "2", 2, 4, [2])
    (node / METADATA / "leader-epoch-checkpoint").unlink()
    (node / METADATA / "quorum-state").write_text(
        '{"leaderId":2,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"","data_version":1}'
    )
    [partition] = described(node)["topics"][0]["partitions"]
    assert (partition["leaderId"], partition["leaderEpoch"]) == (2, 7)


def test_the_quorum_of_a_brokers_files(corpus_dir: Path) -> None:
    """Where the controller listens and where its log ends is in Kafka's dump."""
    state = corpus_dir / "kafka-4.3" / "internal-topics"
    dumps = (corpus_dir / "kafka-4.3" / "internal-topics.expected" / "dump" / METADATA).glob(
        "*.log.decoded.txt"
    )
    text = max(dumps).read_text()
    end = max(int(one) for one in re.findall(r"(?m)^baseOffset: \d+ lastOffset: (\d+)", text)) + 1
    answer = described(state, version=1)
    [partition] = answer["topics"][0]["partitions"]
    assert (partition["leaderId"], partition["highWatermark"]) == (1, end)
    assert [one["logEndOffset"] for one in partition["currentVoters"]] == [end]
    [node] = described(state)["nodes"]
    assert [one["name"] for one in node["listeners"]] == ["CONTROLLER"]


def test_other_partitions_have_no_quorum(tmp_path: Path) -> None:
    with serving(write_node(tmp_path / "2", 2, 4, [2])) as running, Wire(running.address) as wire:
        asked = [{"topicName": "orders", "partitions": [{"partitionIndex": 0}]}]
        answer = wire.tell("DescribeQuorum", 2, topics=asked)
    [partition] = answer["topics"][0]["partitions"]
    assert partition["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_without_a_metadata_log_the_error_is_one_that_clients_do_not_retry(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0", batch(0, [record()]))
    answer = described(tmp_path / "orders-0")
    assert answer["errorCode"] == ErrorCode.INVALID_REQUEST
    assert "__cluster_metadata-0" in answer["errorMessage"]


@pytest.mark.parametrize(("cluster_id", "node_id", "error"), [
    (None, -1, ErrorCode.NONE),
    (CLUSTER, 0, ErrorCode.NONE),
    (CLUSTER, 1, ErrorCode.REBOOTSTRAP_REQUIRED),
    ("other", 0, ErrorCode.REBOOTSTRAP_REQUIRED),
    (CLUSTER, -1, ErrorCode.INVALID_REQUEST),
    (None, 0, ErrorCode.INVALID_REQUEST),
])  # fmt: skip
def test_a_client_that_expects_another_node_bootstraps_again(
    tmp_path: Path, cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    """Kafka 4.4 answered so; its clients say whom they expect since KIP-1242."""
    with serving(write_node(tmp_path / "2", 2, 1, [])) as running, Wire(running.address) as wire:
        answer = wire.tell("ApiVersions", 5, clientSoftwareName="a", clientSoftwareVersion="1",
                           clusterId=cluster_id, nodeId=node_id)  # fmt: skip
    assert answer["errorCode"] == error
    assert bool(answer["apiKeys"]) == (error == ErrorCode.NONE)
