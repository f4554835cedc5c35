"""`compact --explain` describes what the compaction then does, and what Kafka did."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.batches.framing import scan_batches
from kafkalog.compaction.explain import (
    ExplainedGroup,
    FinishedMap,
    MapStep,
    cleaner_state,
    explain_partition,
)
from kafkalog.compaction.model import Action, CleanedBatch
from kafkalog.log_dir import open_partition
from kafkalog.model import Batch
from kafkalog.paths.source import Source
from tests.conftest import scenario_names
from tests.kafkalog.compaction.oracle import PARTITION, cleanings, segment_files
from tests.kafkalog.compaction.test_golden_compactions import DIES, OTHER_BYTES, REFUSED
from tests.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.storage import Step
    from tests.kafkalog.compaction.oracle import Cleaning

ALL = 1 << 40


def batches_of(path: Path) -> list[Batch]:
    with Source(str(path)) as source:
        return [one for one in scan_batches(source) if isinstance(one, Batch)]


def test_what_is_explained_is_what_kafka_did(corpus_dir: Path, tmp_path: Path) -> None:
    """Per batch: offsets, records, sizes and delete horizons; and the number of keys in the map."""
    for name in sampled(sorted(set(scenario_names("compaction")) - {*REFUSED, DIES}), 6):
        for cleaning in cleanings(corpus_dir / "compaction", name):
            log_dir = cleaning.copy(tmp_path / cleaning.name)
            request = cleaning.request()
            before = segment_files(log_dir / PARTITION)
            found = list(explain_partition(cleaning.candidate(log_dir, request), request, ALL))
            assert segment_files(log_dir / PARTITION) == before, "nothing is written"
            if "skipped" in cleaning.result:
                assert not found
                continue
            check(cleaning, [one for one in found if isinstance(one, ExplainedGroup)])
            [finished] = [one for one in found if isinstance(one, FinishedMap)]
            steps = [one for one in found if isinstance(one, MapStep)]
            assert finished.keys == cleaning.result["mapEntries"], cleaning.name
            assert [one.keys for one in steps] == sorted(one.keys for one in steps)
            assert not steps or steps[-1].keys == finished.keys


def check(cleaning: Cleaning, groups: list[ExplainedGroup]) -> None:
    assert cleaning.after is not None
    for one in groups:
        path = cleaning.after / PARTITION / f"{one.group.base_offset:020}.log"
        stays = [batch for batch in one.batches if batch.action != Action.DROPPED]
        kafkas = batches_of(path)
        assert [(one.kept, horizon(one)) for one in stays] == [
            (batch.count, batch.delete_horizon_ms) for batch in kafkas
        ], (cleaning.name, path)
        for mine, theirs in zip(stays, kafkas, strict=True):
            # What replaces a message of an old format ends at its last record that stays.
            assert mine.batch.magic < 2 or mine.batch.last_offset == theirs.last_offset
        if cleaning.scenario not in OTHER_BYTES:
            assert [batch.bytes_after for batch in stays] == [one.size_bytes for one in kafkas]
        assert sum(one.actions.values()) == len(one.batches)
        for batch in one.batches:
            assert batch.kept + batch.dropped.total() == batch.records


def horizon(found: CleanedBatch) -> int | None:
    return None if found.action == Action.EMPTIED else found.horizon_ms


@pytest.mark.parametrize("name", ["txn_worked_vector", "tiny_map_passes"])
def test_steps_are_those_that_are_taken(name: str, corpus_dir: Path, tmp_path: Path) -> None:
    """An observer of the run sees the same names and order: create, sync, rename, remove."""
    for cleaning in cleanings(corpus_dir / "compaction", name):
        if "skipped" in cleaning.result:
            continue
        log_dir = cleaning.copy(tmp_path / cleaning.name)
        request = cleaning.request()
        candidate = cleaning.candidate(log_dir, request)
        explained = [
            (step.kind, step.path, step.new_path)
            for one in explain_partition(candidate, request, 0)
            if isinstance(one, ExplainedGroup)
            for step in one.steps
        ]
        taken: list[Step] = []
        cleaning.compact(log_dir, observe=taken.append)
        directory = f"{log_dir / PARTITION}"
        wanted = [
            (step.kind, name_of(step.path, directory), name_of(step.new_path, directory) or None)
            for step in taken
            if step.path.startswith(directory)
        ]
        kept = [one.name.name for one in candidate.partition.left_overs]
        wanted = [one for one in wanted if one[1] not in kept]
        assert explained == wanted[-len(explained) :]


def name_of(path: str | None, directory: str) -> str:
    return (path or "").removeprefix(directory).lstrip("/")


def test_a_small_map_is_full(corpus_dir: Path, tmp_path: Path) -> None:
    """The explanation of the last segment in the map says that the pass ends there."""
    cleaning = cleanings(corpus_dir / "compaction", "tiny_map_passes")[0]
    log_dir = cleaning.copy(tmp_path / cleaning.name)
    request = cleaning.request()
    found = list(explain_partition(cleaning.candidate(log_dir, request), request, 1))
    steps = [one for one in found if isinstance(one, MapStep)]
    assert [one.is_full for one in steps][-1:] == [True]
    assert steps[-1].slots == cleaning.facts["options"]["mapBytes"] // 24
    assert steps[-1].load <= cleaning.facts["options"]["loadFactor"]
    [finished] = [one for one in found if isinstance(one, FinishedMap)]
    assert finished.size_bytes is None


def test_kafkas_map_is_as_large_as_its_slots() -> None:
    """It has 24 bytes per slot and uses nine tenths: 134217728 bytes for 5033164 keys."""
    assert FinishedMap(5033164, 0.9, None).kafka_bytes == 134217720
    assert FinishedMap(0, 0.9, None).kafka_bytes == 0


def test_a_limit_keeps_some_of_each_fate(corpus_dir: Path, tmp_path: Path) -> None:
    """The counts stay complete."""
    cleaning = cleanings(corpus_dir / "compaction", "txn_worked_vector")[0]
    log_dir = cleaning.copy(tmp_path / cleaning.name)
    request = cleaning.request()
    candidate = cleaning.candidate(log_dir, request)
    whole, part = (
        [one for one in explain_partition(candidate, request, limit)
         if isinstance(one, ExplainedGroup)] for limit in (ALL, 1)
    )  # fmt: skip
    for all_of, some in zip(whole, part, strict=True):
        assert all_of.actions == some.actions
        assert {one.action for one in some.batches} == {one.action for one in all_of.batches}
        assert len(some.batches) == len({one.action for one in some.batches})


def test_files_say_where_a_cleaner_was_interrupted(tmp_path: Path) -> None:
    """A kill leaves these files."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / f"{0:020}.log").touch()
    assert cleaner_state(open_partition(str(directory))) == "idle"
    (directory / f"{0:020}.log.cleaned").touch()
    assert cleaner_state(open_partition(str(directory))) == "cleaning"
    (directory / f"{0:020}.log.swap").touch()
    assert cleaner_state(open_partition(str(directory))) == "swapping"
