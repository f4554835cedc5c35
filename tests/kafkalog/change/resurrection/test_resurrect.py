"""What a resurrection writes, read back; tests with real brokers show what Kafka makes of it."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.answers.logs import Log
from kafkalog.change.resurrection import Missing, ResurrectOptions, Retention, resurrect
from kafkalog.errors import RefusedError
from kafkalog.files import text_files as tf
from kafkalog.node.state.metadata import metadata
from tests.builders import batch, flip, record, write_log
from tests.checkout import ROOT
from tests.metadata_logs import value_of
from tests.sampling import tries_everything
from tests.stores import running_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.change.resurrection import ResurrectSummary

EXAMPLES = ROOT / "examples" / "log-dir"
"""Left by a real Kafka 4.3, with a metadata log."""
TOPIC_ID, OTHER_ID = "T" * 21 + "A", "U" * 21 + "A"


def log_of(count: int, *, epoch: int = 0, first: int = 0, producer: int = -1) -> list[bytes]:
    """Build batches of one record each."""
    who = (producer, 0, 0) if producer >= 0 else (-1, -1, -1)
    return [
        batch(first + i, [record(key=b"k", value=b"%d" % i)], epoch=epoch, producer=who)
        for i in range(count)
    ]


def make(
    log_dir: Path,
    name: str,
    batches: list[bytes],
    *,
    topic_id: str | None = TOPIC_ID,
    epochs: str = "",
) -> Path:
    """Make a partition directory, and its log directory around it."""
    partition = log_dir / name
    write_log(partition, *batches)
    if topic_id is not None:
        (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    if epochs:
        lines = epochs.split(",")
        (partition / "leader-epoch-checkpoint").write_text(
            "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines))
        )
    (log_dir / "meta.properties").write_text(f"version=1\ncluster.id={'c' * 22}\nnode.id=1\n")
    return partition


def write_metadata(log_dir: Path, *values: bytes) -> None:
    """Write a metadata log with some records."""
    records = [record(delta, None, value) for delta, value in enumerate(values)]
    write_log(log_dir / "__cluster_metadata-0", batch(0, records, epoch=1))


def topic(name: str, topic_id: str, count: int, replicas: Sequence[int] = (7, 8, 9)) -> list[bytes]:
    """Return the metadata records of a topic with three replicas, by default on other nodes."""
    return [
        value_of("TopicRecord", name=name, topicId=topic_id),
        *(
            value_of(
                "PartitionRecord", partitionId=number, topicId=topic_id, replicas=[*replicas],
                isr=[7], removingReplicas=[], addingReplicas=[], leader=7, leaderEpoch=3,
                partitionEpoch=5, directories=["D" * 21 + "A"] * len(replicas),
            )
            for number in range(count)
        ),
    ]  # fmt: skip


def run(*paths: Path, to: Path, **options: Any) -> ResurrectSummary:
    dry_run = options.pop("dry_run", False)
    return resurrect([str(path) for path in paths], str(to), ResurrectOptions(**options),
                     dry_run=dry_run)  # fmt: skip


def rows(to: Path, kind: str) -> list[dict[str, Any]]:
    lines = (to / "manifest.ndjson").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["type"] == kind]


def records(to: Path, name: str) -> list[dict[str, Any]]:
    return [row["data"] for row in rows(to, "metadata_record") if row["record"] == name]


def test_the_logs_are_copied_byte_for_byte(tmp_path: Path) -> None:
    """After a clean shutdown the logs and their times stay; indexes are rebuilt as by recovery."""
    to = tmp_path / "out"
    summary = run(EXAMPLES, to=to)
    for partition in sorted(EXAMPLES.glob("*-[0-9]")):
        if partition.name.startswith("__cluster_metadata"):
            assert not (to / "log" / partition.name).exists()
            continue
        new = to / "log" / partition.name
        logs = sorted(one.name for one in partition.glob("*.log"))
        assert logs == sorted(one.name for one in new.glob("*.log"))
        for name in logs:
            assert (new / name).read_bytes() == (partition / name).read_bytes()
            assert (new / name).stat().st_mtime_ns // 10**6 == (
                (partition / name).stat().st_mtime_ns // 10**6
            )
        name = "partition.metadata"
        assert tf.read_topic_id(str(new / name)) == tf.read_topic_id(str(partition / name))
        name = "leader-epoch-checkpoint"
        if any((partition / name).stat().st_size for name in logs):  # a start forgets unused ones
            assert tf.read_leader_epochs(str(new / name)) == tf.read_leader_epochs(
                str(partition / name)
            )
    assert summary.partitions == 6
    assert not (to / "log" / ".kafka_cleanshutdown").exists()


def test_the_metadata_say_what_the_metadata_log_says(tmp_path: Path) -> None:
    """Ids and configs are kept. The new node leads every partition, in the new log directory."""
    to = tmp_path / "out"
    summary = run(EXAMPLES, to=to, retention=Retention.ORIGINAL, node_id=5)
    old = metadata(EXAMPLES).image
    new = metadata(to / "log" / "bootstrap.checkpoint").image
    assert new.topics == old.topics
    assert new.metadata_version == old.metadata_version
    assert {name: new.configs.get((2, name)) for name in new.topics} == {
        name: old.configs.get((2, name)) for name in old.topics
    }
    for partitions in new.partitions.values():
        for one in partitions.values():
            assert (one.replicas, one.isr, one.leader) == ((5,), (5,), 5)
            assert one.directories == (summary.directory_id,)
    properties = tf.read_meta_properties(str(to / "log" / "meta.properties"))
    assert (properties.version, properties.node_id) == (1, 5)
    assert properties.cluster_id == summary.cluster_id
    assert (
        properties.cluster_id
        != tf.read_meta_properties(str(EXAMPLES / "meta.properties")).cluster_id
    )
    assert properties.directory_id == summary.directory_id


def test_credentials_acls_quotas_and_tokens_come_along(tmp_path: Path) -> None:
    """The records keep their meaning, the manifest shows no secrets, broker configs stay behind."""
    make(tmp_path / "a", "t-0", log_of(3))
    who = {"name": "alice", "mechanism": 1}
    write_metadata(
        tmp_path / "a",
        value_of("FeatureLevelRecord", name="metadata.version", featureLevel=30),
        value_of("FeatureLevelRecord", name="eligible.leader.replicas.version", featureLevel=1),
        value_of("FeatureLevelRecord", name="group.version", featureLevel=1),
        *topic("t", TOPIC_ID, 1),
        value_of("UserScramCredentialRecord", **who, salt=b"salt", storedKey=b"stored",
                 serverKey=b"server", iterations=4096),
        value_of("AccessControlEntryRecord", id=OTHER_ID, resourceType=2, resourceName="t",
                 patternType=3, principal="User:alice", host="*", operation=3, permissionType=3),
        value_of("ClientQuotaRecord", entity=[{"entityType": "user", "entityName": None}],
                 key="producer_byte_rate", value=1000.0, remove=False),
        value_of("DelegationTokenRecord", owner="User:alice", requester="User:bob",
                 renewers=["User:r"], issueTimestamp=1, maxTimestamp=2, expirationTimestamp=3,
                 tokenId="t1"),
        value_of("ConfigRecord", resourceType=32, resourceName="g",
                 name="consumer.session.timeout.ms", value="50000"),
        value_of("ConfigRecord", resourceType=4, resourceName="", name="log.cleaner.threads",
                 value="2"),
        value_of("ProducerIdsRecord", brokerId=7, brokerEpoch=1, nextProducerId=5000),
    )  # fmt: skip
    summary = run(tmp_path / "a", to=tmp_path / "out")
    old = metadata(tmp_path / "a").image
    new = metadata(tmp_path / "out" / "log" / "bootstrap.checkpoint").image
    assert (new.scram, new.acls, new.quotas, new.tokens) == (
        old.scram, old.acls, old.quotas, old.tokens,
    )  # fmt: skip
    assert new.configs[32, "g"] == {"consumer.session.timeout.ms": "50000"}
    assert (4, "") not in new.configs
    assert new.features == {"group.version": 1}
    assert new.next_producer_id == summary.next_producer_id == 5000
    manifest = (tmp_path / "out" / "manifest.ndjson").read_text()
    assert "c2FsdA" not in manifest
    assert records(tmp_path / "out", "UserScramCredentialRecord")[0]["salt"] is None
    properties = tf.read_properties(str(tmp_path / "out" / "server.properties"))
    assert properties["authorizer.class.name"].endswith(".StandardAuthorizer")


def test_a_config_with_which_no_broker_starts_is_left_out(tmp_path: Path) -> None:
    """Kafka 3.9 accepted such small segments."""
    make(tmp_path / "a", "t-0", log_of(3))
    small, usual = (
        value_of("ConfigRecord", resourceType=2, resourceName="t", name=name, value=value)
        for name, value in (("segment.bytes", "20000"), ("segment.ms", "100"))
    )
    write_metadata(tmp_path / "a", *topic("t", TOPIC_ID, 1), small, usual)
    run(tmp_path / "a", to=tmp_path / "out")
    configs = metadata(tmp_path / "out" / "log" / "bootstrap.checkpoint").image.configs[2, "t"]
    assert "segment.bytes" not in configs
    assert configs["segment.ms"] == "100"
    [told] = rows(tmp_path / "out", "resurrected_topic")
    assert told["replaced"] == {"segment.bytes": "20000"}


def test_without_a_metadata_log_the_directories_say_it(tmp_path: Path) -> None:
    """Ids from partition.metadata, compaction from the cleaner checkpoint, counts from numbers."""
    for number in range(3):
        make(tmp_path / "a", f"__consumer_offsets-{number}", [], topic_id=OTHER_ID)
    make(tmp_path / "a", "t-0", log_of(5, epoch=4, producer=41), epochs="4 0")
    (tmp_path / "a" / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    (tmp_path / "a" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    to = tmp_path / "out"
    summary = run(tmp_path / "a", to=to)
    image = metadata(to / "log" / "bootstrap.checkpoint").image
    assert image.topics == {"t": TOPIC_ID, "__consumer_offsets": OTHER_ID}
    assert image.configs[2, "t"] == {
        "cleanup.policy": "compact", "retention.ms": "-1", "retention.bytes": "-1",
        "remote.storage.enable": "false",
    }  # fmt: skip
    assert image.configs[2, "__consumer_offsets"]["cleanup.policy"] == "compact"
    assert "retention.ms" not in image.configs[2, "__consumer_offsets"]
    assert image.partition(TOPIC_ID, 0).leader_epoch == 5
    assert "eligible.leader.replicas.version" not in image.features
    assert summary.next_producer_id == 1000  # the next full block after 41
    properties = tf.read_properties(str(to / "server.properties"))
    assert properties["offsets.topic.num.partitions"] == "3"
    assert properties["log.dirs"] == str(to / "log")
    found = {
        name: {(one.topic, one.partition): one.offset
               for one in tf.read_offset_checkpoint(str(to / "log" / f"{name}-offset-checkpoint"))}
        for name in ("cleaner", "log-start", "replication", "recovery-point")
    }  # fmt: skip
    assert found["cleaner"] == {("t", 0): 4}
    assert found["log-start"] == {("t", 0): 2}
    assert found["replication"]["t", 0] == 5
    assert found["recovery-point"] == {}


@pytest.mark.parametrize(
    ("kafka", "level", "share"), [(None, 33, 2), ("4.4", 33, 2), ("4.3", 30, 1)]
)
def test_without_a_metadata_log_features_are_those_of_the_release(
    tmp_path: Path, kafka: str | None, level: int, share: int
) -> None:
    """They are the levels of a new cluster, with one exception: `records.py` has the reason."""
    make(tmp_path / "a", "t-0", log_of(5))
    summary = run(tmp_path / "a", to=tmp_path / "out", kafka=kafka)
    image = metadata(tmp_path / "out" / "log" / "bootstrap.checkpoint").image
    assert (image.metadata_version, image.features) == (
        level,
        {"group.version": 1, "share.version": share, "streams.version": 1,
         "transaction.version": 2},
    )  # fmt: skip
    assert (summary.kafka, summary.metadata_version) == (kafka or "4.4", level)


@pytest.mark.parametrize("kafka", ["4.4", "4.3"])
def test_levels_of_the_source_are_kept(tmp_path: Path, kafka: str) -> None:
    """A later release does not upgrade features: what a cluster wrote by one cannot go back."""
    make(tmp_path / "a", "t-0", log_of(5))
    levels = {"metadata.version": 25, "group.version": 1, "transaction.version": 1}
    features = (
        value_of("FeatureLevelRecord", name=name, featureLevel=level)
        for name, level in levels.items()
    )
    write_metadata(tmp_path / "a", *features, *topic("t", TOPIC_ID, 1))
    run(tmp_path / "a", to=tmp_path / "out", kafka=kafka)
    image = metadata(tmp_path / "out" / "log" / "bootstrap.checkpoint").image
    assert {"metadata.version": image.metadata_version, **image.features} == levels


def test_the_latest_leader_epoch_beats_the_longest_log(tmp_path: Path) -> None:
    """KIP-101: records that only a deposed leader has, beyond the common prefix, are not taken."""
    make(tmp_path / "a", "t-0", log_of(9, epoch=1), epochs="1 0")
    make(tmp_path / "b", "t-0", log_of(4, epoch=1) + log_of(2, epoch=3, first=4), epochs="1 0,3 4")
    make(tmp_path / "c", "t-0", log_of(4, epoch=1) + log_of(1, epoch=3, first=4), epochs="1 0,3 4")
    to = tmp_path / "out"
    run(tmp_path / "a", tmp_path / "b", tmp_path / "c", to=to)
    [row] = rows(to, "resurrected_partition")
    assert (row["path"], row["log_end_offset"]) == (str(tmp_path / "b" / "t-0"), 6)
    losers = {Path(one["path"]).parent.name: one for one in row["losers"]}
    assert (losers["a"]["log_end_offset"], losers["a"]["differs_from"]) == (9, 4)
    assert (losers["c"]["log_end_offset"], losers["c"]["differs_from"]) == (5, 5)
    run(tmp_path / "a", tmp_path / "b", to=tmp_path / "other", prefer=(str(tmp_path / "a"),))
    [row] = rows(tmp_path / "other", "resurrected_partition")
    assert (row["path"], row["log_end_offset"]) == (str(tmp_path / "a" / "t-0"), 9)


def test_of_equal_copies_a_sound_one_is_taken(tmp_path: Path) -> None:
    sound = log_of(6)
    make(tmp_path / "a", "t-0", [*sound[:3], flip(sound[3], 8 * 63), *sound[4:]])
    make(tmp_path / "b", "t-0", sound)
    run(tmp_path / "a", tmp_path / "b", to=tmp_path / "out")
    [row] = rows(tmp_path / "out", "resurrected_partition")
    assert row["path"] == str(tmp_path / "b" / "t-0")
    assert row["losers"][0]["reason"].startswith("The partition is damaged: ")
    [topic_row] = rows(tmp_path / "out", "resurrected_topic")
    assert topic_row["sources"] == [str(tmp_path / "b")]
    [log] = (tmp_path / "out" / "log" / "t-0").glob("*.log")
    assert log.read_bytes() == b"".join(sound)


def test_a_torn_end_is_cut_off(tmp_path: Path) -> None:
    """As at any start after a crash; no acknowledged record is in the part cut off."""
    sound = log_of(4)
    make(tmp_path / "a", "t-0", [*sound, batch(4, [record(value=b"x" * 99)])[:80]])
    run(tmp_path / "a", to=tmp_path / "out")
    [row] = rows(tmp_path / "out", "resurrected_partition")
    assert (row["log_end_offset"], row["cut_bytes"]) == (4, 80)
    [log] = (tmp_path / "out" / "log" / "t-0").glob("*.log")
    assert log.read_bytes() == b"".join(sound)


def test_a_damaged_partition_is_salvaged_if_asked_for(tmp_path: Path, kafkalog: Any) -> None:
    sound = log_of(6)
    make(tmp_path / "a", "t-0", [*sound[:3], flip(sound[3], 8 * 63), *sound[4:]])
    to = tmp_path / "out"
    done = kafkalog("resurrect", tmp_path / "a", "--to", to, "--salvage", "-q")
    assert done.status == 8
    [log] = (to / "log" / "t-0").glob("*.log")
    assert log.read_bytes() == b"".join([*sound[:3], *sound[4:]])
    assert rows(to, "lost_range")[0]["first_offset"] == 3
    assert tf.read_topic_id(str(to / "log" / "t-0" / "partition.metadata")) == TOPIC_ID


@pytest.mark.parametrize("missing", [Missing.EMPTY, Missing.OFFLINE])
def test_missing_partitions_are_empty_or_offline(tmp_path: Path, missing: Missing) -> None:
    """The metadata log knows of four partitions, and of a topic without any directory."""
    make(tmp_path / "a", "t-2", log_of(2))
    write_metadata(tmp_path / "a", *topic("t", TOPIC_ID, 4), *topic("u", OTHER_ID, 1))
    to = tmp_path / "out"
    summary = run(tmp_path / "a", to=to, missing=missing)
    image = metadata(to / "log" / "bootstrap.checkpoint").image
    assert (image.partition_count("t"), image.partition_count("u")) == (4, 1)
    leaders = [image.partition(TOPIC_ID, number).leader for number in range(4)]
    none = 1 if missing == Missing.EMPTY else -1
    assert leaders == [none, none, 1, none]
    if missing == Missing.OFFLINE:
        assert image.partition(TOPIC_ID, 0).replicas == (999999,)
    assert sorted(os.listdir(to / "log")).count("t-0") == 0
    assert summary.missing_partitions == 4


def test_what_was_deleted_comes_back_under_a_new_id(tmp_path: Path) -> None:
    """A live topic of the same name keeps it; the deleted one needs another name."""
    dead = f"t-0.{'ab' * 16}-delete"
    make(tmp_path / "a", dead, log_of(7))
    make(tmp_path / "a", "t-0", log_of(2), topic_id=OTHER_ID)
    run(tmp_path / "a", to=tmp_path / "live")
    [row] = rows(tmp_path / "live", "resurrected_partition")
    assert (row["topic_id"], row["log_end_offset"]) == (OTHER_ID, 2)
    assert "--undelete" in rows(tmp_path / "live", "left_out_directory")[0]["reason"]
    to = tmp_path / "out"
    run(tmp_path / "a", to=to, undelete=True, rename={"t": "t-old"})
    found = {row["topic"]: row for row in rows(to, "resurrected_partition")}
    assert (found["t"]["topic_id"], found["t"]["log_end_offset"]) == (OTHER_ID, 2)
    assert found["t-old"]["log_end_offset"] == 7
    assert found["t-old"]["topic_id"] not in (TOPIC_ID, OTHER_ID)
    written = tf.read_topic_id(str(to / "log" / "t-old-0" / "partition.metadata"))
    assert written == found["t-old"]["topic_id"]


def test_a_topic_that_the_metadata_log_deletes_is_dead(tmp_path: Path) -> None:
    """A broker that was down when a topic was deleted still has its directories."""
    make(tmp_path / "a", "t-0", log_of(3))
    make(tmp_path / "a", "u-0", log_of(3), topic_id=OTHER_ID)
    write_metadata(
        tmp_path / "a", *topic("t", TOPIC_ID, 1), *topic("u", OTHER_ID, 1),
        value_of("RemoveTopicRecord", topicId=TOPIC_ID),
    )  # fmt: skip
    run(tmp_path / "a", to=tmp_path / "out")
    assert [row["topic"] for row in rows(tmp_path / "out", "resurrected_topic")] == ["u"]
    run(tmp_path / "a", to=tmp_path / "all", undelete=True)
    assert [row["topic"] for row in rows(tmp_path / "all", "resurrected_topic")] == ["t", "u"]


def test_a_stray_with_the_id_of_a_live_topic_is_a_copy(tmp_path: Path) -> None:
    """The replica was moved to another broker, which died: the stray copy is the longer one."""
    stray = f"t-0.{'ab' * 16}-stray"
    make(tmp_path / "a", stray, log_of(4, epoch=2), epochs="2 0")
    make(tmp_path / "b", "t-0", log_of(2, epoch=1), epochs="1 0")
    to = tmp_path / "out"
    run(tmp_path / "a", tmp_path / "b", to=to, undelete=True)
    [row] = rows(to, "resurrected_partition")
    assert (row["path"], row["topic_id"]) == (str(tmp_path / "a" / stray), TOPIC_ID)
    assert [one["log_end_offset"] for one in row["losers"]] == [2]


def test_a_deleted_topic_has_no_claim_on_the_name_of_a_known_one(tmp_path: Path) -> None:
    """The live topic has no directory here, only a record in the metadata log."""
    make(tmp_path / "a", f"t-0.{'ab' * 16}-delete", log_of(4))
    write_metadata(tmp_path / "a", *topic("t", OTHER_ID, 1))
    options: dict[str, Any] = {"undelete": True, "missing": Missing.EMPTY}
    with pytest.raises(RefusedError, match="the deleted one needs another name"):
        run(tmp_path / "a", to=tmp_path / "out", **options)
    run(tmp_path / "a", to=tmp_path / "out", rename={"t": "old"}, **options)
    image = metadata(tmp_path / "out" / "log" / "bootstrap.checkpoint").image
    assert image.topics["t"] == OTHER_ID
    assert image.topics["old"] not in (TOPIC_ID, OTHER_ID)


def test_leader_epochs_that_go_back_are_noted(tmp_path: Path) -> None:
    make(tmp_path / "a", "t-0", [*log_of(2, epoch=9), *log_of(2, epoch=3, first=2)])
    run(tmp_path / "a", to=tmp_path / "out")
    [row] = rows(tmp_path / "out", "resurrected_topic")
    assert "leader epochs go back" in row["notes"][0]
    assert records(tmp_path / "out", "PartitionRecord")[0]["leaderEpoch"] == 10


def test_ten_thousand_holes_cost_little(tmp_path: Path) -> None:
    count = 10_000 if tries_everything() else 2_000
    make(tmp_path / "a", f"t-{count - 1}", log_of(1))
    to = tmp_path / "out"
    run(tmp_path / "a", to=to, missing=Missing.OFFLINE)
    image = metadata(to / "log" / "bootstrap.checkpoint").image
    assert image.partition_count("t") == count
    assert image.partition(TOPIC_ID, count - 1).leader == 1


def test_objects_are_copied(tmp_path: Path) -> None:
    made = make(tmp_path / "a", "t-0", log_of(3))
    with running_store() as store:
        store.upload(tmp_path / "a", "backup")
        summary = resurrect(store.uri("backup"), str(tmp_path / "out"))
    assert (summary.partitions, summary.records) == (1, 3)
    [log] = made.glob("*.log")
    assert (tmp_path / "out" / "log" / "t-0" / log.name).read_bytes() == log.read_bytes()


def test_a_name_is_refused_for_two_topics(tmp_path: Path) -> None:
    """--topic-id selects the directories of one of them, or gives a topic a new id."""
    make(tmp_path / "a", "t-0", log_of(2))
    make(tmp_path / "b", "t-0", log_of(3), topic_id=OTHER_ID)
    to = tmp_path / "out"
    run(tmp_path / "a", tmp_path / "b", to=to, topic_ids={"t": TOPIC_ID})
    [row] = rows(to, "resurrected_partition")
    assert (row["path"], row["topic_id"]) == (str(tmp_path / "a" / "t-0"), TOPIC_ID)
    run(tmp_path / "a", to=tmp_path / "new", topic_ids={"t": "new"})
    [row] = rows(tmp_path / "new", "resurrected_partition")
    assert row["topic_id"] not in (TOPIC_ID, OTHER_ID)


def test_metadata_of_another_log_directory(tmp_path: Path) -> None:
    make(tmp_path / "a", "t-0", log_of(2), topic_id=None)
    write_metadata(tmp_path / "a", *topic("t", TOPIC_ID, 1))
    make(tmp_path / "b", "x-0", log_of(1))
    write_metadata(tmp_path / "b", *topic("t", OTHER_ID, 1))
    run(tmp_path / "a", to=tmp_path / "out", as_of_metadata=str(tmp_path / "b"))
    [row] = rows(tmp_path / "out", "resurrected_topic")
    assert row["topic_id"] == OTHER_ID


def test_the_result_of_a_salvage_is_a_source(tmp_path: Path, kafkalog: Any) -> None:
    make(tmp_path / "a", "t-0", log_of(3))
    assert kafkalog("salvage", tmp_path / "a", "--to", tmp_path / "s", "-q").status == 0
    assert kafkalog("resurrect", tmp_path / "s", "--to", tmp_path / "out", "-q").status == 0
    [row] = rows(tmp_path / "out", "resurrected_partition")
    assert row["log_end_offset"] == 3


def test_a_dry_run_tells_the_same_and_writes_nothing(tmp_path: Path, kafkalog: Any) -> None:
    argv = ("resurrect", EXAMPLES, "--to", tmp_path / "out", "--format", "ndjson", "-q")
    plan = [json.loads(line) for line in kafkalog(*argv, "--dry-run").stdout.splitlines()]
    assert os.listdir(tmp_path) == []
    done = [json.loads(line) for line in kafkalog(*argv).stdout.splitlines()]
    for summary, changed in ((plan[-1], 0), (done[-1], 6)):
        assert (summary.pop("status"), summary.pop("changed")) == (0, changed)
    assert done == [
        json.loads(line) for line in (tmp_path / "out" / "manifest.ndjson").read_text().splitlines()
    ]
    for row in (*plan, *done):
        for name in ("cluster_id", "directory_id", "dry_run", "data", "how", "next_producer_id"):
            row.pop(name, None)
    assert plan == done


@pytest.mark.parametrize("name", ["v0", "v1"])
def test_records_in_compressed_messages_are_counted(
    corpus_dir: Path, tmp_path: Path, name: str
) -> None:
    """Headers of magic 0 and 1 do not say how many there are."""
    log_dir = corpus_dir / "kafka-2.8" / name
    run(log_dir, to=tmp_path / "out")
    found = rows(tmp_path / "out", "resurrected_partition")
    counts = {row["path"]: row["records"] for row in found}
    assert counts == {path: sum(1 for _ in Log(path).records()) for path in counts}
    assert len(counts) == len(list(log_dir.glob("v*-*")))
    planned = run(log_dir, to=tmp_path / "plan", dry_run=True)
    assert planned.records == sum(counts.values())


@pytest.mark.parametrize("state", ["delete", "stray", "future"])
def test_a_dry_run_looks_into_what_was_deleted(tmp_path: Path, kafkalog: Any, state: str) -> None:
    dead = make(tmp_path / "a", f"t-0.{'ab' * 16}-{state}", log_of(7, producer=3))
    argv = ("resurrect", dead, "--undelete", "--to", tmp_path / "out", "--format", "ndjson", "-q")
    plan = json.loads(kafkalog(*argv, "--dry-run").stdout.splitlines()[0])
    done = json.loads(kafkalog(*argv).stdout.splitlines()[0])
    assert (done["log_end_offset"], done["records"]) == (7, 7)
    assert plan == done | {"topic_id": plan["topic_id"]}


def test_lists_are_json_in_csv(tmp_path: Path, kafkalog: Any) -> None:
    make(tmp_path / "a", "t-1", log_of(2))
    done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / "out", "-q",
                    "--missing", "empty", "--format", "csv")  # fmt: skip
    [row] = csv.DictReader(done.stdout.decode().splitlines())
    assert json.loads(row["missing"]) == [0]
    assert json.loads(row["sources"]) == [str(tmp_path / "a")]


def test_the_command_that_starts_kafka_comes_last(tmp_path: Path, kafkalog: Any) -> None:
    done = kafkalog("resurrect", EXAMPLES, "--to", tmp_path / "out dir", "-q",
                    "--properties-out", tmp_path / "p.properties")  # fmt: skip
    assert done.status == 0
    last = done.stdout.decode().splitlines()[-1]
    assert last == f"kafka-server-start.sh {tmp_path / 'p.properties'}"
    text = (tmp_path / "p.properties").read_bytes()
    assert text == (tmp_path / "out dir" / "server.properties").read_bytes()
