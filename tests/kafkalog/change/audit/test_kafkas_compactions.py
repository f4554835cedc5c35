"""Every pass of Kafka's cleaner in the corpus is judged, as it is and with one mistake each."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.audit import Audit, Reason, audit_partition
from kafkalog.change.audit.proof import proved_keys
from kafkalog.change.compaction.cleaning import rewritten
from kafkalog.errors import CorruptDataError, UsageError
from kafkalog.files.log_dir import open_partition
from kafkalog.io.jit import fast_path
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.records import decode_records
from kafkalog.log.columns import chunks
from kafkalog.model import Batch
from kafkalog.node.unified_log import UnifiedLog
from tests.conftest import scenario_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.model import Record

NOT_CLEANED = {"legacy_last_batch_dropped", "torn_source_segment", "txn_open_first_segment"}
"""Kafka's cleaner died there, or found nothing to clean: there is no cleaner offset."""
CORRUPT = {"crc_bad_kept"}
"""Kafka's cleaner carries a batch with a wrong checksum on: that stops the audit."""
MISTAKEN = {
    ("txn_index_missing", 1): (Reason.LIVE_KEY_LOST, 10),
    ("txn_index_missing", 2): (Reason.MARKER_TOO_EARLY, 15),
}
"""Without transaction index Kafka's cleaner takes aborted records for committed ones: they win over
the committed value of a key, and the next pass takes the marker for one without data."""


