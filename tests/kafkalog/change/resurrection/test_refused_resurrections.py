"""What a resurrection refuses, with which status and message; nothing is written then."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import batch, flip, record
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


def plain(root: Path) -> None:
    make(root / "a", "t-0", log_of(3))


def nothing(root: Path) -> None:
    plain(root)
    os.rename(root / "a" / "t-0", root / "a" / f"t-0.{'ab' * 16}-delete")


def a_file_at_the_destination(root: Path) -> None:
    plain(root)
    (root / "out").mkdir()
    (root / "out" / "mine").touch()


def a_device(root: Path) -> None:
    """Make a log whose bytes never end."""
    plain(root)
    log = root / "a" / "t-0" / f"{0:020}.log"
    log.unlink()
    log.symlink_to("/dev/zero")


def with_levels(**levels: int) -> Callable[[Path], None]:
    """Return what makes a log directory with features, named without `.version`."""

    def prepare(root: Path) -> None:
        plain(root)
        features = (
            value_of("FeatureLevelRecord", name=f"{name}.version", featureLevel=level)
            for name, level in levels.items()
        )
        write_metadata(root / "a", *features, *topic("t", TOPIC_ID, 1))

    return prepare


def unknown_record(root: Path) -> None:
    plain(root)
    write_metadata(root / "a", *topic("t", TOPIC_ID, 1), b"\1\x7f\0")


def damaged(root: Path) -> None:
    sound = log_of(5)
    make(root / "a", "t-0", [*sound[:2], flip(sound[2], 8 * 63), *sound[3:]])


def magic_3(root: Path) -> None:
    """Make a log with a batch that Kafka's recovery keeps, and that no consumer can pass."""
    make(root / "a", "t-0", [*log_of(2), batch(2, [record()], magic=3)])


def damaged_metadata(root: Path) -> None:
    plain(root)
    write_metadata(root / "a", *topic("t", TOPIC_ID, 1))
    log = root / "a" / "__cluster_metadata-0" / f"{0:020}.log"
    log.write_bytes(flip(log.read_bytes(), 8 * 70))


def holes(root: Path) -> None:
    make(root / "a", "t-0", log_of(3))
    make(root / "a", "t-3", log_of(3))


def known_elsewhere(root: Path) -> None:
    plain(root)
    write_metadata(root / "a", *topic("t", TOPIC_ID, 1), *topic("u", OTHER_ID, 2))


def two_ids(root: Path) -> None:
    make(root / "a", "t-0", log_of(3))
    make(root / "a", "t-1", log_of(3), topic_id=OTHER_ID)


def dead_and_live(root: Path) -> None:
    plain(root)
    make(root / "a", f"t-0.{'ab' * 16}-delete", log_of(3), topic_id=OTHER_ID)


def cut_name(root: Path) -> None:
    tail = f"-0.{'ab' * 16}-delete"
    make(root / "a", "x" * (255 - len(tail)) + tail, log_of(3))


def two_topics(root: Path) -> None:
    plain(root)
    make(root / "a", "u-0", log_of(3), topic_id=OTHER_ID)


