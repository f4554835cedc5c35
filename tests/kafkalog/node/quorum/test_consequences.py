"""What becomes of partitions when a quorum goes on: strays, and partitions without a leader."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import UsageError
from kafkalog.node.quorum.consequences import Consequences, consequences
from kafkalog.node.quorum.quorum import read_quorum
from kafkalog.node.quorum.rescue import plan_rescue
from kafkalog.node.targets import open_targets
from tests.builders import batch, record, write_log
from tests.metadata_logs import value_of
from tests.nodes import METADATA, identify, uuid, write_node
from tests.quorums import epoch_batches, write_copy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

EPOCH = 1
AT = {1: ("controller1", 9093)}


def of(*paths: Path) -> Consequences:
    targets = open_targets([str(path) for path in paths])
    found = consequences(read_quorum(targets), targets)
    assert found is not None
    return found


def registered(node: int, *directories: int) -> bytes:
    end_point = {"name": "PLAINTEXT", "host": "h", "port": 9092, "securityProtocol": 0}
    return value_of(
        "RegisterBrokerRecord", brokerId=node, incarnationId=uuid(22), brokerEpoch=2, rack=None,
        fenced=False, inControlledShutdown=False, isMigratingZkBroker=False, endPoints=[end_point],
        features=[], logDirs=[uuid(one) for one in directories],
    )  # fmt: skip


def assigned(
    number: int, replicas: dict[int, int], isr: Sequence[int], elr: Sequence[int] = ()
) -> bytes:
    """Encode a partition of the topic; each replica is given with its directory."""
    return value_of(
        "PartitionRecord", 2, partitionId=number, topicId=uuid(70), replicas=[*replicas],
        isr=[*isr], removingReplicas=[], addingReplicas=[], leader=-1, leaderEpoch=0,
        partitionEpoch=0, directories=[uuid(one) for one in replicas.values()],
        eligibleLeaderReplicas=[*elr], lastKnownElr=None,
    )  # fmt: skip


def batches_of(values: Sequence[bytes]) -> list[bytes]:
    before = epoch_batches([(EPOCH, 9)])
    records = [record(delta, None, value) for delta, value in enumerate(values)]
    return [*before, batch(9, records, epoch=EPOCH)]


def test_replicas_in_sync_are_looked_for_on_the_brokers_that_are_here(tmp_path: Path) -> None:
    """In the directories that they are assigned to; those of a broker that moves them in any."""
    values = [
        registered(11, 111, 112), registered(12, 121),
        value_of("TopicRecord", name="orders", topicId=uuid(70)),
        assigned(0, {11: 111, 12: 121}, isr=[11, 12]),
        assigned(1, {11: 111, 12: 121}, isr=[12]),
        assigned(2, {11: 112}, isr=[11]),  # a directory that is not given
        assigned(3, {12: 121, 11: 111}, isr=[], elr=[11]),
        assigned(4, {12: 121, 11: 111}, isr=[12], elr=[13]),
        assigned(5, {13: 131}, isr=[13]),
    ]  # fmt: skip
    migrating = value_of(
        "PartitionRecord", 1, partitionId=6, topicId=uuid(70), replicas=[11], isr=[11],
        removingReplicas=[], addingReplicas=[], leader=11, leaderEpoch=0, partitionEpoch=0,
        directories=["A" * 22],
    )  # fmt: skip
    batches = batches_of([*values, migrating])
    controller = write_copy(tmp_path, 1, batches, epoch=EPOCH)
    broker = write_copy(tmp_path, 11, batches, epoch=EPOCH, directory=111)
    found = of(controller, broker)
    assert found.strays == ()
    assert [(one.partition, one.in_sync, one.here) for one in found.offline] == [
        (1, (12,), (11,)), (2, (11,), ()), (4, (12, 13), (11,)), (5, (13,), ()),
    ]  # fmt: skip
    assert {one.topic for one in found.offline} == {"orders"}
    other = write_copy(tmp_path, 12, batches, epoch=EPOCH, directory=121)
    assert [one.partition for one in of(controller, broker, other).offline] == [2, 5]
    # Without a broker's directory nothing is said, be it that of a partition alone.
    for paths in [controller], [controller, broker / METADATA]:
        targets = open_targets([str(path) for path in paths])
        assert consequences(read_quorum(targets), targets) is None


def test_a_partition_of_an_unknown_topic_becomes_a_stray(tmp_path: Path) -> None:
    """In any directory of the node, with its size; other log directories are of partitions."""
    root = write_node(tmp_path / "node")
    assert of(root / "d1", root / "d2") == Consequences((), ())
    places = {one.name: one for one in root.glob("d*/*-0") if one.name != METADATA}
    orders = places["orders-0"]
    identify(orders, uuid(77))
    [stray] = of(root / "d1", root / "d2").strays
    assert (stray.node_id, stray.topic, stray.partition) == (1, "orders", 0)
    assert stray.path == str(orders)
    assert stray.size_bytes == sum(one.stat().st_size for one in orders.iterdir())
    assert uuid(77) in stray.reason
    found = of(root / "d1")
    assert {f"{one.topic}-{one.partition}" for one in found.offline} == {
        one.name for one in root.glob("d2/*-?")
    }


def test_the_metadata_are_those_that_are_put_together(tmp_path: Path) -> None:
    """A topic whose record one copy has damaged is no stray if another copy has it sound."""
    values = [[registered(11, 11)], [value_of("TopicRecord", name="orders", topicId=uuid(70))],
              [assigned(0, {11: 11}, isr=[11])]]  # fmt: skip
    batches = epoch_batches([(EPOCH, 9)])
    batches += [
        batch(9 + n, [record(0, None, value[0])], epoch=EPOCH) for n, value in enumerate(values)
    ]
    hurt = [*batches[:-2], batches[-2][:-1] + bytes([batches[-2][-1] ^ 1]), batches[-1]]
    write_copy(tmp_path, 1, hurt, epoch=EPOCH)
    broker = write_copy(tmp_path, 11, batches[:-1], epoch=EPOCH)
    write_log(broker / "orders-0", batch(0, [record(0)]))
    identify(broker / "orders-0", uuid(70))
    assert of(tmp_path / "n1", broker) == Consequences((), ())
    write_copy(tmp_path / "alone", 1, hurt, epoch=EPOCH)
    shutil.rmtree(broker / METADATA)
    [stray] = of(tmp_path / "n1", broker).strays
    assert stray.topic == "orders"


def test_a_log_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    batches = batches_of([registered(11, 11)])
    controller = write_copy(tmp_path, 1, batches, epoch=EPOCH)
    other = write_copy(tmp_path, 11, batches, epoch=EPOCH, cluster=uuid(98))
    shutil.rmtree(other / METADATA)
    with pytest.raises(UsageError, match="It is of cluster"):
        of(controller, other)


def test_an_open_metadata_transaction_is_named(tmp_path: Path) -> None:
    """The next leader aborts it: what it has written so far never was."""
    begin = value_of("BeginTransactionRecord", name=None)
    topic = value_of("TopicRecord", name="orders", topicId=uuid(70))
    log_dir = write_copy(tmp_path, 1, batches_of([begin, topic]), epoch=EPOCH)
    found = read_quorum(open_targets([str(log_dir)]))
    assert found.metadata is not None
    assert "orders" not in found.metadata.image.topics
    warnings = plan_rescue(found, AT).warnings
    [line] = (one for one in warnings if "transaction" in one)
    assert "begins at offset 9 has no end" in line
    end = value_of("EndTransactionRecord")
    log_dir = write_copy(tmp_path / "b", 1, batches_of([begin, topic, end]), epoch=EPOCH)
    plan = plan_rescue(read_quorum(open_targets([str(log_dir)])), AT)
    assert not any("transaction" in one for one in plan.warnings)
