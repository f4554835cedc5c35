"""`recover` over all log directories of a node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog as library
from tests.builders import batch, record, write_log
from tests.nodes import CLUSTER, DIRECTORIES, METADATA, STATES, removed, replaced, uuid, write_node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

MARK = ".kafka_cleanshutdown"
IN_PLACE = ("--apply", "--yes")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return write_node(tmp_path / "node")


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def torn(node: Path) -> None:
    """Leave a torn batch at the end of a log in the second directory."""
    write_log(node / "d2" / "orders-1", batch(0, [record()]), batch(1, [record()])[:-3])


def test_the_mark_says_what_is_scanned(node: Path, kafkalog: Run) -> None:
    """Each directory has its own; an option overrides them."""

    def modes(*options: str) -> dict[str, str]:
        found = rows(kafkalog("recover", node, *options, "--format", "ndjson"))
        return {row["path"].rpartition("/")[2]: row["mode"] for row in found[:-1]}

    clean = {"orders-0": "clean", "orders-1": "clean", "payments-0": "clean", METADATA: "full"}
    assert modes() == clean
    assert modes("--scan", "checkpoint") == dict.fromkeys(clean, "unclean") | {METADATA: "full"}
    assert modes("--scan", "start") == dict.fromkeys(clean, "full")
    (node / "d2" / MARK).unlink()
    assert modes() == clean | {"orders-1": "unclean", "payments-0": "unclean"}
    assert modes("--scan", "none") == clean


def test_the_paths_of_a_node_are_its_parent_s(node: Path, kafkalog: Run) -> None:
    """One by one, or by the directory that holds them; the second knows the topics' configs."""
    for words in ((node,), (node / "d1", node / "d2")):
        result = kafkalog("recover", *words, "--format", "ndjson")
        assert result.status == 0, result.stderr
        assert "has no __cluster_metadata-0" not in result.stderr
        names = [row["path"].rpartition("/")[2] for row in rows(result)[:-1]]
        assert sorted(names) == [METADATA, "orders-0", "orders-1", "payments-0"]
    alone = kafkalog("recover", node / "d2", "--format", "ndjson")
    assert "has no __cluster_metadata-0" in alone.stderr
    told = kafkalog("recover", node / "d2", "--metadata-dir", node / "d1", "--format", "ndjson")
    assert "has no __cluster_metadata-0" not in told.stderr


def test_a_plan_says_what_is_lost(node: Path, kafkalog: Run) -> None:
    """Of a node, a directory and a partition alike; its status is 0, unless it is a check."""
    for path in (node, node / "d1", node / "d2" / "orders-1", node / "d1" / METADATA):
        plan = kafkalog("recover", path)
        assert (plan.status, b"no record is lost" in plan.stdout) == (0, True), path
    (node / "d2" / MARK).unlink()
    torn(node)
    for path in (node, node / "d2", node / "d2" / "orders-1"):
        plan = kafkalog("recover", path)
        assert (plan.status, b"1 must not be recovered" in plan.stdout) == (0, True), path
        assert kafkalog("recover", path, "--check").status == 1, path
    assert b"no record is lost" in kafkalog("recover", node / "d1").stdout


def test_both_directories_are_recovered_in_place(node: Path, kafkalog: Run) -> None:
    (node / "d2" / MARK).unlink()
    torn(node)
    result = kafkalog("recover", node / "d1", node / "d2", *IN_PLACE, "--allow-loss")
    assert (result.status, b"truncate to offset 1" in result.stdout) == (0, True), result.stderr
    assert (node / "d1" / "orders-0" / f"{0:020}.index").exists()
    again = kafkalog("recover", node, *IN_PLACE)
    assert again.status == 0, again.stderr


def test_one_that_must_not_be_recovered_stops_the_other_directory(
    node: Path, kafkalog: Run
) -> None:
    (node / "d2" / MARK).unlink()
    torn(node)
    before = sorted(path.name for path in (node / "d1" / "orders-0").iterdir())
    result = kafkalog("recover", node, *IN_PLACE)
    assert (result.status, "below the high watermark" in result.stderr) == (4, True)
    assert sorted(path.name for path in (node / "d1" / "orders-0").iterdir()) == before


def test_paths_that_one_lock_guards_are_refused(node: Path, kafkalog: Run) -> None:
    """A plan reads them all the same; each log directory has a backup of its own."""
    paths = (node / "d2" / "orders-1", node / "d2" / "payments-0")
    assert kafkalog("recover", *paths).status == 0
    assert kafkalog("recover", *paths, *IN_PLACE).status == 2
    backup = node.with_name("backup")
    assert kafkalog("recover", node, *IN_PLACE, "--backup", backup).status == 0
    assert len([*backup.glob("*/journal.ndjson")]) == 2


