"""Small logs at the edges of what a cleaning meets; what has to come out is Kafka's code's."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from formats import constants as c
from kafkalog.check.index_order import padding_is_sound
from kafkalog.compaction import compact_partition, find_candidate
from kafkalog.compaction.cleanable import find_cleanable
from kafkalog.compaction.cleaning import Pass
from kafkalog.compaction.model import CompactionConfig, CompactionRequest, Dropped
from kafkalog.compaction.new_segment import NewSegment
from kafkalog.configs import ConfigSources
from kafkalog.indexes import TimeIndex
from kafkalog.log_dir import open_partition
from kafkalog.model import Record
from kafkalog.reader import EVERYTHING, read_records
from kafkalog.runs.run import Run
from kafkalog.unified_log import UnifiedLog
from tests.builders import BASE_TIME, batch, record

if TYPE_CHECKING:
    from pathlib import Path

LATER_MS = BASE_TIME + 3_600_000
ABORT_KEY, ABORT_VALUE = struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 0)


def keyed(offset: int, key: bytes, *, time: int = BASE_TIME, **fields: object) -> bytes:
    return batch(offset, [record(key=key)], base_time=time, max_time=time, **fields)  # type: ignore[arg-type]


def write(partition: Path, base_offset: int, *batches: bytes, interval: int = 4096) -> None:
    """A segment that was closed, with its indexes."""
    partition.mkdir(parents=True, exist_ok=True)
    (partition.parent / ".kafka_cleanshutdown").touch()
    segment = NewSegment(base_offset, interval)
    segment.extend(b"".join(batches))
    segment.close()
    stem = f"{base_offset:020}"
    (partition / f"{stem}.log").write_bytes(b"".join(batches))
    (partition / f"{stem}.index").write_bytes(segment.offset_index)
    (partition / f"{stem}.timeindex").write_bytes(segment.time_index)


def test_a_full_map_reaches_over_aborted_batches(tmp_path: Path) -> None:
    """`buildOffsetMapForSegment` notes the last offset of each batch, whatever is in it."""
    partition = tmp_path / "orders-0"
    transactional = c.TRANSACTIONAL_MASK
    write(
        partition,
        0,
        keyed(0, b"one"),
        keyed(1, b"two", attributes=transactional, producer=(9, 0, 0)),
        batch(
            2,
            [record(key=ABORT_KEY, value=ABORT_VALUE)],
            attributes=transactional | c.CONTROL_MASK,
            producer=(9, 0, -1),
        ),
        keyed(3, b"three"),
    )
    (partition / f"{0:020}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 9, 1, 2, 3))
    write(partition, 4, keyed(4, b"four"))
    log = UnifiedLog(str(partition))
    config = CompactionConfig(map_memory=2 * 24)
    assert config.keys_max == 1
    cleaning = Pass(log, config, LATER_MS, find_cleanable(log, config, LATER_MS, None), {})
    assert cleaning.end_offset == 3


def test_a_pass_over_a_clean_log_does_nothing(tmp_path: Path) -> None:
    """As `Cleaner.doClean`: an empty map, end offset 0, no groups."""
    partition = tmp_path / "orders-0"
    write(partition, 0, keyed(0, b"one"))
    log = UnifiedLog(str(partition))
    cleanable = find_cleanable(log, CompactionConfig(), LATER_MS, None)
    cleaning = Pass(log, CompactionConfig(), LATER_MS, cleanable, {})
    assert (cleanable.cleanable_bytes, cleaning.end_offset, cleaning.groups()) == (0, 0, [])


def test_a_record_of_time_zero_is_old(tmp_path: Path) -> None:
    """Its entry in the time index is all zeros: the index was trimmed, and the entry counts."""
    partition = tmp_path / "orders-0"
    write(partition, 0, keyed(0, b"one", time=0))
    write(partition, 1, keyed(1, b"two", time=LATER_MS))
    assert (partition / f"{0:020}.timeindex").read_bytes() == bytes(12)
    config = CompactionConfig(min_compaction_lag_ms=1000)
    cleanable = find_cleanable(UnifiedLog(str(partition)), config, LATER_MS, None)
    assert cleanable.first_uncleanable_offset == 1
    with TimeIndex(str(partition / f"{0:020}.timeindex")) as index:
        assert not list(padding_is_sound(index, is_active=False))


def test_times_that_go_back_need_few_entries(tmp_path: Path) -> None:
    """Small indexes hold a segment whose first record is the youngest: it is cleaned."""
    partition = tmp_path / "orders-0"
    batches = [keyed(i, b"%d" % (i % 4), time=BASE_TIME - 1000 * i) for i in range(6)]
    write(partition, 0, *batches, interval=0)
    write(partition, 6, keyed(6, b"last"))
    given = {"cleanup.policy": "compact", "segment.index.bytes": "48", "index.interval.bytes": "0"}
    configs = ConfigSources(given).in_log_dir(str(tmp_path)).of_topic("orders")
    request = CompactionRequest(LATER_MS, high_watermark="end")
    candidate = find_candidate(open_partition(str(partition)), configs, request)
    with Run(str(tmp_path)) as run:
        done = compact_partition(candidate, request, run)
    assert done.tally.records_kept == 4
    assert (partition / f"{0:020}.timeindex").read_bytes() == struct.pack(
        ">qi", BASE_TIME - 2000, 2
    )


def test_an_aborted_record_supersedes_nothing_at_high_offsets(tmp_path: Path) -> None:
    """Where a segment's first offset is larger than its size, the map knows of its markers too."""
    partition = tmp_path / "orders-0"
    transactional = c.TRANSACTIONAL_MASK
    write(
        partition,
        10_000,
        keyed(10_000, b"one"),
        keyed(10_001, b"one", attributes=transactional, producer=(9, 0, 0)),
        batch(
            10_002,
            [record(key=ABORT_KEY, value=ABORT_VALUE)],
            attributes=transactional | c.CONTROL_MASK,
            producer=(9, 0, -1),
        ),
        keyed(10_003, b"two"),
    )
    entry = struct.pack(">hqqqq", 0, 9, 10_001, 10_002, 10_003)
    (partition / f"{10_000:020}.txnindex").write_bytes(entry)
    write(partition, 10_004, keyed(10_004, b"last"))
    configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(tmp_path))
    request = CompactionRequest(LATER_MS, high_watermark="end")
    candidate = find_candidate(open_partition(str(partition)), configs.of_topic("orders"), request)
    with Run(str(tmp_path)) as run:
        done = compact_partition(candidate, request, run)
    assert done.tally.dropped[Dropped.SUPERSEDED] == 0
    kept = [one.key for one in read_records(str(partition), EVERYTHING) if isinstance(one, Record)]
    assert kept == [b"one", ABORT_KEY, b"two", b"last"]
