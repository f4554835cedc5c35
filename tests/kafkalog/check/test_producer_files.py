"""Producer snapshots and transaction indexes against the log; Kafka's own files are correct."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import crc32c as wheel
import pytest

from kafkalog.check import snapshots
from kafkalog.check.producer_states import SNAPSHOT_FIELDS
from kafkalog.log.columns.side_files import snapshot_columns
from kafkalog.log.defects.logs import PRODUCERS as OF_PRODUCERS
from kafkalog.log.defects.table import REFERENCES
from kafkalog.log.producers import read_producer_snapshot
from kafkalog.model import Level, Severity
from tests.builders import copy_tree, flip, frames, healthy, write_log
from tests.kafkalog.check.test_producer_checks import (
    ABORT,
    WRONG,
    about_batches,
    data,
    emptied_marker,
    grave,
    marker,
    txn,
    verify,
    write_compacted,
)
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import State

ENTRY = struct.Struct(">qhiqiqiq")
FIELDS = ("id", "epoch", "sequence", "offset", "delta", "timestamp", "coordinator", "first")
BY_COLUMN = ("producer_id", "producer_epoch", "last_sequence", "last_offset", "offset_delta",
             "last_timestamp", "coordinator_epoch", "current_txn_first_offset")  # fmt: skip
OF_LOGS = set(WRONG) | {"transaction-open", "transaction-hanging"}
OF_FILES = {
    "producer-snapshot-wrong", "producer-snapshot-misplaced", "producer-snapshots-missing",
    "aborted-transaction-missing", "aborted-transaction-wrong",
}  # fmt: skip

Entry = tuple[int, ...]


def entries_of(path: Path) -> list[Entry]:
    return list(ENTRY.iter_unpack(path.read_bytes()[10:]))


def write_snapshot(path: Path, entries: Sequence[Entry]) -> None:
    body = struct.pack(">i", len(entries)) + b"".join(ENTRY.pack(*entry) for entry in entries)
    path.write_bytes(struct.pack(">hI", 1, wheel.crc32c(body)) + body)


def write_index(log: Path, *entries: tuple[int, int, int, int]) -> Path:
    path = log.with_suffix(".txnindex")
    path.write_bytes(b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries))
    return path


@pytest.mark.sampled(3)
def test_columns_are_what_the_reference_reads(any_state: State):
    """Every snapshot of a broker is compared by producer id."""
    for path in any_state.root.rglob("*.snapshot"):
        states = sorted(read_producer_snapshot(str(path)), key=lambda state: state.producer_id)
        columns = snapshot_columns(str(path))
        assert columns is not None
        for name, column in zip(BY_COLUMN, columns.tolist(), strict=True):
            wanted = [getattr(state, name) for state in states]
            assert column == [-1 if value is None else value for value in wanted]


@pytest.mark.sampled(9)
def test_states_equal_those_that_kafka_wrote(any_state: State, monkeypatch: pytest.MonkeyPatch):
    """Each field agrees if the log still has the batches of the producer."""
    equal, others = 0, 0
    real = snapshots.SnapshotCheck._against_log

    def count(self, found, states, offset):
        nonlocal equal, others
        same = (found == states[:SNAPSHOT_FIELDS]).all(axis=0)
        equal, others = equal + int(same.sum()), others + int((~same).sum())
        return real(self, found, states, offset)

    monkeypatch.setattr(snapshots.SnapshotCheck, "_against_log", count)
    for log_dir in any_state.log_dirs:
        found = verify(log_dir, Level.QUICK)
        if healthy(any_state):
            assert not [name for name in grave(found) if name in OF_LOGS | OF_FILES]
    if not any(word in any_state.name for word in ("compact", "interrupted", "internal")):
        assert others == 0, "nothing was removed, so nothing can differ"
    if any_state.name in ("txn", "txn-v0", "compact-0-before"):
        assert equal >= 20


@pytest.fixture
def closed(corpus_dir: Path, tmp_path: Path) -> Path:
    """A copy of a partition with transactions of several producers, commits and aborts."""
    return copy_tree(corpus_dir / "kafka-4.3" / "txn" / "txn-0", tmp_path / "txn-0")


def test_each_altered_field_of_a_snapshot_is_found(closed: Path):
    """The checksum is correct, so that a broker would believe it; each producer in turn."""
    for path in sorted(closed.glob("*.snapshot"))[:3]:
        entries = entries_of(path)
        before = path.read_bytes()
        for i, entry in enumerate(entries):
            for field in sampled(range(len(FIELDS)), 2):
                altered = list(entry)
                altered[field] += 1 if field else 1000
                write_snapshot(path, [*entries[:i], tuple(altered), *entries[i + 1 :]])
                found = [d for d in verify(closed, Level.QUICK) if d.severity != Severity.NOTE]
                assert {d.reference for d in found} == {"producer-snapshot-wrong"}, FIELDS[field]
                assert str(path) in {d.path for d in found}
        path.write_bytes(before)
    assert grave(verify(closed)) == []


def test_each_altered_bit_of_a_transaction_index_is_found(closed: Path):
    """Producer, both offsets, last stable offset and version of every entry.

    A sample flips one bit in every third byte.
    """
    path = closed / "00000000000000000233.txnindex"
    before = path.read_bytes()
    assert len(before) >= 3 * 34
    for bit in sampled(range(8 * 3 * 34), 24):
        path.write_bytes(flip(before, bit))
        assert grave(verify(closed, Level.QUICK)), bit
    for start in range(0, len(before), 34):
        path.write_bytes(before[:start] + before[start + 34 :])
        assert grave(verify(closed, Level.QUICK)) == ["aborted-transaction-missing"]
    path.unlink()
    found = [d for d in verify(closed, Level.QUICK) if d.severity != Severity.NOTE]
    assert [d.reference for d in found] == ["aborted-transaction-missing"]
    assert f"like {len(before) // 34 - 1} more transactions" in found[0].detail


def test_a_marker_in_the_place_of_another_is_found(closed: Path):
    """A commit becomes an abort with a correct checksum; the index does not know it."""
    log = closed / "00000000000000000119.log"
    content = log.read_bytes()
    for position, size in frames(content):
        found = content[position : position + size]
        if found[22] & 0x20 and found[61 + 5 : 61 + 9] == b"\0\0\0\1":
            turned = found[: 61 + 8] + b"\0" + found[61 + 9 :]
            turned = turned[:17] + struct.pack(">I", wheel.crc32c(turned[21:])) + turned[21:]
            log.write_bytes(content[:position] + turned + content[position + size :])
            assert grave(verify(closed)) == ["aborted-transaction-missing"]
            return
    raise AssertionError("no commit")


T = 1_700_000_000_000
OPEN = (7, 0, 1, 1, 0, T, -1, 0)


def test_a_snapshot_without_an_open_transaction_is_found(tmp_path: Path):
    """A producer with an open transaction never expires; one without it may have expired."""
    log = write_log(tmp_path / "t-0", txn(0, 0), txn(1, 1), data(2, 0, producer=8), txn(3, 2))
    path = log.with_name(f"{3:020}.snapshot")
    write_snapshot(path, [OPEN])
    assert grave(verify(log.parent)) == []
    write_snapshot(path, [(8, 0, 0, 2, 0, T, -1, -1)])
    assert grave(verify(log.parent)) == ["producer-snapshot-wrong"]


def test_a_producer_that_is_back_without_a_batch_is_found(tmp_path: Path):
    """No later snapshot can know what an earlier one has forgotten."""
    log = write_log(tmp_path / "t-0", *(data(i, i) for i in range(3)), data(3, 0, producer=8))
    write_snapshot(log.with_name(f"{3:020}.snapshot"), [])
    write_snapshot(log.with_name(f"{4:020}.snapshot"), [(8, 0, 0, 3, 0, T, -1, -1)])
    assert grave(verify(log.parent)) == []
    both = [(7, 0, 2, 2, 0, T, -1, -1), (8, 0, 0, 3, 0, T, -1, -1)]
    write_snapshot(log.with_name(f"{4:020}.snapshot"), both)
    assert grave(verify(log.parent)) == ["producer-snapshot-wrong"]


def test_a_snapshot_may_know_what_was_removed(tmp_path: Path):
    """Batches below the log start or in a gap of compaction may be known, but no others."""
    log = write_log(tmp_path / "t-0", data(10, 0, producer=8), data(20, 1, producer=8))
    path = log.with_name(f"{20:020}.snapshot")
    eight = (8, 0, 0, 10, 0, T, -1, -1)
    for offset in (3, 15):
        write_snapshot(path, [(7, 0, 9, offset, 0, T, 4, -1), eight])
        assert grave(verify(log.parent)) == []
    for other in ((7, 0, 9, 10, 0, T, 4, -1), (7, 0, 9, 25, 0, T, 4, -1)):
        write_snapshot(path, [other, eight])
        assert grave(verify(log.parent)) == ["producer-snapshot-wrong"]


def test_the_log_goes_on_where_a_snapshot_ends(tmp_path: Path):
    """If the head of the log was deleted, the first snapshot is compared with what follows."""
    log = write_log(tmp_path / "t-0", data(10, 5), data(11, 6), name=f"{10:020}")
    path = log.with_suffix(".snapshot")
    write_snapshot(path, [(7, 0, 4, 9, 0, T, -1, -1)])
    assert grave(verify(log.parent)) == []
    for entry in ((7, 0, 3, 9, 0, T, -1, -1), (7, 1, 4, 9, 0, T, -1, -1)):
        write_snapshot(path, [entry])
        [found] = about_batches(verify(log.parent))
        assert (found.reference, found.path) == ("producer-snapshot-wrong", str(path))


def test_a_transaction_may_begin_where_an_older_snapshot_is(tmp_path: Path):
    """A real broker left this: retention removed the batches between the two snapshots."""
    log = write_log(tmp_path / "t-0", marker(34, epoch=124, coordinator=4), name=f"{34:020}")
    write_snapshot(log.with_name(f"{28:020}.snapshot"), [(7, 122, -1, -1, 0, T, 2, -1)])
    later = log.with_suffix(".snapshot")
    write_snapshot(later, [(7, 123, 4, 32, 4, T, 2, 28)])
    assert grave(verify(log.parent)) == []
    write_snapshot(later, [(7, 122, 4, 32, 4, T, 2, 27)])
    assert grave(verify(log.parent)) == ["producer-snapshot-wrong"]


def test_misplaced_snapshots_are_found(tmp_path: Path):
    """A snapshot inside a batch or beyond the log; a deleted directory may have lost segments."""
    log = write_log(tmp_path / "t-0", data(0, 0, 4))
    for offset, expected in ((2, 1), (4, 0), (5, 1)):
        path = log.with_name(f"{offset:020}.snapshot")
        write_snapshot(path, [])
        assert grave(verify(log.parent)) == ["producer-snapshot-misplaced"] * expected
        path.unlink()
    gone = write_log(tmp_path / f"t-0.{'0' * 32}-delete", data(0, 0, 4)).parent
    write_snapshot(gone / f"{5:020}.snapshot", [])
    assert grave(verify(gone)) == []


def test_a_closed_log_has_snapshots(closed: Path):
    """Without a snapshot a broker forgets all producers, unless it was killed and reads the log."""
    for path in closed.glob("*.snapshot"):
        path.unlink()
    assert grave(verify(closed)) == []
    (closed.parent / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    assert grave(verify(closed)) == ["producer-snapshots-missing"]


ABORTED = [txn(0, 0), txn(1, 0, producer=8), marker(2, ABORT), marker(3, ABORT, producer=8)]


def test_the_last_stable_offset_is_that_of_the_first_other_transaction(tmp_path: Path):
    """A leader computes it this way; a follower of 4.3 may know the next transaction already."""
    log = write_log(tmp_path / "t-0", *ABORTED, data(4, 0, producer=9), txn(5, 1), marker(6))
    write_index(log, (7, 0, 2, 1), (8, 1, 3, 4))
    assert grave(verify(log.parent)) == []
    write_index(log, (7, 0, 2, 1), (8, 1, 3, 5))
    assert grave(verify(log.parent)) == []
    for wrong in ((7, 0, 2, 3), (7, 0, 2, 0)):
        write_index(log, wrong, (8, 1, 3, 4))
        assert grave(verify(log.parent)) == ["aborted-transaction-wrong"]
    for stable in (3, 6, 7):
        write_index(log, (7, 0, 2, 1), (8, 1, 3, stable))
        assert grave(verify(log.parent)) == ["aborted-transaction-wrong"]


def test_a_follower_passes_over_the_next_transaction_of_the_same_producer(tmp_path: Path):
    """In Kafka 4.3, `ProducerStateManager.findNextIncompleteTxn` looks for another producer."""
    log = write_log(
        tmp_path / "t-0", txn(0, 0), marker(1, ABORT), txn(2, 1), marker(3), txn(4, 0, producer=8)
    )
    for stable in (2, 4):
        write_index(log, (7, 0, 1, stable))
        assert grave(verify(log.parent)) == []
    for wrong in (3, 5):
        write_index(log, (7, 0, 1, wrong))
        assert grave(verify(log.parent)) == ["aborted-transaction-wrong"]


def test_compaction_leaves_entries_of_removed_batches(tmp_path: Path):
    """Compaction removes the data first, then the entry, then the marker; each state is legal."""
    keep = data(0, 0, producer=9)
    last = data(9, 1, producer=9)
    log = write_compacted(tmp_path / "t-0", keep, marker(5, ABORT), last)
    write_index(log, (7, 2, 5, 6))
    assert grave(verify(log.parent)) == []
    write_index(log)
    assert grave(verify(log.parent)) == []
    write_log(log.parent, keep, emptied_marker(5), last)
    assert grave(verify(log.parent)) == []
    write_log(log.parent, keep, last)
    write_index(log, (7, 2, 5, 6))  # left beside a log that an interrupted swap emptied
    assert grave(verify(log.parent)) == []
    write_log(log.parent, keep, txn(4, 0), marker(5, ABORT), last)
    assert grave(verify(log.parent)) == []  # begun at 2, which is gone
    for wrong in ((7, 0, 5, 6), (8, 2, 5, 6), (7, 2, 4, 6), (7, 2, 9, 10)):
        write_index(log, wrong)
        assert "aborted-transaction-wrong" in grave(verify(log.parent))


def test_compaction_removes_what_a_follower_knew_already(tmp_path: Path):
    """The transaction of producer 8 that began at 2 was next: its first batch is gone, or all."""
    begin = [txn(0, 0), marker(1, ABORT)]
    last = [marker(5, ABORT, producer=8), data(9, 0, producer=9)]
    for rest in (
        [txn(4, 2, producer=8), *last],
        last,
        [txn(6, 0, producer=5), marker(8, producer=5)],
    ):
        log = write_compacted(tmp_path / "t-0", *begin, *rest)
        entries = [(8, 2, 5, 6)] if rest[-1] is last[-1] else []
        for stable in (2, 3):
            write_index(log, (7, 0, 1, stable), *entries)
            assert grave(verify(log.parent)) == []
    # The last offsets of a segment are removed, too.
    log = write_compacted(tmp_path / "u-0", *begin)
    write_log(log.parent, data(9, 0, producer=9), name=f"{9:020}")
    write_index(log, (7, 0, 1, 4))
    assert grave(verify(log.parent)) == []
    for wrong in (9, 10):
        write_index(log, (7, 0, 1, wrong))
        assert grave(verify(log.parent)) == ["aborted-transaction-wrong"]


def test_an_index_that_waits_for_its_rename_is_not_missed(tmp_path: Path):
    """Between the renames of a swap, the log is in place and its index is not."""
    log = write_log(tmp_path / "t-0", *ABORTED)
    assert grave(verify(log.parent)) == ["aborted-transaction-missing"]
    index = write_index(log, (7, 0, 2, 1), (8, 1, 3, 4))
    index.rename(f"{index}.swap")
    assert grave(verify(log.parent)) == []


def test_every_reference_of_producers_is_made_here():
    """A name in the table that no log can produce would be a promise without proof."""
    named = {reference.name for reference in OF_PRODUCERS} - {"producer-snapshot-corrupt"}
    assert named == OF_LOGS - {"control-record-malformed", "batch-header-contradictory"} | OF_FILES
    assert named <= REFERENCES.keys()
