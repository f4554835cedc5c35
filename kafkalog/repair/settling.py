"""The second part of a recovery: the end is cut off, indexes and small files are put in place.

Follows `LogLoader.recoverLog` and `LogSegment.recover` of Kafka 4.3 in what results, not in the
order: there a crash between two steps can leave segments behind a cut.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.recovery.directory import Content, offset_from_name, segment_file

if TYPE_CHECKING:
    from kafkalog.repair.staging import Staging
    from kafkalog.storage import Changes


class Settlement:
    """The steps from the files as they are to those a start would leave.

    Args:
        changes: of the partition directory.
        before: the files as they are.
        after: the files as they shall be: as they are, cut, made, or gone.
        staging: what has been made.

    Each step lasts before the next begins:

    1. segments behind a cut go, the last one first: what made the start cut is still there;
    2. logs and indexes are cut in place;
    3. producer snapshots and leader epochs are put in place;
    4. time, transaction and offset indexes are; what made the start build them, a missing or an
       unsound one, is replaced last;
    5. where no segment is left an empty one is put in place, its log last; what is not wanted any
       more goes.

    After a crash a start finds what this one found, and comes to the same.
    """

    def __init__(
        self,
        changes: Changes,
        before: dict[str, Content],
        after: dict[str, Content],
        staging: Staging,
    ) -> None:
        self._changes = changes
        self._before = before
        self._after = after
        self._staging = staging
        self._removed = [name for name in before if name not in after]
        self._made = [name for name, content in after.items() if content.path is None]
        self._new = [name for name in self._made if after[name].told is None]

    def perform(self) -> None:
        """Do all of it."""
        if self._new:
            self._put(
                [file_names.LEADER_EPOCHS]
            )  # a start on no segment at all would keep an entry
        logs = [name for name in self._removed if name.endswith(file_names.LOG)]
        self._remove(sorted(logs, key=offset_from_name, reverse=True))
        self._cut()
        self._put([name for name in self._made if name.endswith(file_names.SNAPSHOT)])
        self._put([file_names.LEADER_EPOCHS])
        self._put_indexes()
        self._put([name for name in self._made if name not in self._new])
        self._put(sorted(self._new, key=lambda name: (name.endswith(file_names.LOG), name)))
        self._remove([name for name in self._removed if name not in logs])

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self._changes.remove(name)
        if names:
            self._changes.sync_directory()

    def _cut(self) -> None:
        """Logs before indexes. A file with a second name, as in a backup, is replaced by a copy."""
        cut = [
            name
            for name, content in self._after.items()
            if content.path is not None and content.end < self._before[name].end
        ]
        for name in sorted(cut, key=lambda name: (not name.endswith(file_names.LOG), name)):
            if os.stat(self._changes.path(name)).st_nlink > 1:
                self._staging.shorten(name, self._after[name].end)
                self._changes.sync_directory()
            else:
                self._changes.truncate(name, self._after[name].end)

    def _put(self, names: list[str]) -> None:
        """Put made files in place that are not yet."""
        count = 0
        for name in names:
            if name in self._after:
                count += self._staging.put(self._after[name].told, name)
        if count:
            self._changes.sync_directory()

    def _put_indexes(self) -> None:
        made = set(self._made).difference(self._new)
        indexes = sorted(name for name in made if name.endswith(file_names.INDEXES))
        last = [name for name in indexes if self._is_trigger(name)]
        self._put([name for name in indexes if name not in last])
        self._put(last)

    def _is_trigger(self, name: str) -> bool:
        """Whether a start builds indexes because of this one as it is."""
        offset_index = segment_file(offset_from_name(name), file_names.OFFSET_INDEX)
        if offset_index not in self._before:
            return name == offset_index
        return name.endswith(file_names.TRANSACTION_INDEX)
