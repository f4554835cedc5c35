"""A log and its part in a tier are one log, as for a broker, which reads both.

The tier is that of Kafka's `LocalTieredStorage`, or its files packed as Aiven's plugin does.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import kafkalog as library
from kafkalog.io.paths.tier_keys import use_keys
from tests.builders import seconds
from tests.kafka.booted import life, read_records, resurrect
from tests.kafka.tiered import (
    PARTITIONS,
    Tiered,
    as_told,
    findings,
    plain,
    rows,
    segments_told,
)
from tests.packed_tiers import Packing, new_key, pack

if TYPE_CHECKING:
    from tests.kafka.booted import Brokers
    from tests.kafka.tiered import Run

pytestmark = pytest.mark.kafka


def offsets_at(kafkalog: Run, times: dict[str, int], *argv: object) -> None:
    """Require that the offset of each time is what the broker answered; -1 for none."""
    assert len(times) > 10
    options = [word for time in times for word in ("--timestamp", seconds(time))]
    status = int(-1 in times.values())
    found = [
        row["offset"] for row in rows(kafkalog, "lookup-offset", *argv, *options, status=status)
    ]
    assert [-1 if one is None else one for one in found] == [*times.values()]


@pytest.mark.parametrize("has_metadata", [True, False])
@pytest.mark.parametrize("name", PARTITIONS)
def test_a_log_and_its_tier_are_what_the_broker_serves(
    tiered: Tiered, kafkalog: Run, name: str, *, has_metadata: bool
) -> None:
    """A broker reads records that are no longer local from its tier, and so does each reader.

    The test compares records of both isolation levels, all special offsets, and the offset of each
    time.
    """
    wanted, told = tiered.all_records(name), tiered.told[name]
    around = [tiered.log_dir] if has_metadata else []
    log = library.Log(tiered.log_dir / name, tier=[tiered.tier, *around])
    assert [as_told(one) for one in log.records(data=True)] == list(map(plain, wanted))
    got = [one.offset for one in log.records(data=True, isolation="read_committed")]
    assert got == told["committed"]
    for special, offset in told["specials"].items():
        assert log.lookup(timestamp=special).offset == offset, special
    local = log.lookup(timestamp="earliest-local").offset
    offsets = [row["offset"] for row in wanted]
    for one in (0, offsets[len(offsets) // 2], offsets[-1]):
        assert log.lookup(offset=one).offset == one
    for one in (local - 1, local):  # a marker may be there
        assert log.lookup(offset=one).offset == one

    paths = [tiered.log_dir if has_metadata else tiered.log_dir / name, tiered.tier]
    topic = name.removesuffix("-0")
    offsets_at(kafkalog, told["times"], *paths, "--topic", topic)
    dumped = rows(kafkalog, "dump-segment", *paths, "--topic", topic)
    assert [row["offset"] for row in dumped if not row["is_control"]] == offsets
    dumped = rows(
        kafkalog, "dump-segment", *paths, "--topic", topic, "--isolation", "read_committed"
    )
    assert [row["offset"] for row in dumped if not row["is_control"]] == told["committed"]
    found = rows(kafkalog, "find", *paths, "--topic", topic, "--key-regex", "(?s).*")
    assert [row["offset"] for row in found] == offsets
    [row] = rows(kafkalog, "lookup-offset", *paths, "--topic", topic, "--special", "latest-tiered")
    assert row["offset"] == told["specials"]["latest-tiered"]


@pytest.mark.parametrize("name", PARTITIONS)
def test_local_retention_leaves_what_the_broker_left(
    tiered: Tiered, kafkalog: Run, tmp_path: Path, name: str
) -> None:
    """The whole log is local again: retention removes what the broker removed, and no more.

    `plain` is limited by size, `transactions` by time. Without the tier nothing may be removed.
    """
    log_dir, revived = shutil.copytree(tiered.log_dir, tmp_path / "log"), tmp_path / "revived"
    salvaged = kafkalog("salvage", log_dir, "--from-tier", tiered.tier, "--to", revived)
    assert salvaged.status == 0, salvaged.stderr
    left = len(list((log_dir / name).glob("*.log")))
    shutil.rmtree(log_dir / name)
    shutil.copytree(revived / "log" / name, log_dir / name)
    whole = len(list((log_dir / name).glob("*.log")))
    assert whole > left
    argv = ("retention", log_dir, tiered.tier)
    place = str(log_dir / name)
    judged = [row for row in rows(kafkalog, *argv) if row.get("segment", "").startswith(place)]
    kept = [row["base_offset"] for row in judged if row["verdict"] == "keep"]
    assert kept == tiered.told[name]["local"]
    assert len(judged) == whole
    alone = rows(kafkalog, "retention", log_dir)
    assert {row["verdict"] for row in alone if row["type"] == "retention"} == {"keep"}


def test_what_resurrect_leaves_in_the_tier_is_told(
    tiered: Tiered, kafkalog: Run, tmp_path: Path
) -> None:
    """By offsets, with status 8; with the tier as a source, nothing is left to report."""
    argv = ("resurrect", tiered.log_dir, "--to")
    told = rows(kafkalog, *argv, tmp_path / "new", status=8)
    left = {
        f"{row['topic']}-{row['partition']}": (row["remote_from"], row["log_start_offset"])
        for row in told
        if row["type"] == "resurrected_partition" and row["remote_from"] is not None
    }
    local = {name: tiered.told[name]["specials"]["earliest-local"] for name in PARTITIONS}
    assert left == {name: (0, start) for name, start in local.items()}
    notes = {row["topic"]: row["notes"] for row in told if row["type"] == "resurrected_topic"}
    for name, start in local.items():
        [note] = [one for one in notes[name.removesuffix("-0")] if "remote storage" in one]
        assert f"partition 0 (offsets 0 to {start - 1})" in note
    whole = rows(kafkalog, *argv, tmp_path / "whole", "--from-tier", tiered.tier)
    assert not any(row.get("remote_from") for row in whole)
    assert not any("remote storage" in note for row in whole for note in row.get("notes") or ())


def test_a_topic_that_is_tiered_in_the_cluster_gets_no_partition(
    tiered: Tiered, kafkalog: Run, tmp_path: Path
) -> None:
    """Its remote segments would belong to another log."""
    log_dir = shutil.copytree(tiered.log_dir, tmp_path / "log")
    (log_dir / "plain-0").rename(tmp_path / "plain-0")
    result = kafkalog("resurrect", tmp_path / "plain-0", "--apply", "--into", log_dir)
    assert result.status == 4
    assert "has remote storage there" in result.stderr
    assert not (log_dir / "plain-0").exists()


def test_a_stock_broker_starts_on_what_was_in_the_tier(
    tiered: Tiered, brokers: Brokers, kafkalog: Run, tmp_path: Path
) -> None:
    """Everything remote is resurrected: consumers get the whole log, and it takes new records."""
    home = tmp_path / "new"
    resurrect(kafkalog, home, tiered.log_dir, "--from-tier", tiered.tier)
    with life(brokers, home) as first:
        told = first.observe({})
        for name in PARTITIONS:
            recorded = tiered.root / "expected" / "records" / f"{name}.ndjson"
            assert told.records(name) == read_records(recorded)
            assert told.report["committed"][name] == tiered.told[name]["committed"]
            offsets = told.report["offsets"][name]["read_uncommitted"]
            specials = tiered.told[name]["specials"]
            assert offsets["earliest"][0] == 0
            assert offsets["latest"][0] == specials["latest"]
        before = {name: told.truths()[name] for name in PARTITIONS}
        assert first.go_on(before) == {}


def test_a_stock_broker_starts_on_a_salvaged_tier(
    tiered: Tiered, brokers: Brokers, kafkalog: Run, tmp_path: Path
) -> None:
    """The tier is packed and encrypted and all that is left of `plain`; it has the topic id."""
    key = new_key(tmp_path, "key")
    bucket = tmp_path / "bucket"
    for name in PARTITIONS:
        pack(tiered.remote(name), bucket, Packing(1000, compression=True, key=("key", key)))
    log_dir = shutil.copytree(tiered.log_dir, tmp_path / "log")
    shutil.rmtree(log_dir / "plain-0")
    argv = ("--tier-key", tmp_path / "key.pem")
    result = kafkalog(
        *argv, "salvage", log_dir, "--to", tmp_path / "salvaged", "--from-tier", bucket
    )
    assert result.status == 0, result.stderr
    home = tmp_path / "new"
    resurrect(kafkalog, home, tmp_path / "salvaged" / "log")
    with life(brokers, home) as first:
        told = first.observe({})
        for name in PARTITIONS:
            recorded = read_records(tiered.root / "expected" / "records" / f"{name}.ndjson")
            if name == "plain-0":
                end = tiered.told[name]["specials"]["latest-tiered"]
                recorded = [one for one in recorded if one["offset"] <= end]
            assert told.records(name) == recorded


PACKINGS = {
    "plain": Packing(),
    "zstd": Packing(compression=True),
    "encrypted": Packing(777),
    "both": Packing(1 << 20, compression=True),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", PACKINGS)
@pytest.mark.parametrize("name", PARTITIONS)
def test_a_packed_tier_is_what_the_broker_serves(
    tiered: Tiered, kafkalog: Run, tmp_path: Path, name: str, kind: str
) -> None:
    """The broker's uploads, packed like Aiven's plugin does, with and without transaction index."""
    packing = PACKINGS[kind]
    if kind in ("encrypted", "both"):
        packing = replace(packing, key=(f"key-{kind}", new_key(tmp_path, f"key-{kind}")))
        use_keys([str(tmp_path / f"key-{kind}.pem")])
    bucket = tmp_path / "bucket"
    pack(tiered.remote(name), bucket, packing)
    log, told = library.Log(tiered.log_dir / name, tier=[bucket, tiered.log_dir]), tiered.told[name]
    assert [as_told(one) for one in log.records(data=True)] == [
        plain(one) for one in tiered.all_records(name)
    ]
    got = [one.offset for one in log.records(data=True, isolation="read_committed")]
    assert got == told["committed"]
    offsets_at(kafkalog, told["times"], tiered.log_dir / name, bucket)


@pytest.mark.parametrize("isolation", ["uncommitted", "committed"])
def test_tables_of_a_log_and_its_tier_have_each_record_once(
    tiered: Tiered, kafkalog: Run, tmp_path: Path, isolation: str
) -> None:
    """An export, SQL, and a replay of both paths have what a consumer got at that level."""
    options = ["--isolation", "read_committed"] if isolation == "committed" else []
    lake = tmp_path / "lake"
    paths = tiered.log_dir, tiered.tier
    assert kafkalog("export", *paths, "--to", lake, *options).status == 0
    exported = pq.read_table(lake, columns=["topic", "offset"]).to_pylist()
    query = 'select topic, "offset" from records'
    queried = rows(kafkalog, "sql", "-c", query, *paths, *options)
    [*replayed, _] = rows(kafkalog, "replay", *paths, "--dry-run", *options)
    counts = {f"{row['topic']}-{row['partition']}": row["records"] for row in replayed}
    for name in PARTITIONS:
        wanted = [one["offset"] for one in tiered.all_records(name)]
        if options:
            wanted = tiered.told[name]["committed"]
        for table in (exported, queried):
            got = [row["offset"] for row in table if row["topic"] == name.removesuffix("-0")]
            assert sorted(got) == wanted
        assert counts[name] == len(wanted)


def test_each_copy_of_a_log_has_its_tier(tiered: Tiered, kafkalog: Run, tmp_path: Path) -> None:
    """`--replicas all` gives what each broker would answer, and files have their real paths."""
    log_dirs = [tiered.log_dir, shutil.copytree(tiered.log_dir, tmp_path / "log")]
    paths = [*log_dirs, tiered.tier]
    told = tiered.told["plain-0"]["specials"]
    options = [word for one in told for word in ("--special", one)]
    found = rows(
        kafkalog, "lookup-offset", *paths, "--topic", "plain", "--replicas", "all", *options
    )
    assert [row["offset"] for row in found] == [*told.values(), *told.values()]
    query = "select \"offset\", log_dir from records where topic = 'plain'"
    queried = rows(kafkalog, "sql", "-c", query, *paths, "--replicas", "all")
    wanted = [row["offset"] for row in tiered.all_records("plain-0")]
    assert sorted(row["offset"] for row in queried) == sorted([*wanted, *wanted])
    segments = rows(kafkalog, "sql", "-c", "select path, is_active from segments", *paths)
    files = {str(one) for path in paths for name in PARTITIONS for one in path.rglob("*.log")
             if one.parent.name.startswith(name)}  # fmt: skip
    assert {row["path"] for row in segments} <= files
    remote = {row["path"] for row in segments if row["path"].startswith(str(tiered.tier))}
    assert len(remote) > 20
    assert not any(row["is_active"] for row in segments if row["path"] in remote)


def test_offsets_that_are_neither_remote_nor_local(
    tiered: Tiered, kafkalog: Run, tmp_path: Path
) -> None:
    """As after a partial restore, local segments are lost that were not uploaded."""
    log_dir = shutil.copytree(tiered.log_dir, tmp_path / "log")
    specials = tiered.told["transactions-0"]["specials"]
    first = log_dir / "transactions-0" / f"{specials['earliest-local']:020d}.log"
    for path in first.parent.glob(f"{first.stem}.*"):
        path.unlink()
    new_first = int(min(first.parent.glob("*.log")).stem)
    found = findings(kafkalog, log_dir, tiered.tier, status=1)
    [gap] = [row for row in found if row["reference"] == "remote-lineage-gap"]
    assert gap["offset"] == specials["latest-tiered"] + 1
    assert f"to {new_first - 1} " in gap["detail"]


STEPS = {
    ("plain-0", "1"): {"retention.ms"},
    ("transactions-0", "1"): {"retention.bytes"},
    ("plain-0", "2"): {"retention.ms", "retention.bytes"},
    ("transactions-0", "2"): {"log-start-offset", "leader-epoch-cache-truncation"},
}
"""Why remote segments are deleted in the third life of the data, see TieredRetention.java."""


@pytest.mark.parametrize(("name", "step"), STEPS)
def test_remote_retention_leaves_what_the_broker_left(
    tiered: Tiered, kafkalog: Run, name: str, step: str
) -> None:
    """By size, by time, and after DeleteRecords: the same objects, metadata and log start."""
    steps = {"0": tiered, "1": tiered.retained("1"), "2": tiered.retained("2")}
    before, after = steps[str(int(step) - 1)], steps[step]
    told = tiered.told_of_retention
    config = {**told["1"][name], **told[step][name]}
    options = ["--now", told[step]["now"]]
    if "log_start_offset" in config:
        options += ["--log-start-offset", config.pop("log_start_offset")]
    options += [word for one in config for word in ("--config", f"{one}={config[one]}")]
    paths = [before.log_dir / name, before.log_dir / "__remote_log_metadata-0", before.tier]
    found = [
        row
        for row in rows(kafkalog, "retention", *paths, *options)
        if row.get("topic") == name.removesuffix("-0")
    ]
    [partition] = [row for row in found if row["type"] == "retention_partition"]
    remote = [row for row in found if row.get("storage") == "remote"]
    gone = {Path(row["segment"]).stem for row in remote if row["verdict"] == "delete"}
    kept = {Path(row["segment"]).stem for row in remote if row["verdict"] == "keep"}
    assert {row["reason"] for row in remote if row["verdict"] == "delete"} == STEPS[name, step]
    assert len(gone) > 2
    states = segments_told(before.log_dir, name)
    copied = {one for one in gone | kept if states[one[21:]] != 0}  # else a shutdown stopped it
    assert copied <= {path.stem for path in before.remote(name).iterdir()} <= gone | kept
    assert kept & copied <= {path.stem for path in after.remote(name).iterdir()} <= kept
    states = segments_told(after.log_dir, name)
    assert {one for one in gone if states[one[21:]] != 3} == set()
    assert {one for one in kept if states[one[21:]] != (one in copied)} == set()
    assert partition["log_start_offset_after"] == told[step]["starts"][name]
    assert partition["remote"]["deleted_segments"] == len(gone)
