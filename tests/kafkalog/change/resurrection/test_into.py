"""Partitions that are moved into the log directory of a cluster: the results, and refusals."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.files.text_files import read_offset_checkpoint, read_topic_id
from tests.builders import batch, flip, record
from tests.kafkalog.change.resurrection.test_resurrect import (
    OTHER_ID,
    TOPIC_ID,
    log_of,
    make,
    write_metadata,
)
from tests.metadata_logs import value_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOME_ID = "V" * 21 + "A"
DIRECTORY_ID = "D" * 21 + "A"
KEPT = {"retention.ms": "-1"}


def home(root: Path, topic_id: str = TOPIC_ID, **changed: Any) -> Path:
    """Make the closed log directory of node 1: topic t with two partitions, and another topic."""
    log_dir = root / "home"
    configs = changed.pop("configs", KEPT)
    fields = {
        "topicId": topic_id, "replicas": [1], "isr": [1], "removingReplicas": [],
        "addingReplicas": [], "leader": 1, "leaderEpoch": 2, "partitionEpoch": 5,
        "directories": [DIRECTORY_ID], **changed,
    }  # fmt: skip
    make(log_dir, "other-0", log_of(4), topic_id=HOME_ID)
    write_metadata(
        log_dir,
        value_of("FeatureLevelRecord", name="metadata.version", featureLevel=30),
        value_of("ProducerIdsRecord", brokerId=1, brokerEpoch=7, nextProducerId=1000),
        value_of("TopicRecord", name="t", topicId=topic_id),
        *(value_of("PartitionRecord", 1, partitionId=number, **fields) for number in range(2)),
        *(
            value_of("ConfigRecord", resourceType=2, resourceName="t", name=name, value=value)
            for name, value in configs.items()
        ),
    )
    (log_dir / "meta.properties").write_text(
        f"version=1\ncluster.id={'c' * 22}\nnode.id=1\ndirectory.id={DIRECTORY_ID}\n"
    )
    for name, end in (("recovery-point-offset-checkpoint", 4), ("replication-offset-checkpoint", 4),
                      ("log-start-offset-checkpoint", 1)):  # fmt: skip
        (log_dir / name).write_text(f"0\n2\nother 0 {end}\nt 1 0\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    return log_dir


def put(log_dir: Path, name: str, batches: list[bytes], topic_id: str = TOPIC_ID) -> Path:
    """Add a partition to a log directory."""
    properties = (log_dir / "meta.properties").read_text()
    place = make(log_dir, name, batches, topic_id=topic_id)
    (log_dir / "meta.properties").write_text(properties)
    return place


def entries(log_dir: Path, name: str) -> set[tuple[str, int, int]]:
    found = read_offset_checkpoint(str(log_dir / f"{name}-offset-checkpoint"))
    return {(one.topic, one.partition, one.offset) for one in found}


def files(log_dir: Path) -> dict[str, bytes]:
    found = [path for path in log_dir.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(log_dir)): path.read_bytes() for path in found}


def test_partitions_arrive_with_their_entries(tmp_path: Path, kafkalog: Any) -> None:
    """One is new, one replaces the empty log of a broker; everything else stays."""
    log_dir = home(tmp_path)
    old = make(tmp_path / "a", "t-0", log_of(5, epoch=2))
    make(tmp_path / "a", "t-1", log_of(3))
    (tmp_path / "a" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    put(log_dir, "t-1", [b""])
    before = files(log_dir)
    done = kafkalog("resurrect", tmp_path / "a", "--apply", "--into", log_dir)
    assert done.status == 0, done.stderr
    assert "8 records" in done.stdout.decode()
    assert (log_dir / "t-0" / f"{0:020}.log").read_bytes() == (old / f"{0:020}.log").read_bytes()
    assert {read_topic_id(str(log_dir / f"t-{n}" / "partition.metadata")) for n in (0, 1)} == {
        TOPIC_ID
    }
    assert entries(log_dir, "recovery-point") == {("other", 0, 4)}
    assert entries(log_dir, "replication") == {("other", 0, 4), ("t", 0, 5), ("t", 1, 3)}
    assert entries(log_dir, "log-start") == {("other", 0, 1), ("t", 0, 2)}
    after = files(log_dir)
    changed = {name for name in after if after[name] != before.get(name)}
    assert {name for name in changed if not name.startswith("t-")} == {
        f"{name}-offset-checkpoint" for name in ("recovery-point", "replication", "log-start")
    }
    assert not [name for name in os.listdir(log_dir) if "kafkalog" in name]


def test_a_plan_changes_nothing(tmp_path: Path, kafkalog: Any) -> None:
    log_dir = home(tmp_path)
    make(tmp_path / "a", "t-0", log_of(5))
    before = files(log_dir)
    done = kafkalog("resurrect", tmp_path / "a", "--into", log_dir)
    assert done.status == 0, done.stderr
    assert b"Plan only: --apply does it" in done.stdout
    assert files(log_dir) == before


def test_a_deleted_partition_returns_from_the_same_log_directory(
    tmp_path: Path, kafkalog: Any
) -> None:
    """The topic was created again with another id, and the broker has made an empty log."""
    log_dir = home(tmp_path, OTHER_ID)
    dead = put(log_dir, f"t-0.{'ab' * 16}-delete", log_of(5))
    put(log_dir, "t-0", [b""], OTHER_ID)
    done = kafkalog("resurrect", dead, "--undelete", "--apply", "--into", log_dir)
    assert done.status == 0, done.stderr
    assert read_topic_id(str(log_dir / "t-0" / "partition.metadata")) == OTHER_ID
    assert (log_dir / "t-0" / f"{0:020}.log").read_bytes() == (dead / f"{0:020}.log").read_bytes()


def test_another_id_is_agreed_to(tmp_path: Path, kafkalog: Any) -> None:
    for choice in (TOPIC_ID, "new"):
        log_dir = home(tmp_path / choice)
        make(tmp_path / choice / "a", "t-0", log_of(5), topic_id=OTHER_ID)
        done = kafkalog("resurrect", tmp_path / choice / "a", "--apply", "--into", log_dir,
                        "--topic-id", f"t={choice}")  # fmt: skip
        assert done.status == 0, done.stderr
        assert read_topic_id(str(log_dir / "t-0" / "partition.metadata")) == TOPIC_ID


def plain(root: Path, **changed: Any) -> None:
    home(root, **changed)
    make(root / "a", "t-0", log_of(3))


def taken(root: Path) -> None:
    plain(root)
    put(root / "home", "t-0", log_of(1))


def begun(root: Path) -> None:
    """Make a log without records, in which offsets were already assigned."""
    plain(root)
    put(root / "home", "t-0", [b""])
    place = root / "home" / "t-0"
    (place / f"{0:020}.log").rename(place / f"{7:020}.log")


def other_topic(root: Path) -> None:
    home(root)
    make(root / "a", "u-0", log_of(3))


def other_id(root: Path) -> None:
    home(root)
    make(root / "a", "t-0", log_of(3), topic_id=OTHER_ID)


def high_number(root: Path) -> None:
    home(root)
    make(root / "a", "t-2", log_of(3))


def late_epoch(root: Path) -> None:
    home(root)
    make(root / "a", "t-0", log_of(3, epoch=3))


def recent_producer(root: Path) -> None:
    home(root)
    now = int(time.time() * 1000)
    make(root / "a", "t-0", [batch(0, [record()], max_time=now, producer=(1000, 0, 0))])


def killed(root: Path) -> None:
    home(root)
    (root / "home" / ".kafka_cleanshutdown").unlink()
    make(root / "a", "t-0", log_of(3, producer=1000))


def damaged(root: Path) -> None:
    home(root)
    make(root / "a", "t-0", [flip(log_of(1)[0], 8 * 63), *log_of(3)[1:]])


def other_cluster(root: Path) -> None:
    plain(root)
    shutil.copytree(root / "home", root / "b")
    (root / "b" / "meta.properties").write_text(f"version=1\ncluster.id={'d' * 22}\nnode.id=1\n")


def no_metadata(root: Path) -> None:
    plain(root)
    shutil.rmtree(root / "home" / "__cluster_metadata-0")


def bad_checkpoint(root: Path) -> None:
    plain(root)
    (root / "home" / "log-start-offset-checkpoint").write_text("0\n7\n")


INTO = ("-q", "--apply", "--into")
CASES: dict[str, tuple[Callable[[Path], None], tuple[str, ...], int, str]] = {
    "taken": (taken, (), 4, "It exists, and is not an empty partition."),
    "begun": (begun, (), 4, "It exists, and is not an empty partition."),
    "no topic": (other_topic, (), 4, "The cluster's metadata has no topic u."),
    "other id": (other_id, (), 4, f"of a topic with the id {OTHER_ID}."),
    "wrong id": (plain, ("--topic-id", f"t={OTHER_ID}"), 4, f"not {OTHER_ID}."),
    "no partition": (high_number, (), 4, "In the metadata the topic t has no partition 2."),
    "other node": (
        lambda root: plain(root, replicas=[2], isr=[2]), (), 4, "to 2, not to this node, 1",
    ),
    "replicas": (
        lambda root: plain(root, replicas=[1, 2], isr=[1], directories=[DIRECTORY_ID] * 2),
        (), 4, "t-0 has replicas on other nodes, too: 2.",
    ),
    "other disk": (
        lambda root: plain(root, directories=[HOME_ID]), (), 4, f"to the log directory {HOME_ID}",
    ),
    "late epoch": (late_epoch, (), 4, "The leader epoch of the log is 3, that of t-0 in the"),
    "producers": (recent_producer, (), 4, "The log has producer ids up to 1000"),
    "killed": (killed, (), 4, "The log has producer ids up to 1000"),
    "retention": (lambda root: plain(root, configs={}), (), 4, "The retention of the topic t may"),
    "damaged": (damaged, (), 6, "The partition is damaged: The checksum of a batch is wrong."),
    "other cluster": (other_cluster, ("--as-of-metadata", "{root}/b"), 4, "is of the cluster ddd"),
    "no metadata": (no_metadata, (), 2, "There is no metadata log here."),
    "checkpoint": (bad_checkpoint, (), 6, "The second line says 7 entries; the file has 0."),
    "two places": (plain, ("--to", "{root}/out"), 2, "--apply and --to exclude each other."),
    "backup": (plain, ("--backup", "b"), 2, "--backup is for --apply without --into."),
    "node": (plain, ("--node-id", "2"), 2, "--node-id and --into exclude each other."),
    "kafka": (plain, ("--kafka", "4.3"), 2, "--kafka and --into exclude each other."),
    "salvage": (plain, ("--salvage",), 2, "--salvage and --into exclude each other."),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused(case: str, tmp_path: Path, kafkalog: Any) -> None:
    """Nothing in the log directory changes, and nothing is left there."""
    prepare, options, status, words = CASES[case]
    prepare(tmp_path)
    before = files(tmp_path / "home")
    options = tuple(one.format(root=tmp_path) for one in options)
    done = kafkalog(
        "resurrect", tmp_path / "a", "--apply", "--into", tmp_path / "home", "-q", *options
    )
    assert (done.status, words in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr
    assert files(tmp_path / "home") == before
    assert not [name for name in os.listdir(tmp_path / "home") if "kafkalog" in name]


@pytest.mark.parametrize(
    ("configs", "options"),
    [({}, ("--retention", "original")), ({"cleanup.policy": "compact"}, ())],
)
def test_retention_is_accepted(
    configs: dict[str, str], options: tuple[str, ...], tmp_path: Path, kafkalog: Any
) -> None:
    plain(tmp_path, configs=configs)
    done = kafkalog(
        "resurrect", tmp_path / "a", "--apply", "--into", tmp_path / "home", "-q", *options
    )
    assert done.status == 0, done.stderr


def test_the_log_directory_is_no_source(tmp_path: Path, kafkalog: Any) -> None:
    log_dir = home(tmp_path)
    done = kafkalog("resurrect", log_dir, "--apply", "--into", log_dir, "-q")
    assert (done.status, "are the same directory" in done.stderr) == (2, True)


def test_a_crash_leaves_the_checkpoints_whole(
    tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the logs are durable, neither entries nor directories of them exist."""
    plain(tmp_path)
    before = files(tmp_path / "home")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kafkalog.io.storage.directories.sync_file_system", fail)
    done = kafkalog("resurrect", tmp_path / "a", "--apply", "--into", tmp_path / "home", "-q")
    assert (done.status, "cannot be written" in done.stderr) == (4, True)
    assert files(tmp_path / "home") == before