def test_the_node_id_of_the_properties_file_counts(node: Path, kafkalog: Run) -> None:
    """Kafka exits if it is not the one in meta.properties, whatever is recovered."""
    properties = node.with_name("server.properties")
    for node_id, status in ((1, 1), (2, 8)):
        properties.write_text(f"node.id={node_id}\n")
        result = kafkalog("recover", node, "--properties", properties, "--check")
        assert result.status == status, result.stderr
        words = "Stored node id 1 doesn't match previous node id 2"
        assert (words in " ".join(result.stderr.split())) == (node_id == 2)


def test_other_controllers_give_back_what_a_start_cuts_off(node: Path, kafkalog: Run) -> None:
    """Then nothing becomes a stray; a node that is the only controller goes on without it."""
    STATES["second last batch flipped, no snapshot"].change(node)
    alone = rows(kafkalog("recover", node, "--format", "ndjson"))
    assert {row["topic"] for row in alone if row.get("verdict") == "stray"} == {"payments"}
    quorum = f"d1/{METADATA}/quorum-state"
    replaced(quorum, '[{"voterId":1}]', '[{"voterId":1},{"voterId":2}]')(node)
    several = rows(kafkalog("recover", node, "--format", "ndjson"))
    assert not [row for row in several if row.get("verdict") == "stray"]


def test_two_nodes_are_not_one(node: Path, tmp_path: Path, kafkalog: Run) -> None:
    """Directories of two nodes have nothing to do with each other."""
    other = write_node(tmp_path / "other")
    for number, (name, directory_id) in enumerate(DIRECTORIES.items()):
        replaced(f"{name}/meta.properties", "node.id=1", "node.id=2")(other)
        replaced(f"{name}/meta.properties", directory_id, uuid(30 + number))(other)
    removed(f"d1/{METADATA}")(other)
    result = kafkalog("recover", node, other, "--format", "ndjson")
    summary = rows(result)[-1]
    assert summary["node_refusals"] == []
    assert len(rows(result)) == 8


def test_the_library_takes_several_paths(node: Path) -> None:
    assert len(library.recover(node / "d1", node / "d2")) == 4


def test_the_id_of_a_topic_is_written_again(node: Path, kafkalog: Run) -> None:
    """A start would make the partition a stray; the metadata of the cluster have the id."""
    path = node / "d2" / "orders-1" / "partition.metadata"
    whole = path.read_bytes()
    path.unlink()
    plan = kafkalog("recover", node, "--format", "ndjson")
    [row] = [one for one in rows(plan) if str(one.get("path")).endswith("orders-1")]
    written = {"name": path.name, "fate": "written", "size_bytes": len(whole)}
    assert (plan.status, row["verdict"]) == (0, "stray")
    assert [one for one in row["file_changes"] if one["name"] == path.name] == [
        written | {"removed_bytes": 0, "removed_records": 0, "reason": None}
    ]
    assert not path.exists()
    done = kafkalog("recover", node, *IN_PLACE)
    assert (done.status, path.read_bytes()) == (0, whole), done.stderr
    assert "strays" not in " ".join(done.stdout.decode().split())
    assert kafkalog("recover", node).status == 0
    found = {one.reference for one in library.verify(node / "d1", node / "d2")}
    assert found.isdisjoint({"partition-metadata-missing", "topic-id-mismatch"})


@pytest.mark.parametrize("why", ["later epoch", "not assigned", "other cluster"])
def test_an_id_that_is_not_certain_is_not_written(why: str, node: Path, kafkalog: Run) -> None:
    """A directory of a deleted topic does not become one of the new topic with its name."""
    directory, words = node / "d2" / "orders-1", [str(node)]
    if why == "later epoch":
        write_log(directory, batch(0, [record(0), record(1), record(2)], epoch=1))
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    elif why == "not assigned":
        directory = directory.rename(directory.with_name("orders-2"))
    else:
        other = node / "d2" / "meta.properties"
        other.write_text(other.read_text().replace(CLUSTER, uuid(30)))
        words = [str(node / "d2"), "--metadata-dir", str(node / "d1")]
    (directory / "partition.metadata").unlink()
    done = kafkalog("recover", *words, *IN_PLACE)
    assert not (directory / "partition.metadata").exists(), done.stdout


def test_a_future_copy_that_becomes_the_partition(node: Path, kafkalog: Run) -> None:
    """`recover` and `verify` say the same of it."""
    STATES["future copy alone"].change(node)
    for command in ("recover", "verify"):
        done = kafkalog(command, node)
        said = done.stderr + done.stdout.decode()
        assert "rename the directory to payments-0: the partition is assigned here" in said, command
