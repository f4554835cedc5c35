"""One run of a command that changes partitions of a log directory."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from kafkalog.checkpoints import checkpoint_text, read_offset_checkpoint
from kafkalog.storage import Changes, LogDirLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.log_dir import PartitionDir
    from kafkalog.storage import Step


CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
"""The mark of a clean shutdown: with it a broker scans nothing."""


class Run:
    """Holds the lock of a log directory while partitions of it are changed, one after the other.

    Args:
        log_dir: the log directory; None for a copied partition with no log directory around it,
            on which no broker can run.
        observe: called after each step on the disk.

    Raises:
        LogDirInUseError: a broker, or another run, has it.
    """

    def __init__(self, log_dir: str | None, observe: Callable[[Step], None] | None = None) -> None:
        self.log_dir = log_dir
        self._observe = observe
        self._held = ExitStack()

    def __enter__(self) -> Self:
        if self.log_dir is not None:
            self._held.enter_context(LogDirLock(self.log_dir, writes=True))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    @contextmanager
    def partition(self, partition: PartitionDir, touched: Iterable[str]) -> Iterator[PartitionRun]:
        """The changes of one partition.

        Args:
            partition: its directory.
            touched: names of the files that will be removed, replaced or cut.
        """
        yield PartitionRun(self.log_dir, partition, self._observe)


class PartitionRun:
    """What is done to one partition: `changes` to its files, and its entries in checkpoints.

    `log_dir` is the log directory around it, None without one.
    """

    def __init__(
        self,
        log_dir: str | None,
        partition: PartitionDir,
        observe: Callable[[Step], None] | None,
    ) -> None:
        self.changes = Changes(partition.path, observe)
        self._partition = partition
        self.log_dir = log_dir
        self._observe = observe

    def forget_clean_shutdown(self) -> None:
        """Take the mark of a clean shutdown away, so that the next start of a broker scans."""
        if self.log_dir is not None:
            around = Changes(self.log_dir, self._observe)
            around.remove(CLEAN_SHUTDOWN, missing_ok=True)
            around.sync_directory()

    def set_offset(self, checkpoint: str, offset: int | None) -> None:
        """Put the partition's offset into a checkpoint of the log directory; None: no entry.

        Nothing is done without a log directory. The other entries stay as they are.

        Raises:
            CorruptDataError: the checkpoint is malformed.
        """
        number = self._partition.partition
        if self.log_dir is None or number is None:
            return
        path = os.path.join(self.log_dir, checkpoint)
        before = read_offset_checkpoint(path) if os.path.exists(path) else []
        entries = {(entry.topic, entry.partition): entry.offset for entry in before}
        key = (self._partition.topic, number)
        if entries.get(key) == offset:
            return
        entries.pop(key, None)
        if offset is not None:
            entries[key] = offset
        text = checkpoint_text([(*name, value) for name, value in entries.items()])
        Changes(self.log_dir, self._observe).replace(checkpoint, text)
