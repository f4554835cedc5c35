"""`resurrect --into` puts partitions of other brokers into a broker's own log directory."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.conftest import state
from tests.kafka.booted import Brokers, Staged, findings, life, require_growth, truths
from tests.kafka.broker_data import RELEASE, HarnessError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.booted import Run

pytestmark = pytest.mark.kafka

SOURCES = (
    ("kafka-4.3", "txn"),
    ("kafka-4.3", "codecs"),
    ("kafka-4.3", "crash-0-kill9"),
    ("kafka-4.3", "compact-1-first-pass"),
    ("kafka-2.8", "v1"),
)
NODE = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={log_dir}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
"""
LIVES_MAX = 9
OF_NEW_PRODUCERS = {"producer-sequence-repeated", "producer-epoch-went-back"}
"""The cluster gives ids of its own that old producers had, whom the broker has forgotten."""


def staged_sources(corpus_dir: Path, root: Path, count: int | None = None) -> Staged:
    """Partitions of several brokers, without their metadata."""
    staged = Staged(root)
    for release, name in SOURCES[:count]:
        one = state(corpus_dir, release, name)
        for partition, truth in truths(one.expected):
            places = [path / partition for path in one.log_dirs if (path / partition).is_dir()]
            if places and truth.is_stable and not partition.startswith("__"):
                staged.add(places[0], f"{name}.{partition}", truth)
    return staged


def test_partitions_are_served_where_they_lie(
    brokers: Brokers, kafkalog: Run, corpus_dir: Path, tmp_path: Path
) -> None:
    """With metadata next to them; a broker does not start on half of it, as a kill leaves it."""
    staged = staged_sources(corpus_dir, tmp_path / "staged", 2)
    home = tmp_path / "home"
    shutil.copytree(staged.root, home / "log")  # the broker writes there
    words = ("resurrect", home / "log", "--apply", "--yes", "--kafka", RELEASE)
    rest = ("--properties-out", home / "server.properties", "--format", "ndjson")
    assert kafkalog(*words, "--backup", tmp_path / "b", *rest).status == 0
    properties = home / "log" / "meta.properties"
    properties.rename(home / "meta.properties")
    with pytest.raises(HarnessError, match=r"No readable meta\.properties"):
        life(brokers, home).__enter__()
    (home / "meta.properties").rename(properties)
    before = findings(kafkalog, staged.root)
    with life(brokers, home, 2) as first:
        first.observe(staged.truths).require(staged.truths)
        assert first.go_on(staged.truths) == {}
    with life(brokers, home, 3) as second:
        require_growth(second.observe({}), staged.truths)
    assert findings(kafkalog, home / "log") <= before
    undone = kafkalog("undo", tmp_path / "b", "--apply", "--yes")
    assert (undone.status, "since the run" in undone.stderr) == (4, True)


def test_partitions_come_into_the_log_directory_of_a_killed_broker(
    brokers: Brokers, kafkalog: Run, corpus_dir: Path, tmp_path: Path
) -> None:
    """The node was killed and has its own topic; the next start scans everything."""
    staged = staged_sources(corpus_dir, tmp_path / "staged", 2)
    home = tmp_path / "home"
    home.mkdir()
    (home / "server.properties").write_text(NODE.format(log_dir=home / "log"))
    topics = sorted(name.rpartition("-")[0] for name in staged.truths)
    agreed = [word for topic in topics for word in ("--topic-id", f"{topic}=new")]
    words = ("resurrect", staged.root, "--apply", "--into", home / "log", *agreed, "-o", "ndjson")
    with Brokers(tmp_path) as killed:
        killed.ask("format", home / "server.properties", "MkU3OEVBNTcwNTJENDM2Qk")
        with life(killed, home):
            killed.ask("create", "node", [*topics, "own"])
            assert set(killed.ask("go-on", "node", ["own"])) == {"own-0"}
        raise_epochs(killed, kafkalog, home, words)
        last = life(killed, home, 2).__enter__()
        killed.ask("go-on", "node", ["own"])
        own = last.observe({}).truths()["own-0"]
        killed.kill()
    assert not (home / "log" / ".kafka_cleanshutdown").exists()
    before = findings(kafkalog, staged.root)
    done = kafkalog(*words)
    assert done.status == 0, done.stderr
    wanted = {**staged.truths, "own-0": own}
    with life(brokers, home, 3) as first:
        first.observe(wanted).require(wanted)
        assert first.go_on(staged.truths) == {}
    with life(brokers, home, 4) as second:
        require_growth(second.observe({}), staged.truths)
    new = findings(kafkalog, home / "log") - before
    assert {reference for _, reference in new} <= OF_NEW_PRODUCERS


def raise_epochs(brokers: Brokers, kafkalog: Run, home: Path, words: tuple[object, ...]) -> None:
    """Restart the node until the metadata has the leader epochs of the logs."""
    for _ in range(LIVES_MAX):
        plan = kafkalog(*words, "--dry-run")
        if plan.status == 0:
            break
        assert "The leader epoch of the log is" in plan.stderr
        with life(brokers, home):
            pass


@pytest.mark.thorough(
    "tests/kafka/test_returned_partitions.py::test_partitions_come_into_the_log_directory_of_a_killed_broker"
)
def test_partitions_are_served_by_the_broker_they_are_put_into(
    brokers: Brokers, kafkalog: Run, corpus_dir: Path, tmp_path: Path
) -> None:
    """Its topics are new and empty; afterwards clients get the recorded answers, and can append."""
    staged = staged_sources(corpus_dir, tmp_path / "staged")
    home = tmp_path / "home"
    home.mkdir()
    (home / "server.properties").write_text(NODE.format(log_dir=home / "log"))
    brokers.ask("format", home / "server.properties", "MkU3OEVBNTcwNTJENDM2Qk")
    topics = sorted(name.rpartition("-")[0] for name in staged.truths)
    agreed = [word for topic in topics for word in ("--topic-id", f"{topic}=new")]
    words = ("resurrect", staged.root, "--apply", "--into", home / "log", *agreed, "-o", "ndjson")
    with life(brokers, home):
        brokers.ask("create", "node", topics)
    raise_epochs(brokers, kafkalog, home, words)
    before = findings(kafkalog, staged.root)
    done = kafkalog(*words)
    assert done.status == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    moved = [row for row in rows if row["type"] == "resurrected_partition"]
    assert sorted(row["to"] for row in moved) == sorted(staged.truths)
    with life(brokers, home, 2) as first:
        first.observe(staged.truths).require(staged.truths)
        assert first.go_on(staged.truths) == {}
    with life(brokers, home, 3) as second:
        require_growth(second.observe({}), staged.truths)
    new = findings(kafkalog, home / "log") - before
    assert {reference for _, reference in new} <= OF_NEW_PRODUCERS
