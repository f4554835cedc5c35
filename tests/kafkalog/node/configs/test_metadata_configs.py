"""Configs in the metadata log, made with struct, and those of real brokers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kafkalog.node.configs import ConfigSources
from kafkalog.node.configs.definitions import DEFINITIONS
from kafkalog.node.configs.sources import Setting, read_metadata_configs
from tests.builders import batch, flip, record
from tests.conftest import OF_KAFKA_4, STATES_43, state

if TYPE_CHECKING:
    from pathlib import Path

EVENTS, OTHERS = b"E" * 16, b"O" * 16
SNAPSHOT = "00000000000000000010-0000000001.checkpoint"


def compact(text: str) -> bytes:
    return bytes([len(text) + 1]) + text.encode()


def topic(name: str, topic_id: bytes) -> bytes:
    return b"\x01\x02\x00" + compact(name) + topic_id + b"\0"


def removed(topic_id: bytes) -> bytes:
    return b"\x01\x09\x00" + topic_id + b"\0"


def config(name: str, value: str | None, resource: str = "events", kind: int = 2) -> bytes:
    text = b"\0" if value is None else compact(value)
    return b"\x01\x04\x00" + bytes([kind]) + compact(resource) + compact(name) + text + b"\0"


BEGIN, END, ABORT = (b"\x01" + bytes([kind]) + b"\0\0" for kind in (23, 24, 25))


def log_dir(root: Path, values: list[bytes], first: int = 0, *, snapshot: bool = False) -> str:
    """Make a log directory whose metadata log, or snapshot, holds these records, one per batch."""
    place = root / "__cluster_metadata-0"
    place.mkdir(parents=True, exist_ok=True)
    batches = [batch(first + number, [record(value=value)]) for number, value in enumerate(values)]
    name = SNAPSHOT if snapshot else f"{first:020}.log"
    (place / name).write_bytes(b"".join(batches))
    return str(root)


def of_events(path: str) -> dict[str, Setting]:
    found = read_metadata_configs(path)
    assert found is not None
    return found.of_topic("events")


def test_the_latest_value_counts(tmp_path: Path) -> None:
    """A later record replaces an earlier one; a record without a value removes it."""
    path = log_dir(tmp_path, [
        topic("events", EVENTS), config("retention.ms", "1"), config("segment.ms", "5"),
        config("retention.ms", "2"), config("segment.ms", None), config("retention.ms", "9", "o"),
    ])  # fmt: skip
    assert of_events(path) == {"retention.ms": Setting("2", "offset 3")}


def test_a_removed_topic_takes_its_configs_along(tmp_path: Path) -> None:
    """A topic that was created again starts without the configs of the previous one."""
    path = log_dir(tmp_path, [
        topic("events", EVENTS), config("retention.ms", "1"), removed(EVENTS),
        topic("events", OTHERS), config("segment.ms", "7"),
    ])  # fmt: skip
    assert of_events(path) == {"segment.ms": Setting("7", "offset 4")}


def test_a_transaction_counts_when_it_ends(tmp_path: Path) -> None:
    """Aborted and unfinished transactions have no effect."""
    path = log_dir(tmp_path, [
        BEGIN, config("retention.ms", "1"), END, BEGIN, config("retention.ms", "2"), ABORT,
        BEGIN, config("retention.ms", "3"),
    ])  # fmt: skip
    assert of_events(path) == {"retention.ms": Setting("1", "offset 1")}


def test_the_log_goes_on_behind_a_snapshot(tmp_path: Path) -> None:
    """A snapshot stands for all records below its offset, whatever the log still holds."""
    log_dir(tmp_path, [topic("events", EVENTS), config("segment.ms", "5")], snapshot=True)
    path = log_dir(tmp_path, [config("segment.ms", "8"), config("retention.ms", "4")], first=9)
    assert of_events(path) == {
        "segment.ms": Setting("5", SNAPSHOT),
        "retention.ms": Setting("4", "offset 10"),
    }


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path) -> None:
    """The log from its start has the same records, as far as it still exists."""
    log_dir(tmp_path, [topic("events", EVENTS), config("segment.ms", "5")], snapshot=True)
    path = log_dir(tmp_path, [config("segment.ms", "8")], first=3)
    snapshot = tmp_path / "__cluster_metadata-0" / SNAPSHOT
    snapshot.write_bytes(flip(snapshot.read_bytes(), 8 * 70))
    assert of_events(path) == {"segment.ms": Setting("8", "offset 3")}


def test_dynamic_configs_of_brokers_lie_below_those_of_topics(tmp_path: Path) -> None:
    """A broker's own come before those of all brokers; a topic's before both."""
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=7\n")
    path = log_dir(tmp_path, [
        config("log.retention.ms", "1", "", 4), config("log.retention.ms", "2", "7", 4),
        config("log.roll.ms", "3", "", 4), config("log.roll.ms", "9", "8", 4),
        config("segment.ms", "4"),
    ])  # fmt: skip
    configs = ConfigSources().in_log_dir(path)
    values = {
        (name, one): configs.of_topic(name)[one].value
        for name in ("events", "others")
        for one in ("retention.ms", "segment.ms")
    }
    assert values == {
        ("events", "retention.ms"): 2,
        ("events", "segment.ms"): 4,
        ("others", "retention.ms"): 2,
        ("others", "segment.ms"): 3,
    }
    source = configs.of_topic("others")["retention.ms"]
    assert (source.source, source.set_as) == ("__cluster_metadata-0 offset 1", "log.retention.ms")


def test_an_unknown_version_is_counted(tmp_path: Path) -> None:
    """It is neither guessed nor ignored silently."""
    path = log_dir(tmp_path, [b"\x01\x04\x09" + config("retention.ms", "1")[3:]])
    found = read_metadata_configs(path)
    assert found is not None
    assert (found.unknown, found.settings) == (1, {})


def test_a_log_directory_without_metadata_has_none(tmp_path: Path) -> None:
    """Brokers with ZooKeeper have none; of several directories of a broker, only one has it."""
    assert read_metadata_configs(str(tmp_path)) is None


# What DescribeConfigs answered at the end is not what the directory holds: the copy was made
# before a last change, or the metadata log lies in another directory of the broker.
ELSEWHERE = {"interrupted-0-cleaned", "jbod-live", "jbod-restarted"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("release", "name"),
    [one for one in OF_KAFKA_4 if one[1] not in (*ELSEWHERE, "features-4.4-killed")],
    ids=lambda word: word,
)
def test_configs_are_those_a_broker_described(
    release: str, name: str, corpus_dir: Path, tmp_path: Path
) -> None:
    """Every config that a real broker described, from its properties and its metadata log."""
    found = state(corpus_dir, release, name)
    facts = json.loads((found.expected / "state.json").read_text())
    properties = tmp_path / "server.properties"
    lines = [f"{key}={value}\n" for key, value in facts.get("brokerProperties", {}).items()]
    properties.write_text("".join(lines))
    for log_dir in found.log_dirs:
        sources = ConfigSources(properties=str(properties))
        configs = sources.in_log_dir(str(log_dir))
        for topic_name, described in facts.get("topics", {}).items():
            for key, text in described["configs"].items():
                key = key.removeprefix("internal.")
                got = configs.of_topic(topic_name)[key].value
                wanted = {
                    float: float,
                    bool: lambda word: word == "true",
                    int: int,
                    str: str,
                    tuple: lambda words: tuple(words.split(",")),
                }[type(got)](text)
                assert got == wanted, (topic_name, key)


def test_the_exceptions_are_needed(corpus_dir: Path) -> None:
    """In each of these states, the configs are in another directory of the same broker."""
    assert set(STATES_43) >= ELSEWHERE
    logs = sorted((corpus_dir / "kafka-4.3" / "jbod-live").iterdir())
    has_metadata = [read_metadata_configs(str(path)) is not None for path in logs]
    assert sorted(has_metadata) == [False, True]
    source = str(logs[has_metadata.index(True)])
    other = str(logs[has_metadata.index(False)])
    topics = ConfigSources(metadata_dir=source).in_log_dir(other)
    assert topics.of_topic("jbod")["segment.bytes"].value == 20000
    assert ConfigSources().in_log_dir(other).of_topic("jbod")["segment.bytes"].value == 1 << 30


def test_large_metadata_logs_are_read_by_the_kernels(tmp_path: Path) -> None:
    """Some thousand records that say nothing about configs, and a few that do."""
    idle = b"\x01\x14\x00\0" + bytes(0)
    values = [idle] * 3000 + [config("retention.ms", "5")] + [idle] * 100
    path = log_dir(tmp_path, values)
    assert (tmp_path / "__cluster_metadata-0" / f"{0:020}.log").stat().st_size > 128 << 10
    assert of_events(path) == {"retention.ms": Setting("5", "offset 3000")}


def test_every_definition_has_a_default_of_its_kind() -> None:
    """A default that no source could set would be a mistake in the table."""
    kinds = {"int": int, "long": int, "double": float, "boolean": bool, "string": str,
             "list": tuple}  # fmt: skip
    for definition in DEFINITIONS.values():
        assert type(definition.default) is kinds[definition.kind], definition.name
