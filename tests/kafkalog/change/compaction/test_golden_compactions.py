"""Every compaction that Kafka's cleaner performed for the corpus, repeated in place.

Both passes do each of them: the reference with a broker's map, and, if the size of the map makes no
difference, the kernels, whose map has no limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.change.compaction import compact_partition
from kafkalog.errors import CorruptDataError, RefusedError
from tests.conftest import scenario_names
from tests.kafkalog.change.compaction.oracle import (
    PARTITION,
    Cleaning,
    cleanings,
    contents,
    mtimes_ms,
    segment_files,
)

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.compaction import Compaction

COUNT = 63
# What Kafka carries on or dies of, and what becomes of it here.
REFUSED = {
    "crc_bad_kept": (CorruptDataError, "Kafka copies a batch whose checksum is wrong"),
    "torn_source_segment": (CorruptDataError, "Kafka's cleaner dies of it"),
    "txn_index_missing": (RefusedError, "Kafka takes aborted records for committed ones"),
}
DIES = "legacy_last_batch_dropped"  # Kafka's cleaner throws; its partition stays dirty for ever
# These codecs' libraries are not Java's, byte for byte; batches and records are compared instead.
OTHER_BYTES = {"codec_levels", "dedupe_mixed_codecs", "dedupe_snappy", "dedupe_zstd",
               "tombstone_horizon_config_change"}  # fmt: skip
# The cleaner offset never falls here, though a first dirty offset below it was given by hand.
OFFSET_STAYS = {"tombstone_partially_mapped-3", "txn_worked_vector-4"}
PASSES = ("reference", "kernels")


def test_no_scenario_is_missing() -> None:
    assert len(scenario_names("compaction")) == COUNT


@pytest.mark.sampled(30)
@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("name", sorted(set(scenario_names("compaction")) - {*REFUSED, DIES}))
def test_a_compaction_gives_what_kafka_gave(
    name: str, which: str, corpus_dir: Path, tmp_path: Path
) -> None:
    """Each step gives the same files, bytes, times and cleaner offset."""
    for cleaning in cleanings(corpus_dir / "compaction", name):
        is_limited = cleaning.facts["options"]["mapBytes"] < 1 << 20
        if which == "kernels" and is_limited:
            continue
        log_dir = cleaning.copy(tmp_path / cleaning.name)
        more = {} if which == "reference" else {"map_memory": None}
        before = segment_files(log_dir / PARTITION)
        plan = compact_partition(
            cleaning.candidate(log_dir, cleaning.request(**more)), cleaning.request(**more)
        )
        assert segment_files(log_dir / PARTITION) == before, "a plan changes nothing"
        done = cleaning.compact(log_dir, **more)
        assert (plan.tally, plan.groups, plan.next_dirty_offset, plan.after_bytes) == (
            done.tally, done.groups, done.next_dirty_offset, done.after_bytes,
        )  # fmt: skip
        if "skipped" in cleaning.result:
            assert done.candidate.skip is not None
            assert segment_files(log_dir / PARTITION) == before
            continue
        check_numbers(cleaning, done)
        check_files(cleaning, log_dir)


def check_numbers(cleaning: Cleaning, done: Compaction) -> None:
    wanted = cleaning.result
    assert done.next_dirty_offset == wanted["endOffset"]
    assert done.keys == wanted["mapEntries"]
    assert done.tally.kept_records == wanted["stats"]["messagesWritten"]


def check_files(cleaning: Cleaning, log_dir: Path) -> None:
    assert cleaning.after is not None
    ours, kafkas = log_dir / PARTITION, cleaning.after / PARTITION
    assert {path.name for path in ours.iterdir()} == {path.name for path in kafkas.iterdir()}
    mine, theirs = segment_files(ours), segment_files(kafkas)
    assert mine.keys() == theirs.keys()
    for name in mine:
        if name.endswith(".log") and cleaning.scenario in OTHER_BYTES:
            assert contents(ours / name) == contents(kafkas / name), name
        else:
            assert mine[name] == theirs[name], name
    active = max(mine)[:20]
    times, wanted = mtimes_ms(ours), mtimes_ms(kafkas)
    assert {name: time for name, time in times.items() if name[:20] != active} == {
        name: time for name, time in wanted.items() if name[:20] != active
    }
    noted = "cleaner-offset-checkpoint"
    if cleaning.name not in OFFSET_STAYS:
        assert (log_dir / noted).read_text() == (cleaning.after / noted).read_text()


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_damage_is_refused(name: str, corpus_dir: Path, tmp_path: Path) -> None:
    """The error has a hint, and not a byte is changed."""
    error, _ = REFUSED[name]
    cleaning = cleanings(corpus_dir / "compaction", name)[0]
    log_dir = cleaning.copy(tmp_path / cleaning.name)
    before = segment_files(log_dir / PARTITION)
    with pytest.raises(error) as caught:
        cleaning.compact(log_dir)
    assert caught.value.hint
    assert segment_files(log_dir / PARTITION) == before


@pytest.mark.parametrize("name", ["txn_worked_vector", "tiny_map_passes"])
def test_passes_go_on_until_nothing_is_left(name: str, corpus_dir: Path, tmp_path: Path) -> None:
    """With a small map, the last pass ends where the only pass with an unlimited map does."""
    first = cleanings(corpus_dir / "compaction", name)[0]
    small = first.compact(first.copy(tmp_path / "small"), single_pass=False)
    assert small.passes > 1
    large = first.compact(first.copy(tmp_path / "large"), single_pass=False, map_memory=None)
    assert large.passes == 1
    assert small.next_dirty_offset == large.next_dirty_offset
    assert small.is_complete
    assert large.is_complete


def test_a_last_batch_of_an_old_format_stays_as_an_empty_one(
    corpus_dir: Path, tmp_path: Path
) -> None:
    """Kafka's cleaner throws here; ours keeps the log end of the cleaned part."""
    [cleaning] = cleanings(corpus_dir / "compaction", DIES)
    assert "error" in cleaning.result
    log_dir = cleaning.copy(tmp_path / "log-dir")
    done = cleaning.compact(log_dir)
    assert done.is_complete
    first = min((log_dir / PARTITION).glob("*.log"))
    (*_, (header, records)) = contents(first)
    base_offset, last_offset, magic = header[:3]
    assert (magic, records) == (2, [])
    assert base_offset <= last_offset == done.next_dirty_offset - 1
