"""Compactions by tasks, in threads: the result is that of one process, whatever fails."""

from __future__ import annotations

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from formats.file_names import staging_name
from kafkalog.change.compaction import (
    CompactionRequest,
    clock_of_stopped_run,
    distributed,
    find_candidate,
)
from kafkalog.change.compaction.run import CompactionRun
from kafkalog.change.compaction.tasks import stage_pass
from kafkalog.change.journal import undo
from kafkalog.errors import CorruptDataError, Event, Listener, Note, RefusedError
from kafkalog.files.log_dir import open_partition
from kafkalog.io.engine import LocalEngine
from kafkalog.node.configs import ConfigSources
from tests.builders import BASE_TIME
from tests.conftest import scenario_names
from tests.kafkalog.change.compaction.generated import Generator
from tests.kafkalog.change.compaction.oracle import PARTITION, Cleaning, cleanings
from tests.kafkalog.change.compaction.twins import by_engine, in_one_process, tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kafkalog.change.compaction import Candidate
    from kafkalog.io.engine import Task, Work

    Find = Callable[[Path], list[Candidate]]


LATER_MS = BASE_TIME + 3_600_000


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", scenario_names("compaction"))
def test_what_is_left_is_the_same(name: str, corpus_dir: Path, tmp_path: Path) -> None:
    """Each compaction of the corpus is planned and done, including those that are refused.

    The first one of each scenario is also done by buckets of keys.
    """
    for cleaning in cleanings(corpus_dir / "compaction", name):
        ways: list[tuple[dict[str, Any], int | None]] = [({}, None)]
        if cleaning.number == 1:
            ways.append(({"map_memory": None, "single_pass": False}, 1))
        for more, memory in ways:
            request = cleaning.request(**more)

            def find(
                log_dir: Path, it: Cleaning = cleaning, given: CompactionRequest = request
            ) -> list[Candidate]:
                return [it.candidate(log_dir, given)]

            one, other = cleaning.copy(tmp_path / "one"), cleaning.copy(tmp_path / "other")
            before = tree(other)
            engine = LocalEngine(2)
            planned = by_engine(engine, other, find, request, writes=False, task_memory=memory)
            assert planned == in_one_process(one, find, request, writes=False)
            assert tree(other) == before
            done = by_engine(engine, other, find, request, task_memory=memory)
            assert done == in_one_process(one, find, request)
            assert tree(other) == tree(one)
            shutil.rmtree(one)
            shutil.rmtree(other)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("memory", [None, 1], ids=["a map", "buckets"])
