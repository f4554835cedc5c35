"""After a crash at any step a start finds the old log or the new one, whole."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.crash.commands import CLEANER_OFFSETS, CRASHING, Command
from tests.crash.disk import Recorder, crashes, put, without_staging
from tests.crash.readers import seen
from tests.crash.served import (
    CONFIG,
    copy_and_start,
    is_live,
    offset_in,
    partitions,
    start_of_ours,
    starts_of_kafka,
)
from tests.kafka.conftest import harness, java_tools, oracle
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.crash.disk import Tree
    from tests.crash.served import Served
    from tests.kafka.oracle import Oracle

__all__ = ["harness", "java_tools", "oracle"]

STATES_OF_OURS = 6
STATES_OF_KAFKA = 3


class Enumeration:
    """A command that was run once, and the trees its crashes may leave, shared by the judges."""

    def __init__(self, command: Command, corpus_dir: Path, root: Path) -> None:
        seed = new_seed()
        self.command = command
        self.words = f"{command.name}, seed {seed}"
        self.scratch = root / "state" / "log"
        self.first = copy_and_start(command.fresh(corpus_dir, root / "fresh"), self.scratch)
        self.root = root / "run"
        log_dir = command.ready(corpus_dir, self.root)
        self.old = copy_and_start(log_dir, self.scratch)
        self.cleaned = {name: offset_in(log_dir, CLEANER_OFFSETS, name) for name in self.old}
        recorder = Recorder(log_dir)
        command.run(self.root, recorder)
        self.new = copy_and_start(log_dir, self.scratch)
        self.steps = len(recorder.steps)
        rng = random.Random(seed)
        trees = list(crashes(recorder, rng))
        if command.builds_aside:
            rng.shuffle(trees)
            trees = list({without_staging(tree): (how, tree) for how, tree in trees}.values())
        self.count = len(trees)
        if tries_everything():
            self.ours = self.kafkas = trees
        else:
            rng.shuffle(trees)
            self.ours, self.kafkas = trees[:STATES_OF_OURS], trees[-STATES_OF_KAFKA:]

    def judge(self, how: str, log_dir: Path, got: dict[str, Served]) -> str:
        """Name the log that was found: new, old or partly cleaned.

        An old log whose cleaner offset is above its own would stay dirty.
        """
        logs = [self.first, self.old, self.new]
        assert self.command.accepts(got, logs), f"{self.words}: {how}"
        for name, found in got.items():
            if found != self.new[name]:
                offset, limit = offset_in(log_dir, CLEANER_OFFSETS, name), self.cleaned.get(name)
                assert (offset or 0) <= (limit or 0), f"{self.words}: {how}"
        return "new" if got == self.new else "old" if got in logs else "partly"

    def require_end(self, how: str, tree: Tree) -> None:
        """Run the same command again after a crash, and require that it completes the job."""
        log_dir = put(tree, self.root / "log")
        self.command.run(self.root, None)
        assert copy_and_start(log_dir, self.scratch) == self.new, f"{self.words}: {how}"

    def conclude(self, found: Counter[str], judge: str, tell: Callable[[str], None]) -> None:
        """Report how many states were tried; all of them together hold both logs."""
        tried = f"{found.total()} of {self.count} states"
        tell(f"{judge}: {self.words}: {self.steps} steps, {tried}: {dict(found)}")
        assert self.count > self.steps / 2 or self.command.builds_aside
        is_sample = found.total() < self.count
        assert is_sample or self.old == self.new or {"old", "new"} <= found.keys()


@pytest.fixture(scope="module", params=CRASHING, ids=lambda command: command.name)
def enumeration(
    request: pytest.FixtureRequest, corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Enumeration]:
    """The crashes of a command, for both judges; a sample has a third of the commands."""
    root = tmp_path_factory.mktemp("crashes")
    yield Enumeration(request.param, corpus_dir, root)
    shutil.rmtree(root)


def test_a_start_as_predicted_finds_a_whole_log(
    enumeration: Enumeration, tell: Callable[[str], None]
) -> None:
    """Performs the start that we predict; only the old and the new log occur, and both do."""
    found: Counter[str] = Counter()
    for how, tree in enumeration.ours:
        log_dir = put(tree, enumeration.scratch)
        found[enumeration.judge(how, log_dir, start_of_ours(log_dir))] += 1
        if enumeration.command.builds_aside:
            enumeration.require_end(how, tree)
    enumeration.conclude(found, "our start", tell)


@pytest.mark.kafka
def test_kafkas_own_start_finds_a_whole_log(
    enumeration: Enumeration,
    oracle: Oracle,
    tmp_path: Path,
    tell: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka 4.3 loads what each crash left; our readers show the same before that."""
    log_dirs = [
        put(tree, tmp_path / "kafka" / str(number) / "log")
        for number, (_, tree) in enumerate(enumeration.kafkas)
    ]
    found: Counter[str] = Counter()
    monkeypatch.setattr(
        "kafkalog.node.frontier._start_config_of", lambda _: CONFIG
    )  # as Kafka's loader has it
    shown = [
        {name: seen(log_dir / name) for name in partitions(log_dir) if is_live(name)}
        for log_dir in log_dirs
    ]
    answers = starts_of_kafka(log_dirs, oracle)
    for (how, _), log_dir, got, views in zip(
        enumeration.kafkas, log_dirs, answers, shown, strict=True
    ):
        for name, view in views.items():
            view.require(got[name], f"{enumeration.words}: {how}: {name}")
        found[enumeration.judge(how, log_dir, got)] += 1
    enumeration.conclude(found, "Kafka's start", tell)
