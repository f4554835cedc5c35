"""Stock brokers on resurrected directories: clients are told what was recorded before."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import STATES_28, STATES_43, state
from tests.kafka.booted import (
    ABORTING,
    Staged,
    Truth,
    life,
    require_growth,
    require_sound,
    resurrect,
    truths,
)
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.kafka.booted import Brokers, Run, Told
    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

def users(partitions: Mapping[str, Truth]) -> dict[str, Truth]:
    return {name: truth for name, truth in partitions.items() if not name.startswith("__")}


def staged_states(corpus_dir: Path, root: Path) -> Staged:
    """The partitions with user data of a share of all recordings, without any metadata."""
    staged = Staged(root)
    for kind in ("kafka-4.3", "kafka-2.8", "foreign"):
        for expected in sampled(sorted((corpus_dir / kind).glob("*.expected")), 3):
            recorded = expected.with_suffix("")
            for name, truth in truths(expected):
                places = [recorded / name, *recorded.glob(f"*/{name}")]
                [source] = [path for path in places if path.is_dir()]
                if not name.startswith("__"):
                    staged.add(source, f"{kind}.{recorded.name}.{name}", truth)
    return staged


def test_partitions_of_many_brokers_are_served_without_their_metadata(
    brokers: Brokers, kafkalog: Run, corpus_dir: Path, tmp_path: Path
) -> None:
    """Records, read_committed, ListOffsets; then they grow."""
    staged = staged_states(corpus_dir, tmp_path / "staged")
    resurrect(kafkalog, tmp_path / "new", staged.root)
    require_served_and_grown(brokers, kafkalog, tmp_path / "new", staged.truths)


def require_served_and_grown(
    brokers: Brokers, kafkalog: Run, home: Path, before: Mapping[str, Truth]
) -> None:
    """Nobody knows the transactions that were open: they stay so."""
    require_sound(kafkalog, home / "log", "transaction-hanging")
    with life(brokers, home) as first:
        first.observe(before).require(before)
        assert first.go_on(before) == []
    require_sound(kafkalog, home / "log", "transaction-hanging")
    with life(brokers, home, 2) as second:
        require_growth(second.observe({}), before)


MIXES = (
    ("4.3", ("internal-topics", "codecs", "retention-0-before", "timestamps")),
    ("4.3", ("txn", "crash-0-kill9", "interrupted-0-cleaned", "default-config-live")),
    ("4.3", ("compact-1-first-pass", "jbod-restarted", "crash-2-recovered")),
    ("4.3", ("txn-v0", "interrupted-3-cleaned-recovered", "retention-1-after-live")),
    ("4.3", ("compact-2-later-passes", "interrupted-2-swap-recovered", "default-config-clean")),
    ("2.8", ("upgrade", "v0", "v1", "compact-after2")),
)
"""Log directories in which no two topics have one name."""


@pytest.mark.parametrize("release, names", MIXES, ids=lambda value: value if isinstance(value, str) else value[0])
def test_log_directories_of_several_brokers_become_one(
    brokers: Brokers, kafkalog: Run, corpus_dir: Path, tmp_path: Path, release: str, names: tuple[str, ...]
) -> None:
    """With topic ids, configs, groups and transactional ids."""
    states = [state(corpus_dir, f"kafka-{release}", name) for name in names]
    log_dirs = [path for one in states for path in one.log_dirs]
    before = {name: truth for one in states for name, truth in truths(one.expected)}
    rows = resurrect(kafkalog, tmp_path / "new", *log_dirs)
    require_checkpoint(brokers, tmp_path / "new" / "log", rows)
    with life(brokers, tmp_path / "new") as first:
        told = first.observe(before)
        told.require(users(before))
        for one in states:
            require_topics(told, one.expected)
            require_groups(told, one.expected)
        assert first.go_on(users(before)) == []
    with life(brokers, tmp_path / "new", 2, ABORTING) as second:
        require_growth(second.await_stable(), users(before))
    require_sound(kafkalog, tmp_path / "new" / "log")


def require_checkpoint(brokers: Brokers, log_dir: Path, rows: list[dict[str, Any]]) -> None:
    """Kafka reads from `bootstrap.checkpoint` the records that were told."""
    read = brokers.ask("checkpoint", log_dir)
    told = [row for row in rows if row["type"] == "metadata_record"]
    names = [re.sub("(?<!^)(?=[A-Z])", "_", row["record"]).upper() for row in told]
    assert [(one["type"], one["version"]) for one in read] == [
        (name, row["version"]) for name, row in zip(names, told, strict=True)
    ]


def require_topics(told: Told, expected: Path) -> None:
    """Ids are kept, configs too, but that nothing is deleted by its age or by size."""
    for name, recorded in json.loads((expected / "state.json").read_text())["topics"].items():
        topic = told.report["topics"][name]
        if "topicId" not in recorded:
            continue
        assert topic["id"] == recorded["topicId"]
        kept = {
            key: value
            for key, value in recorded["configs"].items()
            if not key.startswith(("retention.", "internal."))
        }
        assert {key: topic["configs"].get(key) for key in kept} == kept, name
        if not topic["internal"]:
            assert topic["configs"]["retention.ms"] == topic["configs"]["retention.bytes"] == "-1"


def require_groups(told: Told, expected: Path) -> None:
    """Committed offsets are those that an admin client was told."""
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


def test_logs_that_kafka_recovered_are_served(
    brokers: Brokers, oracle: Oracle, kafkalog: Run, corpus_dir: Path, tmp_path: Path
) -> None:
    """Each is what Kafka's own loader made of a damaged log; its records are those of that log."""
    staged = Staged(tmp_path / "staged")
    for place in sampled(sorted((corpus_dir / "recovery").iterdir()), 3):
        facts = json.loads((place / "facts.json").read_text())["modes"]["full"]
        if "log" not in facts:
            continue
        partition = tmp_path / "recovered" / place.name / "orders-0"
        shutil.copytree(place / "orders-0", partition)
        start = str(facts["log"]["logStartOffset"])
        answer = oracle.ask("load", partition, "--recovery-point", "0", "--log-start", start)
        assert answer["log"]["logEndOffset"] == facts["log"]["logEndOffset"], place.name
        truth = recovered_truth(oracle.ask("describe", partition, "--records"), answer["log"])
        staged.add(partition, place.name, truth)
    resurrect(kafkalog, tmp_path / "new", staged.root)
    require_served_and_grown(brokers, kafkalog, tmp_path / "new", staged.truths)


def recovered_truth(described: dict[str, Any], log: dict[str, Any]) -> Truth:
    """The log that Kafka's storage classes have recovered, as a consumer would be given it."""
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
    """Bytes as the oracle shows them: text."""
    return None if content is None else content.encode().hex()
