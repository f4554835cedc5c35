"""Fetch, ListOffsets and OffsetForLeaderEpoch against the answers and logs of real brokers."""

from __future__ import annotations

import json
import re
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog
from formats.error_codes import ErrorCode
from formats.record_batch import RecordBatchHeader
from kafkalog.wire.server.catalog import Catalog
from kafkalog.wire.server.model import OnDamage, Watermark
from tests.builders import batch, record, write_log
from tests.checkout import ROOT
from tests.conftest import state
from tests.kafkalog.node.configs.test_metadata_configs import EVENTS, config
from tests.kafkalog.node.configs.test_metadata_configs import log_dir as write_metadata
from tests.kafkalog.node.configs.test_metadata_configs import topic as named
from tests.kafkalog.wire.server.protocol import SECONDS_MAX, Connected, serving
from tests.kafkalog_cli.test_dump_segment import long_form

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog.wire.server.catalog import ServedPartition
    from tests.conftest import State

EXAMPLE = ROOT / "examples" / "log-dir"
STATES = ("txn", "codecs", "timestamps", "compact-1-first-pass", "retention-0-before")


def fetch(
    client: Connected,
    topic: str,
    partition: int,
    offset: int,
    *,
    size: int = 1 << 20,
    whole: int = 1 << 20,
    committed: bool = False,
    version: int = 12,
    wait: int = 0,
    **fields: Any,
) -> dict[str, Any]:
    """Fetch from one partition; return its part of the response."""
    request: dict[str, Any] = {
        "maxWaitMs": wait, "minBytes": 1, "maxBytes": whole, "isolationLevel": int(committed),
        "sessionId": 0, "sessionEpoch": -1, "forgottenTopicsData": [], "rackId": "",
    }  # fmt: skip
    if version <= 14:
        request["replicaId"] = -1
    named = {"topic": topic} if version < 13 else {"topicId": topic}
    wanted = {"partition": partition, "currentLeaderEpoch": -1, "fetchOffset": offset,
              "lastFetchedEpoch": -1, "logStartOffset": -1, "partitionMaxBytes": size,
              **fields}  # fmt: skip
    request["topics"] = [{**named, "partitions": [wanted]}]
    answer = client.ask("Fetch", version, request)
    assert (answer["errorCode"], answer["sessionId"]) == (ErrorCode.NONE, 0)
    [[found]] = [one["partitions"] for one in answer["responses"]]
    assert found["partitionIndex"] == partition
    return found


