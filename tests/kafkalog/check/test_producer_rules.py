"""The producer states that `verify` derives on columns are those of the rules, batch by batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.constants import ABORT, INT32_MAX, INT64_MAX
from kafkalog.check import producers
from kafkalog.check.producer_states import SNAPSHOT_FIELDS
from kafkalog.check.verify import Verification
from kafkalog.errors import CorruptDataError
from kafkalog.files.payloads.control_records import control_record
from kafkalog.io.jit import fast_path
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.records import decode_records
from kafkalog.log.columns import headers
from kafkalog.log.producers import AppendInfo
from kafkalog.model import Batch, Level
from tests.builders import flip, write_log
from tests.kafkalog.check.test_producer_checks import data, emptied_marker, marker
from tests.sampling import examples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog.model import ProducerState, Record

# What a producer may have sent, and what only damage can make of it: epochs that go back, plain
# data in a transaction, sequences and timestamps out of any order, markers repeated or alone.
EPOCHS = st.sampled_from([0, 0, 0, 1, 2, 32767])
SEQUENCES = st.sampled_from([0, 1, 2, 100, INT32_MAX - 1, INT32_MAX, -1, -2, -(2**31)])
TIMES = st.sampled_from([-1, 0, 1_700_000_000_000, 1_700_000_000_001, 2**62])
Step = tuple[str, int, int, int, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["data", "data", "txn", "txn", "commit", "abort", "emptied", "lost"]),
        st.integers(7, 9),
        EPOCHS,
        SEQUENCES,
        st.integers(1, 3),
        TIMES,
        st.integers(-1, 3),
    ),
    max_size=40,
)


def log_of(steps: list[Step]) -> list[bytes]:
    """Build batches one after the other; `lost` leaves offsets out, as compaction does."""
    found, offset = [], 0
    for what, producer, epoch, sequence, count, time, coordinator in steps:
        if what in ("data", "txn"):
            found.append(
                data(offset, sequence, count, producer=producer, epoch=epoch, time=time,
                     transactional=what == "txn")
            )  # fmt: skip
        elif what == "emptied":
            found.append(emptied_marker(offset, producer=producer))
        elif what != "lost":
            found.append(
                marker(offset, int(what == "commit"), producer=producer, epoch=epoch, time=time,
                       coordinator=coordinator)
            )  # fmt: skip
        offset += count if what in ("data", "txn", "lost") else 1
    return found


def by_the_rules(path: Path) -> dict[int, ProducerState]:
    """Apply `kafkalog.log.producers` to the believable batches of a log, one by one."""
    infos: dict[int, AppendInfo] = {}
    with Source(str(path)) as source:
        for one, marker_record in believed(source):
            info = infos.setdefault(one.producer_id, AppendInfo(one.producer_id))
            if marker_record is None:
                info.append_batch(one)
                continue
            said = control_record(marker_record)
            assert said.coordinator_epoch is not None
            info.append_marker(
                one.producer_epoch, said.coordinator_epoch, marker_record.timestamp,
                one.base_offset, is_abort=said.type_id == ABORT,
            )  # fmt: skip
    return {who: info.state() for who, info in infos.items()}


def believed(source: Source) -> Iterator[tuple[Batch, Record | None]]:
    """Yield batches with correct checksums and rising offsets; a control batch with its record.

    No checksum covers base offsets and magics. A marker whose magic is unknown cannot be read.
    """
    highest = -1
    for one in scan_batches(source, check_crc=True):
        if not isinstance(one, Batch) or not one.crc_valid:
            continue
        if not highest < one.base_offset <= one.last_offset < INT64_MAX:
            continue
        try:
            found = next(decode_records(source, one), None) if one.is_control else None
        except CorruptDataError:
            continue
        highest = one.last_offset
        if found is not None or not one.is_control:
            yield one, found


def fields_of(state: ProducerState) -> tuple[int, ...]:
    first = state.current_txn_first_offset
    return (
        state.producer_id, state.producer_epoch, state.last_sequence, state.last_offset,
        state.offset_delta, state.last_timestamp, state.coordinator_epoch,
        -1 if first is None else first,
    )  # fmt: skip


def on_columns(path: Path, monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, ...]]:
    """Return the producer states of `verify` at the end of the log."""
    kept: list[producers.ProducerStates] = []

    class Kept(producers.ProducerStates):
        def __init__(self) -> None:
            super().__init__()
            kept.append(self)

    monkeypatch.setattr(producers, "ProducerStates", Kept)
    list(Verification(Level.STANDARD).verify(path.parent))
    table = kept[-1].table[:SNAPSHOT_FIELDS]
    return {tuple(row) for row in table.T.tolist()}


@settings(max_examples=examples(150))
@given(steps=STEPS, bits=st.lists(st.integers(0, 1 << 20), max_size=3), small=st.booleans())
def test_columns_follow_the_rules(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], bits: list[int], *, small: bool
) -> None:
    """Logs with what producers send, what only damage makes, and batches that damage hides."""
    path = write_log(tmp_path_factory.mktemp("rules") / "t-0", *log_of(steps))
    content = path.read_bytes()
    for bit in bits if content else ():
        content = flip(content, bit % (8 * len(content)))
    path.write_bytes(content)
    wanted = {fields_of(state) for state in by_the_rules(path).values()}
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(headers, "_BATCHES_AT_ONCE", 2)
        patch.setattr(fast_path, "FAST_SIZE_MIN", 1 << 62)
        assert on_columns(path, patch) == wanted
