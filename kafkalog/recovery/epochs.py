"""The leader epochs of a partition, as a start updates them.

Follows `LeaderEpochFileCache` and `LeaderEpochCheckpointFile` of Kafka 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.batches.framing import scan_batches
from kafkalog.model import Batch, EpochEntry
from kafkalog.paths.source import Source, read_file
from kafkalog.recovery.directory import checkpoint_lines, offset_from_name
from kafkalog.recovery.model import StartRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.recovery.directory import Directory
    from kafkalog.recovery.model import Refusal


class LeaderEpochs:
    """Epoch to start offset, ascending in both.

    Args:
        directory: the files.
        rebuilds: whether a file that Kafka cannot read is rebuilt from the batches of the logs.

    Attributes:
        refusal: Kafka's error for a file that was rebuilt; None if Kafka can read the file.

    Raises:
        StartRefusedError: the file is malformed and not rebuilt.
    """

    def __init__(self, directory: Directory, *, rebuilds: bool = False) -> None:
        self.refusal: Refusal | None = None
        self._directory = directory
        self._starts: dict[int, int] = {}  # ascending in both
        self._data = b""
        self._is_changed = False
        content = directory.contents.get(file_names.LEADER_EPOCHS)
        if content is None or content.path is None:
            directory.write(file_names.LEADER_EPOCHS, b"", "it is missing", routine=True)
            return
        self._data = read_file(content.path)
        try:
            for _, epoch, start_offset in [
                *checkpoint_lines(content.path, file_names.LEADER_EPOCHS, 2)
            ]:
                self._assign(epoch, start_offset)
        except StartRefusedError as refused:
            if not rebuilds:
                raise
            self.refusal = refused.refusal()
            self._rebuild()

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """The entries by epoch."""
        return tuple(EpochEntry(epoch, start) for epoch, start in self._starts.items())

    @property
    def latest(self) -> int | None:
        """The largest epoch."""
        return next(reversed(self._starts), None)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that an epoch begins at an offset; `write` puts it into the file.

        Raises:
            StartRefusedError: one of them is negative.
        """
        self._is_changed |= self._assign(epoch, start_offset)

    def write(self) -> None:
        """Write the file if epochs were recorded."""
        if self._is_changed:
            self._write("epochs found in the log", routine=False)

    def _rebuild(self) -> None:
        """Rebuild the epochs from all batches, as scans of all segments would."""
        self._starts.clear()
        logs = self._directory.names(file_names.LOG, file_names.LOG + file_names.SWAP)
        for name in sorted(logs, key=offset_from_name):
            content = self._directory.contents[name]
            assert content.path is not None, "nothing is made yet"
            with Source(content.path) as source:
                for batch in scan_batches(source, check_crc=True):
                    if isinstance(batch, Batch) and batch.crc_valid:
                        self._note(batch)
        self._write("Kafka cannot read it", routine=False)

    def _note(self, batch: Batch) -> None:
        latest = -1 if self.latest is None else self.latest
        if batch.partition_leader_epoch > latest:
            self._assign(batch.partition_leader_epoch, batch.base_offset)

    def _assign(self, epoch: int, start_offset: int) -> bool:
        if epoch < 0 or start_offset < 0:
            raise StartRefusedError(
                "IllegalArgumentException",
                f"Received invalid partition leader epoch entry {epoch} at {start_offset}",
            )
        latest = self.latest
        if latest is not None and epoch == latest and start_offset >= self._starts[latest]:
            return False
        while self._starts:
            other, start = self._starts.popitem()
            if other < epoch and start < start_offset:
                self._starts[other] = start
                break
        self._starts[epoch] = start_offset
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at or above the log end offset.

        An epoch that begins at the end belongs to a leader without appends, which is usual.
        """
        removed = []
        while self._starts:
            epoch, start = self._starts.popitem()
            if start < end_offset or end_offset < 0:
                self._starts[epoch] = start
                break
            removed.append(start)
        if removed:
            is_usual = max(removed) == end_offset
            self._write("epochs at or above the log's end", routine=is_usual)

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs before that of the log's start, and let that one begin there."""
        left = epochs_from_start(self.entries, start_offset)
        if self._starts and self.entries[0].start_offset <= start_offset:
            self._starts = {entry.epoch: entry.start_offset for entry in left}
            self._write("epochs before the log's start", routine=True)

    def clear(self) -> None:
        """Drop all epochs."""
        self._starts.clear()
        self._write("the log starts over", routine=True)

    def _write(self, why: str, *, routine: bool) -> None:
        self._is_changed = False
        lines = ["0", str(len(self._starts))]
        lines += [f"{entry.epoch} {entry.start_offset}" for entry in self.entries]
        data = "".join(f"{line}\n" for line in lines).encode()
        if data != self._data:  # Kafka rewrites it even so, without any visible effect
            self._data = data
            self._directory.write(file_names.LEADER_EPOCHS, data, why, routine=routine)


def epochs_from_start(entries: Sequence[EpochEntry], start_offset: int) -> tuple[EpochEntry, ...]:
    """Return the epochs of a log from an offset on: the epoch it begins in, and those after it.

    Args:
        entries: ascending in both numbers.
        start_offset: the log start offset.
    """
    below = [entry for entry in entries if entry.start_offset <= start_offset]
    left = tuple(entry for entry in entries if entry.start_offset > start_offset)
    return (EpochEntry(below[-1].epoch, start_offset), *left) if below else left
