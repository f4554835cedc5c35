"""Predicted starts, compared with what Kafka 4.3's loader did with the same 117 directories.

For a start after a clean shutdown, an unclean one and one with recovery point 0, a scenario's
`facts.json` holds what the loaded log reported and the files on disk after it was closed again.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.files.log_dir import LogDirListing, open_path
from kafkalog.io.jit import fast_path
from kafkalog.io.paths.source import Source
from kafkalog.node.recovery import (
    Consequence,
    NodeDir,
    NodeStart,
    PredictedStart,
    StartConfig,
    StartMode,
    Verdict,
    predict_start,
    start_line,
)
from kafkalog.node.recovery.segment_state import count_records
from tests.builders import batch, message, record, write_log
from tests.checkout import ROOT
from tests.kafka.damaged_logs import Damage
from tests.kafkalog import replay
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = StartConfig(index_interval_bytes=200, segment_index_bytes=65536, now_ms=1_700_086_400_000)
SCENARIO_COUNT = 117
PARTITION = "orders-0"
METADATA = ROOT / "examples" / "log-dir" / "__cluster_metadata-0"
# What is not compared, and why.
EXCLUDED = {
    "nextOffset": "of inactive segments no start asks for it; that of the active one is the "
    "log end offset, which is compared",
    "files after a refusal": "the failed process leaves preallocated indexes half written",
    "order in a producer snapshot": "that of a hash table in Java; the producers are compared",
    "recordOffsets": "follow from the logs, which are compared byte for byte",
}


@dataclass(frozen=True)
class Scenario:
    """A damaged log directory, and what Kafka made of it."""

    path: Path
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        return self.path.name

    def copy(self, target: Path) -> Path:
        """Copy the log directory; return the copy's partition."""
        shutil.copytree(self.path, target / self.name)
        return target / self.name / PARTITION

    def copy_of_4_3(self, target: Path) -> Path:
        """Copy it as `copy`, beside a metadata log of the release whose starts were recorded."""
        partition = self.copy(target)
        shutil.copytree(METADATA, partition.parent / METADATA.name)
        return partition


@pytest.fixture(scope="module")
def scenarios(corpus_dir: Path) -> list[Scenario]:
    found = [
        Scenario(path, json.loads((path / "facts.json").read_text()))
        for path in sorted((corpus_dir / "recovery").iterdir())
        if path.is_dir()
    ]
    assert len(found) == SCENARIO_COUNT
    return found


@pytest.fixture
def scenario(scenarios: list[Scenario]) -> Any:
    return lambda name: next(found for found in scenarios if found.name == name)


def differences(scenario: Scenario, mode: StartMode, partition: Path) -> list[str]:
    """Return the differences between the start of a copy and Kafka's."""
    wanted = scenario.facts["modes"][mode]
    predicted = replay.predict_and_perform(partition, mode, CONFIG)
    if "error" in wanted:
        error = predicted.refusal and predicted.refusal.error
        return [] if error == wanted["error"].rpartition(".")[2] else [f"refusal: {error}"]
    if predicted.refusal is not None:
        return [f"refused: {predicted.refusal}"]
    pairs = {"snapshots": (replay.snapshots(partition), by_producer(wanted["producerSnapshots"]))}
    for name, got in replay.loaded_facts(predicted).items():
        kafkas = wanted["log"][name]
        if name == "segments":
            kafkas = [{key: fact[key] for key in fact if key not in EXCLUDED} for fact in kafkas]
        pairs[f"log {name}"] = (got, kafkas)
    got_files, kafka_files = replay.files(partition), wanted["files"]
    for name in sorted({*got_files, *kafka_files}):
        kafkas = kafka_files.get(name)
        if kafkas and name.endswith(".snapshot"):
            kafkas = [kafkas[0], "-"]
        pairs[name] = (got_files.get(name), kafkas)
    return [f"{what}: {got} != {kafkas}" for what, (got, kafkas) in pairs.items() if got != kafkas]