def test_what_was_interrupted_goes_on(
    tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error between two partitions is status 8; the same command moves the second one."""
    log_dir = home(tmp_path)
    for number in (0, 1):
        make(tmp_path / "a", f"t-{number}", [*log_of(3 + number), b"torn"])
    (tmp_path / "a" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    command = (
        "resurrect",
        tmp_path / "a",
        "--apply",
        "--into",
        log_dir,
        "-q",
        "--format",
        "ndjson",
    )
    rename = os.rename

    def fail(old: str, new: str, **options: Any) -> None:
        if str(new).endswith("/t-1"):
            raise OSError(28, "No space left on device")
        rename(old, new, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        done = kafkalog(*command)
    words = "1 of 2 partitions are in place, up to t-0: The path cannot be written: No space left"
    assert (done.status, words in done.stderr) == (8, True), done.stderr
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\nt 0 3\n")  # of a broker since
    done = kafkalog(*command)
    assert done.status == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["to"], row["how"]) for row in rows if "how" in row] == [
        ("t-0", "there"), ("t-1", "copied"),
    ]  # fmt: skip
    assert entries(log_dir, "log-start") == {("t", 0, 3)}
    assert entries(log_dir, "replication") >= {("t", 0, 3), ("t", 1, 4)}
    log = log_dir / "t-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes() + log_of(1, first=3)[0])
    done = kafkalog(*command)
    assert (done.status, "It exists, and is not an empty partition." in done.stderr) == (4, True)
