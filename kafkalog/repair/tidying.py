"""The first part of a recovery: an interrupted swap is finished or rolled back, left-overs go.

Follows `LogLoader.removeTempFilesAndCollectSwapFiles` and `completeSwapOperations` of Kafka 4.3, in
an order in which a crash at any moment leaves a state with the same outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.recovery import RemoveFile, RenameFile, WriteFile
from kafkalog.recovery.directory import CLEANED, LOG, SWAP, offset_from_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.recovery import Action
    from kafkalog.storage import Changes


def tidy(changes: Changes, actions: Sequence[Action]) -> None:
    """Perform the actions on the directory.

    After a crash the directory is as before, or a later one of these, whose outcomes are the same:
    swap files that are rolled back are gone before the `.cleaned` files that say so; segments that
    a swap replaces are gone before its files are renamed; of these a log comes before its indexes,
    and one segment is done before the next begins, as a start deletes what lies in the range of
    the logs that are still called `.swap`.
    """
    swapping = next(
        (number for number, action in enumerate(actions) if isinstance(action, RenameFile)),
        len(actions),
    )
    removed = _removed(actions[:swapping])
    distrusted = _removed(actions[swapping:])
    _remove(changes, [name for name in removed if name.endswith(SWAP)])
    _remove(changes, [name for name in removed if name.endswith(CLEANED)])
    for action in actions[:swapping]:
        if isinstance(action, WriteFile):
            assert not action.size_bytes, "the log of an odd name, empty"
            with changes.create(action.name):
                pass
    _remove(changes, [name for name in removed if not name.endswith((SWAP, CLEANED))])
    _remove(changes, distrusted)
    for rename in sorted(_renames(actions), key=_place):
        if rename.new_name in distrusted:
            changes.remove(rename.name)
            continue
        changes.rename(rename.name, rename.new_name)
        if rename.new_name.endswith(LOG):
            changes.sync_directory()
    changes.sync_directory()


def _removed(actions: Sequence[Action]) -> list[str]:
    return [action.name for action in actions if isinstance(action, RemoveFile)]


def _renames(actions: Sequence[Action]) -> list[RenameFile]:
    return [action for action in actions if isinstance(action, RenameFile)]


def _remove(changes: Changes, names: Sequence[str]) -> None:
    """Remove files, where they are there; it lasts."""
    for name in names:
        changes.remove(name, missing_ok=True)
    if names:
        changes.sync_directory()


def _place(rename: RenameFile) -> tuple[int, bool, str]:
    """Segment by segment, the log first."""
    return offset_from_name(rename.name), not rename.new_name.endswith(LOG), rename.name
