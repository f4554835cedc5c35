"""A run by tasks reports what a run without them reports: same findings, same order, same sums."""

from __future__ import annotations

import itertools
import os
import random
from typing import TYPE_CHECKING

import pytest

from kafkalog.check import tasks, walk
from kafkalog.check.batches import CheckedLog
from kafkalog.check.schedule import Sample
from kafkalog.check.walk import PrecomputedColumns, read_range
from kafkalog.errors import UnreadableError
from kafkalog.io.paths.source import Source
from kafkalog.model import Level
from tests.builders import batch, copy_tree, flip, record, write_log
from tests.kafkalog.check.test_check_twins import ALWAYS, NEVER, sized
from tests.kafkalog.check.twins_by_tasks import JsonEngine, verdict
from tests.kafkalog_cli.test_index_dumps import hurt
from tests.sampling import sampled
from tests.waiting import until_settled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kafkalog.model import Defect
    from tests.conftest import State


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read partitions of any size in pieces."""
    monkeypatch.setattr(tasks, "_TASKS_PER_WORKER", 1 << 40)


def assert_same(
    paths: Sequence[Path | str], level: Level, *, sample: Sample | None = None, split_bytes: int = 1
) -> tuple[list[Defect], int]:
    """Require the same findings, and return how many pieces there were."""
    engine = JsonEngine(2)
    wanted = verdict(paths, level, sample=sample)
    found = verdict(paths, level, engine=engine, sample=sample, split_bytes=split_bytes)
    assert found == wanted
    return found[0], engine.pieces


@pytest.mark.sampled(43)
def test_the_corpus(any_state: State):
    """All log directories of a cluster at once, whole and in pieces."""
    assert_same(any_state.log_dirs, Level.QUICK, split_bytes=1 << 40)
    for level in (Level.QUICK, Level.DEEP):
        _, pieces = assert_same(any_state.log_dirs, level)
        assert pieces


@pytest.mark.parametrize("wrong", [None, 7])
def test_what_pieces_read_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: int | None
):
    """From the first wrong batch on, the task reads the log itself."""
    path, sizes = make_partition(tmp_path / "t-0", 1)
    if wrong is not None:
        path.write_bytes(flip(path.read_bytes(), 8 * (sum(sizes[:wrong]) + 65)))
    cuts = [0, *(sum(sizes[:i]) for i in range(1, 40, 3)), None]
    parts = [
        {"path": str(path), "base_offset": 0, "start": start, "end": end, "level": "deep"}
        for start, end in itertools.pairwise(cuts)
    ]
    made = [row for part in parts for row in read_range(part, 1)]
    read_from: list[int] = []
    monkeypatch.setattr(
        walk, "batch_columns", lambda *_, position: read_from.append(position) or []
    )
    with Source(str(path)) as source:
        log = CheckedLog(str(path), 0)
        found = list(PrecomputedColumns(iter(made), 1).read(log, source, Level.DEEP))
    batches = sum(columns.count for columns in found)
    assert (batches, read_from) == ((40, []) if wrong is None else (7, [sum(sizes[:7])]))


def test_a_sample_is_the_same(corpus_dir: Path):
    """The sample is chosen once, for all tasks."""
    state = corpus_dir / "kafka-4.3" / "txn"
    for seed in sampled(range(3), 3):
        assert_same([state], Level.DEEP, sample=Sample(0.4, seed))


def index_of(sizes: Sequence[int], step: int = 1) -> bytes:
    """Build an offset index with an entry at every `step` batches of one record each."""
    positions = [sum(sizes[:i]) for i in range(len(sizes))]
    return b"".join(
        i.to_bytes(4, "big") + positions[i].to_bytes(4, "big") for i in range(1, len(sizes), step)
    )


def make_partition(directory: Path, seed: int) -> tuple[Path, list[int]]:
    """A segment whose index has an entry at most of its batches, and a second one behind it."""
    rng = random.Random(seed)
    batches = [
        batch(i, [record(0, b"k", rng.randbytes(rng.choice((10, 100, 3000))))]) for i in range(60)
    ]
    path = write_log(directory, *batches[:40])
    sizes = [len(one) for one in batches[:40]]
    path.with_suffix(".index").write_bytes(index_of(sizes, rng.choice((1, 2, 5))))
    path.with_suffix(".timeindex").touch()
    second = directory / f"{40:020}.log"
    second.write_bytes(b"".join(batches[40:]))
    second.with_suffix(".index").touch()
    second.with_suffix(".timeindex").touch()
    return path, sizes


def damages(log: bytes, sizes: Sequence[int], rng: random.Random) -> Iterator[bytes]:
    """Yield damaged versions of a log, often at the borders of batches, where pieces begin."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    a, b = sorted(rng.sample(starts[1:], 2))
    flipped = bytearray(log)
    flipped[rng.randrange(len(log))] ^= 1 << rng.randrange(8)
    yield bytes(flipped)
    header = bytearray(log)
    header[a + rng.randrange(61)] ^= 1 << rng.randrange(8)
    yield bytes(header)
    length = bytearray(log)
    length[a + 8 : a + 12] = (b - a + sizes[starts.index(b)] - 12).to_bytes(4, "big")
    yield bytes(length)  # a frame that ends behind the next ones, at the border of a batch
    yield log[: a + rng.randrange(1, 61)]
    yield log[: a + rng.randrange(1, 61)] + log[b:]
    yield log[:a] + bytes(b - a) + log[b:]
    yield log[:a] + rng.randbytes(rng.randrange(1, 200)) + log[a:]
    yield log[:a] + log[b:] + log[a:b]
    yield log[:a] + log[a:b] + log[a:]
    yield log + bytes(rng.randrange(1, 5000))
    many = bytearray(log)
    for _ in range(8):
        many[rng.randrange(len(log))] ^= 1 << rng.randrange(8)
    yield bytes(many)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(2))
