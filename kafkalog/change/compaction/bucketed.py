"""The steps of a pass: new segments all at once, or, by way of buckets of keys, group by group.

With buckets, one task judges the log and writes its keys into buckets; others find the superseded
records of each bucket; then each group is cleaned on its own, given these records and the
transactions that are open where it begins. Each step's result is a directory with `result.json`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kafkalog.change.compaction.candidates import segments_between
from kafkalog.change.compaction.cleaning import group_segments
from kafkalog.change.compaction.compact import CleaningPass, LocalPasses
from kafkalog.change.compaction.plan import require_sound, sound_from_json, sound_to_json
from kafkalog.change.compaction.staged import (
    read_result,
    segment_to_json,
    tally_to_json,
    write_result,
)
from kafkalog.change.compaction.transactions import TransactionState
from kafkalog.io.storage import Changes
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.change.compaction.model import Candidate
    from kafkalog.change.compaction.plan import PassPlan, SoundLog
    from kafkalog.files.log_dir import Segment

_NUMBERS: Final = "numbers"


def keys_name(plan: PassPlan) -> str:
    """Return the name of the result with the buckets."""
    return f"{plan.digest}-keys"


def numbers_name(plan: PassPlan, number: int) -> str:
    """Return the name of a bucket's result."""
    return f"{plan.digest}-bucket{number}"  # to a broker, a name in -0 is a partition


def group_name(plan: PassPlan, number: int) -> str:
    """Return the name of a group's result."""
    return f"{plan.digest}-group{number}"


def planned_groups(plan: PassPlan, candidate: Candidate) -> list[list[Segment]]:
    """Return the groups of segments of a pass without a limit on keys."""
    upper = plan.cleanable.first_uncleanable_offset
    segments = segments_between(candidate.partition.segments, 0, upper)
    return group_segments(segments, plan.config, upper)


def count_of_buckets(plan: PassPlan, memory: int) -> int:
    """Return the number of buckets for tasks with this amount of memory."""
    from kafkalog.change.compaction.buckets import bucket_count

    return bucket_count(plan.cleanable.first_uncleanable_offset - plan.log_start_offset, memory)


def write_new_segments(
    plan: PassPlan,
    sound: SoundLog,
    cleaning: CleaningPass,
    groups: Sequence[Sequence[Segment]],
    changes: Changes,
) -> None:
    """Write the new segments of some groups, verify each by reading it back, and write the result.

    Raises:
        RefusedError: the partition has changed meanwhile.
    """
    made = [segment_to_json(cleaning.put(group, changes), group) for group in groups]
    # Compared once more behind the work: what was read is what the plan describes, or it is thrown
    # away.
    plan.candidate()
    result = {
        "plan": plan.to_json(),
        "sound": sound_to_json(sound),
        "keys": cleaning.keys,
        "end_offset": cleaning.end_offset,
        "tally": tally_to_json(cleaning.tally),
        "groups": made,
    }
    write_result(result, changes)


def write_keys(plan: PassPlan, candidate: Candidate, changes: Changes, memory: int) -> None:
    """Judge a partition, and write the keys of everything that is cleaned into buckets.

    Raises:
        RefusedError: the partition has changed meanwhile; or any error of `require_sound`.
    """
    from kafkalog.change.compaction.buckets import SpilledLog, spilling

    log = UnifiedLog(candidate.partition, high_watermark=candidate.high_watermark)
    with spilling(changes, count_of_buckets(plan, memory)) as spill:
        spilled = SpilledLog(log, plan.cleanable, spill)
        sound = require_sound(candidate, plan.request, building=spilled)
        spilled.close()
    plan.candidate()
    result = {
        "plan": plan.to_json(),
        "sound": sound_to_json(sound),
        "rows": spill.rows,
        "starts": spilled.firsts,
        "transactions": spilled.states,
        "buckets": count_of_buckets(plan, memory),
        "groups": len(planned_groups(plan, candidate)),
    }
    write_result(result, changes)


def write_numbers(plan: PassPlan, source: str, number: int, changes: Changes) -> None:
    """Write the numbers of a bucket's superseded records; the bucket is in directory `source`."""
    from kafkalog.change.compaction.buckets import NUMBER, bucket_name, superseded_in

    keys, columns = superseded_in(os.path.join(source, bucket_name(number)))
    with changes.create(_NUMBERS) as file:
        for column in columns:
            file.write(column.astype(NUMBER).data)
    write_result({"plan": plan.to_json(), "keys": keys}, changes)


def passes_from(plan: PassPlan, candidate: Candidate, staging: str, first: Segment) -> LocalPasses:
    """Return passes over a partition with processed buckets, from a segment's group on."""
    from kafkalog.change.compaction.buckets import SupersededByNumbers

    said = read_result(os.path.join(staging, keys_name(plan)))
    places = [os.path.join(staging, numbers_name(plan, i)) for i in range(said["buckets"])]
    keys = sum(read_result(place)["keys"] for place in places)
    paths = [os.path.join(place, _NUMBERS) for place in places]
    return LocalPasses(
        candidate,
        plan.request,
        sound_from_json(said["sound"]),
        superseded=SupersededByNumbers(paths, said["starts"], said["rows"], keys),
        transactions=TransactionState.from_json(said["transactions"][first.log.path]),
    )


def bucketed_passes(plan: PassPlan, candidate: Candidate, place: str, memory: int) -> LocalPasses:
    """Run all steps before the groups in this process, one bucket after the other.

    Args:
        plan: the plan of the pass.
        candidate: the partition.
        place: an empty directory.
        memory: bytes that the map of a bucket may take.
    """
    around = Changes(place)
    around.make_directory(keys_name(plan))
    source = around.path(keys_name(plan))
    write_keys(plan, candidate, Changes(source), memory)
    sound = sound_from_json(read_result(source)["sound"])
    # Old formats and huge batches have no rows in buckets; a plain pass takes them.
    if not sound.suits_kernels:
        return LocalPasses(candidate, plan.request, sound)
    for number in range(count_of_buckets(plan, memory)):
        around.make_directory(numbers_name(plan, number))
        write_numbers(plan, source, number, Changes(around.path(numbers_name(plan, number))))
    return passes_from(plan, candidate, place, candidate.partition.segments[0])