def test_generated_logs(seed: int, memory: int | None, tmp_path: Path) -> None:
    """Transactions over segments and groups, all codecs, a clean part, small groups."""
    rng = random.Random(seed)
    one, other = tmp_path / "one", tmp_path / "other"
    keys = rng.choice((5, 60, 2000))
    Generator(rng, keys=keys).partition(one / "made-0", rng.randrange(1, 9))
    segments = sorted(int(path.stem) for path in (one / "made-0").glob("*.log"))
    dirty = rng.choice((0, segments[len(segments) // 2], segments[len(segments) // 2] + 7))
    (one / "cleaner-offset-checkpoint").write_text(f"0\n1\nmade 0 {dirty}\n")
    (one / ".kafka_cleanshutdown").touch()
    shutil.copytree(one, other)
    request = CompactionRequest(LATER_MS, high_watermark="end")
    configs = {"cleanup.policy": "compact", "segment.bytes": rng.choice(("7000", "20000"))}

    def find(log_dir: Path) -> list[Candidate]:
        topic = ConfigSources(configs).in_log_dir(str(log_dir)).of_topic("made")
        return [find_candidate(open_partition(str(log_dir / "made-0")), topic, request)]

    engine = EngineThen(lambda tasks: None)  # noqa: ARG005
    planned = by_engine(engine, other, find, request, writes=False, task_memory=memory)
    assert planned == in_one_process(one, find, request, writes=False)
    assert engine.tasks == 1
    done = by_engine(engine, other, find, request, task_memory=memory)
    assert done == in_one_process(one, find, request)
    assert tree(other) == tree(one)
    assert (engine.tasks == 2) == (memory is None)


def one_cleaning(corpus_dir: Path, name: str) -> tuple[Cleaning, CompactionRequest, Find]:
    cleaning = cleanings(corpus_dir / "compaction", name)[0]
    request = cleaning.request(map_memory=None, single_pass=False)
    return cleaning, request, lambda log_dir: [cleaning.candidate(log_dir, request)]


class Killed(BaseException):  # it is no error: nothing handles it
    """Stands for SIGKILL: no code that it passes cleans up."""


class EngineThen(LocalEngine):
    """Runs the tasks, then a function, before the driver gets the first result."""

    def __init__(self, then: Callable[[Sequence[Task]], None]) -> None:
        super().__init__(2)
        self._then = then
        self.tasks = 0

    def run(self, work: Work, tasks: Sequence[Task], **more: Any) -> Any:
        self.tasks += len(tasks)
        found = list(super().run(work, tasks, **more))
        self._then(tasks)
        yield from found


def killed_after_tasks(log_dir: Path, find: Find, request: CompactionRequest, **more: Any) -> int:
    """Leave the files of a driver killed after its tasks; return the number of tasks.

    The staging directory is copied after the tasks, and restored.
    """
    kept = log_dir.with_name("kept")
    staging = log_dir / staging_name()

    def keep(_: Sequence[Task]) -> None:
        shutil.copytree(staging, kept)
        raise Killed

    engine = EngineThen(keep)
    with pytest.raises(Killed):
        by_engine(engine, log_dir, find, request, **more)
    assert not staging.exists(), "who is not killed but interrupted leaves nothing"
    shutil.move(kept, staging)
    return engine.tasks


def test_a_killed_run_is_gone_on_with(corpus_dir: Path, tmp_path: Path) -> None:
    """Finished tasks are not repeated; the result is the same, and nothing is left over."""
    cleaning, request, find = one_cleaning(corpus_dir, "txn_span_separate_groups")
    one, other = cleaning.copy(tmp_path / "one"), cleaning.copy(tmp_path / "other")
    assert killed_after_tasks(other, find, request) == 1
    (other / staging_name() / "attempt-0123").mkdir()
    (other / staging_name() / "00000000000000000000.log").touch()
    (other / staging_name("7" * 32)).mkdir()
    partition = open_partition(str(other / PARTITION))
    assert clock_of_stopped_run(partition, request.now_ms + 1000) == request.now_ms
    assert clock_of_stopped_run(partition, request.now_ms + 86_400_000) is None
    engine = EngineThen(lambda tasks: None)  # noqa: ARG005
    assert by_engine(engine, other, find, request) == in_one_process(one, find, request)
    assert engine.tasks == 0
    assert tree(other) == tree(one)


def test_going_on_with_a_killed_run_is_noted(corpus_dir: Path, tmp_path: Path) -> None:
    """The clock decides what is deleted, and is another one than the user expects."""
    cleaning, request, find = one_cleaning(corpus_dir, "txn_span_separate_groups")
    log_dir = cleaning.copy(tmp_path / "log-dir")
    notes: list[str] = []

    class Noting(Listener):
        def hear(self, event: Event) -> None:
            if isinstance(event, Note) and "has no __cluster_metadata-0" not in event.text:
                notes.append(event.text)

    def clock() -> int:
        later = replace(request, now_ms=request.now_ms + 1000)
        run = CompactionRun(
            log_dir / PARTITION, later, ConfigSources(), in_place=True, keeps_clock=True,
            engine=lambda: LocalEngine(2), listener=Noting(),
        )  # fmt: skip
        return run.request.now_ms

    assert (clock(), notes) == (request.now_ms + 1000, [])
    killed_after_tasks(log_dir, find, request)
    assert clock() == request.now_ms
    [note] = notes
    assert str(request.now_ms) in note


@pytest.mark.parametrize("what", ["cut", "changed", "missing", "no result", "odd result"])
def test_what_is_not_whole_is_made_again(what: str, corpus_dir: Path, tmp_path: Path) -> None:
    """A power failure, for example, may leave such files."""
    cleaning, request, find = one_cleaning(corpus_dir, "txn_span_separate_groups")
    one, other = cleaning.copy(tmp_path / "one"), cleaning.copy(tmp_path / "other")
    killed_after_tasks(other, find, request)
    [result] = (other / staging_name()).glob("*/result.json")
    log = max(result.parent.glob("*.log.cleaned"))
    data = bytearray(log.read_bytes())
    if what == "cut":
        log.write_bytes(data[:-1])
    elif what == "changed":
        data[-1] ^= 1
        log.write_bytes(data)
    elif what == "missing":
        log.unlink()
    elif what == "no result":
        result.unlink()
    else:
        result.write_bytes(result.read_bytes()[:-9])
    engine = EngineThen(lambda tasks: None)  # noqa: ARG005
    assert by_engine(engine, other, find, request) == in_one_process(one, find, request)
    assert engine.tasks == 1
    assert tree(other) == tree(one)


def test_another_clock_is_another_plan(corpus_dir: Path, tmp_path: Path) -> None:
    """The results of the killed run are removed."""
    cleaning, request, find = one_cleaning(corpus_dir, "tombstones_horizon")
    one, other = cleaning.copy(tmp_path / "one"), cleaning.copy(tmp_path / "other")
    killed_after_tasks(other, find, request)
    later = replace(request, now_ms=request.now_ms + 1)
    engine = EngineThen(lambda tasks: None)  # noqa: ARG005
    assert by_engine(engine, other, find, later) == in_one_process(one, find, later)
    assert engine.tasks == 1
    assert tree(other) == tree(one)


def test_a_task_can_be_done_twice(corpus_dir: Path, tmp_path: Path) -> None:
    """It runs twice, in turn and at the same time: the first to end counts."""
    cleaning, request, find = one_cleaning(corpus_dir, "txn_span_separate_groups")
    one, other = cleaning.copy(tmp_path / "one"), cleaning.copy(tmp_path / "other")

    def again(tasks: Sequence[Task]) -> None:
        [task] = tasks
        before = tree(other)
        with ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(stage_pass, [task] * 3))
        assert answers == [{}] * 3
        assert tree(other) == before

    engine = EngineThen(again)
    assert by_engine(engine, other, find, request) == in_one_process(one, find, request)
    assert tree(other) == tree(one)


def test_a_task_that_outlives_its_run_writes_nothing(corpus_dir: Path, tmp_path: Path) -> None:
    """Its directory no longer exists."""
    cleaning, request, find = one_cleaning(corpus_dir, "txn_span_separate_groups")
    log_dir = cleaning.copy(tmp_path / "log-dir")
    given: list[Task] = []
    by_engine(EngineThen(given.extend), log_dir, find, request)
    after = tree(log_dir)
    [task] = given
    assert "error" in stage_pass(task)
    (log_dir / PARTITION / "00000000000000000000.log").touch()
    assert stage_pass(task)["error"]["class"] == "RefusedError"
    assert tree(log_dir).keys() == after.keys()


@pytest.mark.parametrize("what", ["a source", "a new file", "a log start"])
def test_a_log_that_changed_meanwhile_is_left(what: str, corpus_dir: Path, tmp_path: Path) -> None:
    """A process that does not take the lock wrote to it while the tasks ran."""
    cleaning, request, find = one_cleaning(corpus_dir, "txn_span_separate_groups")
    log_dir = cleaning.copy(tmp_path / "log-dir")

    def change(_: Sequence[Task]) -> None:
        if what == "a source":
            with min((log_dir / PARTITION).glob("*.log")).open("ab") as log:
                log.write(b"\0")
        elif what == "a new file":
            (log_dir / PARTITION / "00000000000000009999.snapshot").write_bytes(b"")
        else:
            entries = f"0\n1\n{PARTITION[:-2]} 0 1\n"
            (log_dir / "log-start-offset-checkpoint").write_text(entries)

    state: list[Any] = []
    [found] = by_engine(EngineThen(lambda _: (change(_), state.append(tree(log_dir)))), log_dir,
                        find, request)  # fmt: skip
    assert found[0] is RefusedError
    names = {name for name in state[0] if not name.startswith("kafkalog-staging")}
    assert {name: state[0][name] for name in names} == tree(log_dir)


def test_results_that_changed_are_not_put_in_place(corpus_dir: Path, tmp_path: Path) -> None:
    """A disk loses bytes between the task and the driver."""
    cleaning, request, find = one_cleaning(corpus_dir, "txn_span_separate_groups")
    log_dir = cleaning.copy(tmp_path / "log-dir")
    before = tree(log_dir)

    def damage(_: Sequence[Task]) -> None:
        log = max((log_dir / staging_name()).glob("*/*.log.cleaned"))
        data = log.read_bytes()
        log.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))

    [found] = by_engine(EngineThen(damage), log_dir, find, request)
    assert found[0] is CorruptDataError
    assert tree(log_dir) == before


