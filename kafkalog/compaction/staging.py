"""Has an engine's tasks stage passes: one task a partition, or several steps where keys do not fit.

What an earlier run left of a step, whole, is not done again.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kafkalog.compaction import bucketed, tasks
from kafkalog.compaction.staged import is_whole, read_result
from kafkalog.engine.errors import told_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.compaction.plan import PassPlan
    from kafkalog.engine import Engine
    from kafkalog.engine.model import Work
    from kafkalog.errors import KafkaLogError
    from kafkalog.storage import StagingDirectory

    Staged = Sequence[str] | KafkaLogError
    """The results that a pass consists of, or what stopped the work on it."""
    Step = tuple[PassPlan, str, int]


class Staging:
    """The steps by which passes are staged.

    Args:
        engine: runs the tasks.
        directory: where they write.
        memory: bytes that the map of a task may take; None: what it needs.
    """

    def __init__(self, engine: Engine, directory: StagingDirectory, memory: int | None) -> None:
        self._engine = engine
        self._directory = directory
        self._memory = memory

    def stage(self, plans: Sequence[PassPlan]) -> Iterator[tuple[PassPlan, Staged]]:
        """Each plan with its results, as they are there."""
        large = [plan for plan in plans if self._is_there(plan, bucketed.keys_name(plan))]
        small = [plan for plan in plans if plan not in large]
        for (plan, name, _), answer in self._run(
            tasks.stage_pass, [(plan, plan.digest, 0) for plan in small], self._memory
        ):
            if "outgrown" in answer:
                large.append(plan)
            else:
                yield plan, self._outcome(answer, [name])
        if large:
            yield from self._in_buckets(large)

    def _in_buckets(self, plans: Sequence[PassPlan]) -> Iterator[tuple[PassPlan, Staged]]:
        """The steps for those whose keys no task can hold, all of them at the same step."""
        failed: dict[str, KafkaLogError] = {}
        spilled = [(plan, bucketed.keys_name(plan), 0) for plan in plans]
        self._finish(tasks.spill_keys, spilled, failed)
        left = [plan for plan in plans if plan.digest not in failed]
        said = {plan.digest: read_result(self._path(bucketed.keys_name(plan))) for plan in left}
        unsuited = [plan for plan in left if not said[plan.digest]["sound"]["suits_kernels"]]
        left = [plan for plan in left if plan not in unsuited]
        self._finish(
            tasks.find_superseded,
            [
                (plan, bucketed.numbers_name(plan, number), number)
                for plan in left
                for number in range(said[plan.digest]["buckets"])
            ],
            failed,
        )
        groups = [
            (plan, bucketed.group_name(plan, number), number)
            for plan in left
            if plan.digest not in failed
            for number in range(said[plan.digest]["groups"])
        ]
        self._finish(tasks.stage_group, groups, failed)
        # The kernels do not take these: their keys are held as they are, whatever that takes.
        whole = [(plan, plan.digest, 0) for plan in unsuited]
        for (plan, name, _), answer in self._run(tasks.stage_pass, whole, None):
            yield plan, self._outcome(answer, [name])
        for plan in plans:
            if plan.digest in failed:
                yield plan, failed[plan.digest]
            elif plan in left:
                yield plan, [self._path(name) for one, name, _ in groups if one is plan]

    def _finish(self, work: Work, steps: Sequence[Step], failed: dict[str, KafkaLogError]) -> None:
        for (plan, _, _), answer in self._run(work, steps, self._memory):
            if "error" in answer:
                failed.setdefault(plan.digest, told_error(answer["error"]))

    def _run(
        self, work: Work, steps: Iterable[Step], memory: int | None
    ) -> Iterator[tuple[Step, Mapping[str, Any]]]:
        """The steps with their answers; those whose results are there are not done again."""
        wanted = []
        for step in steps:
            if self._is_there(step[0], step[1]):
                yield step, {}
            else:
                wanted.append(step)
        given = [tasks.task_of(plan, memory, self._directory.path, number)
                 for plan, _, number in wanted]  # fmt: skip
        for number, answer in self._engine.run(work, given):
            yield wanted[number], answer

    def _is_there(self, plan: PassPlan, name: str) -> bool:
        """Whether a result is there; what is not whole goes."""
        path = self._path(name)
        if not os.path.lexists(path):
            return False
        if is_whole(path, plan):
            return True
        self._directory.remove(name)
        return False

    def _path(self, name: str) -> str:
        return os.path.join(self._directory.path, name)

    def _outcome(self, answer: Mapping[str, Any], names: Sequence[str]) -> Staged:
        if "error" in answer:
            return told_error(answer["error"])
        return [self._path(name) for name in names]
