"""Growth equals an independent count; retention equals retention."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING

import pytest

import kafkalog
from kafkalog.answers.disk_usage import Forecast, disk_usage
from kafkalog.answers.disk_usage.ahead import Change, full_at, growth_of
from kafkalog.answers.disk_usage.model import HOUR_MS, HOURS
from kafkalog.files.log_dir import LogDirListing, open_path
from tests.builders import BASE_TIME, batch, frames, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.files.log_dir import PartitionDir
    from tests.conftest import State


def counted(partition: PartitionDir, now_ms: int) -> list[int]:
    """Count by hand: each batch of magic 2, in the hour of the largest timestamp up to it."""
    hours = [0] * HOURS
    for segment in partition.segments:
        with open(segment.log.path, "rb") as file:
            data = file.read()
        latest = -1
        for position, size in frames(data):
            if data[position + 16 : position + 17] != b"\x02" or position + size > len(data):
                break  # preallocated, or torn
            latest = max(latest, struct.unpack_from(">q", data, position + 35)[0])
            hour = (latest - now_ms + HOURS * HOUR_MS - 1) // HOUR_MS
            if 0 <= hour < HOURS:
                hours[hour] += size
    return hours


@pytest.mark.sampled(10)
def test_growth_is_what_the_batches_add_up_to(any_state: State):
    """With indexes of real brokers, and hours that cut through the logs."""
    rng = random.Random(11)
    for log_dir in any_state.log_dirs:
        found = open_path(str(log_dir))
        assert isinstance(found, LogDirListing)
        for partition in found.partitions:
            with open(partition.segments[0].log.path, "rb") as file:
                head = file.read(61)
            if len(head) < 61 or head[16] != 2:
                continue
            first = struct.unpack_from(">q", head, 35)[0]
            for _ in range(4):
                now = first + rng.randrange(0, 2 * HOUR_MS) + rng.randrange(24) * HOUR_MS
                assert list(growth_of(partition, now)) == counted(partition, now), partition.path


def test_growth_without_indexes_and_with_odd_times(tmp_path: Path):
    """Times go back and forth, lie in the future, or are missing."""
    rng = random.Random(3)
    for number in range(6):
        times = [BASE_TIME + rng.randrange(-30, 8) * HOUR_MS // 2 for _ in range(40)]
        batches = [
            batch(offset, [record()], base_time=time, max_time=time)
            for offset, time in enumerate(times)
        ]
        write_log(tmp_path / f"orders-{number}", *batches)
        found = kafkalog.open(tmp_path / f"orders-{number}")
        assert isinstance(found, kafkalog.Log)
        partition = open_path(found.path)
        assert list(growth_of(partition, BASE_TIME)) == counted(partition, BASE_TIME)


@pytest.mark.sampled(30)
def test_retention_is_that_of_simulate_retention(any_state: State):
    """Bytes freed now and later agree, at several clocks."""
    configs = {"retention.ms": "3600000", "retention.bytes": "30000"}
    for now in (1_704_070_000_000, 1_763_700_000_000, 1_795_300_000_000):
        until = now + 7 * 24 * HOUR_MS
        forecast = Forecast(now, until, configs, disk_bytes=1 << 40)
        report = disk_usage(*any_state.log_dirs, forecast=forecast)
        judged = list(kafkalog.simulate_retention(*any_state.log_dirs, configs=configs, now=now))
        assert report.total.freed_now_bytes == sum(
            one.freed_bytes + one.freed_side_bytes for one in judged
        )
        assert report.total.freed_later_bytes == sum(
            verdict.segment.size_bytes
            for one in judged
            for verdict in one.verdicts
            if not verdict.is_deleted
            and verdict.deletable_timestamp is not None
            and now < verdict.deletable_timestamp <= until
        )
        by_topic = sum(share.usage.freed_now_bytes for share in report.shares)
        assert by_topic == report.total.freed_now_bytes
        assert [disk.free_bytes for disk in report.disks] == [
            (1 << 40) - disk.used_bytes for disk in report.disks
        ]


def test_partitions_above_their_limit_say_why(tmp_path: Path):
    """The records are not replicated yet: the high watermark keeps the segments."""
    for base in range(0, 30, 10):
        batches = [
            batch(base + n, [record()], base_time=BASE_TIME, max_time=BASE_TIME) for n in range(10)
        ]
        write_log(tmp_path / "orders-0", *batches, name=f"{base:020d}")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 5\n")
    forecast = Forecast(BASE_TIME + HOUR_MS, BASE_TIME + 2 * HOUR_MS, {"retention.ms": "1000"})
    [over] = disk_usage(tmp_path, forecast=forecast).over
    sizes = sum(path.stat().st_size for path in (tmp_path / "orders-0").glob("*.log"))
    assert over.over_bytes == sizes
    assert "high watermark" in over.reason


def test_what_is_deleted_at_once_fills_no_disk(tmp_path: Path):
    """With `retention.ms=0` nothing stays; without a limit the log grows as in the last day."""
    batches = [
        batch(hour, [record()], base_time=time, max_time=time)
        for hour, time in enumerate(range(BASE_TIME, BASE_TIME + HOURS * HOUR_MS, HOUR_MS))
    ]
    size = write_log(tmp_path / "orders-0", *batches).stat().st_size
    (tmp_path / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {HOURS}\n")
    now = BASE_TIME + HOURS * HOUR_MS - 1
    full = {}
    for retention in ("0", "-1"):
        forecast = Forecast(now, now + 1, {"retention.ms": retention}, disk_bytes=1 << 20)
        report = disk_usage(tmp_path, forecast=forecast)
        assert report.total.freed_now_bytes == (size if retention == "0" else 0)
        [disk] = report.disks
        full[retention] = disk.full_timestamp
    assert disk.free_bytes is not None
    days = disk.free_bytes / size
    assert full == {"0": None, "-1": now + round(days * HOURS * HOUR_MS)}


def test_the_end_of_a_disk_is_where_a_simulation_meets_it():
    """The simulation computes the sum at each millisecond."""
    rng = random.Random(5)
    ends = set()
    for _ in range(300):
        changes = [
            Change(rng.randrange(60), rng.randrange(-40, 20), rng.randrange(-3, 4))
            for _ in range(rng.randrange(1, 7))
        ]
        free = rng.randrange(1, 150)

        def occupied(at: int, until: int, changes: list[Change] = changes) -> float:
            return sum(
                one.size_bytes + one.rate * (at - one.at_ms)
                for one in changes
                if one.at_ms <= until
            )

        full = (at for at in range(400) if max(occupied(at, at - 1), occupied(at, at)) >= free)
        wanted = next(full, None)
        found = full_at(free, changes, 0)
        if wanted is None:
            assert found is None or found >= 399
        else:
            assert found is not None
            assert abs(found - wanted) <= 1
        ends.add(wanted is None)
    assert ends == {True, False}
