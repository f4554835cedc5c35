"""A log's offsets, epochs and open transactions, compared with brokers and Kafka's classes."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import NotFoundError, UsageError
from kafkalog.files.log_dir import open_partition
from kafkalog.log.batches.selection import Selection
from kafkalog.model import EpochEntry, Isolation, Record, Special
from kafkalog.node.lookup import lookup_special
from kafkalog.node.reader import read_records
from kafkalog.node.unified_log import END, UnifiedLog
from kafkalog.tables import Request, TableName, plan_splits, read_split
from kafkalog.tables.schemas import table_schema
from tests.builders import batch, healthy, record, write_log
from tests.conftest import SCENARIOS, State

if TYPE_CHECKING:
    from pathlib import Path

MARKER = [b"\x20\0\0\0\x08\0\0\0\1\x0c\0\0\0\0\0\x0c\0"]


@pytest.mark.sampled(3)
def test_offsets_are_those_the_broker_served(any_state: State):
    """Admin.listOffsets: earliest, latest, last stable offset.

    The only running replica knows that everything is replicated; its last checkpoint may be older.
    """
    path = any_state.expected / "lookup.json"
    if not path.exists() or not healthy(any_state):
        return
    for name, recorded in json.loads(path.read_text()).items():
        found = [p for p in any_state.partitions() if p.name == name]
        for partition in found:
            log = UnifiedLog(str(partition), high_watermark=END)
            assert log.log_start_offset == recorded["earliest"]["offset"], partition
            assert log.log_end_offset == recorded["latest"]["offset"], partition
            stable = recorded.get("lastStableOffset") or recorded["latest_read_committed"]
            assert log.last_stable_offset == stable["offset"], partition


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("use_index", [True, False])
def test_offsets_are_those_of_the_storage_classes(scenario: str, corpus_dir: Path, use_index: bool):
    """`UnifiedLog` of Kafka 4.3, with and without indexes."""
    facts = json.loads((corpus_dir / "lookup" / scenario / "facts.json").read_text())["answers"]
    [path] = (corpus_dir / "lookup" / scenario).glob("**/orders-0")
    log = UnifiedLog(str(path), use_index=use_index)
    assert log.log_start_offset == facts["logStartOffset"]
    assert log.log_end_offset == facts["logEndOffset"]
    for query in facts["offsets"]:
        if query.get("floorSegment"):
            ordinal = log.floor_segment(query["offset"])
            assert ordinal is not None
            assert log.segments[ordinal].base_offset == query["floorSegment"]["segmentBase"]


def test_given_offsets_count_before_checkpoints(tmp_path: Path):
    """Even so, the high watermark is never above the end."""
    write_log(tmp_path / "t-0", *(batch(i, [record()]) for i in range(10)))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 4\n")
    assert UnifiedLog(str(tmp_path / "t-0")).log_start_offset == 4
    log = UnifiedLog(str(tmp_path / "t-0"), log_start_offset=2, high_watermark=7)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 7, 10)
    assert UnifiedLog(str(tmp_path / "t-0"), high_watermark=99).high_watermark == 10


@pytest.mark.parametrize(
    ("start", "watermark", "wanted"),
    [
        ((), (), (0, 10)),
        ((4,), (7,), (4, 7)),
        ((4,), (), (4, 10)),
        ((), (99,), (0, 10)),  # never above the end
        ((4,), (2,), (4, 4)),  # nor below the start
    ],
)
def test_every_reader_gives_a_consumer_the_same_offsets(
    tmp_path: Path, start: tuple[int, ...], watermark: tuple[int, ...], wanted: tuple[int, int]
):
    """From the log start offset up to the high watermark of the checkpoints."""
    write_log(tmp_path / "t-0", *(batch(i, [record()]) for i in range(10)))
    for name, offsets in (("log-start", start), ("replication", watermark)):
        for offset in offsets:
            (tmp_path / f"{name}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
    path, committed = str(tmp_path / "t-0"), Isolation.READ_COMMITTED
    log = UnifiedLog(path)
    marks = log.offsets
    assert log.fetch_bounds(committed) == wanted
    assert (marks.log_start_offset.value, marks.last_stable_offset.value) == wanted
    ends = lookup_special(log, Special.EARLIEST), lookup_special(log, Special.LATEST, committed)
    assert tuple(found.offset for found in ends) == wanted
    rows = read_records(path, Selection(isolation=Isolation.READ_COMMITTED))
    assert [row.offset for row in rows if isinstance(row, Record)] == [*range(*wanted)]
    request, schema = Request(isolation=committed), table_schema(TableName.RECORDS, ("offset",))
    splits = plan_splits([path], request)
    tables = [table for split in splits for table in read_split(split, schema)]
    assert [row["offset"] for table in tables for row in table.to_pylist()] == [*range(*wanted)]


def test_a_malformed_checkpoint_does_not_count(tmp_path: Path):
    """`verify` reports it; reading continues without it."""
    write_log(tmp_path / "t-0", batch(0, [record()]))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n9\nt 0 4\n")
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"\xff\xff")
    log = UnifiedLog(str(tmp_path / "t-0"))
    assert log.log_start_offset == 0
    assert log.leader_epochs == ()


def test_epochs_come_from_their_file(tmp_path: Path):
    """They come in file order."""
    write_log(tmp_path / "t-0", batch(0, [record()]))
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 42\n")
    assert UnifiedLog(str(tmp_path / "t-0")).leader_epochs == (EpochEntry(0, 0), EpochEntry(3, 42))


def transaction(offset: int, producer: int) -> bytes:
    return batch(offset, [record()], attributes=0x10, producer=(producer, 0, 0))


def marker(offset: int, producer: int) -> bytes:
    return batch(offset, MARKER, attributes=0x30, producer=(producer, 0, -1))


def test_transactions_without_a_marker_are_open(tmp_path: Path):
    """The first open one is the last stable offset, unless it is above the high watermark."""
    path = write_log(
        tmp_path / "t-0",
        transaction(0, 1), transaction(1, 2), marker(2, 1), transaction(3, 1), batch(4, [record()]),
        transaction(5, 3), marker(6, 3),
    )  # fmt: skip
    log = UnifiedLog(str(path.parent))
    assert [(one.producer_id, one.first_offset) for one in log.open_transactions()] == [
        (2, 1),
        (1, 3),
    ]
    assert log.last_stable_offset == 1
    log = UnifiedLog(str(path.parent), high_watermark=6)
    assert log.open_transactions()[-1].first_offset == 5
    assert UnifiedLog(str(path.parent), high_watermark=1).last_stable_offset == 0


def test_what_was_aborted_is_hidden_though_the_listing_has_no_transaction_index(
    tmp_path: Path,
) -> None:
    """A broker creates the index with its first entry, which may happen after the listing."""
    abort = [MARKER[0].replace(b"\x08\0\0\0\1", b"\x08\0\0\0\0")]
    assert abort != MARKER
    ended = batch(2, abort, attributes=0x30, producer=(7, 0, -1))
    write_log(tmp_path / "t-0", transaction(0, 7), transaction(1, 8), ended, marker(3, 8))
    listed = open_partition(str(tmp_path / "t-0"))
    assert listed.segments[0].transaction_index is None
    committed = Selection(isolation=Isolation.READ_COMMITTED)
    assert [r.offset for r in read_records(listed, committed) if isinstance(r, Record)] == [1]
    schema = table_schema(TableName.RECORDS, ["offset"])
    request = Request(isolation=Isolation.READ_COMMITTED)
    [split] = plan_splits([str(tmp_path / "t-0")], request)
    assert [row for one in read_split(split, schema) for row in one["offset"].to_pylist()] == [1]
    index = struct.pack(">hqqqq", 0, 7, 0, 2, 1)
    (tmp_path / "t-0" / f"{0:020}.txnindex").write_bytes(index)
    [hidden] = UnifiedLog(str(tmp_path / "t-0")).hidden_transactions()
    assert (hidden.producer_id, hidden.first_offset, hidden.last_offset) == (7, 0, 2)


def test_a_cut_marker_is_no_marker_and_no_crash(tmp_path: Path):
    """Anything after the last whole batch is ignored."""
    path = write_log(tmp_path / "t-0", transaction(0, 1), marker(1, 1)[:-1])
    assert UnifiedLog(str(path.parent)).last_stable_offset == 0


def test_an_empty_directory_has_an_empty_log(tmp_path: Path):
    """A partition that was just created, or has lost all its segments."""
    (tmp_path / "t-0").mkdir()
    log = UnifiedLog(str(tmp_path / "t-0"))
    assert (log.log_start_offset, log.log_end_offset, log.segments) == (0, 0, ())
    assert log.last_stable_offset == 0
    assert log.floor_segment(0) is None


def test_an_index_that_lies_does_not_move_the_end(tmp_path: Path):
    """Entries beyond the log, into the middle of a batch, or with negative positions."""
    path = write_log(tmp_path / "t-0", *(batch(i, [record()]) for i in range(50)))
    index = path.with_suffix(".index")
    for entry in ((40, 1 << 30), (40, 33), (49, -5), (2**31 - 1, 69), (-5, 0), (10, 69 * 40)):
        index.write_bytes(struct.pack(">ii", *entry))
        assert UnifiedLog(str(path.parent)).log_end_offset == 50, entry


def test_only_partition_directories_are_logs(tmp_path: Path):
    """Files, log directories and missing paths are refused."""
    path = write_log(tmp_path / "t-0", batch(0, [record()]))
    for wrong in (path, tmp_path):
        with pytest.raises(UsageError):
            UnifiedLog(str(wrong))
    with pytest.raises(NotFoundError):
        UnifiedLog(str(tmp_path / "t-1"))
