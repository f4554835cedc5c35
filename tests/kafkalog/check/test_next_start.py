"""What `verify` predicts about the next start of a broker, compared with real starts of Kafka."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.check.next_start import unexplained
from kafkalog.check.verify import Verification
from kafkalog.files.log_dir import open_partition
from kafkalog.io.jit import fast_path
from kafkalog.model import Level, Severity
from kafkalog.node.recovery import NextStart, StartMode, Verdict, predict_start
from kafkalog.node.recovery.start import UNCHECKED
from tests.builders import BASE_TIME, batch, copy_tree, record, write_log
from tests.kafkalog.change.repair.test_recover import files
from tests.kafkalog.node.configs.test_metadata_configs import config, topic
from tests.kafkalog.node.configs.test_metadata_configs import log_dir as write_metadata
from tests.kafkalog.test_recovery import PARTITION, Scenario, scenarios
from tests.metadata_logs import value_of
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result, State

__all__ = ["scenarios"]

CONFIGURED = [
    value_of("FeatureLevelRecord", name="metadata.version", featureLevel=30),
    topic("orders", b"T" * 16),
    config("index.interval.bytes", "200", "orders"),
    config("segment.index.bytes", "65536", "orders"),
]
CHANGING = {"txnindex_below_base", "txnindex_version_7"}
"""Two of the few scenarios in which Kafka's loader changed an index: no sample is without them."""
MARK = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"

# What is not compared with Kafka's loader, and why. What is left out here is compared in
# test_recovery, where the prediction is told the configs of these logs.
EXCLUDED = {
    "nothing, tidy and rebuild": "told apart by whether an index changes, which hangs on the "
    "topic's index.interval.bytes: 200 in these logs, Kafka's default to who is not told",
    "txnindex_version_7": "nothing says that 4.3 starts on it, and later releases refuse it; "
    "test_releases has both",
    "duplicated_content": "its offsets go back, noticed where an index entry is due: as above",
    "size_huge": "its lost_records: Kafka's count ends at the wrong length, ours finds the batches "
    "behind it",
}


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def prepared(scenario: Scenario, mode: StartMode, target: Path) -> Path:
    """Copy the log directory, as a broker would find it in this mode."""
    log_dir = scenario.copy(target).parent
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    if mode == StartMode.CLEAN:
        (log_dir / MARK).write_text('{"version":0,"brokerEpoch":1}')
    elif mode == StartMode.FULL:
        (log_dir / RECOVERY_POINTS).unlink(missing_ok=True)
    return log_dir


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", [StartMode.UNCLEAN, StartMode.FULL])
def test_indexes_are_judged_by_the_configs_in_the_metadata_log(
    scenarios: list[Scenario], mode: StartMode, tmp_path: Path
) -> None:
    """With the same configs, Kafka's loader left the indexes as they were or changed them."""
    wrong, seen = [], set()
    changing = [one for one in scenarios if one.name in CHANGING]
    for scenario in (*changing, *sampled([one for one in scenarios if one not in changing], 3)):
        kafkas = scenario.facts["modes"][mode]
        log_dir = prepared(scenario, mode, tmp_path)
        if "error" in kafkas or list(log_dir.glob("*/*.swap")) or list(log_dir.glob("*/*.cleaned")):
            continue
        write_metadata(log_dir, CONFIGURED)
        before = files(log_dir / PARTITION)
        active = max((name for name in before if name.endswith(".log")), default="")[:20]
        sealed = {name for name in before if name.endswith("index") and name[:20] != active}
        verification = Verification(Level.STANDARD)
        list(verification.verify(str(log_dir / PARTITION)))
        verdict = next((start.verdict for start in verification.next_starts), Verdict.NOTHING)
        if verdict not in (Verdict.NOTHING, Verdict.TIDY, Verdict.REBUILD):
            continue
        # One that goes with its log is no rebuild, nor is one of which half an entry is cut off.
        is_changed = "odd_size" not in scenario.name and any(
            kafkas["files"].get(name, before[name]) != before[name] for name in sealed
        )
        if is_changed and verdict != Verdict.REBUILD:
            wrong.append((scenario.name, "Kafka changed an index", verdict))
        is_kept = all(
            kafkas["files"].get(name) == before[name] for name in before if name.endswith("index")
        )
        if is_kept and verdict == Verdict.REBUILD:
            wrong.append((scenario.name, "Kafka changed no index", verdict))
        seen |= {is_changed, is_kept and "kept"}
    assert not wrong
    assert {True, "kept"} <= seen


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", StartMode)
def test_what_is_predicted_is_what_kafkas_loader_did(
    scenarios: list[Scenario], mode: StartMode, tmp_path: Path, kafkalog: Any
) -> None:
    """Refusals are compared by exception, cuts by offset and records; all damaged directories."""
    wrong: dict[str, Any] = {}
    verdicts = set()
    for scenario in sampled(scenarios, 3):
        log_dir = prepared(scenario, mode, tmp_path / scenario.name)
        result = kafkalog("verify", log_dir, "--format", "ndjson")
        found = [row for row in rows(result) if row["type"] == "next_start" and row["topic"]]
        row = found[0] if found else {"verdict": "nothing", "detail": "nothing", "lost_records": 0}
        verdicts.add(row["verdict"])
        is_compared = scenario.name not in ("duplicated_content", "txnindex_version_7")
        if is_compared and differs(scenario, mode, row):
            wrong[scenario.name] = row["detail"], scenario.facts["modes"][mode].get("error")
        if row["verdict"] == "refuse" or row["lost_records"]:
            assert result.status == 1, scenario.name
    assert not wrong
    assert {"refuse", "truncate"} <= verdicts