def batches(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Return position, size and offset after each whole batch."""
    position = 0
    while position + 61 <= len(data):
        head = RecordBatchHeader.parse(data[position : position + 61])
        size = head.batch_length + 12
        if position + size > len(data):
            return
        yield position, size, head.base_offset + head.last_offset_delta + 1
        position += size


def everything(client: Connected, topic: str, partition: int, size: int) -> bytes:
    """Fetch all whole batches of a partition, one after the other."""
    found, offset = b"", offset_for(client, topic, partition, -2)["offset"]
    while True:
        answer = fetch(client, topic, partition, offset, size=size)
        assert answer["errorCode"] == ErrorCode.NONE
        whole = list(batches(answer["records"]))
        if not whole:
            assert answer["records"] == b""
            assert offset == answer["highWatermark"]
            return found
        found += answer["records"][: whole[-1][0] + whole[-1][1]]
        offset = whole[-1][2]


@pytest.mark.sampled(5, each_value=True)
@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("size", [1, 5000, 1 << 20])
def test_all_bytes_of_the_logs_arrive(corpus_dir: Path, name: str, size: int):
    """The batches of all segments arrive as stored, whatever size a client fetches at a time."""
    found = state(corpus_dir, "kafka-4.3", name)
    with (
        serving(found.root, high_watermark=Watermark.END) as served,
        Connected(served.address) as client,
    ):
        for topic in served.server.catalog.topics.values():
            for index in topic.partitions:
                [directory] = found.root.rglob(f"{topic.name}-{index}")
                logs = sorted(directory.glob("*.log"))
                stored = b"".join(path.read_bytes() for path in logs)
                assert everything(client, topic.name, index, size) == stored, (topic.name, index)
        assert served.heard.errors == []
        assert served.heard.defects == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", STATES)
def test_offsets_are_those_the_broker_gave(corpus_dir: Path, name: str):
    """`lookup.json` has the Admin.listOffsets answer for each special and each other timestamp."""
    found = state(corpus_dir, "kafka-4.3", name)
    recorded = json.loads((found.expected / "lookup.json").read_text())
    with (
        serving(found.root, high_watermark=Watermark.END, internal=True) as served,
        Connected(served.address) as client,
    ):
        for partition, answers in recorded.items():
            topic, _, index = partition.rpartition("-")
            if topic == "__cluster_metadata":
                continue
            expected = [
                (-2, 0, answers["earliest"]),
                (-1, 0, answers["latest"]),
                (-1, 1, answers["lastStableOffset"]),
                (-3, 0, answers["maxTimestamp"]),
                (-4, 0, answers["earliestLocal"]),
                *((one["target"], 0, one) for one in answers.get("timestamps", ())),
            ]
            for timestamp, isolation, answer in expected:
                got = offset_for(client, topic, int(index), timestamp, isolation)
                assert got["errorCode"] == ErrorCode.NONE
                assert (got["offset"], got["timestamp"]) == (
                    answer["offset"], answer["timestamp"],
                ), (partition, timestamp)  # fmt: skip


def offset_for(
    client: Connected, topic: str, index: int, timestamp: int, isolation: int = 0, version: int = 10
) -> dict[str, Any]:
    request = {"replicaId": -1, "isolationLevel": isolation, "timeoutMs": 1000, "topics": [
        {"name": topic, "partitions": [
            {"partitionIndex": index, "currentLeaderEpoch": -1, "timestamp": timestamp},
        ]}]}  # fmt: skip
    if version < 10:
        del request["timeoutMs"]
    [[found]] = [one["partitions"] for one in client.ask("ListOffsets", version, request)["topics"]]
    return found


@pytest.fixture(scope="module")
def txn(corpus_dir: Path) -> Iterator[Connected]:
    with (
        serving(corpus_dir / "kafka-4.3" / "txn", high_watermark=Watermark.END) as served,
        Connected(served.address) as client,
    ):
        yield client


def test_aborted_transactions_hide_what_the_broker_hid(txn: Connected, corpus_dir: Path):
    """Without aborted records, the result is what a read_committed consumer received."""
    expected = state(corpus_dir, "kafka-4.3", "txn").expected
    for index in range(3):
        answer = fetch(txn, "txn", index, 0, committed=True)
        facts = json.loads((expected / "lookup.json").read_text())[f"txn-{index}"]
        assert answer["lastStableOffset"] == facts["lastStableOffset"]["offset"]
        recorded = {
            (int(found[1]), int(found[2]))
            for path in (expected / "dump" / f"txn-{index}").glob("*.txnindex.txt")
            for found in re.finditer(r"producerId: (\d+) firstOffset: (\d+)", path.read_text())
        }
        got = {(one["producerId"], one["firstOffset"]) for one in answer["abortedTransactions"]}
        reached = list(batches(answer["records"]))[-1][2]
        assert got >= {one for one in recorded if one[1] < reached}
        assert got <= recorded


def test_offsets_outside_the_log_are_out_of_range(txn: Connected):
    """Below the log start and above the log end; a fetch at the log end returns no records."""
    end = fetch(txn, "txn", 0, 0)["highWatermark"]
    assert fetch(txn, "txn", 0, end)["records"] == b""
    for offset in (-1, end + 1):
        answer = fetch(txn, "txn", 0, offset)
        assert answer["errorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (answer["highWatermark"], answer["records"]) == (-1, b"")


def test_what_is_not_served_is_unknown(txn: Connected):
    """Unknown by name, by id, and a partition number that the topic does not have."""
    assert fetch(txn, "nothing", 0, 0)["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(txn, "txn", 9, 0)["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = fetch(txn, "AAAAAAAAAAAAAAAAAAAAAQ", 0, 0, version=13)
    assert unknown["errorCode"] == ErrorCode.UNKNOWN_TOPIC_ID
    assert offset_for(txn, "txn", 9, -1)["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_leader_epochs_fence(txn: Connected):
    """An epoch older than the log's is fenced; a newer one is unknown."""
    for epoch, error in ((0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert fetch(txn, "txn", 0, 0, currentLeaderEpoch=epoch)["errorCode"] == error


def test_a_diverging_epoch_is_named(txn: Connected):
    """A consumer of another log learns where the epochs diverge and gets no bytes."""
    end = fetch(txn, "txn", 0, 0)["highWatermark"]
    assert fetch(txn, "txn", 0, end, lastFetchedEpoch=0)["errorCode"] == ErrorCode.NONE
    answer = fetch(txn, "txn", 0, end + 5, lastFetchedEpoch=0)
    assert answer["divergingEpoch"] == {"epoch": 0, "endOffset": end}
    assert answer["records"] == b""
    unknown = fetch(txn, "txn", 0, 0, lastFetchedEpoch=7)
    assert unknown["errorCode"] == ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_end_of_an_epoch(txn: Connected):
    """OffsetForLeaderEpoch: the current epoch ends at the log end, a later one is unknown."""
    end = fetch(txn, "txn", 0, 0)["highWatermark"]
    for epoch, expected in ((0, (0, end)), (5, (-1, -1))):
        request = {"replicaId": -1, "topics": [{"topic": "txn", "partitions": [
            {"partition": 0, "currentLeaderEpoch": -1, "leaderEpoch": epoch}]}]}  # fmt: skip
        [topic] = txn.ask("OffsetForLeaderEpoch", 4, request)["topics"]
        [found] = topic["partitions"]
        assert (found["leaderEpoch"], found["endOffset"]) == expected


def test_a_log_without_leader_epochs_is_led_in_the_first(corpus_dir: Path):
    """Metadata, ListOffsets, Fetch and OffsetForLeaderEpoch report epoch 0, as a broker does."""
    with (
        serving(corpus_dir / "kafka-2.8" / "v1", high_watermark=Watermark.END) as served,
        Connected(served.address) as client,
    ):
        answer = client.ask("Metadata", 12, {
            "topics": [{"topicId": "A" * 22, "name": "v1-native"}],
            "allowAutoTopicCreation": False, "includeTopicAuthorizedOperations": False,
        })  # fmt: skip
        [[partition]] = [topic["partitions"] for topic in answer["topics"]]
        assert partition["leaderEpoch"] == 0
        latest = offset_for(client, "v1-native", 0, -1)
        assert latest["leaderEpoch"] == 0
        for epoch, error in ((0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            found = fetch(client, "v1-native", 0, 0, currentLeaderEpoch=epoch)
            assert found["errorCode"] == error
            assert bool(found["records"]) == (error == ErrorCode.NONE)
            request = {"replicaId": -1, "topics": [{"topic": "v1-native", "partitions": [
                {"partition": 0, "currentLeaderEpoch": epoch, "leaderEpoch": 0}]}]}  # fmt: skip
            [topic] = client.ask("OffsetForLeaderEpoch", 4, request)["topics"]
            [found] = topic["partitions"]
            assert found["errorCode"] == error
            if error == ErrorCode.NONE:
                assert (found["leaderEpoch"], found["endOffset"]) == (0, latest["offset"])


def test_limits_are_those_of_the_protocol(txn: Connected):
    """The first batch is always sent whole; a later partition gets the remaining bytes."""
    first = fetch(txn, "txn", 0, 0, size=0)["records"]
    [(position, size, _)] = list(batches(first))
    assert (position, size) == (0, len(first))
    cut = fetch(txn, "txn", 0, 0, size=len(first) + 10)["records"]
    assert len(cut) == len(first) + 10


def damaged_copy(
    corpus_dir: Path, place: Path, flip: int
) -> tuple[Path, list[tuple[int, int, int]]]:
    """Copy a partition, change a byte of its third batch; return the copy and its batches."""
    source = corpus_dir / "kafka-4.3" / "codecs"
    [directory] = [one for one in source.rglob("codec-none-0") if one.is_dir()] or [
        next(one for one in sorted(source.rglob("*-0")) if one.is_dir() and "__" not in one.name)
    ]
    copy = place / directory.name
    shutil.copytree(directory, copy)
    log = min(copy.glob("*.log"))
    data = bytearray(log.read_bytes())
    found = list(batches(bytes(data)))
    data[found[2][0] + flip] ^= 0xFF
    log.write_bytes(data)
    return copy, found


@pytest.mark.parametrize("flip", [0, 7, 8, 11, 16])
def test_a_header_that_can_be_corrected_is_sent_so(corpus_dir: Path, tmp_path: Path, flip: int):
    """Its base offset, length or magic is wrong: clients get the batch as it was appended."""
    copy, found = damaged_copy(corpus_dir, tmp_path, flip)
    log = min(copy.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[found[2][0] + flip] ^= 0xFF  # as it was
    topic, _, index = copy.name.rpartition("-")
    with serving(copy) as served, Connected(served.address) as client:
        got = b""
        for _ in range(2):
            offset, got = 0, b""
            while (answer := fetch(client, topic, int(index), offset))["records"]:
                assert answer["errorCode"] == ErrorCode.NONE
                got += answer["records"]
                last = list(batches(got))[-1][0]
                delta = int.from_bytes(got[last + 23 : last + 27], "big")
                offset = int.from_bytes(got[last : last + 8], "big") + delta + 1
            assert got.startswith(data)
        [defect] = served.heard.defects
        assert defect.position == found[2][0]


@pytest.mark.parametrize("flip", [17, 70])
def test_damage_stops_or_is_skipped(corpus_dir: Path, tmp_path: Path, flip: int):
    """A damaged checksum or value is reported once, and no damaged batch is sent."""
    copy, found = damaged_copy(corpus_dir, tmp_path, flip)
    topic, _, index = copy.name.rpartition("-")
    sound = found[1][2]  # the offset of the damaged batch
    with serving(copy) as served, Connected(served.address) as client:
        before = fetch(client, topic, int(index), 0)
        assert list(batches(before["records"])) == found[:2]
        for _ in range(2):
            answer = fetch(client, topic, int(index), sound)
            assert answer["errorCode"] == ErrorCode.CORRUPT_MESSAGE
        assert [one.position for one in served.heard.defects] == [found[2][0]]
    with serving(copy, on_damage=OnDamage.SKIP) as served, Connected(served.address) as client:
        answer = fetch(client, topic, int(index), sound)
        assert answer["errorCode"] == ErrorCode.NONE
        [first, *_] = batches(answer["records"])
        assert first[1:] == found[3][1:]
        assert len(served.heard.defects) == 1


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_gap_is_reported_and_passed(tmp_path: Path, policy: str):
    """Once, when a fetch comes to it; compaction explains gaps."""
    set_policy = config("cleanup.policy", policy)
    write_metadata(tmp_path, [named("events", EVENTS), set_policy])
    for number in (0, 10, 20):
        some = [batch(number + at, [record()]) for at in range(10 if number == 10 else 3)]
        write_log(tmp_path / "events-0", *some, name=f"{number:020}")
    with (
        serving(tmp_path, high_watermark=Watermark.END) as served,
        Connected(served.address) as client,
    ):
        for offset, following in ((0, 1), (3, 11), (5, 11), (12, 13)):
            answer = fetch(client, "events", 0, offset)
            assert answer["errorCode"] == ErrorCode.NONE
            [first, *_] = batches(answer["records"])
            assert first[2] == following
            expected = ["offsets-missing"] * (policy == "delete" and offset > 0)
            assert [one.reference for one in served.heard.defects] == expected


@pytest.mark.sampled(8)
def test_records_are_those_the_broker_served(any_state: State, tmp_path: Path):
    """All partitions of all archives, old magics converted: compared with `records/*.ndjson`."""
    recorded = sorted((any_state.expected / "records").glob("*.ndjson"))
    with (
        serving(
            any_state.root, high_watermark=Watermark.END, internal=True, on_damage=OnDamage.SKIP
        ) as served,
        Connected(served.address) as client,
    ):
        for path in recorded:
            topic, _, index = path.stem.rpartition("-")
            if topic == "__cluster_metadata" or index not in map(str, served.partitions(topic)):
                continue  # or `.read_committed`
            log = tmp_path / f"{path.stem}.d" / f"{0:020d}.log"
            log.parent.mkdir()
            start = offset_for(client, topic, int(index), -2)["offset"]
            log.write_bytes(everything(client, topic, int(index), 5000))
            got = [
                (
                    one.offset,
                    one.timestamp,
                    *(
                        long_form(None if data is None else data.hex())
                        for data in (one.key, one.value)
                    ),
                )
                for one in kafkalog.Log(log).records(data=True, isolation="log")
                if one.offset >= start  # the first batch comes whole
            ]
            lines = map(json.loads, path.read_text().splitlines())
            assert got == [
                (one["offset"], one["timestamp"], *map(long_form, (one["key"], one["value"])))
                for one in lines
            ], path.stem


def test_what_is_appended_arrives(corpus_dir: Path, tmp_path: Path):
    """With --follow, a fetch at the end waits and returns what a broker appends meanwhile."""
    [source] = (corpus_dir / "kafka-4.3" / "txn").rglob("txn-0")
    copy = tmp_path / "txn-0"
    copy.mkdir()
    first, second = sorted(source.glob("*.log"))[:2]
    shutil.copy(first, copy)
    with serving(copy, follow=True) as served, Connected(served.address) as client:
        end = fetch(client, "txn", 0, 0)["highWatermark"]
        assert end == int(second.stem)
        answer: list[dict[str, Any]] = []
        waiting = threading.Thread(
            target=lambda: answer.append(fetch(client, "txn", 0, end, wait=60_000))
        )
        waiting.start()
        shutil.copy(second, tmp_path / "new")
        (tmp_path / "new").rename(copy / second.name)
        waiting.join(SECONDS_MAX)
        assert answer[0]["records"] == second.read_bytes()


def test_a_server_ends_once_all_is_read(corpus_dir: Path):
    """With --once, the server ends after clients have reached the end of every partition."""
    found = state(corpus_dir, "kafka-4.3", "txn")
    with serving(found.root, once=True) as served, Connected(served.address) as client:
        for index in range(3):
            assert served.thread.is_alive()
            everything(client, "txn", index, 1 << 20)
        served.thread.join(SECONDS_MAX)
        assert not served.thread.is_alive()


def test_dead_directories_are_topics_of_their_own(corpus_dir: Path, tmp_path: Path):
    """With --leftovers, each gets a name that no live topic has."""
    [source] = (corpus_dir / "kafka-4.3" / "txn").rglob("txn-0")
    shutil.copytree(source, tmp_path / "txn-0")
    shutil.copytree(source, tmp_path / f"txn-1.{'1a2b3c4d' * 4}-delete")
    with serving(tmp_path) as served:
        assert [*served.server.catalog.topics] == ["txn"]
    with serving(tmp_path, leftovers=True) as served, Connected(served.address) as client:
        assert sorted(served.server.catalog.topics) == ["txn", "txn.deleted-1a2b3c4d"]
        live, dead = (everything(client, *one, 1 << 20) for one in
                      (("txn", 0), ("txn.deleted-1a2b3c4d", 1)))  # fmt: skip
        assert live == dead


def test_a_partition_that_cannot_be_read_costs_only_itself(corpus_dir: Path, tmp_path: Path):
    """Its clients get an unknown-partition error; it is reported once, and the others go on."""
    [source] = (corpus_dir / "kafka-4.3" / "txn").rglob("txn-0")
    for index in (0, 1):
        shutil.copytree(source, tmp_path / f"txn-{index}")
    with serving(tmp_path) as served, Connected(served.address) as client:
        shutil.rmtree(tmp_path / "txn-1")
        for _ in range(2):
            answer = fetch(client, "txn", 1, 0)
            assert answer["errorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(served.heard.errors) == 1
        assert fetch(client, "txn", 0, 0)["errorCode"] == ErrorCode.NONE


def test_consumers_read_up_to_the_watermark_noted_last(tmp_path: Path):
    """Batches that cross the high watermark are not sent, nor are later ones."""
    log_dir = tmp_path / "log-dir"
    shutil.copytree(EXAMPLE, log_dir)
    stored = b"".join(path.read_bytes() for path in sorted((log_dir / "orders-0").glob("*.log")))
    ends = [end for _, _, end in batches(stored)]
    middle = ends[len(ends) // 2]
    assert middle - 1 > ends[len(ends) // 2 - 1], "a batch of several records"
    for noted, served_end in ((middle, middle), (middle - 1, ends[len(ends) // 2 - 1])):
        checkpoint = log_dir / "replication-offset-checkpoint"
        checkpoint.write_text(f"0\n1\norders 0 {noted}\n")
        with serving(log_dir) as served, Connected(served.address) as client:
            assert offset_for(client, "orders", 0, -1)["offset"] == noted
            given, offset = b"", 0
            while records := fetch(client, "orders", 0, offset)["records"]:
                *_, (_, _, offset) = batches(records)
                given += records
            assert offset == served_end
            assert given == stored[: len(given)]
            assert [end for _, _, end in batches(given)][-1] == served_end
            assert fetch(client, "orders", 0, noted)["highWatermark"] == noted


def test_a_fetch_asks_for_its_own_log_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """What a fetch costs does not grow with the number of partitions of its topic."""
    partitions, rounds = 50, 3
    for index in range(partitions):
        write_log(tmp_path / "log" / f"orders-{index}", batch(0, [record()]))
    asked = []
    is_open = Catalog.is_open

    def counted(self: Catalog, partition: ServedPartition) -> bool:
        asked.append(partition.index)
        return is_open(self, partition)

    monkeypatch.setattr(Catalog, "is_open", counted)
    with (
        serving(tmp_path / "log", high_watermark=Watermark.END) as served,
        Connected(served.address) as client,
    ):
        for index in range(partitions * rounds):
            assert fetch(client, "orders", index % partitions, 0)["records"]
    assert len(asked) < 3 * partitions * rounds