def test_damaged_logs(tmp_path: Path, seed: int):
    """The damage is at, across and far from the borders; read with the kernels and without."""
    path, sizes = make_partition(tmp_path / "t-0", seed)
    rng = random.Random(seed)
    told = 0
    for changed in damages(path.read_bytes(), sizes, rng):
        path.write_bytes(changed)
        for level in Level:
            with sized(rng.choice((NEVER, ALWAYS)), small=rng.random() < 0.5):
                found, pieces = assert_same(
                    [tmp_path / "t-0"], level, split_bytes=rng.choice((1, 500, 9000))
                )
            told += len(found)
            assert pieces
    assert told


@pytest.mark.sampled(18)
def test_the_damaged_corpus(any_state: State, tmp_path: Path):
    """Logs and indexes of a broker; the cuts follow the damaged offset index."""
    rng = random.Random(any_state.name)
    paths = [
        path
        for partition in any_state.partitions()
        for path in sorted(partition.iterdir())
        if path.suffix in (".log", ".index") and 0 < path.stat().st_size < 1 << 18
    ]
    for i, path in enumerate(rng.sample(paths, min(1, len(paths)))):
        (tmp_path / f"{i}").mkdir()
        copy = copy_tree(path.parent, tmp_path / f"{i}" / path.parent.name) / path.name
        for changed in hurt(path.read_bytes(), 61 if path.suffix == ".log" else 8, rng).values():
            copy.write_bytes(changed)
            assert_same([copy.parent], Level.DEEP)


def test_two_logs_of_one_base_offset(tmp_path: Path):
    """A start takes both for segments; the pieces of one are not used for the other."""
    path, sizes = make_partition(tmp_path / "t-0", 1)
    other = path.with_name("000.log")
    log = path.read_bytes()
    half = sum(sizes[:20])
    path.write_bytes(log[:half])
    other.write_bytes(bytes(half) + log[half:])
    assert_same([tmp_path / "t-0"], Level.STANDARD)


def test_paths_are_told_as_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Tasks use absolute paths, but the findings have the given ones."""
    path, _ = make_partition(tmp_path / "t-0", 2)
    path.write_bytes(path.read_bytes()[:-7])
    monkeypatch.chdir(tmp_path)
    for given in ("t-0", "./t-0", "../" + tmp_path.name + "/t-0", f"{tmp_path}/x/../t-0"):
        (tmp_path / "x").mkdir(exist_ok=True)
        found, _ = assert_same([given], Level.STANDARD)
        assert {os.path.dirname(defect.path) for defect in found} == {given}


def test_a_path_given_twice_is_walked_over_twice(tmp_path: Path):
    path, _ = make_partition(tmp_path / "t-0", 3)
    path.write_bytes(path.read_bytes()[:-7])
    found, _ = assert_same([tmp_path / "t-0", tmp_path / "t-0"], Level.QUICK)
    assert len(found) > 1
    assert found[: len(found) // 2] == found[len(found) // 2 :]


def test_small_partitions_share_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each task has enough to do, and no worker is idle."""
    monkeypatch.setattr(tasks, "_TASKS_PER_WORKER", 4)
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    for i in range(100):
        make_partition(tmp_path / f"t-{i}", i)
    engine = JsonEngine(2)
    verdict([tmp_path], Level.QUICK, engine=engine, split_bytes=1 << 30)
    counts = [len(task["partitions"]) for task in engine.tasks]
    assert sum(counts) == 100
    assert 8 <= len(counts) <= 10
    assert not engine.pieces