def differs(scenario: Scenario, mode: StartMode, row: dict[str, Any]) -> bool:
    after = scenario.facts["modes"][mode]
    if "error" in after:
        return bool(row.get("error") != after["error"].rpartition(".")[2])
    if row["verdict"] == "truncate":
        before = scenario.facts["recordCountBefore"]
        lost = row["lost_records"]
        if before is not None and scenario.name != "size_huge":
            lost = before - after["recordCount"]
        return (row["truncate_to"], row["lost_records"]) != (after["log"]["logEndOffset"], lost)
    sizes = {path.name: path.stat().st_size for path in (scenario.path / PARTITION).glob("*.log")}
    left = {name: file[0] for name, file in after["files"].items() if name.endswith(".log")}
    is_kept = row["verdict"] in ("tidy", "rebuild") or sizes == left
    return row["verdict"] == "refuse" or not is_kept


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("killed", "recovered"),
    [
        ("crash-1-torn", "crash-2-recovered"),
        ("interrupted-0-cleaned", "interrupted-3-cleaned-recovered"),
        ("interrupted-1-swap", "interrupted-2-swap-recovered"),
    ],
)
def test_a_broker_that_was_killed_starts_as_predicted(
    corpus_dir: Path, killed: str, recovered: str
) -> None:
    """It predicts the bytes that the broker kept; the broker only appended to its own topics."""
    before, after = (corpus_dir / "kafka-4.3" / name for name in (killed, recovered))
    run = Verification()
    list(run.verify(before))
    starts = {os.path.basename(start.path): start for start in run.next_starts}
    compared = 0
    for partition in sorted(path for path in before.iterdir() if path.is_dir()):
        if partition.name == "__cluster_metadata-0":
            continue  # the broker went on writing
        lost = starts[partition.name].lost_bytes if partition.name in starts else 0
        is_swapped = any(partition.glob("*.swap"))
        if not is_swapped:
            assert size_of(partition) - lost == size_of(after / partition.name), partition
        else:
            assert starts[partition.name].verdict == Verdict.TIDY
        compared += 1
    assert compared >= 4


def size_of(partition: Path) -> int:
    return sum(path.stat().st_size for path in partition.glob("*.log"))


@pytest.mark.sampled(10)
def test_a_broker_that_was_closed_starts_without_change(any_state: State) -> None:
    """It only removes leftovers; the quorum's own log is always scanned as a whole."""
    for log_dir in any_state.log_dirs:
        run = Verification()
        list(run.verify(log_dir))
        for start in run.next_starts:
            if (log_dir / MARK).exists() and start.topic != "__cluster_metadata":
                assert start.mode == StartMode.CLEAN
                assert start.verdict in (Verdict.NOTHING, Verdict.TIDY), start
            assert start.verdict != Verdict.REFUSE
            assert not start.lost_records or any_state.name == "crash-1-torn", start


def sound_log(root: Path, *, base_offset: int = 0, count: int = 5) -> Path:
    log = [batch(base_offset + i, [record()]) for i in range(count)]
    path = write_log(root / "t-0", *log, name=f"{base_offset:020}")
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).touch()
    return path


