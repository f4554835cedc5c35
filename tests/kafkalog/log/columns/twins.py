"""One log through both decoders: the reference reader and the columnar scan, as plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.io.jit import fast_path
from kafkalog.log.batches.selection import EVERYTHING, Selection
from kafkalog.model import Defect, Record
from kafkalog.node import scan as columnar
from kafkalog.node.reader import read_records

if TYPE_CHECKING:
    from pathlib import Path

Row = dict[str, Any]
Outcome = tuple[list[Row], list[Defect]]


def row_of(record: Record) -> Row:
    batch = record.batch
    names = ("none", "gzip", "snappy", "lz4", "zstd")
    return {
        "path": batch.path,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": str(record.timestamp_type),
        "key": record.key,
        "value": record.value,
        "headers": [{"key": header.key, "value": header.value} for header in record.headers],
        "sequence": record.sequence,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "leader_epoch": batch.leader_epoch,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "compression": names[batch.compression],
        "magic": batch.magic,
        "batch_base_offset": batch.base_offset,
        "batch_position": batch.position,
    }


def by_reference(path: Path, selection: Selection = EVERYTHING) -> Outcome:
    rows, defects = [], []
    for found in read_records(path, selection):
        if isinstance(found, Defect):
            defects.append(found)
        else:
            rows.append(row_of(found))
    return rows, defects


def by_kernels(path: Path, selection: Selection = EVERYTHING, **options: Any) -> Outcome:
    """Scan with the kernels, even if the log is small."""
    rows: list[Row] = []
    defects: list[Defect] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path, "FAST_SIZE_MIN", 0)
        for table in columnar.scan(path, selection=selection, defects=defects.append, **options):
            table.validate(full=True)
            rows += table.to_pylist()
    return rows, defects


def assert_twins(path: Path, selection: Selection = EVERYTHING, **options: Any) -> Outcome:
    wanted = by_reference(path, selection)
    got = by_kernels(path, selection, **options)
    assert got[1] == wanted[1]
    assert got[0] == wanted[0]
    return got
