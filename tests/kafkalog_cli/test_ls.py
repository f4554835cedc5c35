"""`ls`, compared with the directories themselves and the facts of the corpus."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import UnreadableError
from kafkalog.node import inventory
from tests.builders import copy_tree

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State


def rows(kafkalog: Any, *arguments: object) -> list[dict[str, Any]]:
    result = kafkalog("ls", "--format", "ndjson", *arguments)
    assert result.status == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.sampled(3)
def test_every_file_is_named_and_known(any_state: State, kafkalog: Any) -> None:
    """No file that Kafka wrote is unknown or left out."""
    on_disk = {
        os.path.join(folder, name)
        for log_dir in any_state.log_dirs
        for folder, _, names in os.walk(log_dir)
        for name in names
    }
    listed = [
        row for row in rows(kafkalog, "--files", *any_state.log_dirs) if row["type"] == "file"
    ]
    assert {row["path"] for row in listed} == on_disk
    assert len(listed) == len(on_disk)
    assert [row["path"] for row in listed if row["kind"] == "unknown"] == []
    for row in listed:
        status = os.stat(row["path"])
        assert row["size_bytes"] == status.st_size
        assert row["modified_timestamp"] == status.st_mtime_ns // 1_000_000


@pytest.mark.sampled(3)
def test_partitions_are_those_of_the_log_directory(any_state: State, kafkalog: Any) -> None:
    """One row per directory, with the log end that the broker gave as `latest`."""
    listed = [row for row in rows(kafkalog, *any_state.log_dirs) if row["type"] == "partition"]
    assert sorted(row["path"] for row in listed) == sorted(map(str, any_state.partitions()))
    recorded = {}
    if (any_state.expected / "lookup.json").exists():
        recorded = json.loads((any_state.expected / "lookup.json").read_text())
    for row in listed:
        answers = recorded.get(os.path.basename(row["path"]))
        if answers:
            assert row["log_end_offset"] == answers["latest"]["offset"], row["path"]
            assert row["log_start_offset"] == answers["earliest"]["offset"], row["path"]


def test_states_of_directories_and_files_are_told(corpus_dir: Path, kafkalog: Any) -> None:
    """A replica being moved, a deleted topic, files waiting for their deletion."""
    root = corpus_dir / "kafka-4.3"
    live = rows(kafkalog, root / "jbod-live" / "logs-a", root / "jbod-live" / "logs-b")
    states = {row["state"] for row in live if row["type"] == "partition"}
    assert states == {"live", "future", "delete"}
    restarted = rows(kafkalog, *sorted((root / "jbod-restarted").iterdir()))
    assert "stray" in {row["state"] for row in restarted if row["type"] == "partition"}
    for name, state in (("retention-1-after-live", "deleted"), ("interrupted-1-swap", "swap")):
        listed = rows(kafkalog, root / name)
        assert any(state in row.get("odd_files", ()) for row in listed), name


def test_segments_are_those_on_disk(corpus_dir: Path, kafkalog: Any) -> None:
    """One row per live `.log`, sorted by base offset, with the sizes of its indexes."""
    partition = corpus_dir / "kafka-4.3" / "txn" / "txn-0"
    listed = rows(kafkalog, "--segments", partition)
    logs = sorted(partition.glob("*.log"))
    assert [row["path"] for row in listed] == [str(log) for log in logs]
    for row, log in zip(listed, logs, strict=True):
        assert row["size_bytes"] == log.stat().st_size
        assert row["index_bytes"] == log.with_suffix(".index").stat().st_size
        assert row["timeindex_bytes"] == log.with_suffix(".timeindex").stat().st_size


def test_rows_are_sorted_by_size_on_demand(corpus_dir: Path, kafkalog: Any) -> None:
    """The largest comes first."""
    listed = rows(kafkalog, "--sort", "size", corpus_dir / "kafka-4.3" / "codecs")
    sizes = [row["size_bytes"] for row in listed if row["type"] == "partition"]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) > 3


def test_preallocated_room_in_indexes_is_no_size(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any
) -> None:
    """A broker reserves 10 MiB for each index of an active segment, without using the disk."""
    source = corpus_dir / "kafka-4.3" / "txn" / "txn-0"
    partition = copy_tree(source, tmp_path / "txn-0")
    logs = sum(path.stat().st_size for path in partition.iterdir())
    last = max(partition.glob("*.log"))
    for suffix in (".index", ".timeindex"):
        with last.with_suffix(suffix).open("r+b") as index:
            index.truncate(10 << 20)
    (row,) = rows(kafkalog, partition)
    assert logs <= row["size_bytes"] < logs + (64 << 10)
    segment = rows(kafkalog, "--segments", partition)[-1]
    assert segment["index_bytes"] < 64 << 10
    assert segment["timeindex_bytes"] < 64 << 10
    files = {row["path"]: row for row in rows(kafkalog, "--files", partition)}
    assert files[str(last.with_suffix(".index"))]["size_bytes"] == 10 << 20


def test_rows_of_several_log_directories_say_which(corpus_dir: Path, kafkalog: Any) -> None:
    """JBOD: rows start with the log directory if there are several."""
    root = corpus_dir / "kafka-4.3" / "jbod-live"
    for words in ((), ("--segments",)):
        lines = (
            kafkalog("ls", *words, root / "logs-a", root / "logs-b").stdout.decode().splitlines()
        )
        head = next(n for n, line in enumerate(lines) if line.startswith("DIRECTORY "))
        found = {line.split()[0] for line in lines[head + 1 :] if line.startswith("/")}
        assert found == {str(root / "logs-a"), str(root / "logs-b")}
    assert b"DIRECTORY" not in kafkalog("ls", root / "logs-a").stdout


def test_a_parent_of_log_directories_is_listed_as_they_are(corpus_dir: Path, kafkalog: Any) -> None:
    """A note says what was found; headings, rows and fields give the location of each thing."""
    root = corpus_dir / "kafka-4.3" / "jbod-live"
    disks = [str(root / "logs-a"), str(root / "logs-b")]
    for words in ((), ("--segments",), ("--files",), ("--format", "csv")):
        both = kafkalog("ls", *words, root)
        assert both.stdout == kafkalog("ls", *words, *disks).stdout
        assert f"note: {root} holds 2 log directories: logs-a, logs-b\n" in both.stderr
    found = rows(kafkalog, root)
    assert [row["log_dir"] for row in found if row["type"] == "log_dir"] == disks
    partitions = [row for row in found if row["type"] == "partition"]
    assert {row["log_dir"] for row in partitions} == {*disks}
    assert all(row["path"].startswith(row["log_dir"] + "/") for row in partitions)
    segments = rows(kafkalog, "--segments", root)
    assert {row["log_dir"] for row in segments if row["type"] == "segment"} == {*disks}


def test_what_a_power_failure_may_cost_is_listed(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any
) -> None:
    """What is above the recovery point of each log, and in sum; nothing after a clean stop."""
    log_dir = copy_tree(corpus_dir / "kafka-4.4" / "crash-0-kill9", tmp_path / "node")
    noted = (log_dir / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    points = {f"{topic}-{number}": int(point) for topic, number, point in map(str.split, noted)}
    assert any(points.values())
    listed = {row["path"].rpartition("/")[2]: row for row in rows(kafkalog, log_dir)[1:]}
    assert listed["__cluster_metadata-0"]["recovery_point"] is None
    for name, point in points.items():
        row = listed[name]
        assert row["recovery_point"] == point
        assert row["unflushed_records"] == row["log_end_offset"] - point
        batches = kafkalog("dump-segment", log_dir / name, "--batches", "--format", "ndjson")
        above = [
            one["size_bytes"]
            for one in map(json.loads, batches.stdout.splitlines())
            if one["last_offset"] >= point
        ]
        assert row["unflushed_bytes"] == sum(above)
    sums = [
        sum(listed[name][field] for name in points)
        for field in ("unflushed_records", "unflushed_bytes")
    ]
    *_, last, total = kafkalog("ls", log_dir, "--exact").stdout.decode().splitlines()
    assert last == (
        f"a power failure may cost {sums[0]} records ({sums[1]}) above the recovery points of "
        f"{len(points)} partitions"
    )
    assert f" topics, {sum(row['size_bytes'] for row in listed.values())} in " in total
    (log_dir / ".kafka_cleanshutdown").write_text("")
    closed = rows(kafkalog, log_dir)[1:]
    assert {row["unflushed_bytes"] for row in closed} == {0, None}
    assert b"power failure" not in kafkalog("ls", log_dir).stdout


def test_a_log_without_a_recovery_point_was_never_flushed(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any
) -> None:
    """A checkpoint lacks logs that are younger than it; without a file nothing is known."""
    log_dir = copy_tree(corpus_dir / "kafka-4.4" / "crash-0-kill9", tmp_path / "node")
    checkpoint = log_dir / "recovery-point-offset-checkpoint"
    checkpoint.write_text("0\n0\n")
    [row] = [one for one in rows(kafkalog, log_dir) if one.get("topic") == "torn-a"]
    segments = rows(kafkalog, "--segments", log_dir / "torn-a-0")
    assert row["recovery_point"] == 0
    assert row["unflushed_bytes"] == sum(one["size_bytes"] for one in segments)
    assert row["unflushed_records"] == row["log_end_offset"]
    checkpoint.unlink()
    [row] = [one for one in rows(kafkalog, log_dir) if one.get("topic") == "torn-a"]
    assert {row[name] for name in row if name.startswith(("unflushed", "recovery"))} == {None}


def test_the_directory_of_the_next_partition_is_marked(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any
) -> None:
    """The one with the fewest logs, among those of the same node; future ones count."""
    node = copy_tree(corpus_dir / "kafka-4.3" / "jbod-live", tmp_path / "node")

    def marked(*words: object) -> dict[str, bool | None]:
        listed = rows(kafkalog, node, *words)
        return {
            row["log_dir"].rpartition("/")[2]: row["next_new_partition"]
            for row in listed
            if row["type"] == "log_dir"
        }

    assert marked() == {"logs-a": False, "logs-b": True}
    assert marked("--topic", "to-*") == {"logs-a": False, "logs-b": True}
    first = kafkalog("ls", node).stdout.decode().splitlines()
    assert ["next for a new partition" in line for line in first[:2]] == [False, True]
    shutil.copytree(node / "logs-b" / "jbod-0", node / "logs-b" / "more-0")
    assert marked() == {"logs-a": True, "logs-b": True}
    [alone, *_] = rows(kafkalog, node / "logs-a")
    assert alone["next_new_partition"] is None


def test_what_is_unflushed_is_not_known_of_a_log_that_cannot_be_read(
    corpus_dir: Path, tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = copy_tree(corpus_dir / "kafka-4.4" / "crash-0-kill9", tmp_path / "node")

    def refuse(*_: object) -> int:
        raise UnreadableError("It does not answer.", path="")

    monkeypatch.setattr(inventory, "_position_of", refuse)
    result = kafkalog("ls", log_dir, "-t", "torn-a", "-o", "ndjson")
    [row] = [json.loads(line) for line in result.stdout.splitlines()][1:]
    assert row["recovery_point"] == 145
    assert (row["unflushed_records"], row["unflushed_bytes"]) == (None, None)
