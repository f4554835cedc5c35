"""Performs every retention run that Kafka's storage classes performed for the corpus."""

from __future__ import annotations

import json
import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.journal import Run
from kafkalog.change.retention.apply import TrimPlan, perform_trim, plan_trim
from kafkalog.errors import RefusedError, UnwritableError
from kafkalog.files.log_dir import open_partition
from kafkalog.files.text_files import checkpoint_text
from kafkalog.io.storage import StepKind
from kafkalog.node.configs import ConfigSources
from tests.conftest import scenario_names
from tests.crash.disk import Recorder, crashes, put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.io.storage import Step

ROLLED = {"size_zero", "time_all_expired", "time_future_size_unblocks"}
"""Kafka rolls an empty active segment there, which is a broker's business; ours keeps the last."""
REWRITTEN_BY_THE_START = {"mtime_timeindex_removed"}
"""Kafka's loader wrote empty time indexes before it came to retention."""
LOG_STARTS = "log-start-offset-checkpoint"
CRASHES_MAX = 4  # of a scenario


class Case:
    """A modifiable copy of a scenario."""

    def __init__(self, corpus_dir: Path, name: str, tmp_path: Path) -> None:
        source = corpus_dir / "retention" / name
        self.facts: dict[str, Any] = json.loads((source / "facts.json").read_text())
        self.after = source / "after" / "orders-0"
        self.root = tmp_path / name
        shutil.copytree(source, self.root, ignore=shutil.ignore_patterns("after", "facts.json"))
        self.partition = self.root / "orders-0"
        self.start = self.facts["deleteRecordsTo"]
        if self.facts["config"].get("cleanup.policy") == "compact" and self.start is not None:
            # A broker refuses DeleteRecords there; the offset comes from before the topic changed.
            note = checkpoint_text([("orders", 0, self.start)])
            (self.root / LOG_STARTS).write_bytes(note)
            self.start = None

    def plan(self, **options: Any) -> TrimPlan:
        configs = ConfigSources(self.facts["config"]).in_log_dir(str(self.root)).of_topic("orders")
        given = self.facts["highWatermark"]
        options.setdefault("high_watermark", given if isinstance(given, int) else "end")
        options.setdefault("log_start_offset", self.start)
        partition = open_partition(str(self.partition))
        return plan_trim(partition, configs, self.facts["now"], **options)

    def apply(self, observe: Callable[[Step], None] | None = None, **options: Any) -> TrimPlan:
        with Run(str(self.root), observe) as run:
            plan = self.plan(**options)
            perform_trim(run, plan)
        return plan

    def files(self) -> dict[str, bytes]:
        return contents(self.partition)


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def log_start(root: Path) -> bytes:
    path = root / LOG_STARTS
    return path.read_bytes() if path.exists() else b"0\n0\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", scenario_names("retention"))
def test_the_files_that_are_left_are_kafkas(name: str, corpus_dir: Path, tmp_path: Path) -> None:
    """Byte for byte: logs, indexes, producer snapshots, leader epochs; and the log start."""
    case = Case(corpus_dir, name, tmp_path)
    plan = case.apply()
    ours, kafkas = case.files(), contents(case.after)
    if name in REWRITTEN_BY_THE_START:
        kafkas = {file: data for file, data in kafkas.items() if not file.endswith(".timeindex")}
    if name in ROLLED:
        assert plan.active_stays
        active = case.facts["result"]["logBefore"]["segments"][-1]["base"]
        assert [segment.base_offset for segment in plan.segments] == [
            one["base"] for one in case.facts["result"]["deleted"][:-1]
        ]
        assert min(ours) == f"{active:020}.index"
        assert plan.log_start_offset == active
        return
    assert ours == kafkas
    after = case.facts["result"]["log"]
    first = after["segments"][0]["base"]
    assert plan.log_start_offset == after["logStartOffset"]
    entry = b"0\n1\norders 0 %d\n" % after["logStartOffset"]
    noted = after["logStartOffset"] > first
    assert log_start(case.root) == (entry if noted else b"0\n0\n")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", scenario_names("retention"))
