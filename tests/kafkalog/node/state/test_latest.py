"""The latest record per key, compared with a record-by-record replay as in Kafka."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.log.batches.selection import Selection
from kafkalog.model import Isolation
from kafkalog.node.scan import scan
from kafkalog.node.state.latest import COLUMNS, LatestRecords, PlainRecords
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Step = tuple[str, int, int]
"""What happens: `put`, `remove`, `put in`, `remove in`, `commit` or `abort`; key and producer."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "put in", "remove in", "commit", "abort"]),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=40,
)
Replayed = tuple[dict[bytes, int], dict[int, dict[bytes, int]]]


def written(steps: Sequence[Step]) -> list[bytes]:
    """Encode one batch per step, with the step's number as its offset."""
    batches = []
    for offset, (what, key, producer) in enumerate(steps):
        name = b"key-%d" % key
        if what in ("commit", "abort"):
            marker = record(0, struct.pack(">hh", 0, what == "commit"), struct.pack(">hi", 0, 0))
            batches.append(batch(offset, [marker], attributes=0x30, producer=(producer, 0, -1)))
            continue
        value = None if what.startswith("remove") else b"%d" % offset
        within = {"attributes": 0x10, "producer": (producer, 0, 0)} if what.endswith(" in") else {}
        batches.append(batch(offset, [record(0, name, value)], **within))  # type: ignore[arg-type]
    return batches


def replayed(steps: Sequence[Step]) -> Replayed:
    """Replay each step as `OffsetMetadataManager.replay` and `replayEndTransactionMarker` do."""
    offsets: dict[bytes, int] = {}
    pending: dict[int, dict[bytes, int]] = {}
    for offset, (what, key, producer) in enumerate(steps):
        name = b"key-%d" % key
        if what == "put":
            offsets[name] = offset
        elif what == "put in":
            pending.setdefault(producer, {})[name] = offset
        elif what.startswith("remove"):
            offsets.pop(name, None)
            for one in pending.values():
                one.pop(name, None)
        else:
            ended = pending.pop(producer, {})
            if what == "commit":
                for one, at in ended.items():
                    if one not in offsets or at > offsets[one]:
                        offsets[one] = at
    return offsets, {producer: one for producer, one in pending.items() if one}


KINDS = (LatestRecords, PlainRecords)


def found(
    path: Path, rows: int = 65536, kind: type[LatestRecords | PlainRecords] = LatestRecords
) -> Replayed:
    latest = kind()
    selection = Selection(isolation=Isolation.LOG)
    for part in scan(str(path), columns=COLUMNS, selection=selection, batch_rows=rows):
        latest.take(part)
        if rows % 2:
            latest.finish()
    latest.finish()
    applied = {key: one.offset for key, one in latest.latest() if one.value is not None}
    pending = {
        producer: {key: one.offset for key, one in records.items()}
        for producer, records in latest.pending.items()
        if records
    }
    return applied, pending


@given(steps=STEPS, rows=st.sampled_from([1, 2, 7, 65536]), kind=st.sampled_from(KINDS))
def test_what_counts_is_what_kafka_has_in_memory(
    steps: list[Step],
    rows: int,
    kind: type[LatestRecords | PlainRecords],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Any steps in between, any split of the rows into record batches, with pyarrow or without."""
    path = write_log(tmp_path_factory.mktemp("latest") / "__consumer_offsets-0", *written(steps))
    assert found(path.parent, rows, kind) == replayed(steps)


@pytest.mark.parametrize(
    ("steps", "applied", "pending"),
    [
        ([("put in", 0, 1), ("put", 0, 0), ("commit", 0, 1)], {b"key-0": 1}, {}),
        ([("put in", 0, 1), ("remove", 0, 0), ("commit", 0, 1)], {}, {}),
        ([("put", 0, 0), ("put in", 0, 1), ("abort", 0, 1)], {b"key-0": 0}, {}),
        ([("put", 0, 0), ("put in", 0, 1)], {b"key-0": 0}, {1: {b"key-0": 1}}),
        ([("put in", 0, 1), ("put in", 0, 2), ("commit", 0, 2), ("commit", 0, 1)],
         {b"key-0": 1}, {}),
    ],
    ids=["newer-commit", "tombstone", "aborted", "open", "later-marker"],
)  # fmt: skip
def test_cases(
    steps: list[Step],
    applied: dict[bytes, int],
    pending: dict[int, dict[bytes, int]],
    tmp_path: Path,
) -> None:
    """Cases that a simpler rule would get wrong."""
    path = write_log(tmp_path / "__consumer_offsets-0", *written(steps))
    for kind in KINDS:
        assert found(path.parent, kind=kind) == (applied, pending)
