"""Replicas of several brokers: equal ones agree, and differences are reported exactly."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.check.replicas import truncation_offset
from kafkalog.check.verify import Verification
from kafkalog.model import EpochEntry
from tests.builders import batch, copy_tree, flip, frames, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.model import Defect

EPOCHS = {0: 2, 60: 4}
LOG = "orders-0/00000000000000000000.log"


def made(base: int, epoch: int, timestamp: int = 1) -> bytes:
    """Build a batch of five offsets from `base` on, without records."""
    return batch(
        base, payload=b"", count=5, last_delta=4, epoch=epoch, base_time=timestamp,
        max_time=timestamp,
    )  # fmt: skip


def broker(
    root: Path,
    node_id: int,
    batches: dict[int, tuple[int, int]],
    *,
    high_watermark: int | None = 100,
    cleaned: int | None = None,
    start: int = 0,
) -> Path:
    """Write a log directory of one partition; `batches` has epoch and time by base offset."""
    directory = root / f"broker-{node_id}"
    shutil.rmtree(directory, ignore_errors=True)
    log = write_log(
        directory / "orders-0",
        *(made(base, *what) for base, what in sorted(batches.items()) if base < 80),
    )
    second = write_log(
        directory / "orders-0",
        *(made(base, *what) for base, what in sorted(batches.items()) if base >= 80),
        name=f"{80:020d}",
    )
    for path in (log, second):
        path.with_suffix(".index").touch()
        path.with_suffix(".timeindex").write_bytes(b"")
    firsts: dict[int, int] = {}
    for base, (epoch, _) in sorted(batches.items()):
        firsts.setdefault(epoch, base)
    lines = [f"{epoch} {base}" for epoch, base in sorted(firsts.items())]
    text = "\n".join(["0", str(len(lines)), *lines, ""])
    (log.parent / "leader-epoch-checkpoint").write_text(text)
    (log.parent / "partition.metadata").write_text("version: 0\ntopic_id: MkTRaEcKTPyRrQqHI1qwhQ")
    identity = f"AAAAAAAAAAAAAAAAAAAA{node_id}Q"
    (directory / "meta.properties").write_text(
        "#\n#Sat Nov 21 03:13:47 UTC 2026\ncluster.id=T7PuzAb0F7LvNRRL-C_sgw\n"
        f"version=1\nnode.id={node_id}\ndirectory.id={identity}\n"
    )
    for name, offset in (
        ("replication-offset-checkpoint", high_watermark),
        ("cleaner-offset-checkpoint", cleaned),
        ("log-start-offset-checkpoint", start or None),
    ):
        entry = "" if offset is None else f"0\n1\norders 0 {offset}\n"
        (directory / name).write_text(entry)
    return directory


def batches(**changed: tuple[int, int] | None) -> dict[int, tuple[int, int]]:
    """Return twenty batches in two epochs, some of them (`at_60`) changed or left out."""
    found = {base: (2 if base < 60 else 4, 1) for base in range(0, 100, 5)}
    for name, what in changed.items():
        base = int(name.removeprefix("at_"))
        del found[base]
        if what is not None:
            found[base] = what
    return found


def diverging(*targets: Path, reference: str = "replicas-diverge") -> list[Defect]:
    run = Verification()
    found = list(run.verify(*targets))
    return [defect for defect in found if defect.reference == reference]


def test_equal_replicas_give_no_finding(tmp_path: Path):
    """One, two or three replicas; segments may roll elsewhere, retention may be further."""
    all_of_them = [broker(tmp_path, node, batches()) for node in (1, 2, 3)]
    for count in (1, 2, 3):
        assert diverging(*all_of_them[:count]) == []
    shorter = broker(tmp_path, 4, {b: w for b, w in batches().items() if b >= 80}, start=80)
    (shorter / LOG).unlink()
    assert diverging(*all_of_them, shorter) == []


def test_what_is_not_replicated_yet_may_differ(tmp_path: Path):
    """Above the smallest high watermark a follower may lag, or may have been out of sync."""
    one = broker(tmp_path, 1, batches(), high_watermark=90)
    lagging = broker(tmp_path, 2, {b: w for b, w in batches().items() if b < 90}, high_watermark=85)
    other = broker(tmp_path, 3, batches(at_95=(4, 7)), high_watermark=95)
    assert diverging(one, lagging, other) == []
    assert diverging(one, lagging, other, reference="replicas-fork") == []
    unknown = broker(tmp_path, 4, batches(at_5=(2, 7)), high_watermark=None)
    assert diverging(unknown, broker(tmp_path, 5, batches(), high_watermark=None)) == []


@pytest.mark.parametrize("high_watermark", [60, 95, None])
def test_a_fork_that_is_not_replicated_yet_is_told(tmp_path: Path, high_watermark: int | None):
    """Nothing is lost yet, but one side will be: the finding names the offset of the fork."""
    one = broker(tmp_path, 1, batches(), high_watermark=high_watermark)
    other = broker(tmp_path, 2, batches(at_95=(4, 7)), high_watermark=high_watermark)
    assert diverging(one, other) == []
    [fork] = diverging(one, other, reference="replicas-fork")
    assert (fork.offset, fork.severity.value) == (95, "warning")
    assert "node 1" in fork.detail
    assert "node 2" in fork.detail


@pytest.mark.parametrize("at", [35, 95])
def test_copies_of_one_partition_are_compared_however_they_are_given(tmp_path: Path, at: int):
    """The paths may be log directories or partitions, of several nodes, one node or none."""
    one = broker(tmp_path, 1, batches(), high_watermark=90)
    odd = batches(**{f"at_{at}": (4 if at >= 60 else 2, 7)})
    other = broker(tmp_path, 2, odd, high_watermark=90)
    reference = "replicas-diverge" if at < 90 else "replicas-fork"
    partitions = [one / "orders-0", other / "orders-0"]
    for targets in ((one, other), partitions, (one, partitions[1])):
        [found] = diverging(*targets, reference=reference)
        assert (found.offset, "node 2" in found.detail) == (at, True)
    for name in ("meta.properties", "replication-offset-checkpoint"):
        shutil.copy(one / name, other / name)  # a backup of the same node
        for targets in ((one, other), partitions, (one, partitions[1])):
            [found] = diverging(*targets, reference=reference)
            assert (found.offset, str(other) in found.detail) == (at, True)
    (tmp_path / "backup").mkdir()
    backup = copy_tree(partitions[1], tmp_path / "backup" / "orders-0")
    [found] = diverging(partitions[0], backup, reference=reference)
    assert (found.offset, str(backup) in found.detail) == (at, True)
    assert diverging(partitions[0], partitions[0], reference=reference) == []


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("at", [0, 35, 60, 80, 95])
def test_a_batch_that_is_another_is_told(tmp_path: Path, at: int, count: int):
    """The finding has its offset and both epochs; if there is a majority, it names the odd one."""
    sound = [broker(tmp_path, node, batches()) for node in range(1, count)]
    odd = broker(tmp_path, count, batches(**{f"at_{at}": (4 if at >= 60 else 2, 7)}))
    found = diverging(*sound, odd)
    assert len(found) == 1
    assert found[0].offset == at
    assert found[0].position == (at % 80) // 5 * 61
    assert f"leader epoch {4 if at >= 60 else 2}" in found[0].detail
    assert ("The majority is with node 1" in found[0].detail) == (count > 2)
    if count > 2:
        assert found[0].path.startswith(str(odd))


@pytest.mark.parametrize("at", [5, 55, 80, 90])
def test_a_batch_that_is_missing_is_told(tmp_path: Path, at: int):
    """Without compaction every replica has every batch."""
    whole, other = broker(tmp_path, 1, batches()), broker(tmp_path, 3, batches())
    found = diverging(whole, broker(tmp_path, 2, batches(**{f"at_{at}": None})), other)
    assert [defect.offset for defect in found] == [at]
    assert "no batch of node 2" in found[0].detail


def test_every_bit_outside_of_the_checksum_is_contradicted(tmp_path: Path):
    """Another replica contradicts a changed base offset or leader epoch of a batch."""
    one, other = broker(tmp_path, 1, batches()), broker(tmp_path, 2, batches())
    data = (other / LOG).read_bytes()
    at = 8 * frames(data)[7][0]
    for bit in [*range(7 * 8, 8 * 8), *range(12 * 8, 16 * 8)]:
        (other / LOG).write_bytes(flip(data, at + bit))
        run = Verification()
        found = list(run.verify(one, other))
        assert any("orders-0" in d.path and d.severity == "damage" for d in found), bit


def test_compaction_goes_on_in_each_replica(tmp_path: Path):
    """Below the active segment of a compacted partition, batches may be missing or rewritten."""
    one = broker(tmp_path, 1, batches(at_5=None, at_10=(2, 9)), cleaned=40)
    other = broker(tmp_path, 2, batches(at_70=None), cleaned=None)
    assert diverging(one, other) == []
    active = broker(tmp_path, 2, batches(at_90=(4, 9)), cleaned=40)
    assert [defect.offset for defect in diverging(one, active)] == [90]
    epoch = broker(tmp_path, 2, batches(at_55=(4, 1)), cleaned=40)
    assert [defect.offset for defect in diverging(one, epoch)] == [55]


def test_brokers_of_other_clusters_and_topics_are_not_compared(tmp_path: Path):
    """Same name, other topic id or cluster: another partition."""
    one = broker(tmp_path, 1, batches())
    other = broker(tmp_path, 2, batches(at_5=(2, 9)))
    assert len(diverging(one, other)) == 1
    path = other / "meta.properties"
    text = path.read_text()
    path.write_text(text.replace("T7Pu", "U7Pu"))
    assert diverging(one, other) == []
    path.write_text(text)
    (other / "orders-0" / "partition.metadata").write_text(
        "version: 0\ntopic_id: NkTRaEcKTPyRrQqHI1qwhQ"
    )
    assert diverging(one, other) == []


def test_a_truncation_is_that_of_the_largest_common_epoch():
    """KIP-279: followers go back to where both replicas agree on the end of the same epoch."""

    def epochs(*pairs: tuple[int, int]) -> list[EpochEntry]:
        return [EpochEntry(*pair) for pair in pairs]

    leader = epochs((0, 0), (2, 50), (4, 80))
    assert truncation_offset(leader, 100, epochs((0, 0), (2, 50), (4, 80)), 95) == 95
    assert truncation_offset(leader, 100, epochs((0, 0), (2, 50), (3, 70)), 90) == 70
    assert truncation_offset(leader, 100, epochs((0, 0), (1, 40)), 90) == 40
    assert truncation_offset(leader, 100, epochs((0, 0)), 60) == 50
    assert truncation_offset(leader, 100, epochs((1, 0)), 60) == 0
    assert truncation_offset(leader, 100, epochs((5, 0)), 60) is None
    assert truncation_offset(leader, 100, [], 60) is None


def test_real_replicas_agree_and_part(corpus_dir: Path, tmp_path: Path):
    """One broker's directory is used twice; the copy has another node id and one changed batch."""
    one = copy_tree(corpus_dir / "kafka-4.3" / "txn", tmp_path / "one")
    other = copy_tree(one, tmp_path / "other")
    path = other / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", "node.id=2"))
    assert diverging(one, other) == []
    log = other / "txn-0" / "00000000000000000119.log"
    data = log.read_bytes()
    log.write_bytes(flip(data, 8 * (frames(data)[3][0] + 17)))
    found = diverging(one, other)
    assert len(found) == 1
    assert found[0].path == str(log)
    assert found[0].position == frames(data)[3][0]


def test_relative_paths_of_partitions_are_compared(
    corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The listing around each path is of absolute paths, and finds the same partition again."""
    source = corpus_dir / "kafka-4.3" / "txn" / "txn-0"
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = (copy_tree(source, tmp_path / name / "txn-0") for name in ("one", "other"))
    log = other / "00000000000000000119.log"
    data = log.read_bytes()
    log.write_bytes(flip(data, 8 * (frames(data)[3][0] + 17)))
    monkeypatch.chdir(tmp_path)
    for paths in ((str(one), str(other)), ("one/txn-0", "other/txn-0")):
        found = {defect.reference for defect in Verification().verify(*paths)}
        assert {name for name in found if name.startswith("replicas-")}, paths
