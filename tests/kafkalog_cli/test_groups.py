"""`groups`: what it shows, and its statuses."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog as library
from kafkalog.errors import UnreadableError
from kafkalog.io.paths import source
from kafkalog.node.state.model import OffsetLag, total_lag
from tests.builders import batch, copy_tree, flip, frames, record, write_log
from tests.conftest import state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.node.state.model import Group
    from tests.conftest import Result

    Run = Callable[..., Result]


@pytest.fixture
def log_dir(corpus_dir: Path, tmp_path: Path) -> Path:
    [found] = state(corpus_dir, "kafka-4.3", "internal-topics").log_dirs
    return copy_tree(found, tmp_path / "log")


@pytest.fixture
def told(corpus_dir: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the offsets that an admin client received."""
    facts = state(corpus_dir, "kafka-4.3", "internal-topics").expected / "state.json"
    found: dict[str, Any] = json.loads(facts.read_text())["committedOffsets"]
    return found


def kafkalog_groups(log_dir: Path) -> dict[str, Group]:
    """Return the groups from the library."""
    return library.groups(log_dir).groups


def rows(result: Result, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [row for row in found if row["type"] == kind]


def test_offsets_are_what_an_admin_client_is_told(
    log_dir: Path, told: dict[str, dict[str, dict[str, Any]]], kafkalog: Run
) -> None:
    """Offsets of aborted or open transactions do not count."""
    result = kafkalog("groups", log_dir, "--format", "ndjson")
    assert result.status == 0
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows(result, "group_offset"):
        if not row["pending"] and row["group_id"] != "group-share":
            one = {"offset": row["offset"], "metadata": row["metadata"]}
            if row["leader_epoch"] >= 0:
                one["leaderEpoch"] = row["leader_epoch"]
            found.setdefault(row["group_id"], {})[f"{row['topic']}-{row['partition']}"] = one
    assert found == told
    [pending] = [row for row in rows(result, "group_offset") if row["pending"]]
    assert (pending["group_id"], pending["metadata"]) == ("group-tx", "open tx")
    kinds = {row["group_id"]: (row["group_type"], row["state"]) for row in rows(result, "group")}
    assert kinds == {
        "group-admin": ("classic", "Empty"),
        "group-classic": ("classic", "Empty"),
        "group-consumer": ("consumer", "Empty"),
        "group-regex": ("consumer", "Empty"),
        "group-share": ("share", "Empty"),
        "group-tx": ("classic", "Empty"),
    }
    assert {name: one.offsets[0].offset for name, one in kafkalog_groups(log_dir).items()
            if one.offsets} == {"group-admin": 11, "group-classic": 5, "group-consumer": 3,
                                "group-share": 68, "group-tx": 22}  # fmt: skip
    ends = {(row["topic"], row["partition"]): row for row in rows(result, "group_offset")}
    assert ends["events", 0]["log_end_offset"] == 80
    shares = [row for row in rows(result, "group_offset") if row["group_id"] == "group-share"]
    # Its consumers had acknowledged or rejected all records.
    assert [(row["offset"], row["lag"]) for row in shares] == [(68, 0), (65, 0), (67, 0)]
    others = [row for row in rows(result, "group_offset") if row not in shares]
    assert all(row["lag"] == row["log_end_offset"] - row["offset"] for row in others)


def test_members_are_shown_with_what_they_own(log_dir: Path, kafkalog: Run) -> None:
    """Before the offsets of the group, by the names that the metadata have for its topics' ids."""
    moment = ("--at", "2026-11-21T03:19:36.2Z", "--group", "group-consumer")
    shown = kafkalog("groups", log_dir, *moment)
    assert shown.status == 0
    heading, *lines = shown.stdout.decode().splitlines()[3:-1]  # after its coordinator
    assert heading.split() == [
        "GROUP", "MEMBER", "INSTANCE", "CLIENT", "HOST", "EPOCH", "ASSIGNED",
    ]  # fmt: skip
    assert [line.split(maxsplit=6)[-1] for line in lines] == [
        "events-0, events-1", "events-2, more-events-0",
    ]  # fmt: skip
    members = rows(kafkalog("groups", log_dir, *moment, "--format", "ndjson"), "group_member")
    assert [one["assigned"] for one in members] == [
        ["events-0", "events-1"], ["events-2", "more-events-0"],
    ]  # fmt: skip
    shutil.rmtree(log_dir / "__cluster_metadata-0")
    without = rows(kafkalog("groups", log_dir, *moment, "--format", "ndjson"), "group_member")
    assert without == members, "by partition.metadata"


def test_a_moment_before_all_groups_is_named(log_dir: Path, kafkalog: Run) -> None:
    """An answer without rows says so."""
    for command, what in (("groups", "group"), ("transactions", "transactional id")):
        result = kafkalog(command, log_dir, "--at", "@0.007")
        assert result.status == 0
        assert f"note: There was no {what} at @0.007." in result.stderr


def test_reset_offsets_are_what_kafkas_tool_reads(log_dir: Path, kafkalog: Run) -> None:
    """Three columns for one group, four for several; pending offsets are left out and counted."""
    words = ("groups", log_dir, "-o", "reset-offsets")
    one = kafkalog(*words, "--group", "group-classic")
    assert (one.status, one.stdout) == (0, b"events,0,5\nevents,1,6\nevents,2,9\n")
    result = kafkalog(*words)
    assert result.stdout.splitlines()[0] == b"group-admin,events,0,11"
    assert len(result.stdout.splitlines()) == 9
    assert "note: 4 offsets left out: " in result.stderr
    assert kafkalog(*words, "-n", 2).stdout == b"".join(result.stdout.splitlines(True)[:2])
    assert kafkalog(*words, "--since", "-1h").status == 2, "a change is no offset"


def test_a_group_that_is_not_there(log_dir: Path, kafkalog: Run) -> None:
    """A warning names the group; its coordinator is shown all the same."""
    result = kafkalog("groups", log_dir, "--group", "nobody", "--format", "ndjson")
    assert result.status == 1
    [row] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (row["type"], row["key"], row["topic"]) == (
        "coordinator", "nobody", "__consumer_offsets",
    )  # fmt: skip
    assert "There is no group 'nobody'." in result.stderr


def test_a_partition_that_is_not_there(log_dir: Path, kafkalog: Run) -> None:
    """By its metadata the topic has two partitions, so the answer is incomplete."""
    shutil.rmtree(log_dir / "__consumer_offsets-1")
    result = kafkalog("groups", log_dir, "--format", "ndjson")
    assert result.status == 8
    assert "1 partition of __consumer_offsets not in PATH: 1." in result.stderr
    assert {row["group_id"] for row in rows(result, "group")} == {
        "group-classic", "group-consumer", "group-tx",
    }  # fmt: skip


def test_a_damaged_partition(log_dir: Path, kafkalog: Run) -> None:
    """Readable commits are shown and marked as incomplete."""
    [log] = (log_dir / "__consumer_offsets-0").glob("*.log")
    data = log.read_bytes()
    position, size = frames(data)[2]
    log.write_bytes(flip(data, 8 * (position + size - 3)))
    result = kafkalog("groups", log_dir, "--format", "ndjson", "--view", "as-is")
    assert result.status == 2, "there is no such option"
    result = kafkalog("groups", log_dir, "--format", "ndjson")
    assert result.status == 8
    complete = {row["coordinator"]: row["complete"] for row in rows(result, "group_offset")}
    assert complete == {0: False, 1: True}
    assert "batch-crc-mismatch" in result.stderr


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["groups", "{empty}"], 2),
        (["groups", "{log}", "--at", "next week"], 2),
        (["groups", "{log}", "--at", "0@x"], 2),
        (["groups", "{empty}", "--group", "g"], 2),
    ],
)
def test_statuses(
    words: list[str], status: int, log_dir: Path, kafkalog: Run, tmp_path: Path
) -> None:
    """The error says why there is no answer."""
    (tmp_path / "empty" / "other-0").mkdir(parents=True)
    places = {"empty": tmp_path / "empty", "log": log_dir}
    result = kafkalog(*(word.format(**places) for word in words))
    assert (result.status, result.stdout) == (status, b"")
    assert result.stderr.startswith("error: ")


