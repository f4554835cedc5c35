"""Splits of a log that a living broker has changed since they were planned.

Appending changes nothing of a split. Compaction and deletion replace files: the partition is listed
again, and the same offsets are read from the files that have them now. What retention or a deletion
removed meanwhile is a loss: an error, unless the reader asks to be notified and continue.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalog.errors import (
    ChangedSinceError,
    GoneError,
    Listener,
    NotFoundError,
    ReplacedError,
)
from kafkalog.log.defects import DELETED, make_defect
from kafkalog.log.living import listing_again
from kafkalog.model import Isolation, Replicas, Severity
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show
from kafkalog.tables.listeners import AGAIN_HINT, Strict
from kafkalog.tables.model import OF_LOGS, Bounds, Request
from kafkalog.tables.planning import plan_logs, plan_splits

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.tables.model import Split

_LISTINGS_MAX: Final = 3


def current_splits(split: Split) -> list[Split]:
    """Return the splits that have the rows of a split now: itself, unless its files were replaced.

    Raises:
        UnreadableError: the files here are not those that were planned.
        ChangedSinceError: some of its offsets were deleted, or cut off, or this is unknown.
    """
    listed = [split]
    for _ in range(_LISTINGS_MAX):
        try:
            if all(one.seen is None or one.seen.require() for one in listed):
                return listed
            listed = splits_now(split, Losses(split, Strict()))
        except NotFoundError:
            continue  # it disappeared between two listings
    raise _changed(split, "Its files keep changing while they are read.")


def require_end(split: Split, end_of: Callable[[Split], int | None]) -> None:
    """Check that a split up to the end of a log still ends with the batch that it was planned with.

    The bytes that a claim compares are the same in a longer batch with the same first records.

    Raises:
        ChangedSinceError: its last offsets are in a batch that ends behind it.
    """
    planned, seen = split.next_offset, split.seen
    if planned is None or seen is None or not seen.is_to_end_of_log:
        return
    if split.high is not None:  # a swap comes after the last log: it ends where that begins
        return
    end = end_of(split)
    if end is not None and end < planned and seen.require():
        raise _changed(split, f"Its offsets from {end} are in a longer batch now.")


class Losses:
    """What was deleted of a split between its plan and its reading; each offset is named once.

    Args:
        split: which rows were promised.
        listener: hears of each loss.
    """

    def __init__(self, split: Split, listener: Listener) -> None:
        self._split = split
        self._listener = listener
        self._told = 0

    def add(self, first: int, end: int | None, reason: str, severity: Severity) -> None:
        """Report offsets as lost, up to `end`, which is None where the log end was not known."""
        first = max(first, self._told)
        if end is not None and first >= end:
            return
        what = f"Offsets {first} and above" if end is None else f"Offsets {first} to {end - 1}"
        name = f"{self._split.topic}-{self._split.partition}"
        detail = f"{what} of {name} were deleted after they were planned. {reason}"
        self._told = first if end is None else end
        lost = make_defect(DELETED, self._split.path, detail, offset=first)
        self._listener.hear(replace(lost, severity=severity))

    def replaced(self, first: int, end: int | None, error: ReplacedError) -> None:
        """Report offsets as lost: there are rows under the topic's name that nobody has planned."""
        self.add(first, end, error.message, Severity.WARNING)


@listing_again
def splits_now(split: Split, losses: Losses) -> list[Split]:
    """List a partition again, and return the splits that have the rows of a split of it now.

    Args:
        split: of a log with an offset where it begins.
        losses: hears of what is missing now.

    Raises:
        NotFoundError: a listed file has disappeared.
        ChangedSinceError: as `current_splits`.
    """
    assert split.seen is not None, "else nothing is compared"
    if split.table not in OF_LOGS:
        there = split.seen.listed_again(split.seen.directory)
        name = "" if split.seen.path is None else os.path.basename(split.path)
        request = Request(split.table, replicas=Replicas.ALL, internal=True, view=split.view)
        return [
            one
            for one in plan_splits([there], request, Listener())
            if one.path in (there.path, os.path.join(there.path, name))
        ]
    first, following = split.first_offset, split.next_offset
    if first is None:
        raise _changed(split, "Its batches are of a format whose offsets are not in their headers.")
    wanted = max(first, first if split.from_offset is None else split.from_offset)
    end = min((one for one in (following, split.to_offset) if one is not None), default=None)
    try:
        there = split.seen.listed_again(os.path.dirname(split.path))
    except GoneError as error:
        losses.add(wanted, end, error.message, Severity.NOTE)
        return []
    except ReplacedError as error:
        losses.replaced(wanted, end, error)
        return []
    log = UnifiedLog(show(there, split.view).partition)
    start = log.log_start_offset
    # Below its planned end the log would be another one: no loss can be named.
    if end is not None and log.log_end_offset < end:
        raise _changed(split, f"Its log ends at offset {log.log_end_offset} now.")
    if start > wanted and (end is None or end > wanted):
        lost_to = start if end is None else min(start, end)
        losses.add(wanted, lost_to, f"Its log starts at offset {start} now.", Severity.NOTE)
        wanted = start
    if end is not None and not split.seen.has_same_records(there, wanted, end):
        raise _changed(split, "It was cut, and has other records there now.")
    bounds = Bounds(from_offset=wanted, to_offset=end)
    request = Request(
        split.table, bounds, Isolation.LOG, Replicas.ALL, internal=True, view=split.view,
        where=split.where, contents=split.contents,
    )  # fmt: skip
    [now] = plan_logs([there], request, Listener())
    if now.first is None:
        raise NotFoundError("The partition is not here any more.", path=there.path)
    if now.first > wanted:  # its files changed while it was planned
        lost_to = now.first if end is None else min(now.first, end)
        losses.add(wanted, lost_to, f"Its log starts at offset {now.first} now.", Severity.NOTE)
    return [
        replace(
            one,
            from_time=split.from_time,
            to_time=split.to_time,
            committed=split.committed,
            aborted=split.aborted,
        )
        for one in now.splits
    ]


def _changed(split: Split, message: str) -> ChangedSinceError:
    return ChangedSinceError(
        f"The log was changed after it was planned. {message}",
        path=split.path,
        hint=AGAIN_HINT,
    )
