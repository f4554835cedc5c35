"""`metadata`: what it shows, for which moment, and its statuses."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog as library
from kafkalog.errors import UnsupportedDataError
from kafkalog.node.state.model import Moment
from tests.builders import batch, copy_tree, flip, record
from tests.conftest import state
from tests.metadata_logs import value_of
from tests.nodes import write_node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
T0 = 1_700_000_000_000
ORDERS = value_of("TopicRecord", name="orders", topicId=TOPIC_ID)
BEGIN, END = value_of("BeginTransactionRecord"), value_of("EndTransactionRecord")


def partition(number: int, replicas: list[int]) -> bytes:
    return value_of(
        "PartitionRecord", 1, partitionId=number, topicId=TOPIC_ID, replicas=replicas,
        isr=replicas, removingReplicas=[], addingReplicas=[], leader=replicas[0], leaderEpoch=0,
        partitionEpoch=0, directories=[],
    )  # fmt: skip


def config(value: str | None, name: str = "retention.ms", resource: str = "orders") -> bytes:
    fields = {"resourceType": 2, "resourceName": resource, "name": name, "value": value}
    return value_of("ConfigRecord", **fields)


def write(root: Path, values: list[bytes], first: int = 0, *, snapshot: int | None = None) -> Path:
    """Write these records to a log or a snapshot: one per batch, a second apart."""
    place = root / "__cluster_metadata-0"
    place.mkdir(parents=True, exist_ok=True)
    name = f"{first:020}.log" if snapshot is None else f"{snapshot:020}-0000000001.checkpoint"
    times = (T0 + 1000 * (first + delta) for delta in range(len(values)))
    (place / name).write_bytes(b"".join(
        batch(first + delta, [record(0, None, value)], base_time=time, max_time=time, epoch=1)
        for delta, (value, time) in enumerate(zip(values, times, strict=True))
    ))  # fmt: skip
    return root


def rows(result: Result, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in result.stdout.decode().splitlines()]
    return [row for row in found if row["type"] == kind]


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A topic with two partitions, whose config and replicas change."""
    return write(tmp_path / "log", [
        ORDERS, partition(0, [1, 2]), partition(1, [2, 3]), config("1000"), config("2000"),
        value_of("PartitionChangeRecord", partitionId=0, topicId=TOPIC_ID, isr=[1]),
        config(None), config("7", "segment.ms"),
    ])  # fmt: skip


