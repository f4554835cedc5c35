"""Tiers recognised by names alone, and those packed by Aiven's plugin (`tests/packed_tiers.py`)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Log
from kafkalog.errors import NotAKafkaFileError, UnsupportedDataError
from kafkalog.files.log_dir import FileEntry, PartitionDir, open_any, open_path
from kafkalog.files.parents import Parent
from kafkalog.io.paths.source import Source
from kafkalog.io.paths.tier_keys import use_keys
from kafkalog.node.targets import open_targets
from tests.checkout import ROOT
from tests.packed_tiers import TOPIC_ID, Packing, new_key, pack, uploaded
from tests.stores import running_store

EXAMPLES = ROOT / "examples"
SEGMENT_ID = "5M8iwiofTIqTAfE-AavnCA"
STEM = f"{0:020d}-{SEGMENT_ID}"


def files_of(directory: Path, *suffixes: str) -> Path:
    directory.mkdir(parents=True)
    for suffix in suffixes:
        (directory / f"{STEM}{suffix}").write_bytes(b"")
    return directory


def test_a_tier_stands_for_its_logs(tmp_path: Path):
    """In a run with several paths; also for a log that has lost all segments."""
    tier = tmp_path / "backup" / "tier"
    logs = [files_of(tier / f"orders-{number}-{TOPIC_ID}", ".log", ".index") for number in (0, 10)]
    empty = files_of(tier / f"orders-2-{TOPIC_ID}")
    found = open_any(str(tier))
    assert isinstance(found, Parent)
    assert found.log_dirs == tuple(sorted(map(str, [*logs, empty])))
    opened = open_targets([tier])
    assert [(one.topic, one.partition) for one in opened if isinstance(one, PartitionDir)] == [
        ("orders", 0), ("orders", 10), ("orders", 2)
    ]  # fmt: skip
    assert all(isinstance(one, PartitionDir) and one.is_remote for one in opened)
    with pytest.raises(NotAKafkaFileError, match="holds 3 tiered logs"):
        open_path(str(tier))


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_topic_may_be_called_like_a_partition(tmp_path: Path, *, is_packed: bool):
    """`events-2024-ID` is a topic of Aiven's plugin, or a partition of `LocalTieredStorage`."""
    partition = shutil.copytree(EXAMPLES / "log-dir" / "payments-0", tmp_path / "events-2024-0")
    remote = uploaded(partition, tmp_path / "tier")
    if is_packed:
        remote = pack(remote, tmp_path / "packed", Packing())
        assert remote.parent.name == f"events-2024-{TOPIC_ID}"
    tier = remote.parents[1] if is_packed else remote.parent
    [found] = open_targets([tier])
    assert isinstance(found, PartitionDir)
    assert found.name is not None
    assert (found.topic, found.partition, found.name.uid) == ("events-2024", 0, TOPIC_ID)
    wanted = [one.offset for one in Log(partition).records()]
    assert [one.offset for one in Log(found.path).records()] == wanted


PACKINGS = {
    "plain": {},
    "zstd": {"compression": True},
    "sealed": {"key": True},
    "both": {"compression": True, "key": True, "chunk_size": 4096},
    "one-chunk": {"compression": True, "key": True, "chunk_size": 1 << 22},
}
LOGS = ("customers-0", "orders-0", "payments-0")


