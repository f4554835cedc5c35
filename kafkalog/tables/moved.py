"""Splits of a log that a living broker has changed since they were planned.

Appending changes nothing of a split. Compaction and deletion replace files: the partition is listed
again, and the same offsets are read from the files that have them now.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalog.errors import ChangedSinceError, NotFoundError
from kafkalog.living import listing_again
from kafkalog.log_dir import open_partition
from kafkalog.model import Isolation
from kafkalog.tables.model import OF_LOGS, Bounds, Request
from kafkalog.tables.planning import plan_splits
from kafkalog.unified_log import UnifiedLog
from kafkalog.view import show

if TYPE_CHECKING:
    from kafkalog.tables.model import Split

_LISTINGS_MAX: Final = 3


def current_splits(split: Split) -> list[Split]:
    """Return the splits that have the rows of a split now: itself, unless its files were replaced.

    Raises:
        UnreadableError: other files are here than those that were planned.
        ChangedSinceError: some of its offsets were deleted, or cut off, or it cannot be told.
    """
    listed = [split]
    for _ in range(_LISTINGS_MAX):
        try:
            if all(one.seen is None or one.seen.require_same() for one in listed):
                return listed
            listed = listed_again(split)
        except NotFoundError:
            continue  # it went away between two looks
    raise _changed(split, "Its files keep changing while they are read.")


@listing_again
def listed_again(split: Split) -> list[Split]:
    """List a partition again, and return the splits that have the rows of a split of it now.

    Raises:
        NotFoundError: it is gone.
        ChangedSinceError: as `current_splits`.
    """
    assert split.seen is not None, "else nothing is compared"
    if split.table not in OF_LOGS:
        at = split.seen.directory if split.seen.path is None else split.path
        now = plan_splits(
            [split.seen.directory], Request(split.table, internal=True, view=split.view)
        )
        return [one for one in now if one.path == at]
    first, following = split.first_offset, split.next_offset
    if first is None:
        raise _changed(split, "Its batches are of a format whose offsets are not in their headers.")
    partition = open_partition(os.path.dirname(split.path))
    log = UnifiedLog(show(partition, split.view).partition)
    wanted = max(first, first if split.from_offset is None else split.from_offset)
    ends = [one for one in (following, split.to_offset) if one is not None]
    is_cut = log.log_start_offset > wanted and not (ends and min(ends) <= wanted)
    if is_cut and split.fails_on_loss:
        raise _changed(split, f"Its log starts at offset {log.log_start_offset} now.")
    if ends and log.log_end_offset < min(ends):
        raise _changed(split, f"Its log ends at offset {log.log_end_offset} now.")
    bounds = Bounds(from_offset=wanted, to_offset=min(ends, default=None))
    request = Request(split.table, bounds, Isolation.LOG, internal=True, view=split.view)
    now = plan_splits([split.seen.directory], request)
    return [
        replace(
            one,
            from_time=split.from_time,
            to_time=split.to_time,
            committed=split.committed,
            aborted=split.aborted,
            fails_on_loss=split.fails_on_loss,
        )
        for one in now
    ]


def _changed(split: Split, message: str) -> ChangedSinceError:
    return ChangedSinceError(
        f"The log was changed after it was planned. {message}",
        path=split.path,
        hint="Run the query again.",
    )
