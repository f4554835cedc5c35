"""`transactions`: who wrote, which are open, and which hang."""

from __future__ import annotations

import json
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.node.state.transactions import OpenData, abort_commands
from kafkalog.node.unified_log import OpenTransaction
from tests.builders import batch, copy_tree, frames, record, write_log
from tests.conftest import state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Run = Callable[..., Result]

OPEN = [("__consumer_offsets", 0, 39), ("more-events", 0, 36)]


@pytest.fixture
def log_dir(corpus_dir: Path, tmp_path: Path) -> Path:
    """A log directory whose broker left a transaction of `events-open` open."""
    [found] = state(corpus_dir, "kafka-4.3", "internal-topics").log_dirs
    return copy_tree(found, tmp_path / "log")


def rows(result: Result, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [row for row in found if row["type"] == kind]


def opened(result: Result) -> list[tuple[str, int, int]]:
    return [
        (row["topic"], row["partition"], row["first_offset"])
        for row in rows(result, "open_transaction")
    ]


def keep_batches(log_dir: Path, count: int) -> None:
    """Cut the coordinator's log as if only `count` batches had been written."""
    place = log_dir / "__transaction_state-0"
    [log] = place.glob("*.log")
    data = log.read_bytes()
    log.write_bytes(data[: sum(size for _, size in frames(data)[:count])])
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (log_dir / name).write_text("0\n0\n")
    for index in (*place.glob("*.index"), *place.glob("*.timeindex"), *place.glob("*.snapshot")):
        index.unlink()


def test_an_open_transaction_has_its_owner(log_dir: Path, kafkalog: Run) -> None:
    """It does not hang, as its coordinator will end it."""
    result = kafkalog("transactions", log_dir, "--format", "ndjson")
    assert result.status == 0
    ids = {row["transactional_id"]: row for row in rows(result, "transactional_id")}
    assert {name: row["state"] for name, row in ids.items()} == {
        "events-open": "Ongoing",
        "events-tx": "CompleteCommit",
    }
    assert ids["events-open"]["topic_partitions"] == ["more-events-0", "__consumer_offsets-0"]
    assert opened(result) == OPEN
    for row in rows(result, "open_transaction"):
        assert (row["transactional_id"], row["hanging"]) == ("events-open", None)
        assert row["producer_id"] == ids["events-open"]["producer_id"]
    for option, said in (("--hanging", b"0 open transactions\n"), ("--commands", b"")):
        result = kafkalog("transactions", log_dir, option)
        assert (result.status, result.stdout) == (0, said), option


def test_one_hangs_that_its_coordinator_takes_for_over(log_dir: Path, kafkalog: Run) -> None:
    """The command that aborts it is that of Kafka's own tool."""
    keep_batches(log_dir, 14)
    result = kafkalog("transactions", log_dir, "--hanging", "--format", "ndjson")
    assert (result.status, opened(result)) == (0, OPEN)
    assert {row["hanging"] for row in rows(result, "open_transaction")} == {
        "its coordinator says Empty"
    }
    *_, total, then = kafkalog("transactions", log_dir, "--hanging").stdout.decode().splitlines()
    assert total == f"{len(OPEN)} open transactions"
    assert then == f"next  kafkalog transactions {log_dir} --commands"
    result = kafkalog("transactions", log_dir, "--commands")
    assert result.stdout.decode().splitlines()[::2] == [
        f"kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic {topic} "
        f"--partition {partition} --start-offset {offset}"
        for topic, partition, offset in OPEN
    ]


def test_a_topic_is_one_word_of_a_command() -> None:
    """It is the name of a directory, which may be any text."""
    topic = "orders; rm -rf $HOME"
    found = OpenData(topic, 0, "", OpenTransaction(1, 2, 3, 4, 5), None, "it hangs")
    for command in abort_commands(found, "HOST:PORT"):
        words = shlex.split(command)
        assert words[words.index("--topic") + 1] == topic


def test_one_hangs_whose_producer_nobody_knows(log_dir: Path, kafkalog: Run) -> None:
    """Only a complete `__transaction_state` shows it. Else the producer may be in a lost part."""
    keep_batches(log_dir, 0)
    result = kafkalog("transactions", log_dir, "--hanging", "--format", "ndjson")
    assert {row["hanging"] for row in rows(result, "open_transaction")} == {
        "no transactional id has this producer"
    }
    shutil.rmtree(log_dir / "__transaction_state-0")
    words = ["transactions", log_dir, "--format", "ndjson", "--now"]
    result = kafkalog(*words, "2024-01-01T00:20:00Z")
    assert result.status == 8
    assert "1 partition of __transaction_state not in PATH: 0." in result.stderr
    assert (opened(result), rows(result, "open_transaction")[0]["hanging"]) == (OPEN, None)
    result = kafkalog(*words, "2027-01-01T00:00:00Z")
    assert {row["hanging"] for row in rows(result, "open_transaction")} == {
        "older than any transaction may be"
    }


def test_a_marker_that_is_written_already_is_named(log_dir: Path, kafkalog: Run) -> None:
    """The broker died before the coordinator noted it: PrepareCommit is the twelfth batch."""

    def events_tx() -> dict[str, Any]:
        result = kafkalog("transactions", log_dir, "--format", "ndjson")
        [row] = [one for one in rows(result, "transactional_id")
                 if one["transactional_id"] == "events-tx"]  # fmt: skip
        return row

    assert events_tx()["marked_topic_partitions"] == []
    keep_batches(log_dir, 12)
    row = events_tx()
    assert (row["state"], row["marked_topic_partitions"]) == (
        "PrepareCommit", ["__consumer_offsets-0", "more-events-0"],
    )  # fmt: skip
    shown = " ".join(kafkalog("transactions", log_dir).stdout.decode().split())
    for word in ("marker is already in", "more-events-0", "KAFKA-19999"):
        assert word in shown
    # Without its last marker, one partition still waits for it: after a kill, the log says so.
    place = log_dir / "more-events-0"
    (log_dir / ".kafka_cleanshutdown").unlink()
    for snapshot in place.glob("*.snapshot"):
        snapshot.unlink()
    for log in sorted(place.glob("*.log"), reverse=True):
        data = log.read_bytes()
        markers = [
            at
            for at, _ in frames(data)
            if data[at + 22] & 0x20
            and int.from_bytes(data[at + 43 : at + 51], "big") == row["producer_id"]
        ]
        log.write_bytes(data[: markers[-1]] if markers else b"")
        if markers:
            break
    assert events_tx()["marked_topic_partitions"] == ["__consumer_offsets-0"]
    # Its coordinator has the next epoch already, and will write it with the marker.
    rest = rows(kafkalog("transactions", log_dir, "--format", "ndjson"), "open_transaction")
    [waiting] = [one for one in rest if one["transactional_id"] == "events-tx"]
    assert (waiting["topic"], waiting["hanging"]) == ("more-events", None)
    assert waiting["producer_epoch"] == row["producer_epoch"] - 1


def test_what_only_a_snapshot_remembers(log_dir: Path, kafkalog: Run) -> None:
    """The batches of a transaction may be gone, but its producer still blocks the partition."""
    place = log_dir / "more-events-0"
    snapshot = max(place.glob("*.snapshot"))
    before = kafkalog("transactions", log_dir, "--format", "ndjson")
    [row] = [one for one in rows(before, "open_transaction") if one["topic"] == "more-events"]
    end = int(snapshot.stem)
    for name in place.glob("0*"):
        if name.suffix != ".snapshot":
            name.unlink()
    log = write_log(place, batch(end, [record()]), name=f"{end - 1:020}")
    for index in (".index", ".timeindex"):  # else a start recovers the segment, and forgets
        log.with_suffix(index).touch()
    after = kafkalog("transactions", log_dir, "--format", "ndjson")
    [again] = [one for one in rows(after, "open_transaction") if one["topic"] == "more-events"]
    assert again == row


@pytest.mark.parametrize(
    ("words", "status"),
    [(["{empty}"], 2), (["{log}", "--at", "never"], 2), (["{log}", "--transactional-id", "x"], 1)],
)
def test_statuses(
    words: list[str], status: int, log_dir: Path, kafkalog: Run, tmp_path: Path
) -> None:
    """An answer that cannot be given, and an id that is missing."""
    (tmp_path / "empty" / "other-0").mkdir(parents=True)
    places = {"empty": tmp_path / "empty", "log": log_dir}
    result = kafkalog("transactions", *(word.format(**places) for word in words))
    assert (result.status, b"Empty" in result.stdout) == (status, False)


def test_an_id_whose_older_states_may_be_gone_is_shown(log_dir: Path, kafkalog: Run) -> None:
    """For a moment before its latest records, where the cleaner may have removed older ones."""
    words = ("transactions", log_dir, "--format", "ndjson", "--transactional-id", "events-open")
    [now] = rows(kafkalog(*words), "transactional_id")
    at = ("--at", f"{now['coordinator']}@0")
    assert rows(kafkalog(*words, *at), "transactional_id") == []
    checkpoint = f"0\n1\n__transaction_state {now['coordinator']} 1000\n"
    (log_dir / "cleaner-offset-checkpoint").write_text(checkpoint)
    result = kafkalog(*words, *at)
    [row] = rows(result, "transactional_id")
    assert (result.status, row["state"], row["exact"]) == (0, "Unknown", False)
    assert (row["producer_id"], row["topic_partitions"], row["record_offset"]) == (-1, [], -1)
    assert b"older states may be gone" in kafkalog("transactions", log_dir, *at).stdout


def test_each_unknown_writer_is_named(kafkalog: Run, log_dir: Path) -> None:
    result = kafkalog("transactions", log_dir, "--transactional-id", "events-tx",
                      "--transactional-id", "events-xt", "--producer-id", 4711)  # fmt: skip
    assert result.status == 1
    assert result.stderr == (
        "warning: There is no transactional id 'events-xt'. Did you mean events-tx or "
        "events-open?\nwarning: There is no producer 4711.\n"
    )


def test_the_former_command_leads_here(kafkalog: Run) -> None:
    """A group is named by `groups`, a transactional id here."""
    for option, command in (("--group", "groups"), ("--transactional-id", "transactions")):
        result = kafkalog("where", "logs", option, "x")
        assert result.status == 2
        assert f"hint: kafkalog {command} logs {option} x" in result.stderr
