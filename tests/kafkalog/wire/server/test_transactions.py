"""Transactions and producers, as Kafka's own dumps of the same files have them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from formats.error_codes import ErrorCode
from formats.file_names import SNAPSHOT
from kafkalog.model import present_ms
from tests.builders import copy_tree
from tests.kafkalog.wire.server.protocol import serving
from tests.kafkalog.wire.server.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATES = ("txn", "internal-topics")
PRODUCER = re.compile(
    r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) "
    r"currentTxnFirstOffset: Optional(?:Long)?(?:\.empty|\[(\d+)\]) lastTimestamp: (-?\d+)"
    r"(?: .*lastSequence: (\d+))?"
)


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest, corpus_dir: Path) -> Path:
    return corpus_dir / "kafka-4.3" / request.param


@pytest.fixture
def wire(state: Path) -> Iterator[Wire]:
    with serving(state, internal=True) as running, Wire(running.address) as connected:
        yield connected


def expected_of(state: Path) -> Path:
    return state.with_name(f"{state.name}.expected") / "dump"


def dumped_producers(state: Path) -> dict[tuple[str, int], list[dict[str, int]]]:
    """Return what Kafka printed of the snapshot that each partition got at its shutdown."""
    found = {}
    for directory in expected_of(state).iterdir():
        dumps = sorted(directory.glob(f"*{SNAPSHOT}.txt"))
        if dumps and not directory.name.startswith("__cluster_metadata"):
            topic, _, index = directory.name.rpartition("-")
            found[topic, int(index)] = [
                {
                    "producerId": int(producer_id),
                    "producerEpoch": int(epoch),
                    "lastSequence": int(sequence or -1),
                    "lastTimestamp": int(time),
                    "coordinatorEpoch": int(by),
                    "currentTxnStartOffset": int(first or -1),
                }
                for producer_id, epoch, by, first, time, sequence in PRODUCER.findall(
                    dumps[-1].read_text()
                )
            ]
    return found


def told_producers(
    wire: Wire, partitions: dict[tuple[str, int], Any]
) -> dict[tuple[str, int], list[dict[str, int]]]:
    asked = [{"name": topic, "partitionIndexes": [index]} for topic, index in partitions]
    answer = wire.tell("DescribeProducers", 0, topics=asked)
    assert not any(one["errorCode"] for topic in answer["topics"] for one in topic["partitions"])
    return {
        (topic["name"], one["partitionIndex"]): sorted(
            one["activeProducers"], key=lambda producer: producer["producerId"]
        )
        for topic in answer["topics"]
        for one in topic["partitions"]
    }


def test_producers_are_those_of_the_last_snapshot(state: Path, wire: Wire) -> None:
    expected = dumped_producers(state)
    assert sum(map(len, expected.values())) >= 5
    assert told_producers(wire, expected) == expected


def test_producers_are_replayed_from_an_older_snapshot(corpus_dir: Path, tmp_path: Path) -> None:
    """The state has transactional and idempotent producers after each snapshot but the last."""
    state = corpus_dir / "kafka-4.3" / "txn"
    copy = copy_tree(state, tmp_path / "copy")
    expected = {key: one for key, one in dumped_producers(state).items() if key[0] == "txn"}
    assert len(expected) == 3
    for topic, index in expected:
        for snapshot in sorted((copy / f"{topic}-{index}").glob(f"*{SNAPSHOT}"))[-2:]:
            snapshot.unlink()
    with serving(copy) as running, Wire(running.address) as wire:
        assert told_producers(wire, expected) == expected


def test_producers_of_an_unknown_partition(wire: Wire) -> None:
    answer = wire.tell("DescribeProducers", 0, topics=[{"name": "no", "partitionIndexes": [0]}])
    [one] = answer["topics"][0]["partitions"]
    assert one["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def dumped_transactions(state: Path) -> dict[str, dict[str, Any]]:
    """Return the last record of each transactional id, as Kafka printed it."""
    found: dict[str, dict[str, Any]] = {}
    for dump in expected_of(state).glob("__transaction_state-*/*.log.decoded.txt"):
        for key, value in re.findall(r"key: (\{.*?\}\}) payload: (\{.*\})\n", dump.read_text()):
            found[json.loads(key)["data"]["transactionalId"]] = json.loads(value)["data"]
    return found


NAMES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]


def test_transactions_are_those_of_the_log(state: Path, wire: Wire) -> None:
    expected = dumped_transactions(state)
    assert expected
    listed = wire.tell("ListTransactions", 2, stateFilters=[], producerIdFilters=[])
    assert {
        one["transactionalId"]: (one["producerId"], one["transactionState"])
        for one in listed["transactionStates"]
    } == {
        name: (one["producerId"], NAMES[one["transactionStatus"]]) for name, one in expected.items()
    }
    described = wire.tell("DescribeTransactions", 0, transactionalIds=[*expected])
    for name, one in zip(expected, described["transactionStates"], strict=True):
        value = expected[name]
        assert one == {
            "errorCode": 0,
            "transactionalId": name,
            "transactionState": NAMES[value["transactionStatus"]],
            "transactionTimeoutMs": value["transactionTimeoutMs"],
            "transactionStartTimeMs": value["transactionStartTimestampMs"],
            "producerId": value["producerId"],
            "producerEpoch": value["producerEpoch"],
            "topics": [
                {"topic": one["topic"], "partitions": one["partitionIds"]}
                for one in value["transactionPartitions"]
            ],
        }


def listed(wire: Wire, **filters: Any) -> list[str]:
    asked = {"stateFilters": [], "producerIdFilters": []} | filters
    answer = wire.tell("ListTransactions", 2, **asked)
    assert not answer["errorCode"]
    return sorted(one["transactionalId"] for one in answer["transactionStates"])


@pytest.mark.parametrize("state", ["txn"], indirect=True)
def test_transactions_are_filtered_as_by_a_broker(state: Path, wire: Wire) -> None:
    expected = dumped_transactions(state)
    ids = sorted(expected)
    assert listed(wire) == ids
    started = {name: one["transactionStartTimestampMs"] for name, one in expected.items()}
    first = min(started, key=lambda name: started[name])
    between = present_ms() - (started[first] + min(set(started.values()) - {started[first]})) // 2
    assert listed(wire, durationFilter=between) == [first]
    assert listed(wire, transactionalIdPattern="txn-tx-[ab]") == ["txn-tx-a", "txn-tx-b"]
    assert listed(wire, transactionalIdPattern="tx-a|txn-tx-a") == ["txn-tx-a"]
    assert listed(wire, transactionalIdPattern="") == ids
    state_of = {name: NAMES[one["transactionStatus"]] for name, one in expected.items()}
    for one in {*state_of.values()}:
        assert listed(wire, stateFilters=[one]) == [name for name in ids if state_of[name] == one]
    producer = expected["txn-tx-a"]["producerId"]
    assert listed(wire, producerIdFilters=[producer, 99]) == ["txn-tx-a"]
    answer = wire.tell("ListTransactions", 1, stateFilters=["Dead", "no"], producerIdFilters=[])
    assert (answer["unknownStateFilters"], answer["transactionStates"]) == (["no"], [])
    for pattern in "(", "a)|(.*":
        answer = wire.tell("ListTransactions", 2, stateFilters=[], producerIdFilters=[],
                           transactionalIdPattern=pattern)  # fmt: skip
        assert answer["errorCode"] == ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("state", ["txn"], indirect=True)
def test_unknown_transactions(wire: Wire) -> None:
    answer = wire.tell("DescribeTransactions", 0, transactionalIds=["no", ""])
    assert [one["errorCode"] for one in answer["transactionStates"]] == [
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST,
    ]  # fmt: skip


def test_a_coordinator_without_its_log_is_no_unknown_id(corpus_dir: Path, tmp_path: Path) -> None:
    """The id may be in the partition that is missing: a client must not take it for unknown."""
    copy = copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "copy")
    for path in copy.glob("__transaction_state-*"):
        path.rename(copy / f"x{path.name}")
    with serving(copy) as running, Wire(running.address) as wire:
        answer = wire.tell("DescribeTransactions", 0, transactionalIds=["txn-tx-a"])
    [one] = answer["transactionStates"]
    assert one["errorCode"] == ErrorCode.KAFKA_STORAGE_ERROR


def test_transactions_of_a_running_broker_are_read_for_each_request(
    corpus_dir: Path, tmp_path: Path
) -> None:
    source = corpus_dir / "kafka-4.3" / "txn"
    copy = copy_tree(source, tmp_path / "copy")
    logs = [(one, one.read_bytes()) for one in copy.glob("__transaction_state-*/*.log")]
    for path, _ in logs:
        path.write_bytes(b"")
    with serving(copy, follow=True) as running, Wire(running.address) as wire:
        assert not listed(wire)
        for path, data in logs:
            path.write_bytes(data)
        assert listed(wire) == sorted(dumped_transactions(source))