def by_producer(snapshots: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    return {
        name: sorted(producers, key=lambda fields: fields["producerId"])
        for name, producers in snapshots.items()
    }


@pytest.mark.parametrize("mode", StartMode)
def test_a_predicted_start_is_kafkas(
    scenarios: list[Scenario], mode: StartMode, tmp_path: Path
) -> None:
    """Offsets, segments, index entries, producers, epochs, exception, and each file's bytes.

    The predicted actions are performed on a copy, to show that they are complete.
    """
    wrong = {
        scenario.name: found
        for scenario in sampled(scenarios, 2)
        if (found := differences(scenario, mode, scenario.copy_of_4_3(tmp_path)))
    }
    assert not wrong, json.dumps(wrong, indent=1)


def test_refusals_are_in_the_data(scenarios: list[Scenario]) -> None:
    """A comparison in which no start fails, or every one does, would prove little."""
    errors = [
        facts["error"]
        for scenario in scenarios
        for facts in scenario.facts["modes"].values()
        if "error" in facts
    ]
    assert len(errors) > 30
    assert len(set(errors)) >= 5


@pytest.mark.parametrize("mode", StartMode)
def test_records_lost_are_those_that_are_gone(scenarios: list[Scenario], mode: StartMode) -> None:
    """Batch headers give the counts, if Kafka can read the whole log before the start."""
    compared = 0
    for scenario in scenarios:
        before, after = scenario.facts["recordCountBefore"], scenario.facts["modes"][mode]
        predicted = predict_start(str(scenario.path / PARTITION), mode, config=CONFIG)
        if before is None or predicted.verdict != Verdict.TRUNCATE:
            continue
        if scenario.name == "size_huge":
            continue  # Kafka's count ends at the wrong length, ours finds the batches behind it
        compared += 1
        assert predicted.lost_records == before - after["recordCount"], scenario.name
    assert mode == StartMode.CLEAN or compared > 10


def test_the_mode_is_what_the_log_directory_says(scenario: Any, tmp_path: Path) -> None:
    """The clean shutdown marker alone decides; without it, the checkpoint gives the offset."""
    partition = scenario("intact").copy(tmp_path)
    unclean = predict_start(str(partition), config=CONFIG)
    assert (unclean.mode, unclean.recovery_point) == (StartMode.UNCLEAN, 51)
    assert not unclean.assumptions
    (partition.parent / ".kafka_cleanshutdown").write_text("{}")
    assert predict_start(str(partition), config=CONFIG).mode == StartMode.CLEAN


def test_a_partition_without_its_log_directory_is_scanned_whole(
    scenario: Any, tmp_path: Path
) -> None:
    """As by a broker that finds neither marker nor checkpoint. The prediction states that."""
    alone = tmp_path / "alone" / PARTITION
    shutil.copytree(scenario("crc_old_segment").path / PARTITION, alone)
    predicted = predict_start(str(alone), config=CONFIG)
    assert predicted.recovery_point == 0
    assert "recovery point 0" in predicted.assumptions[0]
    assert start_line(predicted) == (
        "truncate to offset 27, losing 39 records (2318 bytes, with 2 whole segments)"
    )


@pytest.mark.parametrize("size_min", [0, fast_path.FAST_SIZE_MIN])
def test_records_in_compressed_messages_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_min: int
) -> None:
    """Their headers do not say how many there are; one that cannot be decoded counts as one."""
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
    inner = b"".join(message(offset, magic=0) for offset in range(3))
    path = write_log(
        tmp_path,
        message(2, value=gzip.compress(inner), magic=0, attributes=1),
        message(3, value=b"no gzip", magic=0, attributes=1),
        message(4, magic=0),
        batch(5, [record(0), record(1)]),
    )
    with Source(str(path)) as source:
        assert count_records(source, 0, source.size_bytes) == 7


@pytest.mark.parametrize(
    ("name", "mode", "line"),
    [
        ("intact", StartMode.CLEAN, "nothing"),
        ("intact", StartMode.FULL, "nothing"),
        ("crc_active_mid", StartMode.CLEAN, "nothing"),
        ("crc_active_mid", StartMode.UNCLEAN, "truncate to offset 56, losing 10 records (547 byte"),
        ("torn_keep_1", StartMode.UNCLEAN, "truncate to offset 65, dropping an incomplete batch"),
        ("index_missing_old", StartMode.CLEAN, "rebuild the indexes of 1 segment"),
        ("swap_c_swap_sources_intact", StartMode.CLEAN, "clean up: remove "),
        ("zeros_100", StartMode.CLEAN, "refuse: CorruptRecordException: Found record size 0 "),
        ("logstart_above_leo", StartMode.CLEAN, "truncate to offset 1000000, losing 66 records "),
    ],
)
def test_one_line_says_what_a_start_comes_to(
    scenario: Any, name: str, mode: StartMode, line: str
) -> None:
    predicted = predict_start(str(scenario(name).path / PARTITION), mode, config=CONFIG)
    assert start_line(predicted).startswith(line)


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("torn_keep_16", "segment 51 ends with 16 bytes that are no batch and stay"),
        ("index_beyond_data_active", "the log end offset falls back to the base offset"),
        ("epoch_missing", "leader-epoch-checkpoint is empty"),
        ("metadata_missing", "partition.metadata is missing"),
    ],
)
def test_what_a_clean_start_does_not_notice_is_noted(scenario: Any, name: str, note: str) -> None:
    predicted = predict_start(str(scenario(name).path / PARTITION), StartMode.CLEAN, config=CONFIG)
    assert any(note in found for found in predicted.notes)


def test_predicting_changes_nothing(scenarios: list[Scenario], tmp_path: Path) -> None:
    """No byte, name or time changes."""
    for scenario in sampled(scenarios, 3):
        partition = scenario.copy(tmp_path)
        before = stamps(partition)
        for mode in StartMode:
            predict_start(str(partition), mode, config=CONFIG)
        assert stamps(partition) == before


