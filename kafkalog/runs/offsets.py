"""A partition's entries in the offset checkpoints of its log directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.checkpoints import checkpoint_text, read_offset_checkpoint
from kafkalog.errors import RefusedError
from kafkalog.names import OFFSET_CHECKPOINTS, is_topic
from kafkalog.storage import Changes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.storage import Step


class PartitionOffsets:
    """The entries of one partition; each is read and written where it is asked for.

    Args:
        log_dir: the log directory; None: there are no checkpoints, all entries are missing, and
            setting one does nothing.
        topic, partition: whose entries; no partition number has none either.
        observe: called after each step on the disk.
    """

    def __init__(
        self,
        log_dir: str | None,
        topic: str,
        partition: int | None,
        observe: Callable[[Step], None] | None = None,
    ) -> None:
        self._log_dir = None if partition is None else log_dir
        self._key = (topic, partition)
        self._observe = observe

    def get(self, checkpoint: str) -> int | None:
        """The entry in a checkpoint; raises `CorruptDataError` where that is malformed."""
        return self._entries(checkpoint).get(self._key)

    def all(self) -> dict[str, int | None]:
        """The entries by the name of the checkpoint; raises as `get`."""
        return {checkpoint: self.get(checkpoint) for checkpoint in OFFSET_CHECKPOINTS}

    def set(self, checkpoint: str, offset: int | None) -> None:
        """Replace a checkpoint by one with this entry, or without it; the others stay.

        After a crash it is the old one or the new one, whole. Raises as `get`, and `RefusedError`
        where the topic is none of Kafka's: its name would break the file.
        """
        if self._log_dir is None:
            return
        entries = self._entries(checkpoint)
        if entries.get(self._key) == offset:
            return
        entries.pop(self._key, None)
        if offset is not None:
            if not is_topic(self._key[0]):
                raise RefusedError(
                    f"No checkpoint can have an entry of {self._key[0]!a}: it is no topic.",
                    path=os.path.join(self._log_dir, checkpoint),
                )
            entries[self._key] = offset
        text = checkpoint_text([(*name, value) for name, value in entries.items()])
        Changes(self._log_dir, self._observe).replace(checkpoint, text)

    def _entries(self, checkpoint: str) -> dict[tuple[str, int | None], int]:
        if self._log_dir is None:
            return {}
        path = os.path.join(self._log_dir, checkpoint)
        if not os.path.lexists(path):
            return {}
        return {
            (found.topic, found.partition): found.offset for found in read_offset_checkpoint(path)
        }
