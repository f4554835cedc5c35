"""The checks of a log's batches, in the order in which they tell what they found of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.check.against_log import OffsetIndexHitsBatches, TimeIndexMatchesLog
from kafkalog.check.headers_alone import ChecksumsMatch, MagicIsKnown, OffsetsIncrease
from kafkalog.model import Level

if TYPE_CHECKING:
    from kafkalog.check.batch_checks import BatchCheck, CheckedLog

BATCH_CHECKS: tuple[type[BatchCheck], ...] = (
    ChecksumsMatch,
    MagicIsKnown,
    OffsetsIncrease,
    OffsetIndexHitsBatches,
    TimeIndexMatchesLog,
)


def checks_of(log: CheckedLog, level: Level) -> list[BatchCheck]:
    """Those that apply to a log, ready for its first batch."""
    levels = list(Level)
    made = levels[: levels.index(level) + 1]
    return [check(log) for check in BATCH_CHECKS if check.level in made and check.applies(log)]
