"""`groups` and `transactions`: offsets outside logs, share groups, topics that cannot be read."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING, Any, Final

import pytest

from formats.message_schema import schema
from kafkalog.errors import UnreadableError
from kafkalog.files import log_dir as listings
from kafkalog.node.state import groups
from tests.builders import BASE_TIME, batch, record, write_log
from tests.metadata_logs import value_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

TOPIC_ID: Final = "A" * 20 + "Ew"


def commit(at: int, partition: int, offset: int) -> bytes:
    key = struct.pack(">hh1sh6si", 1, 1, b"g", 6, b"orders", partition)
    return batch(at, [record(0, key, struct.pack(">hqihq", 3, offset, -1, 0, 0))])


def coordinated(at: int, kind: int, name: str, key: dict[str, Any], value: Any) -> bytes:
    """Build a record of a coordinator: its type and key; the version and value, or None."""
    raw = struct.pack(">h", kind) + schema(f"{name}Key", 0).build(key)
    body = None if value is None else b"\0\0" + schema(f"{name}Value", 0).build(value)
    return batch(at, [record(0, raw, body)])


def objects(result: Result, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [one for one in found if one["type"] == kind]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Three logs from 4 to 10, with commits below, within, above them, and of another topic."""
    commits = [commit(at, at, offset) for at, offset in enumerate((2, 7, 13))]
    write_log(tmp_path / "__consumer_offsets-0", *commits)
    for number in range(3):
        log = (batch(at, [record(0, b"k", b"v")]) for at in range(10))
        write_log(tmp_path / f"orders-{number}", *log)
    starts = "".join(f"orders {number} 4\n" for number in range(3))
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n3\n{starts}")
    return tmp_path


def test_a_commit_outside_its_log_says_so(log_dir: Path, kafkalog: Run) -> None:
    """Its lag is what Kafka's tool computes, and is in the sum as it is."""
    found = kafkalog("groups", log_dir, "--format", "ndjson")
    assert [(one["lag"], one["outside"]) for one in objects(found, "group_offset")] == [
        (8, "below the log start 4: the next fetch is out of range"),
        (3, None),
        (-3, "above the log end 10: the next fetch is out of range"),
    ]
    assert objects(found, "group")[0]["lag"] == 8
    shown = kafkalog("groups", log_dir, "--group", "g").stdout.decode().splitlines()
    assert ["out of range" in line for line in shown[-4:]] == [True, False, True, False]


def test_the_lag_at_a_time_counts_to_the_end_at_that_time(log_dir: Path, kafkalog: Run) -> None:
    """Not to the end of the log as it is now; the file for Kafka's tool is about now."""
    times = [BASE_TIME + 1000 * at for at in range(10)]
    log = (batch(at, [record()], base_time=time, max_time=time) for at, time in enumerate(times))
    write_log(log_dir / "orders-1", *log)
    for moment, end in ((times[7], 8), (times[9], 10), (times[9] + 1, 10)):
        found = kafkalog("groups", log_dir, "-p", "1", "--at", f"{moment}", "--format", "ndjson")
        [one] = objects(found, "group_offset")
        assert (one["log_end_offset"], one["lag"]) == (end, end - 7)
        assert [group["lag"] for group in objects(found, "group")] == [end - 7]
        assert "by the timestamps of the records" in found.stderr
    [one] = objects(
        kafkalog("groups", log_dir, "-p", "1", "--at", "0@3", "-o", "ndjson"), "group_offset"
    )
    assert (one["offset"], one["lag"]) == (7, None)


def test_a_commit_between_high_watermark_and_log_end_is_in_range(
    log_dir: Path, kafkalog: Run
) -> None:
    """A broker answers its fetch with nothing yet; the lag counts from the high watermark."""
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\norders 1 5\n")
    found = kafkalog("groups", log_dir, "--format", "ndjson")
    one = objects(found, "group_offset")[1]
    assert (one["log_end_offset"], one["lag"], one["outside"]) == (5, -2, None)
    assert "records above the high watermark left out: orders-1 from 5, 5 records" in found.stderr


