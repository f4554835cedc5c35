"""Lookups in many partitions: the offset of each at a time, and what a group is reset to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from formats.late_classes import dataclass
from kafkalog.batches.lookup import Lookup, compared
from kafkalog.errors import KafkaLogError, contained, raised
from kafkalog.model import Defect, Isolation, LogView, Special
from kafkalog.unified_log import UnifiedLog
from kafkalog.view import Difference, show_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.log_dir import PartitionDir
    from kafkalog.offsets import PartitionOffsets

    Question = Callable[[UnifiedLog], Lookup]


@dataclass(frozen=True, slots=True)
class PartitionLookup:
    """The answer of one partition to one query.

    Attributes:
        partition: the directory, as a view shows it.
        lookup: the answer.
        control: the answer that a scan without indexes gives; None if nobody asked for it.
        reset_to: the offset at which a group goes on that is reset to the query.
    """

    partition: PartitionDir
    lookup: Lookup
    control: Lookup | None
    reset_to: int

    @property
    def agrees(self) -> bool:
        """Whether the scan found the same, if there was one."""
        return self.control is None or self.lookup.agrees_with(self.control)


def look_up(
    partitions: Iterable[PartitionDir],
    questions: Sequence[Question],
    *,
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    view: LogView = LogView.STARTED,
    high_watermark: int | Literal["end"] | None = None,
    log_start_offset: int | None = None,
    compares: bool = False,
    differences: Callable[[Difference], object] = lambda _: None,
    ends: Callable[[PartitionOffsets], object] = lambda _: None,
    damaged: Callable[[Defect], object] = lambda _: None,
    failed: Callable[[KafkaLogError], None] = raised,
) -> Iterator[PartitionLookup]:
    """Yield the answers of each partition, in the order of the questions.

    Args:
        partitions: the directories.
        questions: functions of `kafkalog.batches.lookup` that know what they look for.
        isolation: how far into the log a group's offset may lie.
        view: what of a directory is shown.
        high_watermark, log_start_offset: override the checkpoints', as in `UnifiedLog`.
        compares: whether each question is also answered without indexes.
        differences: called with how a view differs from the files.
        ends: called with the bounds of a partition whose end was an answer.
        damaged: called with the damage that the answers of a partition passed over.
        failed: called with what stops the work on one partition; without it the error is raised.

    Raises:
        KafkaLogError: as the questions, without `failed`.

    Cost:
        A few reads per partition and question; memory for one partition.
    """
    for listed in partitions:
        with contained(listed.path, failed):
            shown = show_now(listed, view)
            if shown.difference is not None:
                differences(shown.difference)
            log = UnifiedLog(
                shown.partition, high_watermark=high_watermark, log_start_offset=log_start_offset
            )
            at_end = False
            for question in questions:
                found, control = compared(log, question) if compares else (question(log), None)
                reset_to = _reset_offset(log, found, isolation)
                at_end |= not found.found or found.query == Special.LATEST
                yield PartitionLookup(shown.partition, found, control, reset_to)
            if at_end and isolation != Isolation.LOG:
                ends(log.offsets.of_partition(isolation))
            for defect in log.damage.values():
                damaged(defect)


def _reset_offset(log: UnifiedLog, found: Lookup, isolation: Isolation) -> int:
    """Return where a group goes on: as `kafka-consumer-groups --reset-offsets` settles it.

    No record at or after a time means the end; an offset out of range the nearest one in it.
    """
    if found.found and found.offset is not None:
        return found.offset
    start, end = log.fetch_bounds(isolation)
    if found.by_timestamp or not isinstance(found.query, int):
        return end
    return min(max(found.query, start), end)