def zeros_behind_an_old_segment(root: Path) -> None:
    """Add zeros to an old segment: a scan cuts them off, and drops all segments after it."""
    path = sound_log(root)
    path.write_bytes(path.read_bytes() + bytes(100))
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", BASE_TIME, 0))
    sound_log(root, base_offset=5, count=3)


BY_START = {"start-loses-records", "start-refused"}
"""The findings that these two tests make."""


def test_records_are_never_lost_in_silence(tmp_path: Path, kafkalog: Callable[..., Result]) -> None:
    """If no other finding is above a note, the start itself is a finding."""
    zeros_behind_an_old_segment(tmp_path)
    result = kafkalog("verify", tmp_path / "t-0", "--format", "ndjson")
    grave = [row for row in rows(result) if row.get("severity") not in (None, Severity.NOTE)]
    assert [row["reference"] for row in grave] == ["start-loses-records"]
    assert result.status == 1


def test_a_start_is_never_refused_in_silence(tmp_path: Path) -> None:
    """Each known reason to refuse a start has its own finding; this one covers all others."""
    sound_log(tmp_path).with_name("foo.log").touch()
    partition = open_partition(str(tmp_path / "t-0"))
    start = NextStart.of_partition(partition, predict_start(partition, StartMode.UNCLEAN))
    assert [defect.reference for defect in unexplained(start)] == ["start-refused"]
    found = {defect.reference for defect in Verification().verify(partition)}
    assert found == {"file-unknown", "file-name-not-canonical"}


def test_a_loss_that_is_explained_is_not_told_twice(
    tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """A torn tail already has a finding; the prediction is a line below the table."""
    path = sound_log(tmp_path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    lost = f"{size // 5 - 1} bytes"
    text, more = (kafkalog("verify", tmp_path / "t-0", *v).stdout.decode() for v in ([], ["-v"]))
    assert "torn-tail" in text
    assert "start-loses-records" not in text
    assert f"next start  t-0: truncate to offset 4, dropping an incomplete batch ({lost})" in text
    assert "next start  t-0: assumed: no entry in recovery-point-offset-checkpoint" in more
    assert "assumed" not in text


def test_a_log_directory_that_stops_the_start_has_a_row(
    tmp_path: Path, kafkalog: Callable[..., Result]
) -> None:
    """One directory is no partition; in another case two are the same partition."""
    sound_log(tmp_path)
    copy_tree(tmp_path / "t-0", tmp_path / "t-00")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    result = kafkalog("verify", tmp_path, "--format", "ndjson")
    found = [row for row in rows(result) if row["type"] == "next_start" and row["topic"] is None]
    assert [(row["error"], row["consequence"]) for row in found] == [
        ("KafkaException", "the broker does not start"),
        ("IllegalStateException", "the broker does not start"),
    ]
    assert result.status == 1


def test_the_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prediction after a crash, which needs a full scan, uses what the checks have read."""
    log = [batch(i, [record(0, None, bytes(3000))]) for i in range(1000)]
    path = write_log(tmp_path / "t-0", *log)
    path.with_suffix(".index").touch()
    path.with_suffix(".timeindex").touch()
    read = 0
    pread, preadv = os.pread, os.preadv

    def counting(fd: int, size: int, position: int) -> bytes:
        nonlocal read
        read += size
        return pread(fd, size, position)

    def counting_into(fd: int, buffers: list[memoryview], position: int) -> int:
        nonlocal read
        read += len(buffers[0])
        return preadv(fd, buffers, position)

    monkeypatch.setattr(os, "pread", counting)
    monkeypatch.setattr(os, "preadv", counting_into)
    monkeypatch.setattr(fast_path, "FAST_SIZE_MIN", 0)
    run = Verification()
    assert not list(run.verify(path.parent))
    assert run.next_starts[0].verdict == Verdict.REBUILD
    assert read < 1.2 * path.stat().st_size


def test_what_was_not_compared_is_assumed(tmp_path: Path) -> None:
    """The quick level computes no checksum, and predicts no cut at a wrong one."""
    path = sound_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    verdicts = {}
    for level in (Level.QUICK, Level.STANDARD):
        run = Verification(level)
        list(run.verify(path.parent))
        verdicts[level] = run.next_starts[0].verdict
        assert (UNCHECKED in run.next_starts[0].assumptions) == (level == Level.QUICK)
    assert verdicts == {Level.QUICK: Verdict.REBUILD, Level.STANDARD: Verdict.TRUNCATE}
