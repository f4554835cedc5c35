"""The first part of a recovery: an interrupted swap is finished or rolled back, leftovers go.

Follows `LogLoader.removeTempFilesAndCollectSwapFiles` and `completeSwapOperations` of Kafka 4.3, in
an order in which a crash at any moment leaves a state with the same outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.recovery import RemoveFile, RenameFile, WriteFile
from kafkalog.recovery.directory import offset_from_name, segment_file
from kafkalog.repair.index_data import index_data
from kafkalog.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.recovery import Action, StartConfig
    from kafkalog.storage import Changes


def tidy(changes: Changes, actions: Sequence[Action], config: StartConfig) -> None:
    """Perform the actions on the directory.

    After a crash the directory is as before, or a later one of these, whose outcomes are the same:
    an index that a swap lacks is there before anything else happens to it; swap files that are
    rolled back are gone before the `.cleaned` files that say so; segments that a swap replaces are
    gone before its files are renamed; of these a log comes before its indexes, and one segment is
    done before the next begins, as a start deletes what lies in the range of the logs that are
    still called `.swap`.
    """
    swapping = next(
        (number for number, action in enumerate(actions) if isinstance(action, RenameFile)),
        len(actions),
    )
    removed = _removed(actions[:swapping])
    _remove(changes, [name for name in removed if name.endswith(file_names.SWAP)])
    _remove(changes, [name for name in removed if name.endswith(file_names.CLEANED)])
    for action in actions[:swapping]:
        # The other file that may be written here, that of the leader epochs, has time.
        if isinstance(action, WriteFile) and action.name.endswith(file_names.SWAP):
            changes.replace(action.name, _data(changes, action.name, config))
    _remove(
        changes,
        [name for name in removed if not name.endswith((file_names.SWAP, file_names.CLEANED))],
    )
    for rename in sorted(_renames(actions), key=_place):
        changes.rename(rename.name, rename.new_name)
        if rename.new_name.endswith(file_names.LOG):
            changes.sync_directory()
    changes.sync_directory()


def _removed(actions: Sequence[Action]) -> list[str]:
    return [action.name for action in actions if isinstance(action, RemoveFile)]


def _data(changes: Changes, name: str, config: StartConfig) -> bytes:
    """What a swap lacks: an index of its log; or the log, where its name has no 20 digits."""
    base_offset = offset_from_name(name)
    log = changes.path(segment_file(base_offset, file_names.LOG + file_names.SWAP))
    suffix = name.removesuffix(file_names.SWAP)[name.index(".") :]
    if suffix == file_names.LOG:
        return b""
    with Source(log) as source:
        return index_data(source, 0, source.size_bytes, base_offset, config)[suffix]


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
    return offset_from_name(rename.name), not rename.new_name.endswith(file_names.LOG), rename.name
