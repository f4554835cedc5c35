"""Small logs at the edges of cleaning; the expected results follow Kafka's code."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from formats import constants as c
from kafkalog.change.compaction import columns, compact, compact_partition, find_candidate
from kafkalog.change.compaction.candidates import find_cleanable
from kafkalog.change.compaction.chunks import opened
from kafkalog.change.compaction.cleaning import Pass
from kafkalog.change.compaction.model import CompactionConfig, CompactionRequest, Dropped
from kafkalog.change.compaction.swap import NewSegment, read_back
from kafkalog.change.journal.run import Run
from kafkalog.check.index_files import padding_is_sound
from kafkalog.errors import CorruptDataError
from kafkalog.files.indexes import TimeIndex
from kafkalog.files.log_dir import open_partition
from kafkalog.io.codecs import compress
from kafkalog.log.columns.chunks import BATCH_SIZE_MAX
from kafkalog.node.configs import ConfigSources
from kafkalog.node.unified_log import UnifiedLog
from tests.builders import BASE_TIME, batch, record
from tests.kafkalog.change.compaction.oracle import contents

LATER_MS = BASE_TIME + 3_600_000
ABORT_KEY, ABORT_VALUE = struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 0)


def keyed(offset: int, key: bytes, *, time: int = BASE_TIME, **fields: object) -> bytes:
    return batch(offset, [record(key=key)], base_time=time, max_time=time, **fields)  # type: ignore[arg-type]


def write(partition: Path, base_offset: int, *batches: bytes, interval: int = 4096) -> None:
    """Write a closed segment with its indexes."""
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


@pytest.mark.parametrize("by_kernels", [False, True])
@pytest.mark.parametrize(("keeps_end", "high_watermark", "left"), [
    (True, 5, [0, 2]), (False, 5, [0]), (False, 3, [0, 2]), (True, 3, [0, 2]),
])  # fmt: skip
def test_a_batch_stays_at_an_end_without_records(
    tmp_path: Path, keeps_end: bool, high_watermark: int, left: list[int], by_kernels: bool
) -> None:
    """That of the round up to Kafka 4.3, that at the high watermark since 4.4."""
    partition = tmp_path / "orders-0"
    write(partition, 0, keyed(0, b"one"), keyed(1, b"none"), batch(2, [record()]))
    write(partition, 3, keyed(3, b"none"), keyed(4, b"last"))
    log = UnifiedLog(str(partition), high_watermark=high_watermark)
    config = CompactionConfig(keeps_end_of_round=keeps_end)
    cleanable = find_cleanable(log, config, LATER_MS, None)
    kind = columns.ColumnPass if by_kernels else Pass
    cleaning = kind(log, config, LATER_MS, cleanable, {})
    [group] = cleaning.groups()
    new = tmp_path / "new.log"
    new.write_bytes(b"".join(bytes(one) for one in cleaning.clean(group)))
    assert [header[0] for header, _ in contents(new) if header[0] != 1] == left


@pytest.mark.parametrize("codec", [c.NONE, c.GZIP, c.ZSTD])
def test_the_cleaner_refuses_a_record_that_is_too_large(tmp_path: Path, codec: int) -> None:
    """Its fields count, and only of compressed batches; the compaction goes on."""
    partition = tmp_path / "orders-0"
    body = record(key=b"one", value=b"v" * 89) + record(1, key=b"two")
    body = compress(body, codec) if codec else body
    write(partition, 0, batch(0, payload=body, count=2, last_delta=1, attributes=codec))
    write(partition, 2, keyed(2, b"one"))
    said = []
    for limit in (98, 99):
        given = {"cleanup.policy": "compact", "max.decompressed.message.bytes": str(limit)}
        configs = ConfigSources(given).in_log_dir(str(tmp_path)).of_topic("orders")
        request = CompactionRequest(LATER_MS, high_watermark="end")
        candidate = find_candidate(open_partition(str(partition)), configs, request)
        said.append(compact_partition(candidate, request).tally.cleaner_gives_up)
    words = "Invalid record size: 99 exceeds the configured maximum record size of 98"
    assert said == [f"{words} (batch at offset 0)" if codec else None, None]


def test_a_record_of_time_zero_is_old(tmp_path: Path) -> None:
    """Its entry in the time index is all zeros: the index was trimmed, so the entry counts."""
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
    """A segment whose first record is the youngest fits into small indexes: it is cleaned."""
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
    assert done.tally.kept_records == 4
    assert (partition / f"{0:020}.timeindex").read_bytes() == struct.pack(
        ">qi", BASE_TIME - 2000, 2
    )


def test_batches_that_the_kernels_leave_are_compacted(tmp_path: Path) -> None:
    """A batch above 64 MB loses a record, whose key has an older record."""
    partition = tmp_path / "orders-0"
    huge = record(key=b"one", value=bytes(BATCH_SIZE_MAX))
    small = record(offset_delta=1, key=b"two", value=b"old")
    write(partition, 0, keyed(0, b"one"), batch(1, [huge, small]), keyed(3, b"two"))
    write(partition, 4, keyed(4, b"last"))
    configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(tmp_path))
    request = CompactionRequest(LATER_MS, high_watermark="end")
    partition_dir = open_partition(str(partition))
    candidate = find_candidate(partition_dir, configs.of_topic("orders"), request)
    with Run(str(tmp_path)) as run:
        done = compact_partition(candidate, request, run)
    assert (done.tally.kept_records, done.tally.dropped[Dropped.SUPERSEDED]) == (2, 2)
    found = contents(partition / f"{0:020}.log")
    assert [[one[0] for one in records] for _, records in found] == [[1], [3]]
    assert len(found[0][1][0][3]) == BATCH_SIZE_MAX


@pytest.mark.parametrize("by_kernels", [True, False])
def test_a_negative_delete_horizon_is_over_and_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_kernels: bool
) -> None:
    """`deleteHorizonMs` is there, and `MemoryRecordsBuilder` takes it for none."""
    monkeypatch.setattr(compact, "kernels_work", lambda: by_kernels)
    partition = tmp_path / "orders-0"
    since = BASE_TIME + 5
    gone = record(key=b"gone", value=None, time_delta=since)
    kept = record(1, key=b"kept", time_delta=since)
    alone = record(key=b"alone", time_delta=since)
    fields: dict[str, Any] = {
        "attributes": c.DELETE_HORIZON_MASK, "base_time": -5, "max_time": BASE_TIME
    }  # fmt: skip
    unchanged = batch(2, [alone], **fields)
    write(partition, 0, batch(0, [gone, kept], **fields), unchanged)
    write(partition, 3, keyed(3, b"last"))
    configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(tmp_path))
    request = CompactionRequest(LATER_MS, high_watermark="end")
    candidate = find_candidate(open_partition(str(partition)), configs.of_topic("orders"), request)
    with Run(str(tmp_path)) as run:
        done = compact_partition(candidate, request, run)
    assert done.tally.dropped[Dropped.TOMBSTONE] == 1
    rewritten = batch(0, [record(1, key=b"kept")], last_delta=1)
    assert (partition / f"{0:020}.log").read_bytes() == rewritten + unchanged


def test_an_aborted_record_supersedes_nothing_far_from_offset_0(tmp_path: Path) -> None:
    """Its offset is greater than its position: they must not be compared."""
    partition = tmp_path / "orders-0"
    transactional = c.TRANSACTIONAL_MASK
    committed = keyed(1000, b"one")
    write(partition, 1000, committed)
    write(
        partition,
        1001,
        keyed(1001, b"one", attributes=transactional, producer=(9, 0, 0)),
        batch(
            1002,
            [record(key=ABORT_KEY, value=ABORT_VALUE)],
            attributes=transactional | c.CONTROL_MASK,
            producer=(9, 0, -1),
        ),
    )
    (partition / f"{1001:020}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 9, 1001, 1002, 1003))
    write(partition, 1003, keyed(1003, b"last"))
    configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(tmp_path))
    request = CompactionRequest(LATER_MS, high_watermark="end")
    candidate = find_candidate(open_partition(str(partition)), configs.of_topic("orders"), request)
    with Run(str(tmp_path)) as run:
        done = compact_partition(candidate, request, run)
    assert done.groups
    assert (partition / f"{1000:020}.log").read_bytes().startswith(committed)


def test_batches_whose_records_are_all_superseded_stay_compressed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are counted from their headers; the others lose records or none."""
    partition = tmp_path / "orders-0"
    one, two = (
        compress(record(key=b"one") + record(offset_delta=1, key=key), c.ZSTD)
        for key in (b"one", b"two")
    )
    fields: Any = {"count": 2, "attributes": c.ZSTD, "base_time": BASE_TIME, "max_time": BASE_TIME}
    write(partition, 0, *(batch(2 * i, payload=one, **fields) for i in range(3)))
    write(partition, 6, batch(6, payload=two, **fields), batch(8, payload=one, **fields))
    write(partition, 10, keyed(10, b"last"))
    wanted: list[list[bool]] = []

    def opens(chunk: Any, mask: Any) -> Any:
        wanted.append(mask.tolist())
        return opened(chunk, mask)

    monkeypatch.setattr(columns, "opened", opens)
    configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(tmp_path))
    request = CompactionRequest(LATER_MS, high_watermark="end")
    candidate = find_candidate(open_partition(str(partition)), configs.of_topic("orders"), request)
    with Run(str(tmp_path)) as run:
        done = compact_partition(candidate, request, run)
    assert wanted[:2] == [[False, False, False], [True, True]]
    assert (done.tally.kept_records, done.tally.dropped[Dropped.SUPERSEDED]) == (2, 8)
    found = contents(partition / f"{0:020}.log")
    assert [[one[0] for one in records] for _, records in found] == [[7], [9]]