CASES: dict[str, tuple[Callable[[Path], None], tuple[str, ...], int, str]] = {
    "no partition": (nothing, (), 2, "No partition is found."),
    "no such path": (lambda _: None, (), 2, "No such file or directory"),
    "taken": (a_file_at_the_destination, (), 4, "It exists, and is not an empty directory."),
    "a device": (a_device, (), 3, "This is a device, not a regular file."),
    "later Kafka": (with_levels(metadata=34), (), 5,
                    "metadata.version is 34 (4.5-IV0), Kafka 4.4 knows 33."),
    "unknown feature": (with_levels(metadata=33, cloud=1), (), 5,
                        "cloud.version is 1, Kafka 4.4 knows no such feature."),
    "unknown record": (unknown_record, (), 5, "later Kafka: 1 record of unknown types."),
    "downgrade": (with_levels(metadata=33), ("--kafka", "4.3"), 4,
                  "metadata.version is 33 (4.4-IV2), Kafka 4.3 knows 30."),
    "downgrade of a feature": (with_levels(metadata=30, share=2), ("--kafka", "4.3"), 4,
                               "share.version is 2, Kafka 4.3 knows 1."),
    "unknown release": (plain, ("--kafka", "3.9"), 2, "'3.9' is not a release that --kafka takes."),
    "damaged": (damaged, (), 6, "The partition is damaged: The checksum of a batch is wrong."),
    "magic 3": (magic_3, (), 6, "The partition is damaged:"),
    "damaged metadata": (damaged_metadata, (), 6, "The metadata log is damaged"),
    "holes": (holes, (), 4, "Partitions are missing: t: 1, 2."),
    "topic of others": (known_elsewhere, (), 4, "Partitions are missing: u: 0, 1."),
    "two ids": (two_ids, (), 4, "have different topic ids: "),
    "two new ids": (two_ids, ("--topic-id", "t=new"), 4, "have different topic ids: "),
    "dead and live": (dead_and_live, ("--undelete",), 4, "the deleted one needs another name"),
    "cut name": (cut_name, ("--undelete",), 4, "Kafka cut the name of the topic"),
    "one name": (two_topics, ("--rename", "u=t"), 4, "The topics t and u would have one name, t."),
    "unknown topic": (plain, ("--topic", "u"), 1, "No partition of the topic u is here."),
    "unknown rename": (plain, ("--rename", "u=v"), 2, "--rename names the topic u"),
    "unknown id": (plain, ("--topic-id", "u=new"), 2, "--topic-id names the topic u"),
    "no pair": (plain, ("--rename", "t"), 2, "'t' is not OLD=NEW."),
    "two pairs": (plain, ("--rename", "t=a", "--rename", "t=b"), 2, "--rename names t twice."),
    "no name": (plain, ("--rename", "t=a/b"), 2, "'a/b' is not a name that Kafka accepts"),
    "no cluster id": (plain, ("--cluster-id", "x"), 2, "'x' is not an id of Kafka."),
    "no topic id": (plain, ("--topic-id", "t=x"), 2, "'x' is not an id of Kafka."),
    "no node": (plain, ("--node-id", "-1"), 2, "-1 is not a node id."),
    "no metadata": (plain, ("--as-of-metadata", "{root}/a"), 2, "There is no metadata log here."),
    "no choice": (plain, ("--missing", "zero"), 2, "--missing"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["meta.properties", "log-start-offset-checkpoint", "t-0/partition.metadata",
     "t-0/leader-epoch-checkpoint"],
)  # fmt: skip
@pytest.mark.parametrize("replace", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_stands_in_place_of_a_small_file_is_refused(
    name: str, replace: Callable[[Path], None], tmp_path: Path, kafkalog: Any
) -> None:
    """The file does not count as missing: ids and the log start offset would be lost."""
    plain(tmp_path)
    path = tmp_path / "a" / name
    path.unlink(missing_ok=True)
    replace(path)
    done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / "out", "-q")
    assert (done.status, "This is not a regular file." in done.stderr) == (3, True), done.stderr
    assert os.listdir(tmp_path) == ["a"]


def test_an_unreadable_partition_costs_its_topic_alone(tmp_path: Path, kafkalog: Any) -> None:
    """With fewer partitions keys would go elsewhere; those that are missing can be agreed to."""
    two_topics(tmp_path)
    make(tmp_path / "a", "u-1", log_of(3), topic_id=OTHER_ID)
    log = tmp_path / "a" / "u-1" / f"{0:020}.log"
    log.unlink()
    log.mkdir()
    for options, topics in (((), ["t"]), (("--missing", "offline"), ["t", "u"])):
        words = ("resurrect", tmp_path / "a", *options, "-o", "ndjson")
        for more in ((), ("--to", tmp_path / f"out{len(topics)}")):
            done = kafkalog(*words, *more)
            rows = [json.loads(row) for row in done.stdout.splitlines()]
            assert done.status == 8, done.stderr
            assert [one["topic"] for one in rows if one["type"] == "resurrected_topic"] == topics
            left = {one["path"]: one["unreadable"] for one in rows
                    if one["type"] == "left_out_directory"}  # fmt: skip
            assert left[str(log.parent)]
            assert len(left) == 3 - len(topics)
    other = make(tmp_path / "b", "u-1", log_of(3), topic_id=OTHER_ID)
    done = kafkalog("resurrect", tmp_path / "a", tmp_path / "b", "-o", "ndjson")
    assert (done.status, str(other).encode() in done.stdout) == (8, True)


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused(case: str, tmp_path: Path, kafkalog: Any) -> None:
    prepare, options, status, words = CASES[case]
    prepare(tmp_path)
    before = sorted(os.listdir(tmp_path))
    options = tuple(one.format(root=tmp_path) for one in options)
    done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / "out", "-q", *options)
    assert (done.status, words in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(tmp_path)) == before


def test_a_refused_downgrade_names_the_release_that_starts(tmp_path: Path, kafkalog: Any) -> None:
    with_levels(metadata=33)(tmp_path)
    words = ("resurrect", tmp_path / "a", "--to", tmp_path / "out", "-q")
    done = kafkalog(*words, "--kafka", "4.3")
    assert "Kafka 4.4 starts on them: --kafka 4.4." in done.stderr
    assert kafkalog(*words, "--kafka", "4.4").status == 0


def test_a_file_is_no_source(tmp_path: Path, kafkalog: Any) -> None:
    plain(tmp_path)
    log = tmp_path / "a" / "t-0" / f"{0:020}.log"
    done = kafkalog("resurrect", log, "--to", tmp_path / "out", "-q")
    assert (done.status, "This is a file." in done.stderr) == (2, True)


