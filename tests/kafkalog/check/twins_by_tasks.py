"""The same checks without tasks and by tasks of an engine: both report the same."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING

from kafkalog.check.schedule import Schedule
from kafkalog.check.tasks import ReadOptions, WalkedByTasks
from kafkalog.check.verify import Verification
from kafkalog.io.engine import LocalEngine
from kafkalog.node.targets import open_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from kafkalog.check.schedule import Sample
    from kafkalog.io.engine import Engine, Gathering, PieceWork, Task
    from kafkalog.model import Defect, Level

Verdict = tuple[list["Defect"], object]


class JsonEngine(LocalEngine):
    """Passes tasks on as a cluster does: as text."""

    def stream(
        self,
        work: Gathering,
        tasks: Sequence[Task],
        piece_work: PieceWork,
        *,
        done: Callable[[int], None] | None = None,
    ) -> Generator[bytes, None, None]:
        self.tasks = [json.loads(json.dumps(task)) for task in tasks]
        return super().stream(work, self.tasks, piece_work, done=done)

    @property
    def pieces(self) -> int:
        return sum(len(task.get("pieces", ())) for task in self.tasks)


def verdict(
    paths: Sequence[Path | str],
    level: Level,
    *,
    engine: Engine | None = None,
    sample: Sample | None = None,
    split_bytes: int = 1,
) -> Verdict:
    """Return everything that a run reports, with pieces as small as the offset indexes allow."""
    targets = open_targets(map(str, paths))
    schedule = Schedule(targets, level, sample=sample)
    with (
        nullcontext()
        if engine is None
        else WalkedByTasks(engine, schedule, ReadOptions(), split_bytes)
    ) as remote:
        run = Verification(schedule=schedule, remote=remote)
        found = list(run.verify(*targets))
    return found, (run.summary, run.next_starts)
