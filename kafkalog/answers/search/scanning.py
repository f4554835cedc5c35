"""Which logs a search goes through, and the records found in one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from formats.late_classes import dataclass
from kafkalog.errors import ReplacedError, contained
from kafkalog.io.jit import fast_path
from kafkalog.io.rows import within
from kafkalog.log.batches.selection import ReadPlan, Selection, planned_records, segments_of
from kafkalog.log.columns.budget import logs_to_decode
from kafkalog.model import Record, present_ms
from kafkalog.node.outcome import View
from kafkalog.node.reader import plan_reading, require_log
from kafkalog.tables.model import Bounds, Request
from kafkalog.tables.moved import Losses
from kafkalog.tables.planning import Target, living_splits, logs_among

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.errors import Listener
    from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir
    from kafkalog.model import Defect

    Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Found:
    """A record that was found.

    Attributes:
        topic: topic, from the name of the directory.
        partition: partition number; None if the directory's name has none.
        record: the record; `record.batch.path` is its file.
        transactional_id: who wrote it; None if it was not written in a transaction, or if no
            coordinator in the searched places knows its producer.
        reason: why its value does not decode; None if that was not asked for.
    """

    _row = ("topic", "partition", *within("record", Record), "transactional_id", "reason")

    topic: str
    partition: int | None
    record: Record
    transactional_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence of a key in a partition.

    Attributes:
        found: the record.
        before: the record of the key that counted before it; None if the log has none.
        superseded_by: offset of the next record of the key that counts; None if there is none, or
            if this one never counted.
        is_live: whether a broker would serve it after its next start. The others are only in files
            that it removes: of a compaction or a deletion, an end that it cuts off, or below the
            log start offset.
        transaction: `committed`, `aborted` or `open`; None without a transaction. A record of an
            aborted or open transaction does not count.
    """

    found: Found
    before: Record | None
    superseded_by: int | None
    is_live: bool
    transaction: str | None

    @property
    def counts(self) -> bool:
        return self.transaction in (None, "committed")


def logs_of(
    targets: Sequence[LogDirListing | PartitionDir | FileEntry],
    request: Request,
    listener: Listener,
) -> list[Target]:
    """Return the logs to search, by topic, partition and path.

    Args:
        listener: hears of what cannot be listed.

    Raises:
        NothingFoundError: a topic has no partition at the targets.
    """

    def of_file(file: FileEntry) -> Iterator[Target]:
        with contained(file.path, listener.hear):
            require_log(file)
            segments, parent = segments_of(file)
            yield Target(parent, segments, parent, is_file=True)

    return sorted(logs_among(targets, request, listener, of_file=of_file), key=_place)


def _place(target: Target) -> tuple[str, int, str]:
    partition = target.partition
    number = -1 if partition.partition is None else partition.partition
    return (
        partition.topic,
        number,
        target.segments[0].log.path if target.is_file else partition.path,
    )


def plan_of(target: Target, selection: Selection) -> ReadPlan:
    """Plan to read what is wanted of a log. Raises as `plan_reading`."""
    if target.is_file:
        return plan_reading(target.segments[0].log, selection)
    return plan_reading(View(target.partition, target.segments, target.difference), selection)


def plans_of(target: Target, wanted: Selection, listener: Listener) -> Iterator[ReadPlan]:
    """Yield the plans to read what is wanted of a log; of several copies there are many.

    Args:
        listener: as for `sound_parts`.

    Raises:
        KafkaLogError: as `plan_reading`.
    """
    if not target.copies:
        yield plan_of(target, wanted)
        return
    from kafkalog.tables.merging import sound_parts
    from kafkalog.tables.reading import plan_of_split

    bounds = Bounds(from_offset=wanted.from_offset, to_offset=wanted.to_offset)
    request = Request(bounds=bounds, isolation=wanted.isolation, internal=True, view=wanted.view)
    for split in living_splits(target, request, present_ms()).splits:
        for part in sound_parts(split, listener):
            yield plan_within(plan_of_split(part, _Losses(part, listener)), wanted)


class _Losses(Losses):
    """What was deleted of a part; a topic that was created again ends it, as it ends `plan_of`."""

    def replaced(self, _first: int, _end: int | None, error: ReplacedError) -> None:
        raise error


def plan_within(plan: ReadPlan, wanted: Selection) -> ReadPlan:
    """Return the plan of a split, for the wanted records only; so is each that replaces it."""
    bounds = plan.selection
    selection = replace(
        wanted,
        from_offset=bounds.from_offset,
        to_offset=bounds.to_offset,
        from_position=bounds.from_position,
        max_bytes=bounds.max_bytes,
        isolation=bounds.isolation,
    )
    again = plan.again
    return replace(
        plan,
        selection=selection,
        again=None if again is None else lambda offset: plan_within(again(offset), wanted),
    )


def is_bulk(targets: Sequence[Target]) -> bool:
    """Return whether there is enough to read to make loading the kernels worthwhile."""
    logs = [segment.log for target in targets for segment in target.segments]
    size = sum(log.size_bytes for log in logs)
    if size < fast_path.FAST_SIZE_MIN:
        # A small compressed log can decode to a lot.
        size = logs_to_decode(log.path for log in logs)
    return fast_path.is_worth_it(size)


def records_of(
    plan: ReadPlan, progress: Progress | None, *, bulk: bool
) -> Iterator[Record | Defect]:
    """Yield the wanted records of a plan, and defects. Raises as `read_records`."""
    if not bulk:
        yield from planned_records(plan, progress)
        return
    from kafkalog.log.columns.pipeline import Restored, read_contents

    for content in read_contents(plan, Restored(), progress, batches=False):
        if isinstance(content, list):
            yield from content
        else:
            yield content