def packed(tmp_path: Path, log: str, kind: str) -> tuple[Path, list[str]]:
    """Pack a log of the examples; return its directory and the options needed to read it."""
    options: dict[str, Any] = {**PACKINGS[kind]}
    argv: list[str] = []
    if options.pop("key", False):
        name = f"key-of-{tmp_path.name}"
        options["key"] = (name, new_key(tmp_path, name))
        argv = ["--tier-key", str(tmp_path / f"{name}.pem")]
    local = uploaded(EXAMPLES / "log-dir" / log, tmp_path / "local")
    return pack(local, tmp_path / "bucket" / "prefix", Packing(**options)), argv


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", PACKINGS)
@pytest.mark.parametrize("log", LOGS)
def test_packed_segments_are_read_as_they_were(
    tmp_path: Path, kafkalog: Any, log: str, kind: str
) -> None:
    """Records, batches, lookups and side files equal those of the original directory."""
    directory, argv = packed(tmp_path, log, kind)
    use_keys(argv[1:])
    original, found = Log(EXAMPLES / "log-dir" / log), Log(directory)
    wanted = list(original.records())
    assert wanted
    assert [(one.offset, one.key, one.value) for one in found.records()] == [
        (one.offset, one.key, one.value) for one in wanted
    ]
    last = wanted[-1].offset
    for offset in (wanted[0].offset, (wanted[0].offset + last) // 2, last):
        before, after = original.lookup(offset=offset), found.lookup(offset=offset)
        assert (after.offset, after.timestamp) == (before.offset, before.timestamp)
        assert "offset-index" in {step.action for step in after.steps}
    for suffix in (".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint"):
        [uploaded_file] = sorted((tmp_path / "local").rglob(f"*{suffix}"))[-1:]
        with Source(str(directory / uploaded_file.name)) as source:
            assert source.read(0, source.size_bytes) == uploaded_file.read_bytes()
    assert (found.topic, found.partition) == (original.topic, original.partition)
    result = kafkalog(
        *argv, "verify", directory.parents[1], "--level", "deep", "--format", "ndjson"
    )
    findings = [json.loads(line) for line in result.stdout.splitlines()]
    assert {row["reference"] for row in findings[:-1]} <= {"transaction-open"}, result.stderr
    assert result.status == 0


def test_packed_segments_are_told_by_their_directories(tmp_path: Path) -> None:
    """Tier, topic, partition and single log; a topic may have the name of a partition."""
    directory, _ = packed(tmp_path, "orders-0", "zstd")
    topic = directory.parent.rename(directory.parent.with_name(f"orders-7-{TOPIC_ID}"))
    shutil.copytree(topic / "0", topic / "12")
    for given in (topic.parent, topic):
        found = [one for one in open_targets([given]) if isinstance(one, PartitionDir)]
        assert [(one.topic, one.partition) for one in found] == [("orders-7", 0), ("orders-7", 12)]
    [log] = open_targets([min((topic / "12").glob("*.log"))])
    assert isinstance(log, FileEntry)
    original = EXAMPLES / "log-dir" / "orders-0" / f"{0:020d}.log"
    assert log.size_bytes == original.stat().st_size


def test_a_packed_tier_in_an_object_store(tmp_path: Path, kafkalog: Any) -> None:
    """The tier, one partition and one log in it; also joined to a local log."""
    directory, argv = packed(tmp_path, "orders-0", "both")
    wanted = offsets_of(Log(ORDERS))
    stem = min(directory.glob("*.log")).name
    place = f"packed/{directory.parent.name}"
    with running_store() as store:
        store.upload(directory.parents[1], "packed")
        for path, some in (
            ("packed", wanted),
            (f"{place}/0", wanted),
            (f"{place}/0/{stem}", wanted[:250]),
        ):
            words = (*argv, "dump-segment", store.uri(path), "--format", "ndjson")
            result = kafkalog(*words)
            assert result.status == 0, result.stderr
            assert [json.loads(line)["offset"] for line in result.stdout.splitlines()] == some
        query = "select count(*) as n from records"
        result = kafkalog(*argv, "sql", "-c", query, store.uri("packed"), "--format", "ndjson")
        assert json.loads(result.stdout) == {"n": len(wanted)}, result.stderr


def test_half_an_upload_belongs_to_no_segment(tmp_path: Path, kafkalog: Any) -> None:
    """The manifest is written last.

    Without it, the log ends before the segment, which is a note.
    """
    directory, _ = packed(tmp_path, "orders-0", "zstd")
    last = max(directory.glob("*.rsm-manifest"))
    last.unlink()
    base = int(last.name[:20])
    offsets = [one.offset for one in Log(directory).records()]
    assert offsets == [
        one.offset for one in Log(EXAMPLES / "log-dir" / "orders-0").records() if one.offset < base
    ]
    result = kafkalog("verify", directory, "--format", "ndjson")
    findings = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["reference"], row["path"]) for row in findings[:-1]] == [
        ("remote-segment-orphan", str(last.with_suffix(suffix))) for suffix in (".indexes", ".log")
    ]
    assert result.status == 0


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        (b'{"version":"2"}', 5, 'version "2"'),
        (b"PFA1\0\0\0\0", 5, "Iceberg"),
    ],
)
def test_manifests_of_other_kinds_are_refused(
    tmp_path: Path, kafkalog: Any, content: bytes, status: int, words: str
) -> None:
    """Status 5; the error names the kind."""
    directory, _ = packed(tmp_path, "orders-0", "zstd")
    min(directory.glob("*.rsm-manifest")).write_bytes(content)
    result = kafkalog("dump-segment", directory)
    assert result.status == status
    assert words in result.stderr