def test_offsets_that_kafkas_tool_will_change_are_named(log_dir: Path, kafkalog: Run) -> None:
    """It takes an offset outside the log for the nearest one, so all of them are written."""
    found = kafkalog("groups", log_dir, "-o", "reset-offsets")
    assert found.stdout == b"orders,0,2\norders,1,7\norders,2,13\n"
    assert "that Kafka's tool will change: orders-0 2 is below the log start 4" in found.stderr
    assert "orders-2 13 is above the log end 10" in found.stderr


def share(group: str, number: int) -> dict[str, Any]:
    return {"groupId": group, "topicId": TOPIC_ID, "partition": number}


def state(start: int, done: int | None, **more: int) -> dict[str, Any]:
    """Build the value of a snapshot or update; of a snapshot with the fields that only it has."""
    found: dict[str, Any] = {
        "snapshotEpoch": 0, "leaderEpoch": 0, "startOffset": start, "stateBatches": [], **more
    }  # fmt: skip
    return found if done is None else {**found, "deliveryCompleteCount": done}


SNAPSHOT: Final = {"stateEpoch": 0, "createTimestamp": 0, "writeTimestamp": 0}


@pytest.fixture
def shares(log_dir: Path) -> Path:
    """A share group with three partitions that it has begun, and one of another group."""
    begun = {"topicId": TOPIC_ID, "topicName": "orders", "partitions": [0, 1, 2]}
    group = {"groupId": "s"}
    assigned = {"initializingTopics": [], "initializedTopics": [begun], "deletingTopics": []}
    write_log(
        log_dir / "__consumer_offsets-0",
        coordinated(0, 11, "ShareGroupMetadata", group, {"epoch": 3, "metadataHash": 0}),
        coordinated(1, 15, "ShareGroupStatePartitionMetadata", group, assigned),
    )
    states = [
        (0, "Snapshot", share("s", 0), state(-1, None, **SNAPSHOT)),
        (1, "Update", share("s", 0), state(5, 1)),
        (1, "Update", share("s", 0), state(-1, 2)),  # the start is as before
        (0, "Snapshot", share("s", 1), state(6, 1, **SNAPSHOT)),
        (0, "Snapshot", share("s", 1), None),
        (0, "Snapshot", share("s", 2), state(7, None, **SNAPSHOT)),
        (0, "Snapshot", share("x", 0), state(9, 0, **SNAPSHOT)),
    ]
    write_log(
        log_dir / "__share_group_state-0",
        *(coordinated(at, one[0], f"Share{one[1]}", *one[2:]) for at, one in enumerate(states)),
    )
    return log_dir


def test_share_groups_have_the_offsets_of_their_state(shares: Path, kafkalog: Run) -> None:
    """Done records are no lag; without a count of them, or without a start, it is not known."""
    write_log(
        shares / "__cluster_metadata-0",
        batch(0, [
            record(0, None, value_of("TopicRecord", name="__share_group_state", topicId=TOPIC_ID)),
            record(1, None, value_of(
                "PartitionRecord", 0, partitionId=0, topicId=TOPIC_ID, replicas=[1], isr=[1],
                removingReplicas=[], addingReplicas=[], leader=1, leaderEpoch=0, partitionEpoch=0,
            )),
        ], epoch=1),
    )  # fmt: skip
    found = kafkalog("groups", shares, "--format", "ndjson")
    assert found.status == 0
    rows = objects(found, "group_offset")
    assert [(one["offset"], one["lag"]) for one in rows] == [(5, 3), (None, None), (7, None)]
    assert {(one["group_id"], one["log_end_offset"], one["outside"]) for one in rows} == {
        ("s", 10, None)
    }
    [group] = objects(found, "group")
    assert (group["group_type"], group["offsets"], group["lag"]) == ("share", 3, None)


def test_share_groups_without_their_state(shares: Path, kafkalog: Run) -> None:
    """Their offsets are unknown, which a warning and the status say."""
    shutil.rmtree(shares / "__share_group_state-0")
    found = kafkalog("groups", shares, "--format", "ndjson")
    assert found.status == 8
    assert "1 partition of __share_group_state not in PATH" in found.stderr
    assert {one["offset"] for one in objects(found, "group_offset")} == {None}
    assert objects(found, "group")[0]["lag"] is None


