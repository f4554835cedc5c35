"""Samples are repeatable, budgets defer whole partitions, and later runs reach everything."""

from __future__ import annotations

import os
import shutil
import struct
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.check.schedule import History, Sample, Schedule
from kafkalog.check.verify import Verification
from kafkalog.errors import CorruptDataError, NotAKafkaFileError
from kafkalog.files.log_dir import LogDirListing, PartitionDir, open_path
from kafkalog.model import Defect, Level, Severity
from tests.builders import BASE_TIME, batch, copy_tree, flip, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

SEGMENTS = 5


class Clock:
    """A clock that advances one second per thousand bytes checked."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def progress(self, size_bytes: int) -> None:
        self.now += size_bytes / 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log directory of three partitions with five segments of a few thousand bytes each."""
    for number in range(3):
        for base in range(0, 10 * SEGMENTS, 10):
            rows = [record(i, b"key", os.urandom(400)) for i in range(10)]
            path = write_log(
                tmp_path / "log" / f"t-{number}", batch(base, rows), name=f"{base:020d}"
            )
            path.with_suffix(".index").touch()
            path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", BASE_TIME, 0))
        (path.parent / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (tmp_path / "log" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    return tmp_path / "log"


def opened(path: Path) -> LogDirListing:
    found = open_path(str(path))
    assert isinstance(found, LogDirListing)
    return found


def check(
    path: Path, clock: Clock, **options: Any
) -> tuple[Verification, list[Defect]]:  # fmt: skip
    """Run the checks; the history uses the same clock."""
    target = opened(path)
    schedule = Schedule(
        [target], options.pop("level", Level.DEEP), clock=clock,
        now_ms=lambda: 1 + round(clock.now * 1000), **options,
    )  # fmt: skip
    run = Verification(progress=clock.progress, schedule=schedule)
    return run, list(run.verify(target))


def damage_all(root: Path) -> set[str]:
    """Flip a bit in each segment, which shows from the standard level on."""
    paths = sorted(root.rglob("*.log"))
    for path in paths:
        data = path.read_bytes()
        path.write_bytes(flip(data, 8 * (len(data) - 5)))
    return {str(path) for path in paths}


def found_in(defects: list[Defect]) -> list[str]:
    return [defect.path for defect in defects if defect.severity == Severity.DAMAGE]


@pytest.mark.parametrize(("share", "number"), [(0.01, 1), (0.2, 3), (0.21, 4), (1.0, 15)])
def test_a_sample_is_a_share_of_the_segments(root: Path, share: float, number: int):
    """It is rounded up. If all are damaged, only the sample is found; the rest is read at quick."""
    damage_all(root)
    run, defects = check(root, Clock(), sample=Sample(share, seed=7))
    assert len(found_in(defects)) == number
    assert run.schedule.segments_chosen == number
    assert run.schedule.segments_in_all == 15
    assert run.summary.levels == ({Level.DEEP} if number == 15 else {Level.QUICK, Level.DEEP})
    assert run.summary.checked_bytes == run.summary.expected_bytes > 60_000


def test_a_seed_repeats_the_sample_and_another_does_not(root: Path, tmp_path: Path):
    """The same holds in a copy elsewhere; in the long run every segment is chosen."""
    damage_all(root)

    def names(path: Path, seed: int) -> list[str]:
        _, defects = check(path, Clock(), sample=Sample(0.2, seed))
        return sorted(os.path.relpath(found, path) for found in found_in(defects))

    assert names(root, 1) == names(root, 1) == names(copy_tree(root, tmp_path / "copy"), 1)
    samples = [names(root, seed) for seed in range(60)]
    assert len({name for sample in samples for name in sample}) == 15
    counts = [sum(name in sample for sample in samples) for name in samples[0] + samples[1]]
    assert min(counts) > 2


def test_a_new_segment_changes_the_sample_little():
    """The choice depends on each segment's name, not on its place in a list."""
    paths = [f"/x/t-{i}/{base:020d}.log" for i in range(50) for base in range(0, 100, 10)]
    before = set(Sample(0.1, 3).choose(paths))
    after = set(Sample(0.1, 3).choose([*paths, "/x/t-50/00000000000000000000.log"]))
    assert len(before - after) <= 1


def test_without_history_the_rest_is_told(root: Path):
    """Each of three partitions takes 21 of 30 seconds: one fits, and deferring is no finding."""
    clock = Clock()
    run, defects = check(root, clock, duration_s=30)
    assert defects == []
    size = opened(root).partitions[0].size_bytes
    assert run.summary.deferred_segments == 2 * SEGMENTS
    assert run.summary.deferred_bytes == sum(p.size_bytes for p in opened(root).partitions[1:])
    assert run.summary.expected_bytes == run.summary.checked_bytes
    assert size <= run.summary.checked_bytes <= size + 1000
    assert {os.path.basename(path) for path in run.put_off} == {"t-1", "t-2"}


def test_a_run_that_is_long_enough_puts_nothing_off(root: Path):
    """The summary says so, too."""
    run, _ = check(root, Clock(), duration_s=1000)
    assert (run.summary.deferred_bytes, run.summary.deferred_segments) == (0, 0)
    assert not run.put_off


def test_a_large_partition_stops_between_segments(root: Path):
    """Not even one partition fits: the current segment is finished, the next one is deferred."""
    run, defects = check(root, Clock(), duration_s=10)
    assert defects == []
    assert run.summary.deferred_segments == 3 * SEGMENTS - 3
    total = sum(partition.size_bytes for partition in opened(root).partitions)
    small = sum(entry.size_bytes for entry in opened(root).files)
    assert run.summary.checked_bytes - small + run.summary.deferred_bytes == total


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize("level", [Level.STANDARD, Level.DEEP])
@pytest.mark.parametrize("duration_s", [0, 5, 10, 25, 50])
def test_runs_that_go_on_reach_every_segment_once(root: Path, duration_s: float, level: Level):
    """Each run reports the damage of other segments until all had their turn."""
    every = damage_all(root)
    clock, history = Clock(), History()
    told: list[str] = []
    for _ in range(3 * SEGMENTS):
        history = History.from_json(history.to_json(), "state")
        _, defects = check(root, clock, history=history, duration_s=duration_s, level=level)
        new = found_in(defects)
        assert new, "a run that makes no headway"
        told += new[: 3 * SEGMENTS - len(told)]
        if len(told) == 3 * SEGMENTS:
            break
    assert sorted(told) == sorted(every)


def test_what_comes_after_knows_what_came_before(root: Path):
    """Segments of an earlier run are read again at quick, so that the walk has no gap."""
    clock, history = Clock(), History()
    first, _ = check(root, clock, history=history, duration_s=10)
    assert first.summary.levels == {Level.DEEP}
    second, _ = check(root, clock, history=history, duration_s=10)
    assert second.summary.levels == {Level.QUICK, Level.DEEP}
    assert second.summary.batches > first.summary.batches


def test_a_segment_that_changed_is_read_again(root: Path):
    """A continued walk does not count a segment as read if it has changed since."""
    clock, history = Clock(), History()
    check(root, clock, history=history, duration_s=10)
    path = root / "t-0" / f"{0:020d}.log"
    path.write_bytes(flip(path.read_bytes(), 8 * 100))
    os.utime(path, ns=(1, 1_000_000))
    _, defects = check(root, clock, history=history, duration_s=0)
    assert found_in(defects) == [str(path)]


def test_a_growing_segment_keeps_nobody_waiting(root: Path):
    """A segment that always changes is not always the oldest."""
    clock, history = Clock(), History()
    seen = []
    for _ in range(6):
        for partition in sorted(root.glob("t-*")):
            with (partition / f"{40:020d}.log").open("ab") as out:
                out.write(batch(50 + 10 * len(seen), [record(0, b"k", b"v")]))
        run, _ = check(root, clock, history=history, duration_s=22)
        seen.append({os.path.basename(path) for path in run.put_off})
    assert all(sum(name not in put_off for put_off in seen) == 2 for name in ("t-0", "t-1", "t-2"))


def test_targets_take_turns(root: Path, tmp_path: Path):
    """The log directory that was checked longest ago comes first."""
    other = copy_tree(root, tmp_path / "other")
    history = History()
    order = [opened(root), opened(other)]
    for entry in order[0].partitions:
        for segment in entry.segments:
            history.note(segment.log, Level.STANDARD, 5)
    assert [t.path for t in Schedule(order, history=history).targets] == [str(other), str(root)]
    assert Schedule(order, Level.DEEP, history=history).targets == order


def test_a_deeper_check_counts_for_the_others(root: Path):
    """A check at a lower level does not count for a deeper one."""
    log = opened(root).partitions[0].segments[0].log
    history = History()
    assert history.last_check(log, Level.QUICK) == 0
    history.note(log, Level.STANDARD, 5)
    assert [history.last_check(log, level) for level in Level] == [5, 5, 0]
    history.note(log, Level.DEEP, 9)
    history.note(log, Level.QUICK, 11)
    assert [history.last_check(log, level) for level in Level] == [11, 9, 9]
    assert history.is_checked(log, Level.DEEP, 9)
    assert not history.is_checked(log, Level.DEEP, 10)


def test_what_is_gone_is_forgotten(root: Path):
    """The state does not grow forever; other paths are not this run's business."""
    clock, history = Clock(), History()
    check(root, clock, history=history)
    assert history.to_json().count(".log") == 15
    shutil.rmtree(root / "t-1")
    history.forget_missing(opened(root).partitions, [str(root / "t")])
    assert history.to_json().count(".log") == 15
    history.forget_missing(opened(root).partitions, [str(root)])
    assert history.to_json().count(".log") == 10
    assert str(root / "t-1") not in history.to_json()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "1", "{}", "[" * 100_000],
)
def test_another_file_is_no_history(text: str):
    """The error has its name, whatever the file holds."""
    with pytest.raises(NotAKafkaFileError) as caught:
        History.from_json(text, "there/state")
    assert caught.value.path == "there/state"