def test_encrypted_segments_need_their_key(tmp_path: Path, kafkalog: Any) -> None:
    """Status 5; the error names the key. Another key of the same name does not work."""
    directory, argv = packed(tmp_path, "orders-0", "sealed")
    name = Path(argv[1]).stem
    result = kafkalog("dump-segment", directory)
    assert result.status == 5
    assert name in result.stderr
    (tmp_path / "other").mkdir()
    new_key(tmp_path / "other", name)
    result = kafkalog("--tier-key", tmp_path / "other" / f"{name}.pem", "dump-segment", directory)
    assert result.status == 5
    assert "not the one" in result.stderr
    result = kafkalog("--tier-key", directory / "missing.pem", "dump-segment", directory)
    assert result.status == 2
    (tmp_path / "no.pem").write_text("no key")
    result = kafkalog("--tier-key", tmp_path / "no.pem", "dump-segment", directory)
    assert result.status == 2
    assert kafkalog(*argv, "dump-segment", directory).status == 0


@pytest.mark.parametrize("kind", ["zstd", "sealed", "both"])
def test_damaged_chunks_hide_no_others(tmp_path: Path, kafkalog: Any, kind: str) -> None:
    """A changed byte costs the chunk that contains it; records of other chunks are shown."""
    directory, argv = packed(tmp_path, "orders-0", kind)
    log = min(directory.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    result = kafkalog(*argv, "dump-segment", directory, "--format", "ndjson")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    offsets = [row["offset"] for row in rows if row.get("type") != "defect"]
    assert result.status not in (0, 2, 70)
    assert 0 < len(offsets) < 1000
    assert offsets[-1] == 999


@pytest.mark.parametrize("path", ["", "{stem}.log", "{stem}.rsm-manifest", "{stem}.indexes"])
def test_packed_segments_without_their_directories_are_refused(
    tmp_path: Path, kafkalog: Any, path: str
) -> None:
    """Their logs have the names of other tiers but hold chunks: status 5 at each level."""
    files_of(tmp_path / "orders", ".log", ".indexes", ".rsm-manifest")
    given = tmp_path / "orders" / path.format(stem=STEM)
    with pytest.raises(UnsupportedDataError, match="Aiven"):
        open_path(str(given))
    result = kafkalog("dump-segment", given)
    assert result.status == 5, result.stderr


def test_a_partition_with_files_of_a_tier_stays_one(tmp_path: Path):
    """Somebody copied tier files into a log directory. Its partition does not become remote."""
    copy = shutil.copytree(EXAMPLES / "log-dir" / "orders-0", tmp_path / "orders-0")
    before = open_path(str(copy))
    assert isinstance(before, PartitionDir)
    (copy / f"{STEM}.log").write_bytes(b"")
    after = open_path(str(copy))
    assert isinstance(after, PartitionDir)
    assert after.segments == before.segments
    assert not after.is_remote


ORDERS = EXAMPLES / "log-dir" / "orders-0"
ORDERS_ID = (ORDERS / "partition.metadata").read_text().split()[-1]


def parted(tmp_path: Path) -> tuple[Path, Path]:
    """Split the log of orders: local from offset 500 on, all but the last segment uploaded."""
    remote = uploaded(ORDERS, tmp_path / "tier", ORDERS_ID)
    for path in remote.glob("*750-*"):
        path.unlink()
    local = shutil.copytree(ORDERS, tmp_path / "log-dir" / "orders-0")
    for path in [*local.glob("*0000.*"), *local.glob("*0250.*")]:
        if not path.name.startswith("00000000000000001000"):
            path.unlink()
    return local, remote


def offsets_of(log: Log) -> list[int]:
    return [one.offset for one in log.records()]


def test_a_log_begins_with_what_is_in_its_tier(tmp_path: Path, kafkalog: Any) -> None:
    """Each offset appears once, although the tier also has some of the local segments."""
    local, remote = parted(tmp_path)
    wanted = offsets_of(Log(ORDERS))
    assert offsets_of(Log(local)) == wanted[500:]
    log = Log(local, tier=remote)
    assert offsets_of(log) == wanted
    assert [one.base_offset for one in log.segments] == [0, 250, 500, 750]
    assert log.scan(["offset"]).to_table()["offset"].to_pylist() == wanted
    assert log.lookup(timestamp="earliest").offset == 0
    assert log.lookup(timestamp="earliest-local").offset == 500
    assert log.lookup(timestamp="latest-tiered").offset == 749
    for argv in (["dump-segment"], ["find", "--key-regex", "(?s).*"]):
        result = kafkalog(*argv, local, remote.parent, "--format", "ndjson")
        assert result.status == 0, result.stderr
        rows = map(json.loads, result.stdout.splitlines())
        assert [row["offset"] for row in rows] == wanted


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["local", "packed"])
def test_tables_have_the_log_of_several_copies_and_a_tier(
    tmp_path: Path, kafkalog: Any, kind: str
) -> None:
    """Two brokers have the end of the log, one of them damaged; the tier has its beginning."""
    local, remote = parted(tmp_path)
    other = shutil.copytree(local, tmp_path / "other" / "orders-0")
    log = other / f"{500:020d}.log"
    data = bytearray(log.read_bytes())
    data[2000] ^= 1
    log.write_bytes(data)
    tier = remote.parent
    if kind == "packed":
        tier = tmp_path / "bucket"
        pack(remote, tier, Packing(compression=True))
    for paths in ([local], [other, local], [local, other]):
        query = 'select "offset" from records order by 1'
        result = kafkalog("sql", "-c", query, *paths, tier, "--format", "ndjson")
        assert result.status == 0, result.stderr
        rows = map(json.loads, result.stdout.splitlines())
        assert [row["offset"] for row in rows] == offsets_of(Log(ORDERS))
        result = kafkalog("profile", *paths, tier, "--format", "ndjson")
        [row] = map(json.loads, result.stdout.splitlines())
        assert row["records"] == 1000


