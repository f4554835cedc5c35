"""`resurrect --apply`: metadata next to partitions, refusals, and the undo."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.files import text_files as tf
from kafkalog.node.cluster_image.snapshot import snapshot_batches
from kafkalog.node.state.metadata import metadata
from tests.builders import flip
from tests.kafkalog.change.resurrection.test_into import files
from tests.kafkalog.change.resurrection.test_refused_resurrections import HOLDER
from tests.kafkalog.change.resurrection.test_resurrect import (
    OTHER_ID,
    TOPIC_ID,
    log_of,
    make,
    topic,
    write_metadata,
)
from tests.metadata_logs import value_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLUSTER_ID = "N" * 21 + "A"
DEAD = f"t-0.{'ab' * 16}"


def copied(root: Path) -> Path:
    """Copy partitions to one directory; the topic id of one is unknown."""
    log_dir = root / "d"
    make(log_dir, "t-0", log_of(5, epoch=4, producer=41))
    make(log_dir, "u-0", log_of(3), topic_id=None)
    (log_dir / "meta.properties").unlink()
    (log_dir / "log-start-offset-checkpoint").write_text("0\n2\nt 0 2\ngone 7 9\n")
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 5\n")
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    return log_dir


def of_a_cluster(root: Path) -> Path:
    """Make the log directory of a broker, with its metadata log."""
    log_dir = root / "d"
    make(log_dir, "t-0", log_of(5, epoch=4))
    write_metadata(log_dir, *topic("t", TOPIC_ID, 1))
    (log_dir / "__cluster_metadata-0" / "quorum-state").write_text("{}")
    return log_dir


def in_place(kafkalog: Any, log_dir: Path, *options: object) -> Any:
    backup = log_dir.parent / "backup"
    return kafkalog("resurrect", log_dir, "--apply", "--yes", "--backup", backup, "-q", *options)


def data(log_dir: Path) -> dict[str, bytes]:
    return {name: one for name, one in files(log_dir).items() if name.endswith((".log", "index"))}


def test_metadata_come_next_to_the_partitions(tmp_path: Path, kafkalog: Any) -> None:
    """No byte of the logs changes; the mark of a clean shutdown is removed, so the start scans."""
    log_dir = copied(tmp_path)
    before = data(log_dir)
    out = tmp_path / "p.properties"
    done = in_place(kafkalog, log_dir, "--cluster-id", CLUSTER_ID, "--node-id", "5",
                    "--properties-out", out)  # fmt: skip
    assert done.status == 0, done.stderr
    last = done.stdout.decode().splitlines()[-1]
    assert last == f"kafka-server-start.sh {out}"
    assert out.read_bytes() == (log_dir / "server.properties").read_bytes()
    assert data(log_dir) == before
    image = metadata(log_dir / "bootstrap.checkpoint").image
    assert image.topics["t"] == TOPIC_ID
    assert image.topics["u"] == tf.read_topic_id(str(log_dir / "u-0" / "partition.metadata"))
    assert image.partition(TOPIC_ID, 0).leader_epoch == 5
    assert image.next_producer_id == 1000
    properties = tf.read_meta_properties(str(log_dir / "meta.properties"))
    assert (properties.cluster_id, properties.node_id) == (CLUSTER_ID, 5)
    assert image.partition(TOPIC_ID, 0).directories == (properties.directory_id,)
    assert tf.read_properties(str(log_dir / "server.properties"))["log.dirs"] == str(log_dir)
    found = {
        name: {(one.topic, one.partition): one.offset
               for one in tf.read_offset_checkpoint(str(log_dir / f"{name}-offset-checkpoint"))}
        for name in ("log-start", "replication", "recovery-point")
    }  # fmt: skip
    assert found == {
        "log-start": {("t", 0): 2},
        "replication": {("t", 0): 5, ("u", 0): 3},
        "recovery-point": {},
    }
    assert not (log_dir / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("prepare", [copied, of_a_cluster])
def test_undo_restores_every_byte(
    tmp_path: Path, kafkalog: Any, prepare: Callable[[Path], Path]
) -> None:
    log_dir = prepare(tmp_path)
    before = files(log_dir)
    assert in_place(kafkalog, log_dir, "--cluster-id", "new").status == 0
    assert files(log_dir) != before
    done = kafkalog("undo", tmp_path / "backup", "--apply", "--yes")
    assert (done.status, b"at the top" in done.stdout) == (0, True)
    assert files(log_dir) == before
    assert in_place(kafkalog, log_dir, "--cluster-id", "new").status == 0


def test_a_metadata_log_is_read_and_emptied(tmp_path: Path, kafkalog: Any) -> None:
    """KRaft only reads `bootstrap.checkpoint` if its log is empty, and 4.4 a snapshot before it."""
    log_dir = of_a_cluster(tmp_path)
    formatted = f"{0:020}-{0:010}.checkpoint"
    (log_dir / "__cluster_metadata-0" / formatted).write_bytes(b"".join(snapshot_batches([], 0)))
    assert in_place(kafkalog, log_dir, "--cluster-id", "new").status == 0
    assert list((log_dir / "__cluster_metadata-0").iterdir()) == []
    assert metadata(log_dir / "bootstrap.checkpoint").image.topics == {"t": TOPIC_ID}


def test_after_a_start_it_cannot_be_undone(tmp_path: Path, kafkalog: Any) -> None:
    """The broker has written a metadata log and checkpoints."""
    log_dir = copied(tmp_path)
    assert in_place(kafkalog, log_dir).status == 0
    write_metadata(log_dir, *topic("t", TOPIC_ID, 1))
    done = kafkalog("undo", tmp_path / "backup", "--apply", "--yes")
    assert (done.status, "A broker has started" in done.stderr) == (4, True)
    for path in (log_dir / "__cluster_metadata-0").iterdir():
        path.unlink()
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 3\n")
    done = kafkalog("undo", tmp_path / "backup", "--apply", "--yes")
    assert (done.status, "The file has changed since the run." in done.stderr) == (4, True)


def test_a_plan_changes_nothing(tmp_path: Path, kafkalog: Any) -> None:
    log_dir = copied(tmp_path)
    before = files(log_dir)
    done = kafkalog("resurrect", log_dir, "--apply", "--dry-run", "-q")
    assert (done.status, b"metadata would be written" in done.stdout) == (0, True)
    assert files(log_dir) == before


def with_directory(name: str) -> Callable[[Path], None]:
    def prepare(root: Path) -> None:
        log_dir = copied(root)
        make(log_dir, name, log_of(2))
        (log_dir / "meta.properties").unlink()

    return prepare


def unfinished(root: Path) -> None:
    (copied(root) / "t-0" / f"{0:020}.log.cleaned").touch()


def strange(root: Path) -> None:
    (copied(root) / "photos").mkdir()


def damaged(root: Path) -> None:
    copied(root)
    make(root / "d", "t-0", [flip(log_of(1)[0], 8 * 63), *log_of(3)[1:]])
    (root / "d" / "meta.properties").unlink()


def bad_epochs(root: Path) -> None:
    """Write a checkpoint of epochs with which a broker would not load the log."""
    (copied(root) / "t-0" / "leader-epoch-checkpoint").write_text("0\n7\n")


def deleted_topic(root: Path) -> None:
    log_dir = of_a_cluster(root)
    make(log_dir, "u-0", log_of(2), topic_id=OTHER_ID)
    write_metadata(log_dir, *topic("t", TOPIC_ID, 1), *topic("u", OTHER_ID, 1),
                   value_of("RemoveTopicRecord", topicId=OTHER_ID))  # fmt: skip


def later(root: Path) -> None:
    feature = value_of("FeatureLevelRecord", name="metadata.version", featureLevel=33)
    write_metadata(of_a_cluster(root), feature)


def empty(root: Path) -> None:
    (root / "d").mkdir()
    (root / "d" / "log-start-offset-checkpoint").write_text("0\n0\n")


def linked(root: Path) -> None:
    copied(root)
    (root / "elsewhere").touch()
    (root / "d" / "meta.properties").symlink_to(root / "elsewhere")


def full_backup(root: Path) -> None:
    copied(root)
    (root / "backup").mkdir()
    (root / "backup" / "mine").touch()


NEW = ("--cluster-id", "new")
CASES: dict[str, tuple[Callable[[Path], object], tuple[str, ...], int, str]] = {
    "stray": (with_directory(f"{DEAD}-stray"), (), 4, "its name says stray."),
    "future": (with_directory(f"{DEAD}-future"), (), 4, "its name says future."),
    "strange": (strange, (), 4, "A broker would not start with this directory."),
    "unfinished": (unfinished, (), 4, "This was left by an unfinished cleaning."),
    "hole": (with_directory("t-2"), (), 4, "Partitions are missing: t: 1."),
    "deleted topic": (deleted_topic, NEW, 4, "A broker would not keep it: "),
    "cluster": (of_a_cluster, (), 4, f"The log directory belongs to the cluster {'c' * 22}."),
    "linked": (linked, NEW, 4, "This is a symbolic link"),
    "backup taken": (full_backup, (), 4, "The directory is not empty"),
    "damaged": (damaged, (), 6, "The partition is damaged: The checksum of a batch is wrong."),
    "bad epochs": (bad_epochs, (), 6, "The second line says 7 entries; the file has 0."),
    "downgrade": (later, (*NEW, "--kafka", "4.3"), 4, "metadata.version is 33"),
    "empty": (empty, (), 2, "No partition is found."),
    "topic": (copied, ("--topic", "t"), 2, "--topic and --apply in place exclude each other."),
    "rename": (copied, ("--rename", "t=v"), 2, "--rename and --apply in place exclude each other."),
    "undelete": (copied, ("--undelete",), 2, "--undelete and --apply in place exclude each other."),
    "copy": (copied, ("--copy", "copy"), 2, "--copy and --apply in place exclude each other."),
    "salvage": (copied, ("--salvage",), 2, "--salvage and --apply in place exclude each other."),
    "no id": (copied, ("--cluster-id", "x"), 2, "'x' is not an id of Kafka."),
    "to": (copied, ("--to", "out"), 2, "--apply and --to exclude each other."),
}  # fmt: skip


def test_a_deleted_directory_stays_for_the_broker(tmp_path: Path, kafkalog: Any) -> None:
    """A broker that was killed leaves them, and removes them when it starts."""
    with_directory(f"{DEAD}-delete")(tmp_path)
    before = files(tmp_path / "d" / f"{DEAD}-delete")
    done = in_place(kafkalog, tmp_path / "d", "--format", "ndjson")
    assert done.status == 0, done
    assert f"{DEAD}-delete" in done.stdout.decode()
    assert files(tmp_path / "d" / f"{DEAD}-delete") == before


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused(case: str, tmp_path: Path, kafkalog: Any) -> None:
    """Nothing in the log directory changes."""
    prepare, options, status, words = CASES[case]
    prepare(tmp_path)
    before = files(tmp_path / "d")
    done = in_place(kafkalog, tmp_path / "d", *options)
    assert (done.status, words in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr
    assert files(tmp_path / "d") == before


def test_it_needs_a_backup_and_one_log_directory(tmp_path: Path, kafkalog: Any) -> None:
    log_dir = copied(tmp_path)
    before = files(log_dir)
    for words, said in (
        ((log_dir, "--apply"), "--apply in place requires --backup."),
        ((log_dir, log_dir, "--apply", "--dry-run"), "--apply takes one PATH, or --into."),
        ((log_dir / "t-0", "--apply", "--dry-run"), "This is not a log directory."),
        ((log_dir, "--apply", "--yes", "--backup", log_dir / "b"), "in a log directory"),
    ):
        done = kafkalog("resurrect", *words, "-q")
        assert (done.status, said in done.stderr) == (2, True), done.stderr
    assert files(log_dir) == before


def test_a_broker_keeps_its_log_directory(tmp_path: Path, kafkalog: Any) -> None:
    log_dir = copied(tmp_path)
    (log_dir / ".lock").touch()
    before = files(log_dir)
    command = [sys.executable, "-c", HOLDER, str(log_dir / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        done = in_place(kafkalog, log_dir)
        holder.communicate(b"")
    assert (done.status, "log-dir-in-use" in done.stderr) == (4, True)
    assert files(log_dir) == before