def test_offsets_of_share_groups_are_not_exported(shares: Path, kafkalog: Run) -> None:
    """Kafka's tool sets offsets of consumer groups only."""
    found = kafkalog("groups", shares, "-o", "reset-offsets")
    assert found.stdout == b""
    assert "3 offsets left out: " in found.stderr


@pytest.fixture
def unlucky(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of a topic that cannot be listed."""
    list_partition = listings.list_partition
    unlucky = log_dir / "orders-1"

    def listed(path: str) -> Any:
        if path == str(unlucky):
            raise UnreadableError("Input/output error.", path=path)
        return list_partition(path)

    monkeypatch.setattr(listings, "list_partition", listed)
    return unlucky


def test_a_topic_that_cannot_be_listed_costs_its_lag(unlucky: Path, kafkalog: Run) -> None:
    """A note names it, and the status says that the answer is not complete."""
    found = kafkalog("groups", unlucky.parent, "--format", "ndjson")
    assert found.status == 8
    assert [one["lag"] for one in objects(found, "group_offset")] == [8, None, -3]
    assert f"note: no end offset and no lag: {unlucky}" in found.stderr
    assert f"error: path-unreadable\n× Input/output error.\n╰─> {unlucky}" in found.stderr
    assert kafkalog("groups", unlucky.parent, "--no-lag").status == 0


def test_the_table_of_offsets_says_so_too(unlucky: Path, kafkalog: Run) -> None:
    """As `groups` does; a query that asks for other tables does not need the end offsets."""
    pytest.importorskip("duckdb")
    found = kafkalog("sql", "-c", "select lag from commits order by all", unlucky.parent)
    assert (found.status, "Input/output error." in found.stderr) == (8, True)
    found = kafkalog("sql", "-c", "select * from groups", unlucky.parent)
    assert found.status == 0


def test_a_topic_that_is_gone_costs_its_lag(
    log_dir: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when the log directory was listed."""
    again = groups.listed_now

    def gone(partition: listings.PartitionDir) -> Any:
        if partition.topic == "orders" and partition.partition == 1:
            shutil.rmtree(partition.path, ignore_errors=True)
        return again(partition)

    monkeypatch.setattr(groups, "listed_now", gone)
    found = kafkalog("groups", log_dir, "--format", "ndjson")
    assert found.status == 0
    assert [one["lag"] for one in objects(found, "group_offset")] == [8, None, -3]
    assert "note: no end offset and no lag" in found.stderr


def test_an_offsets_partition_that_cannot_be_listed_is_missing(
    log_dir: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlike a topic it is what the answer is made of."""
    list_partition = listings.list_partition

    def listed(path: str) -> Any:
        if path.endswith("__consumer_offsets-1"):
            raise UnreadableError("Input/output error.", path=path)
        return list_partition(path)

    (log_dir / "__consumer_offsets-1").mkdir()
    monkeypatch.setattr(listings, "list_partition", listed)
    found = kafkalog("groups", log_dir)
    assert found.status == 8
    assert "Not all of __consumer_offsets could be read: partition 1." in found.stderr


def test_transactions_name_a_topic_that_cannot_be_read(unlucky: Path, kafkalog: Run) -> None:
    """Its open transactions are not shown; those of others are."""
    log = unlucky.parent / "orders-0" / f"{0:020}.log"
    opened = batch(10, [record()], attributes=0x10, producer=(7, 0, 0))
    log.write_bytes(log.read_bytes() + opened)
    found = kafkalog("transactions", unlucky.parent, "--format", "ndjson")
    assert [one["first_offset"] for one in objects(found, "open_transaction")] == [10]
    assert found.status == 8
    assert f"note: open transactions here are not shown: {unlucky}" in found.stderr
    assert f"error: path-unreadable\n× Input/output error.\n╰─> {unlucky}" in found.stderr