@pytest.mark.parametrize("inside", ["a/out", "a/t-0/out"])
def test_the_destination_is_not_in_the_source(inside: str, tmp_path: Path, kafkalog: Any) -> None:
    plain(tmp_path)
    done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / inside, "-q")
    assert (done.status, "lies inside the source" in done.stderr) == (2, True)
    assert not (tmp_path / inside).exists()


def test_kafka_cannot_have_a_comma_in_log_dirs(tmp_path: Path, kafkalog: Any) -> None:
    plain(tmp_path)
    done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / "o,ut", "-q")
    assert (done.status, "comma" in done.stderr) == (2, True)


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    "words",
    [("{root}/b", "--copy", "auto"), ("{root}/b", "--copy", "reflink"),
     ("--as-of-metadata", "{root}/b")],
    ids=["copy", "reflink", "metadata"],
)  # fmt: skip
def test_a_broker_keeps_its_log_directory(
    tmp_path: Path, kafkalog: Any, words: tuple[str, ...]
) -> None:
    """One of two sources is locked: nothing is written, not even files that share its blocks."""
    plain(tmp_path)
    make(tmp_path / "b", "u-0", log_of(3), topic_id=OTHER_ID)
    lock = tmp_path / "b" / ".lock"
    lock.touch()
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        more = [word.format(root=tmp_path) for word in words]
        done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / "out", "-q", *more)
        holder.communicate(b"")
    assert (done.status, "log-dir-in-use" in done.stderr) == (4, True)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    ("to", "status", "words"),
    [
        ("{root}/no/out", 4, "The path cannot be written: No such file or directory."),
        ("{root}/a/t-0/partition.metadata", 2, "lies inside the source"),
        ("{root}/file", 4, "It exists, and is not an empty directory."),
        ("{root}/link", 4, "It exists, and is not an empty directory."),
        ("s3://bucket/out", 2, "local"),
    ],
)
def test_the_destination_is_a_free_place(
    tmp_path: Path, kafkalog: Any, to: str, status: int, words: str
) -> None:
    plain(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    before = sorted(os.listdir(tmp_path))
    done = kafkalog("resurrect", tmp_path / "a", "--to", to.format(root=tmp_path), "-q")
    assert (done.status, words in done.stderr) == (status, True), done.stderr
    assert sorted(os.listdir(tmp_path)) == before


def test_copies_need_room(tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check comes before any write; only a try shows whether blocks can be shared."""
    plain(tmp_path)
    monkeypatch.setattr("kafkalog.io.storage.directories.free_space", lambda _: 10)
    done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / "out", "-q", "--copy", "copy")
    assert (done.status, "the file system has 10 left" in done.stderr) == (4, True), done.stderr
    assert os.listdir(tmp_path) == ["a"]


def test_blocks_are_shared_or_it_is_refused(tmp_path: Path, kafkalog: Any) -> None:
    """`--copy reflink` never copies: if the file system has no reflinks, nothing is written."""
    plain(tmp_path)
    done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / "out", "-q",
                    "--copy", "reflink", "--format", "ndjson")  # fmt: skip
    if has_reflinks(tmp_path):
        assert (done.status, b'"how":"reflink"' in done.stdout) == (0, True)
    else:
        assert (done.status, "cannot share blocks" in done.stderr) == (4, True)
        assert not (tmp_path / "out").exists()


def has_reflinks(place: Path) -> bool:
    (place / "one").write_bytes(b"x" * 4096)
    with (place / "one").open("rb") as one, (place / "two").open("wb") as two:
        try:
            fcntl.ioctl(two, 0x40049409, one.fileno())
        except OSError:
            return False
    return True


def test_the_file_of_properties_is_not_replaced(tmp_path: Path, kafkalog: Any) -> None:
    plain(tmp_path)
    (tmp_path / "p").write_text("mine")
    done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / "out", "-q",
                    "--properties-out", tmp_path / "p")  # fmt: skip
    assert (done.status, "It already exists." in done.stderr) == (4, True)
    assert sorted(os.listdir(tmp_path)) == ["a", "p"]
    assert (tmp_path / "p").read_text() == "mine"


def test_a_full_disk_leaves_nothing(
    tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(tmp_path)

    def fail(*_: object, **__: object) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kafkalog.io.storage.directories.sync_file_system", fail)
    done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / "out", "-q")
    assert (done.status, "cannot be written" in done.stderr) == (4, True)
    assert os.listdir(tmp_path) == ["a"]


def test_a_hostile_partition_number_costs_no_memory(tmp_path: Path, kafkalog: Any) -> None:
    """The number in a directory's name is not trusted: no record is made per missing partition."""
    make(tmp_path / "a", "t-2147483647", log_of(1))
    for missing in ("refuse", "empty"):
        done = kafkalog("resurrect", tmp_path / "a", "--to", tmp_path / "out", "-q",
                        "--missing", missing)  # fmt: skip
        assert (done.status, "2147483647" in done.stderr) == (4, True), missing