def test_what_a_worker_does_not_see_is_no_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On the worker, that path holds the log directory of another broker."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    make_partition(tmp_path / "t-0", 1)
    walk = tasks.walk_partitions

    def elsewhere(task, made):  # type: ignore[no-untyped-def]
        (tmp_path / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=x\n")
        return walk(task, made)

    monkeypatch.setattr("kafkalog.check.tasks.walk_partitions", elsewhere)
    with pytest.raises(UnreadableError, match=r"worker on .*: node\.id is 2 instead") as raised:
        verdict([tmp_path], Level.QUICK, engine=JsonEngine(1))
    assert raised.value.path == str(tmp_path / "t-0")


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("split_bytes", [1, 1 << 30])
def test_a_lagging_copy_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split_bytes: int, is_last: bool
):
    """The copy has the same ids but is an hour old: its findings would be out of date."""
    make_partition(tmp_path / "driver" / "t-0", 1)
    (tmp_path / "driver" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    copy_tree(tmp_path / "driver", tmp_path / "worker")
    logs = sorted((tmp_path / "worker" / "t-0").glob("*.log"))
    changed = logs[-1 if is_last else 0]
    changed.write_bytes(changed.read_bytes()[:-100])
    until_settled(tmp_path)
    here = tmp_path / "here"
    here.symlink_to(tmp_path / "driver")

    def elsewhere(work):  # type: ignore[no-untyped-def]
        def done(*given):  # type: ignore[no-untyped-def]
            here.unlink(missing_ok=True)
            here.symlink_to(tmp_path / "worker")
            try:
                yield from work(*given)
            finally:
                here.unlink()
                here.symlink_to(tmp_path / "driver")

        return done

    for name in ("walk_partitions", "read_piece"):
        monkeypatch.setattr(f"kafkalog.check.tasks.{name}", elsewhere(getattr(tasks, name)))
    with pytest.raises(UnreadableError, match=r"bytes instead of|have other sizes"):
        verdict([here], Level.DEEP, engine=JsonEngine(1), split_bytes=split_bytes)


def test_a_living_log_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It was cut like a follower's after the driver had listed it: it is judged as it is now."""
    path, sizes = make_partition(tmp_path / "t-0", 1)
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    walk = tasks.walk_partitions

    def late(task, made):  # type: ignore[no-untyped-def]
        os.truncate(path, sum(sizes[:-1]))
        return walk(task, made)

    monkeypatch.setattr("kafkalog.check.tasks.walk_partitions", late)
    found, _ = verdict([tmp_path / "t-0"], Level.DEEP, engine=JsonEngine(1), split_bytes=1 << 30)
    assert found == verdict([tmp_path / "t-0"], Level.DEEP)[0]


def test_a_partition_that_is_gone_is_told_of_as_without_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A broker deleted it after the listing: that is a note, and nothing is damaged."""
    make_partition(tmp_path / "t-0", 1)
    walk = tasks.walk_partitions

    def late(task, made):  # type: ignore[no-untyped-def]
        if (tmp_path / "t-0").exists():
            (tmp_path / "t-0").rename(tmp_path / "t-1")
        return walk(task, made)

    monkeypatch.setattr("kafkalog.check.tasks.walk_partitions", late)
    found, _ = verdict([tmp_path / "t-0"], Level.QUICK, engine=JsonEngine(1))
    assert {defect.reference for defect in found} == {"changed-while-reading"}


def test_a_file_that_only_a_worker_cannot_read_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It must not be reported as damage."""
    path, _ = make_partition(tmp_path / "t-0", 1)
    opened = os.open

    def refusing(name, flags, *more):  # type: ignore[no-untyped-def]
        if name == str(path) and not is_here:
            raise PermissionError(13, "Permission denied")
        return opened(name, flags, *more)

    is_here = True
    judged = "kafkalog.check.tasks._require_unreadable"
    from kafkalog.check import tasks

    require = tasks._require_unreadable

    def here(defect: Defect) -> None:
        nonlocal is_here
        is_here = True
        require(defect)

    monkeypatch.setattr(judged, here)
    monkeypatch.setattr(os, "open", refusing)
    engine = JsonEngine(1)
    stream = engine.stream

    def there(*args):  # type: ignore[no-untyped-def]
        nonlocal is_here
        is_here = False
        return stream(*args)

    monkeypatch.setattr(engine, "stream", there)
    with pytest.raises(UnreadableError, match="A worker cannot read"):
        verdict([tmp_path / "t-0"], Level.STANDARD, engine=engine)