def test_the_names_before_the_removal_are_kafkas(
    name: str, corpus_dir: Path, tmp_path: Path
) -> None:
    """With `keep_deleted` the directory is as Kafka leaves it for `file.delete.delay.ms`."""
    case = Case(corpus_dir, name, tmp_path)
    case.apply(keep_deleted=True)
    kafkas = case.facts["filesBeforeDelayedDeletion"]
    ours = [file for file in case.files() if file.endswith(".deleted")]
    wanted = [file for file in kafkas if file.endswith(".deleted")]
    if name in ROLLED:
        active = case.facts["result"]["logBefore"]["segments"][-1]["base"]
        wanted = [file for file in wanted if int(file.split(".")[0]) < active]
    if name in REWRITTEN_BY_THE_START:
        wanted = [file for file in wanted if ".timeindex" not in file]
    assert ours == sorted(wanted)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", scenario_names("retention"))
def test_a_run_that_a_crash_ends_is_finished_by_the_next(
    name: str, corpus_dir: Path, tmp_path: Path
) -> None:
    """Without a backup, the next run leaves the same files as a run without the crash."""
    case = Case(corpus_dir, name, tmp_path)
    recorder = Recorder(case.root)
    case.apply(recorder)
    wanted, rng = case.files(), random.Random(name)
    states = list(crashes(recorder, rng))
    for how, tree in rng.sample(states, min(CRASHES_MAX, len(states))):
        put(tree, case.root)
        case.apply()
        assert case.files() == wanted, how


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", scenario_names("retention"))
def test_a_second_run_finds_nothing_to_do(name: str, corpus_dir: Path, tmp_path: Path) -> None:
    """The plan of a trimmed log is empty, and applying it takes no step."""
    case = Case(corpus_dir, name, tmp_path)
    case.apply()
    before = case.files()
    steps: list[Step] = []
    assert case.apply(steps.append).is_empty
    assert steps == []
    assert case.files() == before


def test_each_log_goes_before_its_indexes_and_lasts_before_the_next(
    corpus_dir: Path, tmp_path: Path
) -> None:
    """A log without an index would be indexed again; a gap between segments would break the log."""
    case = Case(corpus_dir, "txnindex_snapshots", tmp_path)
    steps: list[Step] = []
    plan = case.apply(steps.append)
    renamed = [os.path.basename(step.path) for step in steps if step.kind == StepKind.RENAME]
    wanted = [name for group in plan.files for name in group]
    assert [name for name in renamed if name in wanted] == wanted
    for number, step in enumerate(steps):
        if step.kind == StepKind.RENAME and step.path.endswith(".log"):
            assert steps[number + 1].kind == StepKind.SYNC_DIRECTORY
    removed = [step.path for step in steps if step.kind == StepKind.REMOVE]
    assert [os.path.basename(path) for path in removed] == [f"{name}.deleted" for name in wanted]


def test_the_new_start_is_noted_before_anything_goes(corpus_dir: Path, tmp_path: Path) -> None:
    """A crash in between leaves the old log or the new one, never a partly deleted one."""
    case = Case(corpus_dir, "time_some", tmp_path)
    steps: list[Step] = []
    plan = case.apply(steps.append)
    kinds = [(step.kind, os.path.basename(step.new_path or step.path)) for step in steps]
    noted = kinds.index((StepKind.RENAME, LOG_STARTS))
    assert kinds[noted + 1][0] == StepKind.SYNC_DIRECTORY
    assert noted < kinds.index((StepKind.RENAME, f"{plan.files[0][0]}.deleted"))


def fails(case: Case, words: str, error: type[Exception] = RefusedError, **options: Any) -> None:
    before = {str(path): path.lstat() for path in case.root.rglob("*")}
    with pytest.raises(error, match=words):
        case.plan(**options)
    after = {str(path): path.lstat() for path in case.root.rglob("*")}
    assert {name: (one.st_size, one.st_mtime_ns) for name, one in before.items()} == {
        name: (one.st_size, one.st_mtime_ns) for name, one in after.items()
    }