def test_an_older_moment_may_not_be_known_where_the_log_is_compacted(
    log_dir: Path, kafkalog: Run
) -> None:
    """A row is marked if the cleaner may have removed the commit that was valid then."""
    before = rows(kafkalog("groups", log_dir, "--at", "0@4", "--format", "ndjson"), "group_offset")
    assert all(row["exact"] for row in before)
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 1000\n")
    after = rows(kafkalog("groups", log_dir, "--at", "0@4", "--format", "ndjson"), "group_offset")
    known = {(row["group_id"], row["topic"], row["partition"]): row for row in after}
    assert any(not row["exact"] for row in after)
    for row in before:
        same = known[row["group_id"], row["topic"], row["partition"]]
        assert (same["offset"], same["record_offset"]) == (row["offset"], row["record_offset"])
    for row in after:
        if row["offset"] is None:
            assert not row["exact"]


def test_an_end_offset_that_cannot_be_read_says_why(
    log_dir: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the lag is unknown: a note names the file, the error the reason."""
    unlucky = log_dir / "events-0"
    read_at = source.Source._pread

    def fail(self: source.Source, position: int, size: int) -> bytes:
        if self.path.startswith(str(unlucky)):
            raise UnreadableError("Input/output error.", path=self.path)
        return read_at(self, position, size)

    monkeypatch.setattr(source.Source, "_pread", fail)
    result = kafkalog("groups", log_dir, "--topic", "events", "--format", "ndjson")
    lags = {row["partition"]: row["lag"] for row in rows(result, "group_offset")}
    assert lags[0] is None
    assert None not in {lag for partition, lag in lags.items() if partition}
    assert (result.status, f"no lag: {unlucky}" in result.stderr) == (8, True)
    assert f"× Input/output error.\n╰─> {unlucky}" in result.stderr


def test_offsets_that_differ(log_dir: Path, kafkalog: Run) -> None:
    """They are compared between two moments of one partition."""
    now = rows(kafkalog("groups", log_dir, "--format", "ndjson"), "group_offset")
    counted = {
        (row["group_id"], row["topic"], row["partition"]): row["offset"]
        for row in now
        if row["coordinator"] == 0 and not row["pending"] and row["group_id"] != "group-share"
    }
    result = kafkalog("groups", log_dir, "--since", "0@0", "--format", "ndjson")
    found = rows(result, "group_offset_change")
    assert {
        (row["group_id"], row["topic"], row["partition"]): row["after"] for row in found
    } == counted
    assert {(row["change"], row["before"]) for row in found} == {("added", None)}
    nothing = kafkalog("groups", log_dir, "--since", "0@1000000", "--format", "ndjson")
    assert (nothing.stdout, nothing.stderr) == (
        b"",
        "note: No committed offset has changed since 0@1000000.\n",
    )


def test_where_a_group_is_coordinated(log_dir: Path, kafkalog: Run) -> None:
    """The hash of its name gives the partition that really holds its records."""
    groups = rows(kafkalog("groups", log_dir, "--format", "ndjson"), "group")
    words = [word for row in groups for word in ("--group", row["group_id"])]
    result = kafkalog("groups", log_dir, *words, "--format", "ndjson")
    assert result.status == 0
    assert {row["key"]: row["partition"] for row in rows(result, "coordinator")} == {
        row["group_id"]: row["coordinator"] for row in groups
    }
    shutil.rmtree(log_dir / "__transaction_state-0")
    shutil.rmtree(log_dir / "__transaction_state-1")
    result = kafkalog("transactions", log_dir, "--transactional-id", "tx", "--format", "ndjson")
    [row] = rows(result, "coordinator")
    assert (result.status, row["partitions"], row["paths"]) == (8, 2, [])


def test_where_a_partition_of_a_share_group_is_coordinated(log_dir: Path, kafkalog: Run) -> None:
    """Its key has the id of the topic; a group of another kind reads no share partitions."""

    def coordinators(name: str) -> list[dict[str, Any]]:
        words = ("groups", log_dir, "--group", name, "-t", "events", "-p", 1, "-o", "ndjson")
        return rows(kafkalog(*words), "coordinator")

    topics = rows(kafkalog("metadata", log_dir, "-o", "ndjson"), "metadata_topic")
    [uid] = {row["topic_id"] for row in topics if row["topic"] == "events"}
    share = coordinators("group-share")
    assert [row["key"] for row in share] == ["group-share", f"group-share:{uid}:1"]
    assert [row["topic"] for row in share] == ["__consumer_offsets", "__share_group_state"]
    assert [row["key"] for row in coordinators("nobody")] == ["nobody", f"nobody:{uid}:1"]
    assert [row["key"] for row in coordinators("group-classic")] == ["group-classic"]
    shutil.rmtree(log_dir / "__cluster_metadata-0")
    keys = [row["key"] for row in coordinators("group-share")]
    assert keys == ["group-share", f"group-share:{uid}:1"], "by partition.metadata"


def test_keys_of_version_0_are_the_same_keys(kafkalog: Run, tmp_path: Path) -> None:
    """Kafka replays them alike: a commit or tombstone of one version replaces the other's."""

    def key(version: int, partition: int) -> bytes:
        return struct.pack(">hh1sh1si", version, 1, b"g", 1, b"t", partition)

    def value(offset: int) -> bytes:
        return struct.pack(">hqhq", 0, offset, 0, 1_700_000_000_000)

    commits = [(0, 0, value(5)), (1, 0, value(7)), (0, 1, value(5)), (1, 1, None), (0, 2, value(6))]
    batches = [
        batch(offset, [record(0, key(version, partition), content)])
        for offset, (version, partition, content) in enumerate(commits)
    ]
    write_log(tmp_path / "__consumer_offsets-0", *batches)
    found = rows(kafkalog("groups", tmp_path, "--format", "ndjson"), "group_offset")
    assert [(row["partition"], row["offset"]) for row in found] == [(0, 7), (2, 6)]


def test_the_lag_of_a_group_is_the_sum_of_its_offsets(tmp_path: Path) -> None:
    """Summed as columns or one by one, also for offsets that no client commits, and for topics."""
    extremes = [0, 7, 1 << 62, (1 << 63) - 1, -1, -(1 << 63)]
    offsets = {("g", topic, partition): offset for topic in ("s", "t")
               for partition, offset in enumerate(extremes)}  # fmt: skip
    offsets |= {("sound", "t", 0): 3, ("sound", "u", 0): 4}
    batches = [
        batch(at, [record(0, struct.pack(f">hh{len(group)}sh1si", 1, len(group), group.encode(), 1,
                                         topic.encode(), partition),
                          struct.pack(">hqhq", 0, offset, 0, 0))])
        for at, ((group, topic, partition), offset) in enumerate(offsets.items())
    ]  # fmt: skip
    write_log(tmp_path / "__consumer_offsets-0", *batches)
    groups = kafkalog_groups(tmp_path)
    ends = {("s", number): 10 * number for number in range(6)} | {("t", 0): (1 << 63) - 1}
    for known in (ends, {**ends, **{("t", number): 5 for number in range(1, 6)}, ("u", 0): 1}):
        for topics in (["s"], ["t"], ["s", "t"], ["s", "t", "u"], ["u"], ["other"]):
            for name, group in groups.items():

                def end_of(topic: str, partition: int, known: Any = known) -> int | None:
                    found: int | None = known.get((topic, partition))
                    return found

                chosen = [one for one in group.offsets if one.topic in topics]
                assert {(name, one.topic, one.partition): one.offset for one in chosen} == {
                    key: offset for key, offset in offsets.items()
                    if key[0] == name and key[1] in topics
                }  # fmt: skip
                lags = [OffsetLag(one, end_of(one.topic, one.partition)) for one in chosen]

                def is_meant(topic: str, _: int, wanted: list[str] = topics) -> bool:
                    return topic in wanted

                assert group.offsets.lag(end_of, is_meant) == total_lag(lags)
                assert group.offsets.committed_count == len(group.offsets)


def test_two_keys_of_one_group(kafkalog: Run, tmp_path: Path) -> None:
    """A key with extra bytes names the same group, and is no reason to fail."""
    metadata = struct.pack(">hh8sihhi", 0, 8, b"consumer", 3, -1, -1, 0)
    batches = [
        batch(offset, [record(0, struct.pack(">hh1s", 2, 1, b"g") + more, metadata)])
        for offset, more in enumerate((b"", b"x"))
    ]
    write_log(tmp_path / "__consumer_offsets-0", *batches)
    [group] = rows(kafkalog("groups", tmp_path, "--format", "ndjson"), "group")
    assert (group["group_id"], group["group_epoch"]) == ("g", 3)


def test_a_partition_that_cannot_be_read_costs_only_itself(
    log_dir: Path, kafkalog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other partitions are shown; the status says that the answer is not complete."""
    read_at = source.Source._pread

    def fail(self: source.Source, position: int, size: int) -> bytes:
        if "__consumer_offsets-0/" in self.path:
            raise UnreadableError("Input/output error.", path=self.path)
        return read_at(self, position, size)

    monkeypatch.setattr(source.Source, "_pread", fail)
    result = kafkalog("groups", log_dir, "--format", "ndjson")
    assert result.status == 8
    assert {row["group_id"] for row in rows(result, "group")} == {
        "group-admin", "group-regex", "group-share",
    }  # fmt: skip
    assert "Not all of __consumer_offsets could be read: partition 0." in result.stderr


def test_a_topic_without_offsets_is_named(kafkalog: Run, log_dir: Path) -> None:
    result = kafkalog("groups", log_dir, "--topic", "evnets", "--format", "csv")
    assert result.status == 1
    said = "There is no committed offset of the topic 'evnets'. Did you mean events?"
    assert result.stderr == f"warning: {said}\n"
