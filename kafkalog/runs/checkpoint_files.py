"""The offset checkpoints of a log directory as files: kept beside a journal, and brought back.

Entries are set and taken back one by one, as other partitions have theirs; when all are as they
were, so are the bytes: a broker leaves an empty file where nothing was ever noted.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kafkalog.checkpoints import read_offset_checkpoint
from kafkalog.errors import ChangedSinceError
from kafkalog.names import OFFSET_CHECKPOINTS
from kafkalog.storage import Changes, require_no_link

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.model import CheckpointEntry
    from kafkalog.storage import Step

DIRECTORY: Final = "checkpoints"
_TEMPORARY: Final = ".tmp"


def keep_checkpoints(
    log_dir: str, backup: str, observe: Callable[[Step], None] | None = None
) -> None:
    """Link the checkpoints of a log directory into a backup, before anything is changed."""
    around = Changes(backup, observe)
    if not os.path.lexists(around.path(DIRECTORY)):
        around.make_directory(DIRECTORY)
    kept = Changes(around.path(DIRECTORY), observe)
    for name in OFFSET_CHECKPOINTS:
        kept.remove(name, missing_ok=True)
        path = os.path.join(log_dir, name)
        if os.path.lexists(path):
            kept.link(path, name)
    kept.sync_directory()
    around.sync_directory()


def require_checkpoints(log_dir: str, backup: str) -> None:
    """Raise `CorruptDataError` or `RefusedError` where `bring_checkpoints_back` could not go on."""
    kept = os.path.join(backup, DIRECTORY)
    require_no_link(kept)
    for directory in (kept, log_dir):
        for name in OFFSET_CHECKPOINTS:
            require_no_link(os.path.join(directory, name))
            _entries(os.path.join(directory, name))


def bring_checkpoints_back(
    log_dir: str, backup: str, observe: Callable[[Step], None] | None = None
) -> None:
    """The files that were kept, in place of those that say the same.

    Raises:
        CorruptDataError: a checkpoint is malformed.
        ChangedSinceError: one that was kept is another's by now.
    """
    changes = Changes(log_dir, observe)
    kept = os.path.join(backup, DIRECTORY)
    if not os.path.isdir(kept):
        return
    for name in OFFSET_CHECKPOINTS:
        before, now = os.path.join(kept, name), changes.path(name)
        if not os.path.lexists(now) or _entries(before) != _entries(now):
            continue
        _require_same_owner(before, now)
        if os.path.lexists(before):
            if os.path.samefile(before, now):
                continue  # a rename to itself does nothing
            changes.remove(name + _TEMPORARY, missing_ok=True)
            changes.link(before, name + _TEMPORARY)
            changes.rename(name + _TEMPORARY, name)
        else:
            changes.remove(name)
    changes.sync_directory()


def _require_same_owner(before: str, now: str) -> None:
    """Raise where the file that was kept is not the one that was there: that has one owner."""
    if not os.path.lexists(before):
        return
    was, found = os.lstat(before), os.lstat(now)
    if (was.st_mode, was.st_uid, was.st_gid) != (found.st_mode, found.st_uid, found.st_gid):
        raise ChangedSinceError("The backup has changed since the run.", path=before)


def _entries(path: str) -> list[CheckpointEntry]:
    """In the order of the names: which is first says nothing."""
    found = read_offset_checkpoint(path) if os.path.lexists(path) else []
    return sorted(found, key=lambda entry: (entry.topic, entry.partition))