def test_with_a_backup_all_can_be_taken_back(corpus_dir: Path, tmp_path: Path) -> None:
    """As after a run in one process, the files were linked into place and the journal has them."""
    cleaning, request, find = one_cleaning(corpus_dir, "txn_span_separate_groups")
    log_dir = cleaning.copy(tmp_path / "log-dir")
    before = tree(log_dir)
    killed_after_tasks(log_dir, find, request, backup=tmp_path / "backup")
    by_engine(LocalEngine(2), log_dir, find, request, backup=tmp_path / "backup")
    assert tree(log_dir) != before
    undo(str(tmp_path / "backup"), in_place=True)
    assert tree(log_dir) == before


def test_what_does_not_fit_at_once_is_done_one_after_the_other(
    corpus_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little disk space there are as many rounds as partitions."""
    names = ("tombstones_horizon", "txn_commit_abort", "all_superseded")
    found = [one_cleaning(corpus_dir, name) for name in names]
    roots = tmp_path / "one", tmp_path / "other"
    request = found[0][1]
    for root in roots:
        root.mkdir()
        for number, (cleaning, _, _) in enumerate(found):
            shutil.copytree(cleaning.before / PARTITION, root / f"orders-{number}")
        (root / "replication-offset-checkpoint").write_text("0\n0\n")

    def find(log_dir: Path) -> list[Candidate]:
        configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(log_dir))
        paths = sorted(log_dir.glob("orders-*"))
        return [find_candidate(open_partition(str(path)), configs.of_topic("orders"), request)
                for path in paths]  # fmt: skip

    rounds: list[int] = []
    monkeypatch.setattr(distributed, "free_space", lambda path: 0)  # noqa: ARG005
    engine = EngineThen(lambda tasks: rounds.append(len(tasks)))
    assert by_engine(engine, roots[1], find, request) == in_one_process(roots[0], find, request)
    assert rounds == [1, 1, 1]
    assert tree(roots[1]) == tree(roots[0])