@pytest.mark.parametrize(
    "text",
    ['{"kafkalog_verify_state":2,"begun":{},"files":{}}',
     '{"kafkalog_verify_state":1,"begun":[],"files":{}}',
     '{"kafkalog_verify_state":1,"begun":{},"files":{"a":[1,2]}}',
     '{"kafkalog_verify_state":1,"begun":{},"files":{"a":[1,2,{"fast":3}]}}',
     '{"kafkalog_verify_state":1,"begun":{},"files":{"a":[1e400,2,{"standard":3}]}}',
     '{"kafkalog_verify_state":1,"begun":{},"files":{"a":["1",2,{"standard":3}]}}',
     '{"kafkalog_verify_state":1,"begun":{},"files":{"a":[1,2,{"standard":' + "9" * 40 + "}]}}",
     '{"kafkalog_verify_state":1,"begun":{"a":1,"a":2},"files":{}}',
     '{"kafkalog_verify_state":1,"begun":{"a":"soon"},"files":{}}',
     '{"kafkalog_verify_state":1,"begun":' + '{"a":' * 100_000],
)  # fmt: skip
def test_a_history_that_was_edited_is_refused(text: str):
    """Not a number, too large a number, or a repeated name: nothing is guessed."""
    with pytest.raises(CorruptDataError) as caught:
        History.from_json(text, "there/state")
    assert caught.value.path == "there/state"


def test_a_healthy_log_gives_no_finding_in_any_number_of_runs(corpus_dir: Path):
    """A real log directory with transactions is checked one segment at a time."""
    root = corpus_dir / "kafka-4.3" / "txn"
    target = opened(root)
    clock, history = Clock(), History()
    number = sum(len(partition.segments) for partition in target.partitions)
    for _ in range(number + 1):
        run, defects = check(root, clock, history=history, duration_s=0)
        assert [d for d in defects if d.severity != Severity.NOTE] == []
    for partition in target.partitions:
        assert isinstance(partition, PartitionDir)
        for segment in partition.segments:
            assert history.last_check(segment.log, Level.DEEP) > 0
    assert run.summary.checked_bytes == run.summary.expected_bytes
