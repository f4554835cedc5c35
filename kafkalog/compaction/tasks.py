"""What engines run of a compaction: a function for each kind of task, JSON in and JSON out.

A task that fails says so in its result: the work on other partitions goes on.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import asdict
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kafkalog.compaction.bucketed import (
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
from kafkalog.compaction.model import Compaction, Group, MapOutgrownError
from kafkalog.compaction.partition_work import PartitionWork
from kafkalog.compaction.passes import LocalPasses, judged_passes
from kafkalog.compaction.plan import PassPlan
from kafkalog.compaction.staged import tally_from_json, tally_to_json
from kafkalog.engine.errors import of_task, told
from kafkalog.storage import Attempt, Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.compaction.model import Candidate


def task_of(
    plan: PassPlan, memory: int | None, staging: str | None = None, number: int = 0
) -> dict[str, Any]:
    """What each of the functions is given.

    Args:
        plan: of a pass.
        memory: bytes that the map of a task may take; None: as many as it needs.
        staging: the staging directory; None: nothing is written.
        number: of the bucket, or of the group.
    """
    return {"plan": plan.to_json(), "memory": memory, "staging": staging, "number": number}


def plan_partition(task: Mapping[str, Any]) -> dict[str, Any]:
    """Say what would come of a compaction; nothing is written.

    Keys that do not fit into memory are put into a temporary directory of the worker.
    """
    return _answer(_planned, task)


def stage_pass(task: Mapping[str, Any]) -> dict[str, Any]:
    """Judge a partition, and make the new segments of a pass over it; or tell the error.

    They lie in the staging directory, in one with the name of the plan, when this ends. Done twice,
    even at the same time, those of the first to end count. The log is only read.

    Cost:
        As `compact_partition`, and reads the new segments once more; room for all of them.
    """
    return _answer(_staged, task)


def spill_keys(task: Mapping[str, Any]) -> dict[str, Any]:
    """Judge a partition, and write its keys into buckets in the staging directory."""
    return _answer(_spilled, task)


def find_superseded(task: Mapping[str, Any]) -> dict[str, Any]:
    """Write the numbers of the superseded records of a bucket into the staging directory."""
    return _answer(_found, task)


def stage_group(task: Mapping[str, Any]) -> dict[str, Any]:
    """Make the new segment of one group, as `stage_pass`, when all buckets were gone through."""
    return _answer(_group_staged, task)


def said_compaction(answer: Mapping[str, Any], candidate: Candidate) -> Compaction:
    """What `plan_partition` said, as a value."""
    return Compaction(
        candidate,
        False,
        answer["passes"],
        answer["keys"],
        tally_from_json(answer["tally"]),
        answer["next_dirty_offset"],
        answer["bytes_before"],
        answer["bytes_after"],
        tuple(Group(**{**one, "sources": tuple(one["sources"])}) for one in answer["groups"]),
    )


def _answer(
    work: Callable[[Mapping[str, Any]], dict[str, Any]], task: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        return work(task)
    except Exception as raised:  # noqa: BLE001 # any failure costs this part only
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
        "bytes_before": found.bytes_before,
        "bytes_after": found.bytes_after,
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
