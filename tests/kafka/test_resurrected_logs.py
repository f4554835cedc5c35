"""Stock brokers on resurrected directories: clients get the answers that were recorded before."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import State, state
from tests.kafka import broker_data
from tests.kafka.booted import (
    ABORTING,
    Staged,
    Truth,
    findings,
    life,
    require_growth,
    resurrect,
    truths,
)
from tests.kafka.oracle import config_words
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.kafka.booted import Brokers, Run, Told
    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka


KNOWN = tuple(f"kafka-{one}" for one in broker_data.KNOWN)


def users(partitions: Mapping[str, Truth]) -> dict[str, Truth]:
    return {name: truth for name, truth in partitions.items() if not name.startswith("__")}


def staged_states(corpus_dir: Path, root: Path) -> Staged:
    """Stage the partitions with user data of some recordings, without any metadata."""
    staged = Staged(root)
    for kind in (*KNOWN, "kafka-2.8", "foreign"):
        for expected in sampled(sorted((corpus_dir / kind).glob("*.expected")), 16):
            recorded = expected.with_suffix("")
            for name, truth in truths(expected):
                places = [recorded / name, *recorded.glob(f"*/{name}")]
                found = [path for path in places if path.is_dir()]
                if not found and next(recorded.glob(f"*/{name}.*-delete"), None):
                    continue  # its topic is being deleted
                [source] = found
                if not name.startswith("__"):
                    staged.add(source, f"{kind}.{recorded.name}.{name}", truth)
    return staged


def test_partitions_of_many_brokers_are_served_without_their_metadata(
    brokers: Brokers, kafkalog: Run, corpus_dir: Path, tmp_path: Path
) -> None:
    """Clients get the same records, offsets and ListOffsets answers; then the logs grow."""
    staged = staged_states(corpus_dir, tmp_path / "staged")
    require_served_and_grown(brokers, kafkalog, staged, tmp_path / "new")


def require_served_and_grown(brokers: Brokers, kafkalog: Run, staged: Staged, home: Path) -> None:
    """Require that a broker serves the partitions and appends.

    Nobody knows the transactions that were open: they stay open, and `verify` reports them later.
    """
    resurrect(kafkalog, home, staged.root)
    before = findings(kafkalog, staged.root)
    assert findings(kafkalog, home / "log") <= before
    with life(brokers, home) as first:
        first.observe(staged.truths).require(staged.truths)
        assert first.go_on(staged.truths) == {}
    left = findings(kafkalog, home / "log")
    opened = {name for name, truth in staged.truths.items() if not truth.is_stable}
    assert left <= before | {(name, "transaction-hanging") for name in opened}
    with life(brokers, home, 2) as second:
        require_growth(second.observe({}), staged.truths)


MIXES = (
    ("kafka-4.4", "internal-topics", "codecs", "retention-0-before"),
    ("kafka-4.4", "txn", "crash-0-kill9", "default-config-live"),
    ("kafka-4.4", "compact-1-first-pass", "jbod-restarted", "crash-2-recovered"),
    ("kafka-4.3", "internal-topics", "codecs", "retention-0-before", "timestamps"),
    ("kafka-4.3", "txn", "crash-0-kill9", "interrupted-0-cleaned", "default-config-live"),
    ("kafka-4.3", "compact-1-first-pass", "jbod-restarted", "crash-2-recovered"),
    ("kafka-4.3", "txn-v0", "interrupted-3-cleaned-recovered", "retention-1-after-live"),
    ("kafka-4.3", "compact-2-later-passes", "interrupted-2-swap-recovered", "jbod-live"),
    ("kafka-2.8", "upgrade", "v0", "v1", "compact-after2"),
)
"""Log directories in which no two topics have one name."""
ALTERED = ("min.cleanable.dirty.ratio",)
"""What was changed after it was recorded."""


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    "mix",
    [mix for mix in MIXES if mix[0] in (*KNOWN, "kafka-2.8")],
    ids=lambda mix: f"{mix[0]}-{mix[1]}",
)
def test_log_directories_of_several_brokers_become_one(
    brokers: Brokers, kafkalog: Run, corpus_dir: Path, tmp_path: Path, mix: tuple[str, ...]
) -> None:
    """They have topic ids, configs and groups; the coordinator aborts open transactions."""
    release, *names = mix
    states = [state(corpus_dir, release, name) for name in names]
    log_dirs = [path for one in states for path in one.log_dirs]
    before = {
        name: truth
        for one in states
        for name, truth in truths(one.expected)
        if any((log_dir / name).exists() for log_dir in one.log_dirs)
    }
    rows = resurrect(kafkalog, tmp_path / "new", *log_dirs)
    require_checkpoint(brokers, tmp_path / "new" / "log", rows)
    with life(brokers, tmp_path / "new") as first:
        told = first.observe(before)
        told.require(users(before))
        for one in states:
            require_topics(told, one)
            require_groups(told, one.expected)
        assert first.go_on(users(before)) == {}
    with life(brokers, tmp_path / "new", 2, ABORTING) as second:
        require_growth(second.await_stable(), users(before))
    assert findings(kafkalog, tmp_path / "new" / "log") == set()


def require_checkpoint(brokers: Brokers, log_dir: Path, rows: list[dict[str, Any]]) -> None:
    """Require that Kafka and its shell read everything but secrets from `bootstrap.checkpoint`."""
    read = brokers.ask("checkpoint", log_dir)
    told = [row for row in rows if row["type"] == "metadata_record"]
    assert len(read) == len(told)
    for one, row in zip(read, told, strict=True):
        assert one["type"] == re.sub("(?<!^)(?=[A-Z])", "_", row["record"]).upper()
        assert one["version"] == row["version"]
        shown = {name: value for name, value in row["data"].items() if value is not None}
        assert {name: one["data"][name] for name in shown} == shown
        assert one["data"].keys() == row["data"].keys()
    tree = brokers.ask("shell", log_dir / "bootstrap.checkpoint")["tree"]
    topics = [row["topic"] for row in rows if row["type"] == "resurrected_topic"]
    assert topics
    assert [topic for topic in topics if f"TOPIC:{topic}:" not in tree] == []


def require_topics(told: Told, one: State) -> None:
    """Require that ids and configs are kept, but that nothing is deleted by age or size.

    A topic that was being deleted is gone, as after the start of a broker.
    """
    live = {path.name.rpartition("-")[0] for path in one.partitions()}
    topics = json.loads((one.expected / "state.json").read_text())["topics"]
    assert topics.keys() & live
    for name, recorded in topics.items():
        if name not in live or "topicId" not in recorded:
            continue
        topic = told.report["topics"][name]
        assert topic["id"] == recorded["topicId"]
        kept = {
            key: value
            for key, value in recorded["configs"].items()
            if not key.startswith(("retention.", "internal.")) and key not in ALTERED
        }
        assert {key: topic["configs"].get(key) for key in kept} == kept, name
        if not topic["internal"]:
            assert topic["configs"]["retention.ms"] == topic["configs"]["retention.bytes"] == "-1"


def require_groups(told: Told, expected: Path) -> None:
    """Require that committed offsets are those that an admin client saw."""
    committed = json.loads((expected / "state.json").read_text()).get("committedOffsets", {})
    if (expected / "groups.json").exists():
        committed = {
            name: {f"{one['topic']}-{one['partition']}": one for one in group["offsets"]}
            for name, group in json.loads((expected / "groups.json").read_text()).items()
        }
    for name, offsets in committed.items():
        assert told.report["groups"][name]["offsets"] == {
            partition: [one["offset"], one.get("leaderEpoch", -1), one["metadata"]]
            for partition, one in offsets.items()
        }, name


UNREADABLE = ("magic_3", "offset_backwards", "txnindex_version_7")
"""Kafka starts on them, but a consumer stops at a batch, or leaves one out; 4.4 does not start on
the last."""


def test_logs_that_kafka_recovered_are_served(
    brokers: Brokers, oracle: Oracle, kafkalog: Run, corpus_dir: Path, tmp_path: Path
) -> None:
    """Kafka's own loader recovered each damaged log; the new broker serves the same records."""
    staged = Staged(tmp_path / "staged")
    for place in sampled(sorted((corpus_dir / "recovery").iterdir()), 16):
        facts = json.loads((place / "facts.json").read_text())
        wanted = facts["modes"]["full"].get("log")
        if wanted is None or place.name in UNREADABLE:
            continue  # Kafka does not start on it
        partition = tmp_path / "recovered" / place.name / "orders-0"
        shutil.copytree(place / "orders-0", partition)
        configs = [*config_words(facts["topicConfig"]), "--now", str(facts["now"])]
        start = str(facts["logStartCheckpoint"])
        words = ["--recovery-point", "0", "--log-start", start, *configs]
        log = oracle.ask("load", partition, *words)["log"]
        assert log["logEndOffset"] == wanted["logEndOffset"], place.name
        checkpoint = f"0\n1\norders 0 {log['logStartOffset']}\n"
        (partition.parent / "log-start-offset-checkpoint").write_text(checkpoint)
        truth = recovered_truth(oracle.ask("describe", partition, "--records"), log)
        staged.add(partition, place.name, truth)
    require_served_and_grown(brokers, kafkalog, staged, tmp_path / "new")


def recovered_truth(described: dict[str, Any], log: dict[str, Any]) -> Truth:
    """Return the log that Kafka's storage classes have recovered, as a consumer would get it."""
    start, end = log["logStartOffset"], log["logEndOffset"]
    records = [
        {
            "offset": record["o"],
            "timestamp": record["ts"],
            "timestampType": "CreateTime",
            "key": as_hex(record["k"]),
            "value": as_hex(record["v"]),
            "headers": [[name, as_hex(value)] for name, value in record.get("h", ())],
        }
        for segment in described["segments"]
        if re.fullmatch(r"\d+\.log", segment["file"])
        for batch in segment["batches"]
        for record in batch["records"]
        if "control" not in record and record["o"] >= start
    ]
    unstable = log["firstUnstableOffset"]
    stable = end if unstable is None else unstable
    specials = {"earliest": [start, -1, -1], "latest": [end, -1, -1]}
    committed = {**specials, "latest": [stable, -1, -1]}
    return Truth(records, None, {"read_uncommitted": specials, "read_committed": committed})


def as_hex(content: str | None) -> str | None:
    """Return bytes as the oracle shows them, as text."""
    return None if content is None else content.encode().hex()