def test_an_appending_export_begins_in_the_tier(tmp_path: Path, kafkalog: Any) -> None:
    """What was uploaded is not gone, although the local log begins later."""
    local, remote = parted(tmp_path)
    words = ("export", local, remote.parent, "--to", tmp_path / "lake", "--append")
    result = kafkalog(*words, "--format", "ndjson")
    assert result.status == 0, result.stderr
    summary = json.loads(result.stdout.splitlines()[-1])
    assert (summary["rows"], summary["gaps"]) == (len(offsets_of(Log(ORDERS))), 0)


def test_a_part_in_the_tier_ends_where_the_local_log_begins(tmp_path: Path) -> None:
    """Another leader may have rolled elsewhere: a tier's segment is cut off at the next one."""
    local, remote = parted(tmp_path)
    [one, other] = [next(remote.glob(f"*{base}-*.log")) for base in (250, 500)]
    one.write_bytes(one.read_bytes() + other.read_bytes())
    for path in remote.glob("*500-*"):
        path.unlink()
    [early] = remote.glob(f"{0:020d}-*.log")
    batch = one.read_bytes()[: 12 + int.from_bytes(one.read_bytes()[8:12], "big")]
    early.write_bytes(early.read_bytes() + batch)  # and so is this one, at 250
    assert offsets_of(Log(local, tier=remote)) == offsets_of(Log(ORDERS))


