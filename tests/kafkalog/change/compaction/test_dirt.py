"""`ls` computes dirt by Kafka's rule, and notices a cleaner that has stopped."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from formats import file_names
from formats.file_names import DirectoryState
from kafkalog.change.compaction.candidates import CleanerState, cleaner_state, dirt_of
from kafkalog.files.log_dir import LogDirListing, open_partition, open_path
from kafkalog.files.text_files import read_offset_checkpoint
from tests.builders import BASE_TIME, batch, record, write_log
from tests.kafkalog.test_view import locked_by_another

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result, State

    Run = Callable[..., Result]

HOUR_S = 3600
SIZE = len(batch(0, [record(key=b"k")]))


@pytest.mark.sampled(3)
def test_dirty_bytes_are_those_of_the_segments_after_the_checkpoint(any_state: State):
    """LogToClean counts whole segments, from the one of the offset up to the active one."""
    for log_dir in any_state.log_dirs:
        found = open_path(str(log_dir))
        assert isinstance(found, LogDirListing)
        noted = {}
        if found.file(file_names.CLEANER_OFFSETS) is not None:
            entries = read_offset_checkpoint(str(log_dir / file_names.CLEANER_OFFSETS))
            noted = {(one.topic, one.partition): one.offset for one in entries}
        for partition in found.partitions:
            dirt = dirt_of(partition)
            offset = noted.get((partition.topic, partition.partition or 0))
            if offset is None or partition.state != DirectoryState.LIVE or dirt is None:
                continue
            bases = [one.base_offset for one in partition.segments]
            sizes = [os.path.getsize(one.log.path) for one in partition.segments]
            clean = sum(size for base, size in zip(bases, sizes, strict=True) if base < offset)
            first = max((base for base in bases if base <= offset), default=0)
            most = sum(
                size for base, size in zip(bases[:-1], sizes[:-1], strict=True) if base >= first
            )
            assert dirt.dirty_bytes <= most, "open transactions and the high watermark hold some"
            total = clean + dirt.dirty_bytes
            assert dirt.ratio == (dirt.dirty_bytes / total if total else 0)
            assert dirt.stuck is None, "all of it was written within an hour"


def compacted(root: Path, *, noted: int | None, age_s: int, clean: int = 1, dirty: int = 3) -> Path:
    """Write a partition of __consumer_offsets with checkpoints and segments of equal size."""
    partition = root / "__consumer_offsets-7"
    count = clean + dirty
    for base in range(count + 1):
        write_log(partition, batch(base, [record(key=b"k")]), name=f"{base:020d}")
        when = BASE_TIME // 1000 - (age_s if base <= count else 0)
        os.utime(partition / f"{base:020d}.log", (when, when))
    line = "__consumer_offsets 7 {}\n"
    (root / file_names.HIGH_WATERMARKS).write_text("0\n1\n" + line.format(count + 1))
    if noted is not None:
        (root / file_names.CLEANER_OFFSETS).write_text("0\n1\n" + line.format(noted))
    for name in (file_names.HIGH_WATERMARKS, file_names.CLEANER_OFFSETS):
        if (root / name).exists():
            os.utime(root / name, (BASE_TIME // 1000, BASE_TIME // 1000))
    return partition


def test_a_log_that_waits_for_hours_says_so(tmp_path: Path):
    """Three quarters have been dirty for 30 hours; the checkpoint says where the cleaner was."""
    dirt = dirt_of(open_partition(str(compacted(tmp_path, noted=1, age_s=30 * HOUR_S))))
    assert dirt is not None
    assert (dirt.dirty_bytes, dirt.ratio) == (3 * SIZE, 0.75)
    assert dirt.stuck is not None
    assert "75% of it is dirty" in dirt.stuck
    assert "for 30 hours; its last cleaning ended at offset 1" in dirt.stuck


@pytest.mark.parametrize(("noted", "why"), [
    (None, "cleaner-offset-checkpoint is missing"),
    (99, "its entry 99 in cleaner-offset-checkpoint lies outside the log"),
])  # fmt: skip
def test_the_checkpoint_may_be_why(tmp_path: Path, noted: int | None, why: str):
    """It is missing, or belongs to another log."""
    dirt = dirt_of(open_partition(str(compacted(tmp_path, noted=noted, age_s=9 * HOUR_S))))
    assert dirt is not None
    assert dirt.stuck is not None
    assert why in dirt.stuck
    (tmp_path / file_names.CLEANER_OFFSETS).write_text("0\n1\nother 0 1\n")
    dirt = dirt_of(open_partition(str(tmp_path / "__consumer_offsets-7")))
    assert dirt is not None
    assert "has no entry" in (dirt.stuck or "")


def test_a_cleaner_that_works_is_left_in_peace(tmp_path: Path):
    """Too little is dirty, or not for long, or nothing says that the topic is compacted."""
    for name, options in {
        "little": {"noted": 3, "clean": 3, "dirty": 1, "age_s": 99 * HOUR_S},
        "lately": {"noted": 1, "age_s": HOUR_S // 2},
    }.items():
        dirt = dirt_of(open_partition(str(compacted(tmp_path / name, **options))))
        assert dirt is not None
        assert dirt.stuck is None
    other = write_log(tmp_path / "orders-0", batch(0, [record()])).parent
    assert dirt_of(open_partition(str(other))) is None


@pytest.mark.parametrize(("age_s", "state"), [
    (30 * HOUR_S, CleanerState.UNCLEANABLE),
    (HOUR_S // 2, CleanerState.INTERRUPTED),
])  # fmt: skip
def test_a_new_segment_says_what_became_of_its_cleaning(
    age_s: int, state: CleanerState, tmp_path: Path
):
    """It is old only if the cleaning failed: the cleaner writes it at once, or aborts."""
    partition = compacted(tmp_path, noted=1, age_s=30 * HOUR_S)
    assert cleaner_state(open_partition(str(partition))) is None
    new = partition / f"{1:020d}.log.cleaned"
    new.write_bytes(b"")
    os.utime(new, (BASE_TIME // 1000 - age_s,) * 2)
    opened = open_partition(str(partition))
    assert cleaner_state(opened) == state
    dirt = dirt_of(opened)
    assert dirt is not None
    assert dirt.stuck is not None
    assert ("uncleanable" in dirt.stuck) == (state == CleanerState.UNCLEANABLE)
    broker = locked_by_another(tmp_path)
    running = {CleanerState.INTERRUPTED: CleanerState.IN_PROGRESS}
    assert cleaner_state(opened) == running.get(state, state)
    broker.communicate("")


def test_a_broker_that_was_killed_while_it_cleaned_interrupted_it(corpus_dir: Path, kafkalog: Run):
    """Kafka 4.3 was killed while it wrote new segments, and while it put them in place."""
    for name, files in (("interrupted-0-cleaned", "cleaned"), ("interrupted-1-swap", "swap")):
        listed = kafkalog("ls", corpus_dir / "kafka-4.3" / name, "-o", "ndjson").stdout
        found = [one for one in map(json.loads, listed.splitlines()) if one["type"] == "partition"]
        concerned = [one for one in found if files in one["odd_files"]]
        assert concerned
        assert {one["cleaner_state"] for one in concerned} == {"interrupted"}
        others = [one["cleaner_state"] for one in found if one not in concerned]
        assert set(others) == {None}


def test_ls_warns_and_shows_how_dirty(tmp_path: Path, kafkalog: Run):
    """In the example, __consumer_offsets has grown since the cleaner died."""
    partition = compacted(tmp_path, noted=1, age_s=30 * HOUR_S)
    result = kafkalog("ls", tmp_path)
    assert result.status == 0
    assert "75%" in result.stdout.decode()
    assert f"warning: {partition}: the cleaner is stuck: 75% of it is dirty" in result.stderr
    assert f"`kafkalog verify --level deep {partition}`" in result.stderr