def test_what_a_crash_left_is_refused(corpus_dir: Path, tmp_path: Path) -> None:
    """A broker has to start first: unclean mark, swap, torn tail or missing index."""
    case = Case(corpus_dir, "time_some", tmp_path)
    mark = case.root / ".kafka_cleanshutdown"
    data = mark.read_bytes()
    mark.unlink()
    (case.root / "meta.properties").touch()
    active = max(case.partition.glob("*.log"))
    whole = active.read_bytes()
    active.write_bytes(whole + whole[:30])
    fails(case, "would change it")
    active.write_bytes(whole)
    mark.write_bytes(data)
    for suffix in (".cleaned", ".swap"):
        left = case.partition / f"{0:020}.log{suffix}"
        left.touch()
        fails(case, "unfinished cleaning")
        left.unlink()
    index = case.partition / f"{8:020}.index"
    index.unlink()
    fails(case, "would change it")
    index.touch()
    assert case.plan().segments


def test_directories_that_are_not_ours_are_refused(corpus_dir: Path, tmp_path: Path) -> None:
    """Symbolic links and directories that cannot be written to are refused."""
    case = Case(corpus_dir, "time_some", tmp_path)
    log = case.partition / f"{0:020}.log"
    elsewhere = tmp_path / "elsewhere"
    log.rename(elsewhere)
    log.symlink_to(elsewhere)
    fails(case, "symbolic link")
    log.unlink()
    elsewhere.rename(log)
    moved = tmp_path / "moved"
    case.partition.rename(moved)
    case.partition.symlink_to(moved)
    fails(case, "symbolic link")


def test_what_an_earlier_deletion_left_is_in_nobodys_way(corpus_dir: Path, tmp_path: Path) -> None:
    """A broker stopped within `file.delete.delay.ms` leaves them. Its next start deletes them."""
    case = Case(corpus_dir, "time_some", tmp_path)
    (case.partition / f"{0:020}.log.deleted").write_bytes(b"dead")
    (case.partition / f"{77:020}.index.deleted").write_bytes(b"dead")
    case.apply()
    assert case.files() == contents(case.after)


def test_a_read_only_directory_is_refused(
    corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal comes before the first rename. It is mocked, as root may write everywhere."""
    case = Case(corpus_dir, "time_some", tmp_path)
    plan, before = case.plan(), case.files()
    with Run(str(case.root)) as run:
        monkeypatch.setattr(os, "access", lambda *_: False)
        with pytest.raises(UnwritableError, match="read-only"):
            perform_trim(run, plan)
    assert case.files() == before


def test_topics_whose_records_are_not_ours_to_take_are_refused(
    corpus_dir: Path, tmp_path: Path
) -> None:
    """Tiered topics, unknown high watermarks, a start above it, the start of a compacted log."""
    case = Case(corpus_dir, "time_some", tmp_path)
    case.facts["config"] |= {"remote.storage.enable": "true"}
    fails(case, "tiered")
    del case.facts["config"]["remote.storage.enable"]
    fails(case, "above the high watermark", high_watermark=3, log_start_offset=9)
    (case.root / "replication-offset-checkpoint").unlink(missing_ok=True)
    fails(case, "no entry", high_watermark=None)
    case.facts["config"]["cleanup.policy"] = "compact"
    fails(case, "compacted only", log_start_offset=9)
    stray = case.root / f"orders-0.{'a' * 32}-stray"
    case.partition = case.partition.rename(stray)
    fails(case, "not a live partition")


def test_a_copy_with_no_log_directory_around_is_fine(corpus_dir: Path, tmp_path: Path) -> None:
    """No broker can run on the copy, and only the log itself says how far it is replicated."""
    case = Case(corpus_dir, "time_some", tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    case.partition = case.partition.rename(alone / "orders-0")
    case.root = alone
    plan = case.plan(high_watermark=None)
    with Run(None) as run:
        perform_trim(run, plan)
    assert case.files() == contents(case.after)
    assert os.listdir(alone) == ["orders-0"]
    fails(case, "not in a log directory", log_start_offset=plan.log_start_offset + 1)