def test_segments_of_another_lineage_do_not_count(tmp_path: Path) -> None:
    """A leader uploaded segments that are unknown to the local log; they do not belong to it."""
    local, remote = parted(tmp_path)
    [other] = remote.glob("*250-*.leader_epoch_checkpoint")
    twin = str(other).replace("AAAAAAAAAAAAAAAAAAAA01", "B" * 22)
    for path in remote.glob("*250-*"):
        shutil.copy(path, str(path).replace("AAAAAAAAAAAAAAAAAAAA01", "B" * 22))
    Path(twin).write_text("0\n2\n0 0\n7 260\n")
    log = Path(twin.replace("leader_epoch_checkpoint", "log"))
    log.write_bytes(log.read_bytes() + b"not a batch")  # it would be seen, if this were read
    assert offsets_of(Log(local, tier=remote)) == offsets_of(Log(ORDERS))


def test_a_tier_of_another_topic_is_not_joined(tmp_path: Path) -> None:
    """A topic that was deleted and created again has another id."""
    local, remote = parted(tmp_path)
    other = remote.rename(remote.with_name(f"orders-0-{TOPIC_ID}"))
    assert offsets_of(Log(local, tier=other)) == offsets_of(Log(local))


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize("kind", ["local", "packed"])
@pytest.mark.parametrize("command", ["salvage", "resurrect"])
def test_a_tier_becomes_local_again(tmp_path: Path, kafkalog: Any, command: str, kind: str) -> None:
    """Logs are restored byte for byte under their names; logs only in the tier keep their id."""
    local, remote = parted(tmp_path)
    other = uploaded(EXAMPLES / "log-dir" / "customers-0", tmp_path / "tier")
    argv: list[str] = []
    tier = remote.parent
    if kind == "packed":
        key = new_key(tmp_path, "key-of-tier")
        argv = ["--tier-key", str(tmp_path / "key-of-tier.pem")]
        packing = Packing(compression=True, key=("key-of-tier", key))
        tier = tmp_path / "bucket"
        for one in (remote, other):
            pack(one, tier, packing)
    before = {path: path.read_bytes() for path in tier.rglob("*") if path.is_file()}
    shutil.copy(EXAMPLES / "log-dir" / "meta.properties", local.parent)
    to = tmp_path / "to"
    result = kafkalog(*argv, command, local.parent, "--to", to, "--from-tier", tier)
    assert result.status == 0, result.stderr
    for name in ("orders-0", "customers-0"):
        original = EXAMPLES / "log-dir" / name
        logs = {path.name: path.read_bytes() for path in original.glob("*.log")}
        made = to / "log" / name
        assert {path.name: path.read_bytes() for path in made.glob("*.log")} == logs
        assert offsets_of(Log(made)) == offsets_of(Log(original))
        assert (made / "leader-epoch-checkpoint").read_bytes() == (
            original / "leader-epoch-checkpoint"
        ).read_bytes()
        assert {path.name for path in made.glob("*.index")} == {
            path.name for path in original.glob("*.index")
        }
    assert (to / "log" / "orders-0" / "partition.metadata").read_text().endswith(ORDERS_ID)
    assert (to / "log" / "customers-0" / "partition.metadata").read_text().endswith(TOPIC_ID)
    checked = kafkalog("verify", to / "log", "--level", "deep")
    assert checked.status == 0, checked.stdout
    assert {path: path.read_bytes() for path in tier.rglob("*") if path.is_file()} == before


def test_what_is_no_tier_is_refused(tmp_path: Path, kafkalog: Any) -> None:
    """It is refused before anything is written."""
    local, _ = parted(tmp_path)
    result = kafkalog("salvage", local, "--to", tmp_path / "to", "--from-tier", local.parent)
    assert result.status == 2
    assert "not a tier" in result.stderr
    assert not (tmp_path / "to").exists()
