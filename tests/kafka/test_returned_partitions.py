"""Partitions of other brokers that `resurrect --into` puts into a broker's own log directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.conftest import state
from tests.kafka.booted import Staged, findings, life, require_growth, truths

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.booted import Brokers, Run

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


def test_partitions_are_served_by_the_broker_they_are_put_into(
    brokers: Brokers, kafkalog: Run, corpus_dir: Path, tmp_path: Path
) -> None:
    """Its topics are new and empty; afterwards clients are told what was recorded, and go on."""
    staged = Staged(tmp_path / "staged")
    for release, name in SOURCES:
        one = state(corpus_dir, release, name)
        for partition, truth in truths(one.expected):
            places = [path / partition for path in one.log_dirs if (path / partition).is_dir()]
            if places and truth.is_stable and not partition.startswith("__"):
                staged.add(places[0], f"{name}.{partition}", truth)
    home = tmp_path / "home"
    home.mkdir()
    (home / "server.properties").write_text(NODE.format(log_dir=home / "log"))
    brokers.ask("format", home / "server.properties", "MkU3OEVBNTcwNTJENDM2Qk")
    topics = sorted(name.rpartition("-")[0] for name in staged.truths)
    agreed = [word for topic in topics for word in ("--topic-id", f"{topic}=new")]
    words = ("resurrect", staged.root, "--into", home / "log", *agreed, "--format", "ndjson")
    with life(brokers, home):
        brokers.ask("create", "node", topics)
    for _ in range(LIVES_MAX):
        plan = kafkalog(*words, "--dry-run")
        if plan.status == 0:
            break
        assert "The leader epoch of the log is" in plan.stderr
        with life(brokers, home):
            pass  # a start raises the epochs of the metadata
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
