"""Seeded damage to real partitions: undamaged batches are in the new log, the rest is listed.

The expectation comes from the undamaged bytes and from what Kafka's consumer read of them; the
manifest is recomputed from the bytes that exist.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import crc32c as wheel
import pytest

from kafkalog.change.rescue import SalvageSummary, salvage
from kafkalog.check.verify import Verification
from kafkalog.files.log_dir import open_path
from kafkalog.model import Level, Record, Severity
from kafkalog.node.reader import read_records
from kafkalog.node.recovery import StartMode, Verdict, predict_start
from tests.builders import flip, frames, healthy
from tests.checkout import ROOT
from tests.kafkalog.change.rescue.hurt_logs import (
    KINDS,
    Damage,
    batches_of,
    frames_while_sane,
    kafka_records,
)
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from tests.conftest import State

# Every kind of log: release, state, partition.
LOGS = [
    ("kafka-4.3", "codecs", "codec-none-0"),
    ("kafka-4.3", "codecs", "codec-zstd-0"),
    ("kafka-4.3", "codecs", "codec-gzip-0"),
    ("kafka-4.3", "txn", "txn-0"),
    ("kafka-4.3", "compact-1-first-pass", "compact-txn-0"),
    ("kafka-4.3", "compact-2-later-passes", "compact-delete-0"),
    ("kafka-2.8", "v0", None),
    ("kafka-2.8", "v1", None),
    ("kafka-2.8", "upgrade", None),
]
UP_TO_CRC = 17  # of a header: what no checksum covers
ROUNDS = 12 if tries_everything() else 3


def manifest_of(destination: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (destination / "manifest.ndjson").read_text().splitlines()]


def rows(
    manifest: list[dict[str, Any]], kind: str, path: str | None = None
) -> list[dict[str, Any]]:
    return [row for row in manifest if row["type"] == kind and path in (None, row.get("path"))]


def salvaged(path: Path, destination: Path) -> SalvageSummary:
    return salvage(open_path(str(path)), str(destination))


def check_manifest(source: Path, destination: Path) -> None:
    """Check that the manifest places each byte of each log, and names each missing offset."""
    manifest = manifest_of(destination)
    logs = rows(manifest, "salvage")
    assert sorted(row["path"] for row in logs) == sorted(map(str, source.glob("*.log")))
    for i, log in enumerate(logs):
        data = Path(log["path"]).read_bytes()
        new = (destination / log["to"]).read_bytes() if log["to"] else b""
        assert (log["size_bytes"], log["copied_bytes"]) == (len(data), len(new))
        assert log["copied_bytes"] + log["lost_bytes"] == log["size_bytes"]
        assert (log["crc32c"], log["copy_crc32c"]) == (wheel.crc32c(data), wheel.crc32c(new))
        batches = batches_of(new, log["base_offset"])
        assert log["batches"] == len(batches)
        kinds = ("copied_range", "lost_range")
        pieces = [row for kind in kinds for row in rows(manifest, kind, log["path"])]
        pieces.sort(key=lambda row: row["position"])
        end, written = 0, 0
        offsets_left = log["base_offset"]
        for number, piece in enumerate(pieces):
            assert piece["position"] == end
            end += piece["size_bytes"]
            bytes_there = data[piece["position"] : end]
            if piece["type"] == "copied_range":
                assert piece["to_position"] == written
                copied = new[written : written + piece["size_bytes"]]
                is_corrected = piece["corrected"] is not None
                assert copied[UP_TO_CRC:] == bytes_there[UP_TO_CRC:]
                assert (copied != bytes_there) == is_corrected
                inside = [
                    batch
                    for (position, _), batch in zip(frames_while_sane(new), batches, strict=True)
                    if written <= position < written + piece["size_bytes"]
                ]
                assert piece["batches"] == len(inside)
                assert piece["last_offset"] == inside[-1].last_offset
                written += piece["size_bytes"]
                offsets_left = inside[-1].last_offset + 1
                continue
            kept = (
                (destination / piece["file"]).read_bytes()
                if piece["file"]
                else bytes(len(bytes_there))
            )
            assert kept == bytes_there
            following = pieces[number + 1]["base_offset"] if number + 1 < len(pieces) else None
            if following is None and i + 1 < len(logs):
                following = logs[i + 1]["base_offset"]
            if following == offsets_left:
                assert (piece["first_offset"], piece["last_offset"]) == (None, None)
            elif following is not None:
                assert (piece["first_offset"], piece["last_offset"]) == (
                    offsets_left,
                    following - 1,
                )
        assert (end, written) == (len(data), len(new))
    summary = rows(manifest, "salvage_summary")[0]
    for name in ("size_bytes", "copied_bytes", "lost_bytes", "batches", "records"):
        assert summary[name] == sum(log[name] for log in logs)
    assert summary["partitions"] == len(rows(manifest, "salvaged_partition"))
    assert summary["segments"] == len(logs)


def check_result(partition: Path) -> None:
    """Check that the new partition is sound, and that no start would change it."""
    run = Verification(Level.DEEP)
    found = list(run.verify(str(partition)))
    assert not [d for d in found if d.severity in (Severity.DAMAGE, Severity.INDEX)]
    for mode in StartMode:
        assert predict_start(str(partition), mode, recovery_point=0).verdict == Verdict.NOTHING


def check_survivors(damage: Damage, partition: Path, records: dict[int, dict[str, Any]]) -> None:
    """Check that every undamaged batch is copied byte for byte, with every record in it."""
    given = {
        found.offset: found for found in read_records(str(partition)) if isinstance(found, Record)
    }
    lost = []
    for name, batches in damage.survivors.items():
        path = partition / name
        new = path.read_bytes() if path.exists() else b""
        there = {new[position : position + size] for position, size in frames_while_sane(new)}
        for batch in batches:
            if batch.data not in there:
                lost.append((name, batch.first_offset, batch.last_offset))
                continue
            for offset in range(batch.first_offset, batch.last_offset + 1):
                if offset in records:
                    assert given[offset].timestamp == records[offset]["timestamp"]
                    for field in ("key", "value"):
                        check_bytes(getattr(given[offset], field), records[offset][field])
    assert not lost, damage.words


def check_bytes(got: bytes | None, kafkas: object) -> None:
    if isinstance(kafkas, dict):
        assert got is not None
        assert len(got) == kafkas["len"]
    else:
        assert (None if got is None else got.hex()) == kafkas


def partition_of(root: Path, name: str | None) -> Path:
    if name is not None:
        return root / name
    return max(
        (path for path in root.iterdir() if path.is_dir()),
        key=lambda path: sum(log.stat().st_size for log in path.glob("*.log")),
    )


@pytest.mark.parametrize("way", ["the directory", "its files", "both"])
def test_a_log_on_its_way_out_is_salvaged_whole(way: str, corpus_dir: Path, tmp_path: Path) -> None:
    """A broker renames what it deletes: directories to `-delete`, segments to `.deleted`."""
    original = corpus_dir / "kafka-4.3" / "txn" / "txn-0"
    logs = {path.name: path.read_bytes() for path in original.glob("*.log")}
    suffix = "" if way == "its files" else f".{'0123456789abcdef' * 2}-delete"
    doomed = tmp_path / "logs" / f"txn-0{suffix}"
    shutil.copytree(original, doomed)
    if way != "the directory":
        for path in [path for path in doomed.iterdir() if path.name[0] == "0"]:
            path.rename(f"{path}.deleted")
    for target in (doomed, doomed.parent):
        destination = tmp_path / f"from-{target.name}"
        summary = salvaged(target, destination)
        [partition] = [path for path in (destination / "log").iterdir() if path.is_dir()]
        assert partition.name == doomed.name.replace("-delete", "-stray")
        assert {path.name: path.read_bytes() for path in partition.glob("*.log")} == logs
        assert summary.records > 0
        assert (summary.has_losses, summary.skipped_records) == (False, 0)
        check_result(partition)


def test_what_is_left_out_is_said_and_counted(tmp_path: Path, kafkalog: Any) -> None:
    """Each file and directory has a row; that of a log has the number of its records."""
    log_dir = tmp_path / "logs"
    shutil.copytree(ROOT / "examples" / "log-dir" / "orders-0", log_dir / "orders-0")
    first, *_ = sorted((log_dir / "orders-0").glob("*.log"))
    shutil.copy(first, f"{first}.deleted")
    records = sum(1 for one in read_records(str(first)) if isinstance(one, Record))
    (log_dir / "orders-0" / "mine").mkdir()
    (log_dir / "no partition").mkdir()
    (log_dir / "empty-0").mkdir()
    (log_dir / "orders-0.bak").mkdir()
    shutil.copy(first, log_dir / "orders-0.bak")
    result = kafkalog("salvage", log_dir, "--to", tmp_path / "new")
    said = f"left out: 5 files or directories, with {2 * records} records"
    assert said in result.stdout.decode()
    skipped = [row for row in manifest_of(tmp_path / "new") if row.get("fate") == "skipped"]
    assert {os.path.relpath(row["path"], log_dir): row["records"] for row in skipped} == {
        f"orders-0/{first.name}.deleted": records,
        "orders-0/mine": 0,
        "no partition": 0,
        "empty-0": 0,
        "orders-0.bak": records,
    }
    assert (tmp_path / "new" / "manifest.ndjson").exists()
    shutil.rmtree(log_dir / "orders-0")
    nothing = kafkalog("salvage", log_dir, "--to", tmp_path / "nothing")
    assert (nothing.status, (tmp_path / "nothing").exists()) == (0, False)


@pytest.mark.sampled(44)
@pytest.mark.parametrize(("release", "state", "name"), LOGS, ids=str)
@pytest.mark.parametrize("kind", [*KINDS, "several"])
def test_what_no_damage_touched_is_salvaged(
    release: str, state: str, name: str | None, kind: str, corpus_dir: Path, tmp_path: Path
):
    """Flipped bits, zeroed and overwritten ranges, cut tails, swapped and duplicated batches."""
    original = partition_of(corpus_dir / release / state, name)
    records = kafka_records(
        corpus_dir / release / f"{state}.expected" / "records" / f"{original.name}.ndjson"
    )
    for number in range(ROUNDS):
        seed = new_seed() + number
        damage = Damage(
            original, tmp_path / f"{number}" / original.name, random.Random(f"{kind} {seed}")
        )
        for _ in range(1 if kind != "several" else 4):
            damage.hurt(kind if kind != "several" else damage.rng.choice(KINDS))
        print(seed, damage.words)
        destination = tmp_path / f"{number}-out"
        salvaged(damage.partition, destination)
        partition = destination / "log" / original.name
        check_manifest(damage.partition, destination)
        check_survivors(damage, partition, records)
        check_result(partition)


@pytest.mark.sampled(20)
def test_a_healthy_log_is_copied_whole(any_state: State, tmp_path: Path):
    """Logs of any release, killed, compacted or preallocated, lose nothing."""
    for number, log_dir in enumerate(any_state.log_dirs):
        destination = tmp_path / str(number)
        summary = salvaged(log_dir, destination)
        if healthy(any_state):
            assert (summary.lost_ranges, summary.findings, summary.has_losses) == (0, 0, False)
        for row in rows(manifest_of(destination), "lost_range"):
            assert not healthy(any_state) or row["reason"] == "zero-tail"


@pytest.mark.sampled(32)
@pytest.mark.parametrize("bit", range(64))
def test_a_base_offset_that_the_batches_around_prove_is_corrected(tmp_path: Path, bit: int) -> None:
    """The new logs are those that were there before the bit flipped, byte for byte."""
    sound = ROOT / "examples" / "log-dir" / "orders-0"
    for number, name in enumerate(sorted(one.name for one in sound.glob("*.log"))[:-1]):
        source, target = tmp_path / f"source-{number}" / "orders-0", tmp_path / f"new-{number}"
        shutil.copytree(sound, source)
        data = (source / name).read_bytes()
        places = [position for position, _ in frames(data)]
        for place in {places[0], places[len(places) // 2], places[-1]}:
            (source / name).write_bytes(flip(data, 8 * place + bit))
            summary = salvaged(source, target)
            assert (summary.corrected_batches, summary.lost_ranges, summary.findings) == (1, 0, 0)
            [corrected] = [
                row for row in rows(manifest_of(target), "copied_range") if row["corrected"]
            ]
            assert (corrected["position"], corrected["batches"]) == (place, 1)
            for log in sound.glob("*.log"):
                assert (target / "log" / "orders-0" / log.name).read_bytes() == log.read_bytes()
            shutil.rmtree(target)


def test_several_copies_make_one_log(tmp_path: Path, kafkalog: Any) -> None:
    """A batch comes from the copy that has it, a lost segment, too; another topic lends nothing."""
    sound = ROOT / "examples" / "log-dir" / "orders-0"
    names = sorted(one.name for one in sound.glob("*.log"))
    places = []
    for number, name in enumerate(("one", "two", "other")):
        shutil.copytree(sound, tmp_path / name / "orders-0")
        places.append(tmp_path / name)
        log = tmp_path / name / "orders-0" / names[-1]
        data = log.read_bytes()
        log.write_bytes(flip(data, 8 * (sum(frames(data)[number]) - 1)))
    (places[0] / "orders-0" / names[1]).unlink()
    metadata = places[2] / "orders-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    for given in (places[:2], places[1::-1]):
        target = tmp_path / "made"
        done = kafkalog("salvage", *given, "--to", target)
        assert done.status == 0, done
        assert b"no record is lost" in done.stdout
        written = (target / "log" / "orders-0").glob("*.log")
        lines = b"".join(log.read_bytes() for log in sorted(written))
        assert lines == b"".join((sound / name).read_bytes() for name in names)
        [summary] = rows(manifest_of(target), "salvage_summary")
        assert summary["copied_bytes"] + summary["from_copies_bytes"] == len(lines)
        shutil.rmtree(target)
    refused = kafkalog("salvage", places[0], places[2], "--to", tmp_path / "made")
    assert refused.status == 2, refused


def test_a_missing_segment_is_a_loss(tmp_path: Path, kafkalog: Any) -> None:
    """Also in a dry run, which verifies no result."""
    source = shutil.copytree(ROOT / "examples" / "log-dir" / "orders-0", tmp_path / "orders-0")
    first, missing, last, *_ = sorted(source.glob("*.log"))
    missing.unlink()
    told = f"Offsets {int(missing.stem)} to {int(last.stem) - 1} are missing."
    assert first.exists()
    for to, status in (((), 0), (("--to", tmp_path / "made"), 8)):
        done = kafkalog("salvage", source, *to)
        assert done.status == status, done
        assert done.stdout.count(told.encode()) == 1
        assert b"no record is lost" not in done.stdout


def test_what_rsync_has_copied_of_a_segment_is_salvaged(tmp_path: Path, kafkalog: Any) -> None:
    """It was stopped in a batch; what follows up to the next segment is lost."""
    source = shutil.copytree(ROOT / "examples" / "log-dir" / "orders-0", tmp_path / "orders-0")
    _, log, last, *_ = sorted(source.glob("*.log"))
    data = log.read_bytes()
    position, size = frames(data)[3]
    part = log.with_name(f".{log.name}.aB3dE6")
    part.write_bytes(data[: position + size // 2])
    log.unlink()
    following = int.from_bytes(data[position : position + 8], "big")
    for more, status in ((["--dry-run"], 0), ([], 8)):
        done = kafkalog("salvage", source, "--to", tmp_path / "made", *more, "--format", "ndjson")
        assert done.status == status, done
        [lost] = rows([json.loads(line) for line in done.stdout.splitlines()], "lost_range")
        assert (lost["path"], lost["position"], lost["size_bytes"]) == (
            str(part),
            position,
            size // 2,
        )
        assert (lost["first_offset"], lost["last_offset"]) == (following, int(last.stem) - 1)
    new = tmp_path / "made" / "log" / "orders-0" / log.name
    assert new.read_bytes() == data[:position]
