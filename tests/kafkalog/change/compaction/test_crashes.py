"""What a crash in the middle of a compaction leaves: each group is whole, old or new.

Changes of names are durable once their directory is synced: a crash may keep any of the renames and
removals since the last sync. A predicted start is performed on every such state.
"""

from __future__ import annotations

import itertools
import random
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.io.storage import StepKind
from kafkalog.node.recovery import StartConfig, StartMode
from tests.kafkalog.change.compaction.oracle import PARTITION, Cleaning, cleanings, contents
from tests.kafkalog.replay import predict_and_perform

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kafkalog.change.compaction import Compaction, Group
    from kafkalog.io.storage import Step

NAMES = (
    "group_all_removed", "group_by_segment_bytes", "tail_gap_some", "tombstones_horizon",
    "txn_commit_abort", "txn_span_separate_groups",
)  # fmt: skip
SUBSETS_MAX = 24


@dataclass
class Window:
    """The partition when its names were last durable, and the changes since then."""

    lasting: Path
    steps: list[tuple[Step, Path | None]] = field(default_factory=list)


class Recorder:
    """Records what is needed to make every state that a crash can leave."""

    def __init__(self, log_dir: Path, store: Path) -> None:
        self._partition = log_dir / PARTITION
        self._store = store
        self._created = 0
        self.windows: list[Window] = []
        self._sync()

    def __call__(self, step: Step) -> None:
        if not step.path.startswith(str(self._partition)):
            return
        if step.kind == StepKind.SYNC_DIRECTORY:
            self._sync()
        elif step.kind == StepKind.CREATE:
            self._created += 1
            kept = self._store / f"created-{self._created}"
            shutil.copy2(step.path, kept)
            self.windows[-1].steps.append((step, kept))
        elif step.kind != StepKind.SYNC:
            self.windows[-1].steps.append((step, None))

    def _sync(self) -> None:
        lasting = self._store / f"window-{len(self.windows)}"
        shutil.copytree(self._partition, lasting)
        self.windows.append(Window(lasting))

    def states(self, target: Path, rng: random.Random) -> Iterator[Path]:
        """Yield the partition as each crash leaves it, one after the other in the same place."""
        for window in self.windows:
            for kept in subsets(len(window.steps), rng):
                shutil.rmtree(target.parent, ignore_errors=True)
                shutil.copytree(window.lasting, target)
                for number in kept:
                    apply(*window.steps[number], target)
                yield target


def subsets(count: int, rng: random.Random) -> list[Sequence[int]]:
    """Return every beginning and other choices of steps: all of them, or some at random."""
    found: list[Sequence[int]] = [range(stop) for stop in range(count + 1)]
    if count <= 4:
        numbers = range(count)
        found += [kept for size in numbers for kept in itertools.combinations(numbers, size)]
    else:
        found += [
            [number for number in range(count) if rng.random() < 0.5] for _ in range(SUBSETS_MAX)
        ]
    return found


def apply(step: Step, kept: Path | None, target: Path) -> None:
    path = target / step.path.rsplit("/", 1)[1]
    if kept is not None:
        shutil.copy2(kept, path)
    elif step.kind == StepKind.RENAME:
        assert step.new_path is not None
        if path.exists():
            path.replace(target / step.new_path.rsplit("/", 1)[1])
    else:
        path.unlink(missing_ok=True)


def by_base(partition: Path) -> dict[int, list[Any]]:
    found = {int(path.name[:20]): contents(path) for path in partition.glob("*.log")}
    found_txn = {int(path.name[:20]): path.read_bytes() for path in partition.glob("*.txnindex")}
    return {base: [*batches, found_txn.get(base, b"")] for base, batches in found.items()}


def is_whole(found: dict[int, Any], old: dict[int, Any], new: dict[int, Any], group: Group) -> bool:
    """Check whether a group is old or new; the last of the old sources may follow a new log."""
    sources = {base: found[base] for base in group.sources if base in found}
    if sources == {base: old[base] for base in group.sources}:
        return True
    made = new[group.base_offset]
    if found[group.base_offset][:-1] != made[:-1]:
        return False
    is_empty = len(made) == 1
    if not is_empty and found[group.base_offset] != made:
        return False
    end = group.base_offset if is_empty else made[-2][0][1] + 1
    left = [base for base in group.sources[1:] if base in found]
    return all(base >= end and found[base] == old[base] for base in left) and (
        not left or left == [base for base in group.sources if base >= left[0]]
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NAMES)
def test_a_start_finds_each_group_old_or_new(name: str, corpus_dir: Path, tmp_path: Path) -> None:
    """A crash comes after any step, with any of the renames that are not durable yet."""
    cleaning = cleanings(corpus_dir / "compaction", name)[0]
    rng = random.Random(7)
    log_dir = cleaning.copy(tmp_path / "log-dir")
    old = by_base(log_dir / PARTITION)
    (tmp_path / "store").mkdir()
    recorder = Recorder(log_dir, tmp_path / "store")
    done = cleaning.compact(log_dir, observe=recorder)
    new = by_base(log_dir / PARTITION)
    count = sum(
        check_state(state, cleaning, done, old, new)
        for state in recorder.states(tmp_path / "crashed" / PARTITION, rng)
    )
    print(name, count, "states")
    assert count > 30


def check_state(
    state: Path, cleaning: Cleaning, done: Compaction, old: dict[int, Any], new: dict[int, Any]
) -> int:
    predicted = predict_and_perform(
        state, StartMode.CLEAN, StartConfig(now_ms=cleaning.facts["now"]), log_start_checkpoint=0
    )
    assert predicted.loaded is not None, predicted.refusal
    assert not [path.name for path in state.iterdir() if path.suffix in (".cleaned", ".swap")]
    found = by_base(state)
    for group in done.groups:
        assert is_whole(found, old, new, group), (group, sorted(found))
    return 1
