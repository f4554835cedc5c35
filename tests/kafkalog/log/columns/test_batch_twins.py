"""Batches as columns are those of the reference reader, with the same defects behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

from kafkalog.errors import UsageError
from kafkalog.io.jit import fast_path
from kafkalog.log.batches.selection import EVERYTHING, Selection
from kafkalog.model import Batch, Defect, Isolation
from kafkalog.node.reader import read_batches
from kafkalog.node.scan import Scan, scan
from tests.builders import batch, flip, record, write_log
from tests.kafkalog.log.columns.test_twins import SELECTION, logs
from tests.sampling import examples

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State

NAMES = ("none", "gzip", "snappy", "lz4", "zstd", "5", "6", "7")
Found = list[dict[str, Any]]


def row_of(found: Batch) -> dict[str, Any]:
    return {
        "path": found.path,
        "position": found.position,
        "size_bytes": found.size_bytes,
        "base_offset": found.base_offset,
        "last_offset": max(min(found.last_offset, 2**63 - 1), -(2**63)),
        "records": found.records,
        "magic": found.magic,
        "compression": NAMES[found.compression],
        "timestamp_type": str(found.timestamp_type),
        "base_timestamp": found.base_timestamp,
        "max_timestamp": found.max_timestamp,
        "delete_horizon_timestamp": found.delete_horizon_timestamp,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "base_sequence": found.base_sequence,
        "last_sequence": found.last_sequence,
        "leader_epoch": found.leader_epoch,
        "is_transactional": found.is_transactional,
        "is_control": found.is_control,
        "crc": found.crc,
        "crc_valid": found.crc_valid,
    }


def assert_twins(path: Path, selection: Selection = EVERYTHING) -> tuple[Found, list[Defect]]:
    rows: Found = []
    defects: list[Defect] = []
    for found in read_batches(path, selection):
        if isinstance(found, Defect):
            defects.append(found)
        else:
            rows.append(row_of(found))
    for size_min in (0, 1 << 60):
        told: list[Defect] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fast_path, "FAST_SIZE_MIN", size_min)
            wanted = Scan(
                path, batches=True, selection=selection, batch_rows=3, on_event=told.append
            )
            table = wanted.to_table()
        table.validate(full=True)
        assert told == defects
        assert table.to_pylist() == rows
    return rows, defects


@settings(max_examples=examples(150))
@given(data=logs(), selection=SELECTION)
def test_generated_and_damaged_logs(tmp_path: Path, data: bytes, selection: Selection):
    """With a limit, the defect of the last batch within it is reported, and no later one."""
    path = write_log(tmp_path, data)
    assert_twins(path)
    assert_twins(path, selection)


@pytest.mark.sampled(43)
def test_the_corpus(any_state: State):
    """Compressed messages of magic 0 and 1 also have their true base offset."""
    for partition in any_state.partitions():
        assert_twins(partition)
        assert_twins(partition, Selection(isolation=Isolation.READ_COMMITTED))


@pytest.mark.parametrize("limit", range(5))
def test_a_limit_ends_the_defects_too(tmp_path: Path, limit: int):
    """The defect of a batch comes right after its row."""
    hurt = [flip(batch(i, [record(0)]), 8 * 17) for i in range(4)]
    rows, defects = assert_twins(write_log(tmp_path, *hurt), Selection(limit=limit))
    assert len(rows) == len(defects) == limit


def test_other_columns_are_refused():
    """A batch has no key."""
    assert Scan("examples/log-dir/orders-0", batches=True).schema.names[0] == "path"
    with pytest.raises(UsageError, match="no column 'key'"):
        scan("examples/log-dir/orders-0", batches=True, columns=["key"])
