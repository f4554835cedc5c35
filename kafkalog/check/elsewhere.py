"""What a run needs to know of a partition before or without walking over it, and who else looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kafkalog.names import DirectoryState
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from kafkalog.check.summary import Summary
    from kafkalog.columnar.headers import Look, Stretch
    from kafkalog.log_dir import PartitionDir
    from kafkalog.model import Defect
    from kafkalog.recovery import NextStart


@dataclass(frozen=True, slots=True)
class Walked:
    """What a run needs to know of a partition that another run walked over, beside its defects.

    Attributes:
        end_offset: the offset behind its batches.
        summary: of that run.
        next_starts: as those of `Verification`.
    """

    end_offset: int
    summary: Summary
    next_starts: Sequence[NextStart]


class Elsewhere(Protocol):
    """Whoever walks over partitions instead of this run."""

    def walk(self, directory: PartitionDir) -> Generator[Defect, None, Walked | None]:
        """Its defects; None where it is to be walked over here, of which nothing was told."""


class Watch(Protocol):
    """Whoever has a use for the batches that are read anyway."""

    @property
    def look(self) -> Look | None:
        """As that of `header_stretches`."""

    def take(self, path: str, stretch: Stretch) -> None:
        """The next batches of a log, after what is wrong with them was told."""


def closed_cleanly(directory: PartitionDir) -> bool:
    """Whether the broker closed the log; one that is being deleted it does not."""
    is_hosted = directory.state in (DirectoryState.LIVE, DirectoryState.FUTURE)
    return is_hosted and UnifiedLog(directory).was_closed
