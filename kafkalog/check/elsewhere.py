"""Partitions that another run walks over, and what a run needs to know of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from kafkalog.check.summary import Summary
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