@pytest.fixture(params=["reference", "kernels"], autouse=True)
def which(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Judge with the reference, or with kernels and small chunks; the reference does the rest."""
    monkeypatch.setattr(fast_path, "is_worth_it", lambda _: request.param == "kernels")
    if request.param == "kernels":
        monkeypatch.setattr(chunks, "CHUNK_SIZE_MIN", 128)
        monkeypatch.setattr(chunks, "CHUNK_SIZE_MAX", 256)
    return str(request.param)


@dataclass(frozen=True)
class Cleaning:
    """One pass of Kafka's cleaner."""

    name: str
    number: int
    before: Path
    after: Path
    now: int
    first_dirty: int | None

    def judged(self, **options: Any) -> Audit:
        return audit_partition(
            open_partition(str(self.after / "orders-0")),
            open_partition(str(self.before / "orders-0")),
            now_ms=self.now,
            first_dirty_offset=self.first_dirty,
            **options,
        )


def cleanings(corpus_dir: Path, name: str) -> list[Cleaning]:
    root = corpus_dir / "compaction" / name
    facts = json.loads((root / "facts.json").read_text())
    steps = [step for step in facts["steps"] if step["action"] == "compact"]
    found = []
    before = root / "before"
    for number, step in enumerate(steps, 1):
        appended, after = root / f"before-{number}", root / f"after-{number}"
        before = appended if appended.exists() else before
        after = after if after.exists() else root / "after"
        given = step["options"].get("checkpoint")
        end = step["before"]["logEndOffset"] if "before" in step else 10**6
        first = given if given is not None and given <= end else None
        found.append(Cleaning(name, number, before, after, step["now"], first))
        before = after
    return found


CLEANED = [name for name in scenario_names("compaction") if name not in NOT_CLEANED]


def test_no_scenario_is_missing() -> None:
    """The corpus holds every pair of logs that was made."""
    assert len(scenario_names("compaction")) == 63


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", CLEANED)
def test_kafkas_compactions_are_right(name: str, corpus_dir: Path) -> None:
    """Each pass is judged alone; where Kafka itself makes a mistake, the audit names it."""
    for cleaning in cleanings(corpus_dir, name):
        if name in CORRUPT:
            with pytest.raises(CorruptDataError, match="checksum"):
                cleaning.judged()
            continue
        found = cleaning.judged(findings_max=5)
        wrong = [(one.reason, one.offset) for one in found.findings]
        mistake = MISTAKEN.get((name, cleaning.number))
        assert wrong == ([] if mistake is None else [mistake])


@pytest.mark.sampled(18)
@pytest.mark.parametrize("name", CLEANED)
def test_the_kernels_prove_what_the_reference_finds_right(
    name: str, corpus_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count as many keys; only old formats are left to the reference."""
    if name in CORRUPT:
        return
    monkeypatch.setattr(fast_path, "is_worth_it", lambda _: False)
    for cleaning in cleanings(corpus_dir, name):
        found = cleaning.judged()
        logs = [UnifiedLog(open_partition(str(one / "orders-0")))
                for one in (cleaning.after, cleaning.before)]  # fmt: skip
        keys = proved_keys(logs[0], logs[1], found.bounds)
        is_old = any(piece.batch.magic < 2 for log in logs for segment in log.segments
                     for piece in pieces_of(Path(segment.log.path)))  # fmt: skip
        assert keys == (None if found.findings or is_old else found.keys), cleaning.number


@pytest.mark.parametrize("name", sorted(NOT_CLEANED))
def test_what_was_not_cleaned_is_not_judged(name: str, corpus_dir: Path) -> None:
    """The cleaner offset is unknown; with an offset that no pass reached, nothing has changed."""
    [cleaning] = cleanings(corpus_dir, name)
    with pytest.raises(UsageError, match="the cleaner offset is unknown"):
        cleaning.judged()
    if name != "torn_source_segment":
        assert not cleaning.judged(cleaner_offset=0).findings


@pytest.mark.parametrize("name", ["dedupe_none", "tombstones_horizon", "txn_commit_abort"])
def test_without_the_original_the_log_before_is_not_compacted(name: str, corpus_dir: Path) -> None:
    """The log that Kafka cleaned has stale keys; the one it made has none."""
    cleaning = cleanings(corpus_dir, name)[0]
    after = audit_partition(open_partition(str(cleaning.after / "orders-0")), now_ms=0)
    assert not after.findings
    before = audit_partition(
        open_partition(str(cleaning.before / "orders-0")),
        now_ms=0,
        cleaner_offset=after.bounds.cleaner_offset,
    )
    assert [one.reason for one in before.findings] == [Reason.STALE_KEY]


@dataclass
class Piece:
    """A batch of a log that can be changed before it is written again."""

    batch: Batch
    records: list[Record]
    data: bytes

    def rebuild(self, **fields: Any) -> None:
        self.batch = replace(self.batch, **fields)
        self.data = rewritten(self.batch, self.records, self.batch.delete_horizon_timestamp)


class Spoiled:
    """A copy of Kafka's result in which one thing is wrong."""

    def __init__(self, cleaning: Cleaning, tmp_path: Path) -> None:
        self.cleaning = replace(cleaning, after=tmp_path / "after")
        shutil.copytree(cleaning.after, self.cleaning.after)
        self.partition = self.cleaning.after / "orders-0"
        self.cleaner_offset = cleaning.judged().bounds.cleaner_offset
        self.pieces = {path.name: pieces_of(path) for path in sorted(self.partition.glob("*.log"))}

    def all(self) -> list[Piece]:
        return [piece for pieces in self.pieces.values() for piece in pieces]

    def first(self, wanted: Callable[[Piece], bool]) -> Piece:
        return next(piece for piece in self.all() if wanted(piece))

    def remove(self, piece: Piece) -> None:
        for pieces in self.pieces.values():
            pieces[:] = [one for one in pieces if one is not piece]

    def findings(self) -> list[tuple[Reason, int | None, bytes | None]]:
        for name, pieces in self.pieces.items():
            (self.partition / name).write_bytes(b"".join(piece.data for piece in pieces))
        for index in self.partition.glob("*.index"):
            index.unlink()
        found = self.cleaning.judged()
        return [(one.reason, one.offset, one.key) for one in found.findings]


def pieces_of(path: Path) -> list[Piece]:
    with Source(str(path)) as source:
        return [
            Piece(found, list(decode_records(source, found)),
                  source.read(found.position, found.size_bytes))
            for found in scan_batches(source)
            if isinstance(found, Batch)
        ]  # fmt: skip


def spoiled(corpus_dir: Path, tmp_path: Path, name: str, number: int = 1) -> Spoiled:
    return Spoiled(cleanings(corpus_dir, name)[number - 1], tmp_path)


def has_values(piece: Piece) -> bool:
    return not piece.batch.is_control and any(one.value for one in piece.records)


def test_a_live_record_that_is_dropped(corpus_dir: Path, tmp_path: Path) -> None:
    """It was the latest record of its key."""
    log = spoiled(corpus_dir, tmp_path, "dedupe_none")
    piece = log.first(lambda piece: len(piece.records) > 1)
    gone = piece.records.pop()
    piece.rebuild()
    assert log.findings() == [(Reason.LIVE_KEY_LOST, gone.offset, gone.key)]


def test_a_live_batch_that_is_dropped(corpus_dir: Path, tmp_path: Path) -> None:
    """The whole batch is removed, header included."""
    log = spoiled(corpus_dir, tmp_path, "dedupe_none")
    piece = log.first(lambda piece: len(piece.records) == 1)
    log.remove(piece)
    [gone] = piece.records
    assert log.findings() == [(Reason.LIVE_KEY_LOST, gone.offset, gone.key)]


def test_a_stale_record_that_is_put_back(corpus_dir: Path, tmp_path: Path) -> None:
    """The finding names the older of the two."""
    log = spoiled(corpus_dir, tmp_path, "dedupe_none")
    before = [
        piece
        for path in sorted((log.cleaning.before / "orders-0").glob("*.log"))
        for piece in pieces_of(path)
    ]
    for piece in log.all():
        whole = next(one for one in before if one.batch.base_offset == piece.batch.base_offset)
        stale = [one for one in whole.records if one.offset not in
                 {kept.offset for kept in piece.records}]  # fmt: skip
        if stale and piece.batch.last_offset < log.cleaner_offset:
            piece.records = sorted([*piece.records, stale[0]], key=lambda one: one.offset)
            piece.rebuild()
            assert log.findings() == [(Reason.STALE_KEY, stale[0].offset, stale[0].key)]
            return
    raise AssertionError("nothing was superseded")


@pytest.mark.parametrize("field", ["value", "key", "timestamp", "headers"])
def test_a_record_that_is_changed(corpus_dir: Path, tmp_path: Path, field: str) -> None:
    """Each of its parts is changed in turn."""
    log = spoiled(corpus_dir, tmp_path, "headers_and_large")
    piece = log.first(has_values)
    old = piece.records[0]
    new = {"value": b"another", "key": b"another", "timestamp": old.timestamp + 1,
           "headers": ()}[field]  # fmt: skip
    if field == "headers":
        piece = log.first(lambda piece: any(one.headers for one in piece.records))
        old = next(one for one in piece.records if one.headers)
    piece.records[piece.records.index(old)] = replace(old, **{field: new})
    piece.rebuild()
    assert log.findings() == [(Reason.RECORD_CHANGED, old.offset, old.key)]


def test_a_record_that_was_not_there(corpus_dir: Path, tmp_path: Path) -> None:
    """A key that nobody wrote replaces a superseded record."""
    log = spoiled(corpus_dir, tmp_path, "gaps")
    last = log.all()[-1]
    added = replace(last.records[-1], offset=last.batch.last_offset, key=b"nobody's")
    shell = replace(last.batch, base_offset=last.batch.last_offset + 1,
                    last_offset=last.batch.last_offset + 1)  # fmt: skip
    added = replace(added, offset=shell.base_offset)
    name = list(log.pieces)[-1]
    log.pieces[name].append(Piece(shell, [added], rewritten(shell, [added], None)))
    found = log.cleaning
    reasons = log.findings()
    assert reasons == [(Reason.LOG_END_CHANGED, None, None)]
    every = [(one.reason, one.offset) for one in found.judged(findings_max=9).findings]
    assert (Reason.RECORD_ADDED, shell.base_offset) in every


def test_a_tombstone_that_is_dropped_too_early(corpus_dir: Path, tmp_path: Path) -> None:
    """It had no delete horizon yet when the pass began."""
    log = spoiled(corpus_dir, tmp_path, "tombstones_horizon")
    piece = log.first(lambda piece: any(one.value is None for one in piece.records)
                      and piece.batch.last_offset < log.cleaner_offset)  # fmt: skip
    gone = next(one for one in piece.records if one.value is None)
    piece.records.remove(gone)
    if piece.records:
        piece.rebuild()
    else:
        log.remove(piece)
    assert log.findings() == [(Reason.TOMBSTONE_TOO_EARLY, gone.offset, gone.key)]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_marker_that_is_dropped_too_early(corpus_dir: Path, tmp_path: Path, number: int) -> None:
    """Its transaction still has data in the log, or its horizon is missing or in the future."""
    log = spoiled(corpus_dir, tmp_path, "txn_commit_abort", number)
    piece = log.first(lambda piece: piece.batch.is_control)
    log.remove(piece)
    assert log.findings() == [(Reason.MARKER_TOO_EARLY, piece.batch.base_offset, None)]


def test_a_horizon_that_is_moved(corpus_dir: Path, tmp_path: Path) -> None:
    """A horizon is set only once."""
    log = spoiled(corpus_dir, tmp_path, "tombstone_horizon_config_change", 2)
    piece = log.first(lambda piece: piece.batch.delete_horizon_timestamp is not None)
    piece.rebuild(base_timestamp=piece.batch.base_timestamp + 1)
    assert log.findings() == [(Reason.HORIZON_CHANGED, piece.batch.base_offset, None)]


def test_an_end_that_is_another(corpus_dir: Path, tmp_path: Path) -> None:
    """The last batch is missing."""
    log = spoiled(corpus_dir, tmp_path, "dedupe_none")
    log.remove(log.all()[-1])
    assert log.findings() == [(Reason.LOG_END_CHANGED, None, None)]


def test_a_record_above_the_cleaner_offset_that_is_gone(corpus_dir: Path, tmp_path: Path) -> None:
    """Records that were not in the map stay, whatever follows later."""
    log = spoiled(corpus_dir, tmp_path, "tiny_map_passes")
    piece = log.first(lambda piece: piece.batch.base_offset >= log.cleaner_offset)
    gone = piece.records[0]
    if len(piece.records) > 1:
        piece.records.remove(gone)
        piece.rebuild()
    else:
        log.remove(piece)
    assert log.findings() == [(Reason.RECORD_LOST, gone.offset, gone.key)]


@pytest.mark.parametrize("field", ["producer_epoch", "base_sequence"])
def test_what_a_batch_says_that_is_changed(corpus_dir: Path, tmp_path: Path, field: str) -> None:
    """Wrong sequences or epochs would mislead a consumer."""
    log = spoiled(corpus_dir, tmp_path, "producer_empty_batches")
    piece = log.first(has_values)
    piece.rebuild(**{field: getattr(piece.batch, field) + 1})
    assert log.findings() == [(Reason.BATCH_CHANGED, piece.batch.base_offset, None)]


def test_a_leader_epoch_unlike_its_neighbours(corpus_dir: Path, tmp_path: Path) -> None:
    """As for a wrong checksum, nothing is proved of a damaged log."""
    log = spoiled(corpus_dir, tmp_path, "producer_empty_batches")
    piece = log.first(has_values)
    piece.rebuild(leader_epoch=piece.batch.leader_epoch + 1)
    with pytest.raises(CorruptDataError, match="leader epoch 1, unlike its neighbours"):
        log.findings()


def test_a_producers_last_batch_that_is_gone(corpus_dir: Path, tmp_path: Path) -> None:
    """The batch is empty, and only keeps the producer's sequence."""
    log = spoiled(corpus_dir, tmp_path, "producer_empty_batches")
    piece = log.first(lambda piece: not piece.records)
    log.remove(piece)
    assert log.findings() == [(Reason.PRODUCER_LOST, piece.batch.base_offset, None)]


def test_leader_epochs_that_are_others(corpus_dir: Path, tmp_path: Path) -> None:
    """A follower would truncate at another offset."""
    log = spoiled(corpus_dir, tmp_path, "mixed_epochs")
    path = log.partition / "leader-epoch-checkpoint"
    version, count, *entries = path.read_text().splitlines()
    path.write_text("\n".join([version, str(int(count) - 1), *entries[1:]]) + "\n")
    assert log.findings() == [(Reason.EPOCHS_CHANGED, None, None)]


def test_a_leader_that_came_later_does_not_count(corpus_dir: Path, tmp_path: Path) -> None:
    """A broker that starts on the cleaned log adds an epoch at its end, without a record."""
    log = spoiled(corpus_dir, tmp_path, "mixed_epochs")
    path = log.partition / "leader-epoch-checkpoint"
    version, count, *entries = path.read_text().splitlines()
    end = UnifiedLog(open_partition(str(log.partition))).log_end_offset
    path.write_text("\n".join([version, str(int(count) + 1), *entries, f"99 {end}"]) + "\n")
    assert log.findings() == []