def stamps(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in directory.iterdir()
    }


@pytest.mark.parametrize(
    ("name", "consequence"),
    [
        ("intact", None),
        ("epoch_garbage", Consequence.LOG_DIR_OFFLINE),
        ("file_foo_log", Consequence.BROKER_FAILS),
    ],
)
def test_a_refusal_reaches_the_log_directory_or_the_broker(
    scenario: Any, name: str, consequence: Consequence | None, tmp_path: Path
) -> None:
    """I/O errors take the directory offline; any other exception ends the broker's start."""
    log_dir = open_log_dir(scenario(name).copy(tmp_path).parent)
    node, starts = predicted_in(log_dir, CONFIG)
    assert worst_of(node, starts) == consequence


@pytest.mark.parametrize(
    ("damage", "error", "consequence"),
    [
        ("backup", "KafkaException", Consequence.BROKER_FAILS),
        ("1\n0\n", "KafkaStorageException", Consequence.LOG_DIR_OFFLINE),
        ("0\n1\norders zero 5\n", None, None),
    ],
)
def test_a_log_directory_can_stop_the_start_itself(
    scenario: Any,
    damage: str,
    error: str | None,
    consequence: Consequence | None,
    tmp_path: Path,
) -> None:
    """A foreign directory or a malformed checkpoint stops it; a wrong number is only logged."""
    path = scenario("intact").copy(tmp_path).parent
    if damage == "backup":
        (path / damage).mkdir()
    else:
        (path / "recovery-point-offset-checkpoint").write_text(damage)
    node, starts = predicted_in(open_log_dir(path), CONFIG)
    assert [one.refusal.error for one in node.refusals] == ([error] if error else [])
    assert worst_of(node, starts) == consequence


def predicted_in(
    log_dir: LogDirListing, config: StartConfig | None = None
) -> tuple[NodeStart, list[PredictedStart]]:
    """Predict the start of a node with one log directory, and of each of its partitions."""
    node = NodeStart([NodeDir(log_dir)])
    return node, [
        predict_start(one, config=config, hosting=node.hosting) for one in log_dir.partitions
    ]


def worst_of(node: NodeStart, starts: list[PredictedStart]) -> Consequence | None:
    """Return how far the gravest refusal reaches; None if the start succeeds."""
    refusals = [*(one.refusal for one in node.refusals), *(one.refusal for one in starts)]
    found = {one.consequence for one in refusals if one is not None}
    if Consequence.BROKER_FAILS in found:
        return Consequence.BROKER_FAILS
    return Consequence.LOG_DIR_OFFLINE if found else None


def open_log_dir(path: Path) -> LogDirListing:
    (path / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    found = open_path(str(path))
    assert isinstance(found, LogDirListing)
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_hostile_directories_end_in_a_value(
    scenarios: list[Scenario], seed: int, tmp_path: Path
) -> None:
    """Any bytes and names give a prediction, and a line that describes it."""
    rng = random.Random(seed)
    partition = rng.choice(scenarios).copy(tmp_path)
    for directory in [path for path in partition.iterdir() if path.is_dir()]:
        directory.rmdir()
    for _ in range(rng.randrange(1, 4)):
        Damage(partition, rng)
    for path in sorted(partition.glob("*.log")):
        data = bytearray(path.read_bytes())
        for _ in range(rng.randrange(4) if data else 0):
            position, size = rng.randrange(min(len(data), 700)), rng.randrange(1, 9)
            data[position : position + size] = rng.choice((b"\xff", b"\x7f", b"\0")) * size
        path.write_bytes(data)
    for mode in StartMode:
        predicted = predict_start(str(partition), mode, recovery_point=rng.randrange(60))
        assert start_line(predicted)
        assert (predicted.loaded is None) == (predicted.verdict == Verdict.REFUSE)


def test_metadata_of_kraft_is_always_scanned_whole(scenario: Any, tmp_path: Path) -> None:
    """The metadata log is loaded regardless of marker and checkpoints."""
    partition = tmp_path / "__cluster_metadata-0"
    shutil.copytree(scenario("intact").path / PARTITION, partition)
    (tmp_path / ".kafka_cleanshutdown").write_text("{}")
    assert predict_start(str(partition), config=CONFIG).mode == StartMode.FULL


def test_partitions_of_real_brokers_start_without_loss(corpus_dir: Path) -> None:
    """A broker shut down cleanly, or was killed without damage to the directory."""
    seen = 0
    for properties in sorted(corpus_dir.glob("kafka-4.3/**/meta.properties")):
        found = open_path(str(properties.parent))
        assert isinstance(found, LogDirListing)
        if "torn" in properties.parent.name:
            continue
        node, starts = predicted_in(found)
        assert worst_of(node, starts) is None, properties
        assert sum(start.lost_records for start in starts) == 0, properties
        seen += len(starts)
    assert seen > 100
