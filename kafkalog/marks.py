"""The offsets that bound what may be done with a partition's log, each with its source.

Follows `UnifiedLog`, `LogManager` and `OffsetCheckpointFile` of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from kafkalog.log_dir import PartitionDir

END: Final = "end"
"""Stands for the log end as a high watermark."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An offset and where it comes from; None where nobody noted one."""

    name: str
    value: int | None
    source: str


class Marks:
    """The marks of one partition, each found out when it is first asked for.

    Args:
        partition: the directory.
        high_watermark: instead of the checkpoint's: an offset, or `end` for the log end.
        log_start_offset: instead of the checkpoint's.
        log_end_offset: where the log ends, where the caller knows.
    """

    def __init__(
        self,
        partition: PartitionDir,
        *,
        high_watermark: int | Literal["end"] | None = None,
        log_start_offset: int | None = None,
        log_end_offset: int | None = None,
    ) -> None:
        self._given_watermark = high_watermark
        self._given_start = log_start_offset
        self._given_end = log_end_offset
        self.log = UnifiedLog(partition)

    @cached_property
    def log_end_offset(self) -> int:
        """Offset the next record would get, from the log."""
        return self.log.log_end_offset if self._given_end is None else self._given_end

    @cached_property
    def log_start_offset(self) -> Mark:
        """First readable offset: given, or checkpoint and first segment, the larger."""
        name = "log start offset"
        first = self.log.segments[0].base_offset if self.log.segments else 0
        if self._given_start is not None:
            return Mark(name, max(first, self._given_start), "--log-start-offset")
        noted = self._checkpoint("log-start-offset-checkpoint")
        if noted is None or noted <= first:
            return Mark(name, first, "first segment")
        return Mark(name, noted, "log-start-offset-checkpoint")

    @cached_property
    def high_watermark(self) -> Mark:
        """Up to where the log is replicated, within the log as a broker keeps it.

        Without a checkpoint the log end, as in a broker that is the only replica.
        """
        name = "high watermark"
        if self._given_watermark == END:
            return Mark(name, self.log_end_offset, "--high-watermark")
        if self._given_watermark is not None:
            return Mark(name, self._bounded(self._given_watermark), "--high-watermark")
        noted = self._checkpoint("replication-offset-checkpoint")
        if noted is None:
            return Mark(name, self.log_end_offset, "log end: no checkpoint")
        return Mark(name, self._bounded(noted), "replication-offset-checkpoint")

    def _bounded(self, offset: int) -> int:
        return max(self.log_start_offset.value or 0, min(offset, self.log_end_offset))

    @cached_property
    def recovery_point(self) -> Mark:
        """Up to where the log is known to be on disk."""
        return self._noted("recovery point", "recovery-point-offset-checkpoint")

    @cached_property
    def cleaner_offset(self) -> Mark:
        """First offset that was not compacted."""
        return self._noted("cleaner offset", "cleaner-offset-checkpoint")

    @cached_property
    def last_stable_offset(self) -> Mark:
        """High watermark or first open transaction, the smaller.

        Cost:
            Reads the headers behind the newest producer snapshot.
        """
        log = UnifiedLog(self.log.partition, high_watermark=self.high_watermark.value)
        return Mark("last stable offset", log.last_stable_offset, "open transactions in the log")

    def _noted(self, name: str, file: str) -> Mark:
        return Mark(name, self._checkpoint(file), file)

    def _checkpoint(self, name: str) -> int | None:
        return self.log.checkpoint(name)
