"""Lookups in many partitions: the offset of each at a time, and what a group is reset to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from formats.late_classes import dataclass
from kafkalog.errors import Listener, contained
from kafkalog.io.paths import file_system
from kafkalog.model import Isolation, LogView, Special
from kafkalog.node.lookup import Lookup, compared
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show_now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.model import Defect
    from kafkalog.node.outcome import View

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
    view: LogView = LogView.RECOVERED,
    high_watermark: int | Literal["end"] | None = None,
    log_start_offset: int | None = None,
    compares: bool = False,
    listener: Listener | None = None,
) -> Iterator[PartitionLookup]:
    """Yield the answers of each partition, in the order of the questions.

    Args:
        partitions: the directories.
        questions: functions of `kafkalog.node.lookup` that know what they look for.
        isolation: how far into the log a group's offset may lie.
        view: what of a directory is shown.
        high_watermark, log_start_offset: override the checkpoints', as in `UnifiedLog`.
        compares: whether each question is also answered without indexes.
        listener: hears of views that differ from files, of the bounds of a partition whose end was
            an answer, of damage that answers passed over, and of what stops the work on one
            partition.

    Raises:
        KafkaLogError: as the questions, without `listener`.

    Cost:
        A few reads per partition and question; where a broker was killed, a scan up to the answer.
        Memory for one partition.
    """
    hear = (listener or Listener()).hear
    for listed in partitions:
        with contained(listed.path, hear):
            shown = show_now(listed, view, lazily=not _has_copies(listed))
            log_of = _Logs(high_watermark, log_start_offset).of
            damage: dict[tuple[str, int | None], Defect] = {}
            at_end = False
            for question in questions:
                log, found = _answered(shown, log_of, question)
                control = None
                if compares:
                    found, control = compared(log, question)
                reset_to = _reset_offset(log, found, isolation)
                at_end |= not found.found or found.query == Special.LATEST
                yield PartitionLookup(log.partition, found, control, reset_to)
                damage |= log.damage
            # With a tier it would take the manifests of all segments to say what is left out.
            has_tier = log.partition.tier is not None or log.partition.packed
            if at_end and isolation != Isolation.LOG and not has_tier:
                hear(log.offsets.of_partition(isolation))
            for defect in damage.values():
                hear(defect)
            if (difference := shown.difference_so_far) is not None:
                hear(difference)


class _Logs:
    """The logs of a run of questions: those about one listing are about one log and its end."""

    def __init__(
        self, high_watermark: int | Literal["end"] | None, log_start_offset: int | None
    ) -> None:
        self._bounds = high_watermark, log_start_offset
        self._logs: dict[int, UnifiedLog] = {}  # each keeps its partition, and so its id

    def of(self, partition: PartitionDir) -> UnifiedLog:
        if id(partition) not in self._logs:
            mark, start = self._bounds
            log = UnifiedLog(partition, high_watermark=mark, log_start_offset=start)
            self._logs[id(partition)] = log
        return self._logs[id(partition)]


def _answered(
    shown: View, log_of: Callable[[PartitionDir], UnifiedLog], question: Question
) -> tuple[UnifiedLog, Lookup]:
    """Return the answer to a question, and the log that gave it: no more of it than it takes."""
    if (frontier := shown.frontier) is None:
        log = log_of(shown.partition)
        return log, question(log)
    size = 0
    while (part := frontier.part(size)) is not None:
        log = log_of(part)
        found = question(log)
        if not isinstance(found.query, int):
            break  # it is about the end of the log
        # What comes after a record does not change which is the first of its kind.
        if found.record is None:
            size = max(1, 2 * frontier.scanned_bytes)
        elif frontier.is_followed(found.record.batch):
            return log, found
        else:
            size = frontier.scanned_bytes + 1
    log = log_of(frontier.settle().partition)
    return log, question(log)


def _has_copies(partition: PartitionDir) -> bool:
    """Return whether the run has other copies, whose ends may say what is replicated."""
    name, own = os.path.basename(partition.path), partition.log_dir
    return any(
        file_system.exists(os.path.join(log_dir, name))
        for log_dir in partition.log_dirs
        if log_dir != own
    )


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
