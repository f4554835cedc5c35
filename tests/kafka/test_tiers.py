"""Segments in remote storage, as Kafka uploads them with `LocalTieredStorage`.

A broker uploads two topics (TieredBroker.java), and its clients record what is in them.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import kafkalog as library
from tests.builders import seconds
from tests.kafka import broker_data
from tests.kafka.tiered import PARTITIONS, Tiered, as_told, findings, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.tiered import Run

pytestmark = pytest.mark.kafka


def test_the_broker_did_what_the_tests_are_about(tiered: Tiered) -> None:
    """Two leader epochs, aborted and open transactions; segments only local, only remote, and both.

    A harness that compares nothing proves nothing.
    """
    for name in PARTITIONS:
        told, records = tiered.told[name], tiered.records(name)
        assert told["specials"]["earliest"] == 0
        assert 0 < told["specials"]["earliest-local"] < told["specials"]["latest"]
        assert len({one["leaderEpoch"] for one in records}) == 2
        assert len(list(tiered.remote(name).glob("*.log"))) > 10
    plain = tiered.told["plain-0"]
    assert plain["local"][0] < plain["specials"]["latest-tiered"]
    aborted = {one["offset"] for one in tiered.records("transactions-0")}
    assert aborted - {*tiered.told["transactions-0"]["committed"]}
    assert list(tiered.remote("transactions-0").glob("*.txnindex"))


@pytest.mark.parametrize("name", PARTITIONS)
def test_records_are_those_that_a_consumer_gets(tiered: Tiered, name: str) -> None:
    """With read_committed, those below the open transaction that are not aborted."""
    wanted = tiered.records(name)
    log = library.Log(tiered.remote(name))
    assert [as_told(one) for one in log.records(data=True)] == [
        {key: one[key] for key in ("offset", "timestamp", "key", "value", "leaderEpoch")}
        for one in wanted
    ]
    got = [one.offset for one in log.records(data=True, isolation="read_committed")]
    opened = log.offsets.last_stable_offset.value
    assert opened is not None
    told = tiered.told[name]
    assert got == [one for one in told["committed"] if one < opened]


@pytest.mark.parametrize("name", PARTITIONS)
def test_special_offsets_are_those_of_list_offsets(
    tiered: Tiered, kafkalog: Run, name: str
) -> None:
    """-5 from the tier, -4 from the log directory, and times up to the end of the tier."""
    told = tiered.told[name]
    [row] = rows(kafkalog, "lookup-offset", tiered.remote(name), "--special", "latest-tiered")
    assert row["offset"] == told["specials"]["latest-tiered"]
    local = tiered.log_dir / name
    [row] = rows(kafkalog, "lookup-offset", local, "--special", "earliest-local")
    assert row["offset"] == told["specials"]["earliest-local"]
    for path, special in ((tiered.remote(name), "earliest-local"), (local, "latest-tiered")):
        [row] = rows(kafkalog, "lookup-offset", path, "--special", special, status=1)
        assert not row["found"]
    end = told["specials"]["latest-tiered"]
    times = {time: offset for time, offset in told["times"].items() if 0 <= offset <= end}
    assert len(times) > 10
    options = [word for time in times for word in ("--timestamp", seconds(time))]
    got = rows(kafkalog, "lookup-offset", tiered.remote(name), *options)
    assert [row["offset"] for row in got] == [*times.values()]


def test_a_tier_is_a_path_of_every_reader(tiered: Tiered, kafkalog: Run, tmp_path: Path) -> None:
    """Each reader finds both logs, and as many records as consumers got, but for control ones."""
    before = broker_data.fingerprint(tiered.tier)
    wanted = {name: [one["offset"] for one in tiered.records(name)] for name in PARTITIONS}

    listed = {row["topic"]: row for row in rows(kafkalog, "ls", tiered.tier)}
    assert {row["state"] for row in listed.values()} == {"remote"}
    for name in PARTITIONS:
        row = listed[name.removesuffix("-0")]
        bases = {path.name[:20] for path in tiered.remote(name).glob("*.log")}
        assert row["segments"] == len(bases)  # an upload that was interrupted is repeated
        assert tiered.remote(name).name == f"{name}-{row['topic_id']}"
        told = tiered.told[name]["specials"]
        assert (row["log_start_offset"], row["log_end_offset"]) == (0, told["latest-tiered"] + 1)

    assert kafkalog("export", tiered.tier, "--to", tmp_path / "lake").status == 0
    exported = pq.read_table(tmp_path / "lake", columns=["topic", "offset"]).to_pylist()
    query = 'select topic, "offset" from records'
    queried = rows(kafkalog, "sql", "-c", query, tiered.tier)
    found = rows(kafkalog, "find", tiered.tier, "--key-regex", "(?s).*")
    dumped = rows(kafkalog, "dump-segment", tiered.tier)
    for name, offsets in wanted.items():
        topic = name.removesuffix("-0")
        for table in (exported, queried):
            assert sorted(row["offset"] for row in table if row["topic"] == topic) == offsets
        assert [row["offset"] for row in found if row["topic"] == topic] == offsets
        of_clients = [row for row in dumped if row["topic"] == topic and not row["is_control"]]
        assert [row["offset"] for row in of_clients] == offsets
    profiled = rows(kafkalog, "profile", tiered.tier)
    assert {row["topic"]: row["records"] for row in profiled} == {
        name.removesuffix("-0"): len(offsets) for name, offsets in wanted.items()
    }
    assert broker_data.fingerprint(tiered.tier) == before


def test_single_files_of_a_tier_are_read(tiered: Tiered, kafkalog: Run) -> None:
    """A log, an index, a snapshot and leader epochs, under their names in the tier."""
    remote = tiered.remote("transactions-0")
    log = min(remote.glob("*.log"))
    end = sorted(remote.glob("*.log"))[1].name[:20]
    records = rows(kafkalog, "dump-segment", log)
    wanted = [one["offset"] for one in tiered.records("transactions-0") if one["offset"] < int(end)]
    assert [row["offset"] for row in records if not row["is_control"]] == wanted
    full = max(remote.glob("*.index"), key=lambda path: path.stat().st_size)
    for suffix in (".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"):
        assert rows(kafkalog, "dump-segment", full.with_suffix(suffix)), suffix


def test_nothing_is_held_against_a_fresh_tier(tiered: Tiered, kafkalog: Run) -> None:
    """At the deepest level, alone and with metadata: indexes, producers, epochs, sizes agree.

    An upload that the shutdown interrupted was repeated later; that is a note.
    """
    found = rows(kafkalog, "verify", tiered.tier, "--level", "deep")
    assert found[-1]["files"] == sum(1 for path in tiered.tier.rglob("*") if path.is_file())
    assert {row["reference"] for row in found[:-1]} <= {"transaction-open"}
    both = findings(kafkalog, tiered.tier, tiered.log_dir)
    of_tier = [row for row in both if row["path"].startswith(str(tiered.tier))]
    assert {row["reference"] for row in of_tier} <= {"transaction-open", "remote-segment-orphan"}


def test_an_index_that_is_not_that_of_its_log(
    tiered: Tiered, kafkalog: Run, tmp_path: Path
) -> None:
    """There is one finding for each; brokers do not rebuild the indexes that they fetch."""
    remote = tiered.remote("plain-0")
    copy = shutil.copytree(remote, tmp_path / remote.name)
    changed = [
        next(path for path in sorted(copy.glob(f"*{suffix}")) if path.stat().st_size >= minimum)
        for suffix, minimum in ((".index", 24), (".timeindex", 36))
    ]
    for path in changed:
        data = bytearray(path.read_bytes())
        data[-1] ^= 0x55
        path.write_bytes(data)
    found = findings(kafkalog, copy, "--level", "deep", status=1)
    assert {(row["reference"], row["path"]) for row in found} == {
        ("remote-indexes-wrong", str(path)) for path in changed
    }


DAMAGE = {
    "gone": ["remote-segment-missing"],
    "short": ["remote-size-wrong"],
    "swapped": ["remote-size-wrong", "remote-size-wrong"],
    "no-snapshot": ["remote-segment-missing"],
    "unknown": ["remote-segment-orphan"],
    "nothing": [],
}
BY_THE_LOG = {
    "gone": {"offsets-missing"},
    "short": {"torn-tail"},
    "swapped": {"batch-below-base-offset", "segments-overlap"},
    "no-snapshot": set(),
    "unknown": set(),
    "nothing": set(),
}
"""Findings about the log itself that the tier alone shows, besides those about indexes."""


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_to_objects_has_its_finding(
    tiered: Tiered,
    kafkalog: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """The metadata tells which object is damaged, and no other; paths may be relative."""
    remote = tiered.remote("plain-0")
    copy = shutil.copytree(remote, tmp_path / remote.name)
    *others, one, _ = sorted(copy.glob("*.log"))
    meant = {one}
    if kind == "gone":
        one.unlink()
    elif kind == "short":
        with one.open("r+b") as file:
            file.truncate(one.stat().st_size - 100)
    elif kind == "swapped":
        other = next(path for path in others if path.stat().st_size != one.stat().st_size)
        one.rename(tmp_path / "aside")
        other.rename(one)
        (tmp_path / "aside").rename(other)
        meant |= {other}
    elif kind == "no-snapshot":
        meant = {one.with_suffix(".snapshot")}
        one.with_suffix(".snapshot").unlink()
    elif kind == "unknown":
        meant = {one.with_name(one.name.replace(one.stem[21:], "A" * 22))}
        for path in copy.glob(f"{one.stem}.*"):
            shutil.copy(path, path.with_name(path.name.replace(one.stem[21:], "A" * 22)))
    monkeypatch.chdir(tmp_path)
    metadata = tiered.log_dir / "__remote_log_metadata-0"
    is_damaged = kind in ("gone", "short", "swapped", "no-snapshot")
    found = findings(kafkalog, remote.name, metadata, status=int(is_damaged))
    remotes = [row for row in found if row["reference"].startswith("remote-")]
    indexes = [row for row in remotes if row["reference"] == "remote-indexes-wrong"]
    stems = {path.stem for path in meant}
    assert {row["path"].rpartition("/")[2].rpartition(".")[0] for row in indexes} <= stems
    remotes = [row for row in remotes if row not in indexes]
    known = {path.name for path in remote.glob("*.log")}
    remotes = [
        row
        for row in remotes
        if row["path"].rpartition("/")[2] not in known - {path.name for path in meant}
    ]  # the broker's own interrupted uploads
    assert [row["reference"] for row in remotes] == DAMAGE[kind]
    if remotes:
        assert {row["path"] for row in remotes} == {
            str(path.relative_to(tmp_path)) for path in meant
        }
    others = {row["reference"] for row in found if row["severity"] in ("damage", "warning")}
    assert {name for name in others if not name.startswith("remote-")} == BY_THE_LOG[kind]


@pytest.mark.parametrize("command", [["recover"], ["rebuild-index"], ["compact"], ["retention"]])
def test_nothing_changes_a_tier(
    tiered: Tiered, kafkalog: Run, tmp_path: Path, command: list[str]
) -> None:
    """Commands that write refuse a tier, with --apply and in a plan, but for that of retention."""
    remote = tiered.remote("plain-0")
    copy = shutil.copytree(remote, tmp_path / remote.name)
    before = broker_data.fingerprint(tmp_path)
    for options in ([], ["--apply", "--yes"])[command == ["retention"] :]:
        result = kafkalog(*command, copy, *options)
        assert result.status == 2, result.stderr
        assert "remote storage" in result.stderr
    assert broker_data.fingerprint(tmp_path) == before


def test_logs_that_are_uploaded_twice_are_read_once(tiered: Tiered, tmp_path: Path) -> None:
    """If a segment was uploaded twice, the later leader's upload counts, then the longer one."""
    remote = tiered.remote("plain-0")
    copy = shutil.copytree(remote, tmp_path / remote.name)
    first = min(copy.glob("*.log"))
    for path in sorted(copy.glob(f"{first.stem}.*")):
        twin = path.with_name(path.name.replace(first.stem[21:], "A" * 22))
        shutil.copy(path, twin)
    batch = next(iter(library.Log(first).batches()))
    with (copy / f"{first.stem[:20]}-{'A' * 22}.log").open("r+b") as file:
        file.truncate(batch.size_bytes)
    log = library.Log(copy)
    assert [one.offset for one in log.records(data=True)] == (
        [one["offset"] for one in tiered.records("plain-0")]
    )
    (first.with_suffix(".leader_epoch_checkpoint")).unlink()
    assert log.segments[0].log.size_bytes == batch.size_bytes
