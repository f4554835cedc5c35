"""The offsets that bound what may be done with a partition's log, each with its source.

Follows `UnifiedLog`, `LogManager` and `OffsetCheckpointFile` of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from formats import file_names
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from kafkalog.log_dir import PartitionDir


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
        self.log = UnifiedLog(
            partition,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
        )

    @property
    def log_end_offset(self) -> int:
        """Offset the next record would get."""
        return self.log.log_end_offset

    @cached_property
    def log_start_offset(self) -> Mark:
        """First readable offset."""
        value, source = self.log.log_start_offset, "first segment"
        if self._given_start is not None:
            source = "--log-start-offset"
        elif value != self.log.first_offset:
            source = file_names.LOG_STARTS
        return Mark("log start offset", value, source)

    @cached_property
    def high_watermark(self) -> Mark:
        """Up to where the log is replicated."""
        source = file_names.HIGH_WATERMARKS
        if self._given_watermark is not None:
            source = "--high-watermark"
        elif self.log.checkpoint(file_names.HIGH_WATERMARKS) is None:
            source = "log end: no checkpoint"
        return Mark("high watermark", self.log.high_watermark, source)

    @cached_property
    def recovery_point(self) -> Mark:
        """Up to where the log is known to be on disk."""
        return self._noted("recovery point", file_names.RECOVERY_POINTS)

    @cached_property
    def cleaner_offset(self) -> Mark:
        """First offset that was not compacted."""
        return self._noted("cleaner offset", file_names.CLEANER_OFFSETS)

    @cached_property
    def last_stable_offset(self) -> Mark:
        """High watermark or first open transaction, the smaller.

        Cost:
            Reads the headers behind the newest producer snapshot.
        """
        return Mark(
            "last stable offset", self.log.last_stable_offset, "open transactions in the log"
        )

    def _noted(self, name: str, file: str) -> Mark:
        return Mark(name, self._checkpoint(file), file)

    def _checkpoint(self, name: str) -> int | None:
        return self.log.checkpoint(name)