def test_a_topic_as_of_last_tuesday(log_dir: Path, kafkalog: Run) -> None:
    """Assignment and configs in one command, by name, without noise."""
    at = "2023-11-14T22:13:24.5Z"  # T0 + 4.5 s
    result = kafkalog("metadata", log_dir, "--topic", "orders", "--at", at)
    assert result.status == 0
    assert [line.split() for line in result.stdout.decode().splitlines()] == [
        ["TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "EPOCH", "CHANGED", "(UTC)", "NOTES"],
        ["orders", "0", "1", "1,2", "1,2", "0", "2023-11-14", "22:13:21", "uncommitted"],
        ["orders", "1", "2", "2,3", "2,3", "0", "2023-11-14", "22:13:22", "uncommitted"],
        [],
        ["RESOURCE", "CONFIG", "VALUE", "CHANGED", "(UTC)"],
        ["TOPIC:orders", "retention.ms", "2000", "2023-11-14", "22:13:24", "uncommitted"],
        ["2", "partitions,", "1", "config"],
    ]
    assert "as of offset 5" in result.stderr
    now = kafkalog("metadata", log_dir, "--configs", "orders", "--format", "ndjson")
    assert [(one["name"], one["value"], one["offset"]) for one in rows(now, "metadata_config")] == [
        ("segment.ms", "7", 7)
    ]


def test_changes_have_the_record_that_made_them(log_dir: Path, kafkalog: Run) -> None:
    """Changes undone between the moments are left out; each other has its last record."""
    result = kafkalog("metadata", log_dir, "--since", "0@4", "--format", "ndjson")
    assert result.status == 0
    prefix, topic = "/image/configs/TOPIC:orders", "/image/topics/byName/orders"
    found = rows(result, "metadata_change")
    assert [(one["change"], one["path"], one["offset"], one["timestamp"]) for one in found] == [
        ("removed", f"{prefix}/retention.ms", 6, T0 + 6000),
        ("added", f"{prefix}/segment.ms", 7, T0 + 7000),
        ("changed", f"{topic}/0", 5, T0 + 5000),
    ]
    assert [(one["before"], one["after"]) for one in found[:2]] == [("1000", None), (None, "7")]
    table = kafkalog("metadata", log_dir, "--since", "0@4").stdout.decode()
    assert "isr: [1, 2] -> [1], partitionEpoch: 0 -> 1" in table
    again = kafkalog("metadata", log_dir, "--since", "0@6", "--at", "0@6", "--format", "ndjson")
    assert (again.status, again.stdout.decode()) == (0, "")


def controller(node_id: int) -> bytes:
    return value_of(
        "RegisterControllerRecord", controllerId=node_id, incarnationId=TOPIC_ID,
        zkMigrationReady=False, endPoints=[], features=[],
    )  # fmt: skip


def test_a_controller_goes_when_it_is_unregistered(tmp_path: Path, kafkalog: Run) -> None:
    """One that was never registered goes without an objection, as in Kafka."""
    gone, unknown = (value_of("UnregisterControllerRecord", controllerId=one) for one in (2, 9))
    root = write(tmp_path / "log", [controller(1), controller(2), gone, unknown])
    place = "/image/cluster/controllers"
    result = kafkalog("metadata", root, "--tree", place, "--format", "ndjson")
    assert result.status == 0
    assert [row["path"] for row in rows(result, "metadata_leaf")] == [f"{place}/1"]
    assert library.metadata(root).image.refused == []
    changes = kafkalog("metadata", root, "--since", "0@2", "--format", "ndjson")
    assert [
        (one["change"], one["path"], one["offset"]) for one in rows(changes, "metadata_change")
    ] == [("removed", f"{place}/2", 2)]
    before = kafkalog("metadata", root, "--tree", place, "--at", "0@2", "--format", "ndjson")
    assert len(rows(before, "metadata_leaf")) == 2


@pytest.mark.parametrize(
    ("level", "name"),
    [
        (30, "4.3-IV0"),
        (31, "4.4-IV0"),
        (32, "4.4-IV1"),
        (33, "4.4-IV2"),
        (34, "4.5-IV0"),
        (99, "99"),
    ],
)
def test_levels_have_their_names(level: int, name: str, tmp_path: Path, kafkalog: Run) -> None:
    """One that no release here knows stays a number."""
    feature = value_of("FeatureLevelRecord", name="metadata.version", featureLevel=level)
    root = write(tmp_path / "log", [feature])
    result = kafkalog("metadata", root, "--cat", "/image/features/metadataVersion")
    assert result.stdout.decode() == f"Optional[{name}]\n"


def test_a_new_topic_of_the_same_name_is_another_one(tmp_path: Path, kafkalog: Run) -> None:
    """The old topic's configs went with it; the id shows that the topic is new."""
    other = TOPIC_ID.replace("Q", "g")
    log_dir = write(tmp_path, [
        ORDERS, config("1"), value_of("RemoveTopicRecord", topicId=TOPIC_ID),
        value_of("TopicRecord", name="orders", topicId=other),
    ])  # fmt: skip
    [topic] = rows(kafkalog("metadata", log_dir, "--format", "ndjson"), "metadata_topic")
    assert (topic["topic_id"], topic["topic_configs"], topic["offset"]) == (other, {}, 3)
    changes = kafkalog("metadata", log_dir, "--since", "0@2", "--format", "ndjson")
    assert [(one["change"], one["path"]) for one in rows(changes, "metadata_change")] == [
        ("removed", "/image/configs/TOPIC:orders/retention.ms"),
        ("changed", "/image/topics/byName/orders/id"),
    ]


def test_a_metadata_transaction_counts_from_its_end_on(tmp_path: Path, kafkalog: Run) -> None:
    """Its records are held back and counted until then; a second BEGIN changes nothing."""
    log_dir = write(tmp_path, [ORDERS, BEGIN, config("1"), BEGIN, config("2", "segment.ms"), END])
    open_now = kafkalog("metadata", log_dir, "--configs", "orders", "--at", "0@5")
    assert (open_now.status, open_now.stdout) == (0, b"0 configs\n")
    assert "2 records of an open metadata transaction left out" in open_now.stderr
    ended = kafkalog("metadata", log_dir, "--configs", "orders", "--format", "ndjson")
    assert [one["offset"] for one in rows(ended, "metadata_config")] == [2, 4]


def test_the_past_begins_with_the_oldest_snapshot(tmp_path: Path, kafkalog: Run) -> None:
    """For an earlier moment there is an error that names the earliest offset."""
    write(tmp_path, [ORDERS, config("5")], snapshot=20)
    write(tmp_path, [ORDERS, config("6")], snapshot=30)
    log_dir = write(tmp_path, [config("8"), *[config("9")] * 19], first=15)
    for at in ("0@19", "0@10", "2023-11-14T22:13:30Z"):
        result = kafkalog("metadata", log_dir, "--configs", "orders", "--at", at)
        assert result.status == 5
        assert "The earliest offset is 20." in result.stderr
    values = {}
    for at in ("0@20", "0@21", "0@30", "0@31"):
        shown = kafkalog("metadata", log_dir, "--configs", "orders", "--at", at)
        values[at] = shown.stdout.decode().split()[7]
    assert values == {"0@20": "5", "0@21": "9", "0@30": "6", "0@31": "9"}
    with pytest.raises(UnsupportedDataError):
        library.metadata(log_dir, at=Moment(partition=0, offset=3))
    since = library.metadata(log_dir, since=Moment(partition=0, offset=20))
    assert [(one.before, one.after, one.origin.offset) for one in since.changes] == [("5", "9", 34)]


def test_the_snapshot_of_formatting_comes_before_all_records(tmp_path: Path, kafkalog: Run) -> None:
    """Since 4.4 it holds the levels of features; it says when, although no log is below it."""
    header = batch(
        0, [record(0, bytes.fromhex("00000003"), bytes.fromhex("00000000018bcfe5680000"))],
        attributes=0x20,
    )  # fmt: skip
    root = write(tmp_path / "log", [ORDERS])
    level = value_of("FeatureLevelRecord", name="metadata.version", featureLevel=33)
    snapshot = root / "__cluster_metadata-0" / f"{0:020}-{0:010}.checkpoint"
    snapshot.write_bytes(header + batch(1, [record(0, None, level)]))
    result = kafkalog("metadata", root, "--tree", "/image", "--at", "0@0", "--format", "ndjson")
    assert {row["path"]: row["text"] for row in rows(result, "metadata_leaf")}.items() >= {
        "/image/features/metadataVersion": "Optional[4.4-IV2]",
        "/image/provenance": "offset -1, epoch 0, time 2023-11-14T22:13:20Z[UTC]",
    }.items()
    assert "/topics/" not in result.stdout.decode()
    assert "orders" in kafkalog("metadata", root).stdout.decode()


def test_before_its_first_record_the_metadata_are_empty(log_dir: Path, kafkalog: Run) -> None:
    """The log begins at offset 0, so nothing was deleted that would have to be known."""
    result = kafkalog("metadata", log_dir, "--at", "2023-11-14T22:13:19.999Z")
    assert (result.status, result.stdout) == (0, b"0 topics\n")
    assert "as of offset 0: no record" in result.stderr
    shown = kafkalog("metadata", log_dir, "--at", "2023-11-14T22:13:20Z")
    assert "as of offset 1" in shown.stderr


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path, kafkalog: Run) -> None:
    """An older one and the log give the same; the damage is reported, with status 8."""
    write(tmp_path, [ORDERS, config("5")], snapshot=1)
    write(tmp_path, [ORDERS, config("6")], snapshot=3)
    log_dir = write(tmp_path, [ORDERS, *[config("6")] * 3])
    newest = log_dir / "__cluster_metadata-0" / f"{3:020}-0000000001.checkpoint"
    newest.write_bytes(flip(newest.read_bytes(), 8 * 70))
    result = kafkalog("metadata", log_dir, "--configs", "orders")
    assert result.status == 8
    assert "batch-crc-mismatch" in result.stderr
    assert result.stdout.decode().split()[7] == "6"


