"""Increments of a table: what is new in logs since the last one, and what never comes.

An increment continues each partition, by topic id, at the offset and the leader epoch where the one
before ended, wherever the partition is now (`kafkalog.tables.tailing`). So nothing is read twice,
and whatever cannot be read is named.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.change.lake.model import Gap, Increment
from kafkalog.errors import DataError, Listener, Note
from kafkalog.files.log_dir import list_partition
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.model import Defect, Severity
from kafkalog.tables.model import Loss, LossReason
from kafkalog.tables.tailing import Tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.change.lake.model import ExportedPart
    from kafkalog.change.lake.plan import Part
    from kafkalog.errors import Event
    from kafkalog.tables.model import Offsets, Request, Split
    from kafkalog.tables.planning import Target


def next_increment(
    paths: Sequence[str],
    request: Request,
    last: Increment | None,
    listener: Listener,
    until: Offsets | None = None,
) -> tuple[Increment, list[Split], list[Target]]:
    """Return the increment after the last one, the splits that have its rows, and all logs.

    Args:
        paths: as for `plan_splits`.
        request: which rows.
        last: the increment before; None for the first, which begins where the logs begin.
        listener: as for `plan_splits`; the next increment continues a log that cannot be read.
        until: where the increment ends at the latest; None for the ends of the logs.

    Raises:
        as `plan_splits`.
    """
    heard = _Losses(listener)
    tail = Tail(paths, request, heard)
    start: Offsets = {} if last is None else dict(last.end)
    end = tail.end(is_first=True)
    if until is not None:
        end = {key: until[key] for key in end if key in until}
    # What has come since the last run was to be read from its first offset on.
    new = {} if last is None else {key: [0, -1] for key in end if _before(start, key) is None}
    splits = tail.splits({**start, **new}, end)
    end = {key: position for key, position in end.items() if _name(key) not in tail.lacking}
    # What was deleted between these two is gone, too, from where it was to be read.
    gone: dict[str, Loss] = {}
    for loss in sorted(heard.losses.values(), key=lambda one: one.first_offset):
        if loss.reason == LossReason.GONE:
            gone.setdefault(loss.key, loss)
            end.pop(loss.key, None)
    lost = [
        one
        for one in heard.losses.values()
        if gone.get(one.key, one) is one and _name(one.key) not in tail.lacking
    ]
    found = _increment(last, start, end, lost, tail.lacking)
    short = {one.key: one for one in lost if one.reason == LossReason.SHORT}
    for key, position in end.items():
        if position[0] < found.end[key][0]:
            words = f"can be read up to {position[0]}, and the table has it up to"
            words = f"{words} {found.end[key][0]}"
            if key in short:
                words = f"It {words}: a replica that is behind, or a log that was cut."
                listener.hear(replace(short[key], detail=words))
            else:
                listener.hear(Note(f"{_name(key)} {words}: consumers get less of the log now"))
    return found, splits, tail.targets


class _Losses(Listener):
    """Collects losses, each once; passes on what else it hears."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.losses: dict[tuple[str, int, LossReason], Loss] = {}

    def hear(self, event: Event) -> None:
        if isinstance(event, Loss):
            self.losses[event.key, event.first_offset, event.reason] = event
        else:
            self._listener.hear(event)


def _name(key: str) -> str:
    return key.partition("@")[0].partition(" ")[0]


def _before(start: Offsets, key: str) -> list[int] | None:
    """Return where a partition was to be continued: a topic may have got its id since."""
    return start.get(key, start.get(key.partition("@")[0]))


def _increment(
    last: Increment | None, start: Offsets, end: Offsets, losses: list[Loss], lacking: set[str]
) -> Increment:
    known_gone = set() if last is None else set(last.gone)
    is_cut = {one.key for one in losses if one.reason == LossReason.CUT}
    gaps = [
        Gap.of(one)
        for one in losses
        if one.reason != LossReason.SHORT  # older copy or not, nothing that it lacks is needed
        and not (one.reason == LossReason.GONE and one.key in known_gone)
    ]
    here = {key.partition("@")[0] for key in end}
    left = [key for key in start if key not in end and key.partition("@")[0] not in here]
    then = {key: start[key] for key in left}
    gone = [key for key in left if _name(key) not in lacking]
    for key, position in end.items():
        before = _before(start, key)
        # The disk of a lagging replica must not set the table back: its rows would come twice.
        goes_back = before is not None and position[0] < before[0] and key not in is_cut
        then[key] = before if goes_back and before is not None else position
    number = 0 if last is None else last.number + 1
    return Increment(number, start, then, tuple(gaps), tuple(gone))


def with_damage(
    increment: Increment, parts: Iterable[ExportedPart], planned: Iterable[Part]
) -> Increment:
    """Return an increment with gaps where its parts met damage that hides records.

    Args:
        planned: the parts of the plan: what damage hides is unknown if its file is not listed, and
            may be all of a part.

    Cost:
        Reads the headers of a segment for each defect that is kept.
    """
    ids = {_name(key): key.partition("@")[2] or None for key in increment.end}
    gaps = dict.fromkeys(increment.gaps)
    splits = {one.number: one.splits for one in planned}
    for part in parts:
        first, after = splits[part.number][0].from_offset, splits[part.number][-1].to_offset
        whole = (first or 0, None if after is None else after - 1)
        topic_id = ids.get(f"{part.topic}-{part.partition}")
        for defect in part.defects:
            lost = None
            if defect.severity == Severity.DAMAGE:
                lost = _lost_at(defect, whole)
            # A scan to the first offset passes what is before it.
            if lost is not None and (lost[1] is None or lost[1] >= whole[0]):
                why = LossReason.DAMAGED
                gap = Gap(part.topic, part.partition, topic_id, *lost, why, defect.detail)
                gaps.setdefault(gap)
    return replace(increment, gaps=tuple(gaps))


def _lost_at(defect: Defect, whole: tuple[int, int | None]) -> tuple[int, int | None] | None:
    """Return the offsets that damage hides, by the batches around it: `whole` if that is unknown.

    None if it hides none.
    """
    path, position = defect.path, defect.position
    if position is None:
        return whole
    with suppress(DataError):  # what is gone meanwhile was there when it was read
        segments = list_partition(os.path.dirname(path)).segments
        segment = next((one for one in segments if one.log.path == path), None)
        if segment is None:
            return whole
        first, end = segment.base_offset, segment.next_base_offset
        with OpenSegment(segment) as opened:
            for found in opened.order(check_crc=False).scan(0):
                if isinstance(found, Defect) or not found.is_sound:
                    continue
                if found.end_position <= position:
                    first = found.next_offset
                elif found.position > position:
                    end = found.base_offset
                    break
                elif found.header_defect is not None:
                    return None  # its records are known
        if end is None:
            return first, None
        return (first, end - 1) if first < end else None
    return whole