def test_counts_that_a_disk_returns_otherwise_end_the_cleaning(tmp_path: Path) -> None:
    """Chunks after a count below 0 begin at no record: the map is not asked about them."""
    partition = tmp_path / "orders-0"
    value = bytes(4000)
    write(partition, 0, *(batch(i, [record(key=b"%d" % (i % 9), value=value)]) for i in range(99)))
    write(partition, 99, keyed(99, b"last"))
    log = UnifiedLog(str(partition))
    cleanable = find_cleanable(log, CompactionConfig(), LATER_MS, None)
    cleaning = columns.ColumnPass(log, CompactionConfig(), LATER_MS, cleanable, {})
    with (partition / f"{0:020}.log").open("r+b") as file:
        file.seek(c.RECORDS_COUNT_POSITION)
        file.write(struct.pack(">i", -(2**31)))
    with pytest.raises(CorruptDataError):
        list(cleaning.clean(cleaning.groups()[0]))


def test_what_reads_back_differently_is_not_swapped_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte of a new segment counts: checksum, offsets, records and indexes."""
    partition = tmp_path / "orders-0"
    write(partition, 0, *(keyed(i, b"one") for i in range(3)), keyed(3, b"two"))
    write(partition, 4, keyed(4, b"last"))
    configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(tmp_path))
    request = CompactionRequest(LATER_MS, high_watermark="end")
    old = {path.name: path.read_bytes() for path in partition.iterdir()}
    size = len(keyed(3, b"two"))

    def compacted() -> Any:
        partition_dir = open_partition(str(partition))
        candidate = find_candidate(partition_dir, configs.of_topic("orders"), request)
        with Run(str(tmp_path)) as run:
            return compact_partition(candidate, request, run)

    for at in (7, 20, size - 3, size):

        def damaged(path: str, *others: Any, at: int = at) -> Any:
            data = bytearray(Path(path).read_bytes())
            data[at : at + 1] = bytes([data[at] ^ 1]) if at < size else b""
            Path(path).write_bytes(data if at < size else b"")
            return read_back(path, *others)

        monkeypatch.setattr(compact, "read_back", damaged)
        with pytest.raises(CorruptDataError, match="reads back differently"):
            compacted()
        assert {path.name: path.read_bytes() for path in partition.iterdir()} == old
    monkeypatch.undo()
    assert compacted().is_done