def test_contradictions_and_the_unknown_are_reported(tmp_path: Path, kafkalog: Run) -> None:
    """A partition without a topic and a record of an unknown version give status 8."""
    unknown = b"\x01\x04\x09" + config("1")[3:]
    log_dir = write(tmp_path, [partition(0, [1]), unknown, ORDERS])
    result = kafkalog("metadata", log_dir)
    assert result.status == 8
    assert "1 record of the metadata could not be decoded" in result.stderr
    assert "PARTITION_RECORD at offset 0: no topic has the id" in result.stderr
    assert "orders" in result.stdout.decode()


def test_the_tree_is_that_of_the_shell(corpus_dir: Path, kafkalog: Run) -> None:
    """Parts by path, a single leaf, leaves by name; tests/kafka compares them with the shell."""
    [log_dir] = state(corpus_dir, "kafka-4.3", "internal-topics").log_dirs
    assert (
        kafkalog("metadata", log_dir, "--tree", "/")
        .stdout.decode()
        .startswith("image:\n  acls:\n    byId:\n")
    )
    part = kafkalog("metadata", log_dir, "--tree", "/image/topics/byName/events/id/")
    leaf = kafkalog("metadata", log_dir, "--cat", "/image/topics/byName/events/id")
    assert part.stdout.decode() == leaf.stdout.decode() == "ADXe-tX5TiSTlOLSEajCDg\n"
    assert not leaf.stderr, "the only voter has committed everything"
    found = kafkalog("metadata", log_dir, "--match", "alice", "--format", "ndjson")
    [scram] = rows(found, "metadata_leaf")
    assert scram["path"] == "/image/scram/SCRAM-SHA-256/alice"
    snapshot = max(log_dir.glob("__cluster_metadata-0/*.checkpoint"))
    assert kafkalog("metadata", snapshot, "--configs", "BROKER").stdout.decode().split()[5:8] == [
        "BROKER", "min.insync.replicas", "1",
    ]  # fmt: skip


