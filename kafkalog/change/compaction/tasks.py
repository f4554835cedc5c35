"""Compaction tasks: a function per kind, JSON in and JSON out, and an engine that runs them.

A task that fails says so in its result, and work on other partitions goes on. A step that an
earlier run completed is not repeated.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import asdict
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kafkalog.change.compaction import bucketed
from kafkalog.change.compaction.bucketed import (
    bucketed_passes,
    group_name,
    keys_name,
    numbers_name,
    passes_from,
    planned_groups,
    write_keys,
    write_new_segments,
    write_numbers,
)
from kafkalog.change.compaction.compact import LocalPasses, PartitionWork, judged_passes
from kafkalog.change.compaction.model import Candidate, Compaction, Group, MapOutgrownError
from kafkalog.change.compaction.plan import PassPlan
from kafkalog.change.compaction.staged import is_whole, read_result, tally_from_json, tally_to_json
from kafkalog.io.engine import Engine, Work, of_task, told, told_error
from kafkalog.io.paths import file_system
from kafkalog.io.storage import Attempt, Changes, StagingDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kafkalog.errors import KafkaLogError

    Staged = Sequence[str] | KafkaLogError
    """The results that make up a pass, or the error that stopped the work on it."""
    Step = tuple[PassPlan, str, int]


def task_of(
    plan: PassPlan, memory: int | None, staging: str | None = None, number: int = 0
) -> dict[str, Any]:
    """Return the input of a task.

    Args:
        plan: the plan of a pass.
        memory: bytes that the map of a task may take; None for as many as it needs.
        staging: the staging directory; if None, nothing is written.
        number: number of the bucket or the group.
    """
    return {"plan": plan.to_json(), "memory": memory, "staging": staging, "number": number}


def plan_partition(task: Mapping[str, Any]) -> dict[str, Any]:
    """Compute what would result from a compaction; nothing is written.

    Keys that do not fit into memory go to a temporary directory of the worker.
    """
    return _answer(_planned, task)


def stage_pass(task: Mapping[str, Any]) -> dict[str, Any]:
    """Judge a partition, and make the new segments of a pass over it; or report the error.

    They end up in the staging directory, in one named after the plan. If a task runs twice, even at
    the same time, the first to finish wins. The log is only read.

    Cost:
        That of `compact_partition`, plus one more read of the new segments; room for all of them.
    """
    return _answer(_staged, task)


def spill_keys(task: Mapping[str, Any]) -> dict[str, Any]:
    """Judge a partition, and write its keys into buckets in the staging directory."""
    return _answer(_spilled, task)


def find_superseded(task: Mapping[str, Any]) -> dict[str, Any]:
    """Write the numbers of the superseded records of a bucket into the staging directory."""
    return _answer(_found, task)


def stage_group(task: Mapping[str, Any]) -> dict[str, Any]:
    """Make the new segment of one group, as `stage_pass`, once all buckets are processed."""
    return _answer(_group_staged, task)


def said_compaction(answer: Mapping[str, Any], candidate: Candidate) -> Compaction:
    """Return the result of `plan_partition` as a value."""
    return Compaction(
        candidate,
        False,
        answer["passes"],
        answer["keys"],
        tally_from_json(answer["tally"]),
        answer["next_dirty_offset"],
        answer["before_bytes"],
        answer["after_bytes"],
        tuple(Group(**{**one, "sources": tuple(one["sources"])}) for one in answer["groups"]),
    )


def _answer(
    work: Callable[[Mapping[str, Any]], dict[str, Any]], task: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        return work(task)
    except Exception as raised:  # noqa: BLE001 # the driver gets it as the answer
        return {"error": told(of_task(raised))}


def _planned(task: Mapping[str, Any]) -> dict[str, Any]:
    plan = PassPlan.from_json(task["plan"])
    candidate, memory = plan.candidate(), task["memory"]
    with ExitStack() as held:
        try:
            passes = judged_passes(candidate, plan.request, map_size_max=memory)
        except MapOutgrownError:
            place = held.enter_context(TemporaryDirectory(prefix="kafkalog-"))
            passes = bucketed_passes(plan, candidate, place, memory)
        work = PartitionWork(candidate, plan.request, passes)
        work.plan()
        found = work.result(is_done=False)
    return {
        "passes": found.passes,
        "keys": found.keys,
        "tally": tally_to_json(found.tally),
        "next_dirty_offset": found.next_dirty_offset,
        "before_bytes": found.before_bytes,
        "after_bytes": found.after_bytes,
        "groups": [asdict(group) for group in found.groups],
    }


def _staged(task: Mapping[str, Any]) -> dict[str, Any]:
    plan = PassPlan.from_json(task["plan"])
    candidate = plan.candidate()
    if plan.sound is not None:
        passes = LocalPasses(candidate, plan.request, plan.sound)
    else:
        try:
            passes = judged_passes(candidate, plan.request, map_size_max=task["memory"])
        except MapOutgrownError:
            return {"outgrown": True}
    with Attempt(task["staging"], plan.digest) as attempt:
        changes = Changes(attempt.path)
        cleaning = passes.begin(candidate.partition, plan.cleanable)
        groups = cleaning.groups()
        write_new_segments(plan, passes.sound, cleaning, groups, changes)
    return {}


def _spilled(task: Mapping[str, Any]) -> dict[str, Any]:
    plan = PassPlan.from_json(task["plan"])
    with Attempt(task["staging"], keys_name(plan)) as attempt:
        write_keys(plan, plan.candidate(), Changes(attempt.path), task["memory"])
    return {}


def _found(task: Mapping[str, Any]) -> dict[str, Any]:
    plan, number = PassPlan.from_json(task["plan"]), task["number"]
    source = os.path.join(task["staging"], keys_name(plan))
    with Attempt(task["staging"], numbers_name(plan, number)) as attempt:
        write_numbers(plan, source, number, Changes(attempt.path))
    return {}


def _group_staged(task: Mapping[str, Any]) -> dict[str, Any]:
    plan, staging, number = PassPlan.from_json(task["plan"]), task["staging"], task["number"]
    candidate = plan.candidate()
    group = planned_groups(plan, candidate)[number]
    passes = passes_from(plan, candidate, staging, group[0])
    with Attempt(staging, group_name(plan, number)) as attempt:
        cleaning = passes.begin(candidate.partition, plan.cleanable)
        write_new_segments(plan, passes.sound, cleaning, [group], Changes(attempt.path))
    return {}


class Staging:
    """Runs the steps that stage passes.

    Args:
        engine: runs the tasks.
        directory: where they write.
        memory: bytes that the map of a task may take; None for what it needs.
    """

    def __init__(self, engine: Engine, directory: StagingDirectory, memory: int | None) -> None:
        self._engine = engine
        self._directory = directory
        self._memory = memory

    def stage(self, plans: Sequence[PassPlan]) -> Iterator[tuple[PassPlan, Staged]]:
        """Yield each plan with its results, as soon as they exist."""
        # A killed run has found that they do not fit, and has the buckets to show for it.
        large = [plan for plan in plans if self._is_there(plan, bucketed.keys_name(plan))]
        small = [plan for plan in plans if plan not in large]
        for (plan, name, _), answer in self._run(
            stage_pass, [(plan, plan.digest, 0) for plan in small], self._memory
        ):
            if "outgrown" in answer:
                large.append(plan)
            else:
                yield plan, self._outcome(answer, [name])
        if large:
            yield from self._in_buckets(large)

    def _in_buckets(self, plans: Sequence[PassPlan]) -> Iterator[tuple[PassPlan, Staged]]:
        """Stage the plans whose keys fit into no task's memory, all of them step by step."""
        failed: dict[str, KafkaLogError] = {}
        spilled = [(plan, bucketed.keys_name(plan), 0) for plan in plans]
        self._finish(spill_keys, spilled, failed)
        left = [plan for plan in plans if plan.digest not in failed]
        said = {plan.digest: read_result(self._path(bucketed.keys_name(plan))) for plan in left}
        unsuited = [plan for plan in left if not said[plan.digest]["sound"]["suits_kernels"]]
        left = [plan for plan in left if plan not in unsuited]
        self._finish(
            find_superseded,
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
        self._finish(stage_group, groups, failed)
        # The kernels do not take these: their keys are held in memory, whatever that takes.
        whole = [(plan, plan.digest, 0) for plan in unsuited]
        for (plan, name, _), answer in self._run(stage_pass, whole, None):
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
        """Yield the steps with their answers; steps whose results exist are not repeated."""
        wanted = []
        for step in steps:
            if self._is_there(step[0], step[1]):
                yield step, {}
            else:
                wanted.append(step)
        given = [task_of(plan, memory, self._directory.path, number)
                 for plan, _, number in wanted]  # fmt: skip
        for number, answer in self._engine.run(work, given):
            yield wanted[number], answer

    def _is_there(self, plan: PassPlan, name: str) -> bool:
        """Return whether a whole result exists; remove an incomplete one."""
        path = self._path(name)
        if not file_system.is_there(path):
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