def test_names_with_slashes_are_found(tmp_path: Path, kafkalog: Run) -> None:
    """A quota for `a/b` has a slash in its node, and default entities have a name here."""

    def quota(name: str | None) -> bytes:
        entity = [{"entityType": "user", "entityName": name}]
        return value_of("ClientQuotaRecord", entity=entity, key="k", value=2.5, remove=False)

    log_dir = write(tmp_path, [quota("a/b"), quota(None)])
    for name in ("user(a/b)", "user(<default>)"):
        shown = kafkalog("metadata", log_dir, "--cat", f"/image/clientQuotas/{name}/k")
        assert (shown.status, shown.stdout.decode()) == (0, "2.5\n")


def test_hostile_names_stay_on_their_line(tmp_path: Path, kafkalog: Run) -> None:
    """No value can act on the terminal."""
    log_dir = write(tmp_path, [ORDERS, config("\x1b[2J\nimage:", "retention.ms")])
    for options in (
        ("--tree", "/"),
        ("--match", "retention"),
        ("--since", "0@0"),
        ("--topic", "orders"),
    ):
        shown = kafkalog("metadata", log_dir, *options).stdout.decode()
        assert "\x1b" not in shown
        assert "\nimage:\n" not in shown.removeprefix("image:\n")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("--topic", "nope"), 1), (("--configs", "nope"), 1), (("--match", "nope"), 1),
        (("--tree", "/image/nope"), 1), (("--at", "0@9"), 2), (("--at", "1@0"), 2),
        (("--at", "next week"), 2), (("--cat",), 2),
        (("--cat", "/image/topics"), 2), (("--since", "0@5", "--at", "0@4"), 2),
        (("--tree", "/", "--match", "x"), 2), (("--at", "8"), 2), (("--at", "0@8"), 0),
    ],
)  # fmt: skip
def test_statuses(words: tuple[str, ...], status: int, log_dir: Path, kafkalog: Run) -> None:
    """1 for unknown names, 2 for usage errors."""
    assert kafkalog("metadata", log_dir, *words).status == status


def test_other_places_have_no_metadata(
    log_dir: Path, corpus_dir: Path, tmp_path: Path, kafkalog: Run
) -> None:
    """A data partition, one of several log directories, a log segment, a missing path."""
    [other] = [
        one for one in state(corpus_dir, "kafka-4.3", "jbod-live").log_dirs
        if not (one / "__cluster_metadata-0").exists()
    ]  # fmt: skip
    empty = tmp_path / "empty" / "__cluster_metadata-0"
    empty.mkdir(parents=True)
    segment = log_dir / "__cluster_metadata-0" / f"{0:020}.log"
    for path, status in ((other, 2), (next(other.glob("*-0")), 2), (empty, 2), (segment, 2),
                         (tmp_path / "nowhere", 2)):  # fmt: skip
        assert kafkalog("metadata", path).status == status, path


def test_an_interrupted_write_is_not_shown(log_dir: Path, tmp_path: Path, kafkalog: Run) -> None:
    """The next start would cut the torn tail off: the records before it count, with a warning."""
    copy = copy_tree(log_dir, tmp_path / "copy")
    log = copy / "__cluster_metadata-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-5])
    shutil.rmtree(tmp_path / "unused", ignore_errors=True)
    result = kafkalog("metadata", copy, "--configs", "orders", "--format", "ndjson")
    assert rows(result, "metadata_config") == []
    assert "view" in result.stderr or "start" in result.stderr


def test_metadata_is_shown_as_a_start_leaves_it(tmp_path: Path, kafkalog: Run) -> None:
    """KRaft trusts no mark: it cuts its log at damage, even where only the snapshot counts."""
    root = write_node(tmp_path / "node") / "d1"
    log, late = (root / "__cluster_metadata-0" / f"{base:020}.log" for base in (0, 8))
    log.with_suffix(".index").write_bytes(struct.pack(">ii", 8, log.stat().st_size))
    log.write_bytes(log.read_bytes() + late.read_bytes())
    late.unlink()
    before = kafkalog("metadata", root, "--configs", "orders", "--format", "ndjson")
    assert b"retention.ms" in before.stdout
    log.write_bytes(flip(log.read_bytes(), 800))
    after = kafkalog("metadata", root, "--configs", "orders", "--format", "ndjson")
    assert b"retention.ms" not in after.stdout
    assert after.status == 8
    assert "the next start would truncate the log at offset 1 and drop 7 records" in after.stderr
