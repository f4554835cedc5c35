"""Which logs a search goes through, and the records found in one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from formats.late_classes import dataclass
from kafkalog.errors import KafkaLogError, contained
from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir
from kafkalog.io.jit import fast_path
from kafkalog.log.batches.segment import gaps_between
from kafkalog.log.batches.selection import ReadPlan, Selection, planned_records, segments_of
from kafkalog.log.columns.budget import logs_to_decode
from kafkalog.log.living import answered, listed_again
from kafkalog.model import LogView, Replicas, present_ms
from kafkalog.node.choice import metadata_logs, note_hosting, paths_of_others
from kafkalog.node.reader import plan_reading, require_log
from kafkalog.node.remote_logs import joined
from kafkalog.node.targets import partitions_of, require_topics, topics_of, unlisted_of
from kafkalog.node.view import Shown
from kafkalog.tables.merged_log import best_targets
from kafkalog.tables.model import Bounds, Request, log_of
from kafkalog.tables.moved import Losses
from kafkalog.tables.planning import Target, each_shown, is_shown, living_splits, shown_now

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from kafkalog.model import Defect, Record

    Failed = Callable[[KafkaLogError], None]

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
        """Whether it changed the key's value for consumers of committed records."""
        return self.transaction in (None, "committed")


def logs_of(
    targets: Sequence[LogDirListing | PartitionDir | FileEntry],
    view: LogView,
    *,
    topics: Collection[str] | None,
    replicas: Replicas,
    failed: Failed,
) -> list[Target]:
    """Return the logs to search, by topic, partition and path.

    Args:
        targets: log directories, partition directories, and single logs, which are read as they
            are.
        view: what of a partition directory is read.
        topics: only these; None for all.
        replicas: how several copies of a partition are handled.
        failed: called with the error of what cannot be listed.

    Raises:
        UsageError: a topic has no partition at the targets.
    """
    require_topics(topics, topics_of(targets) if topics else ())
    note_hosting(targets, lambda one: topics is None or one.topic in topics)
    files: list[Target] = []
    wanted: list[PartitionDir] = []
    for one in joined(targets, topics) if view != LogView.ALL else targets:
        if isinstance(one, FileEntry):
            with contained(one.path, failed):
                files += _file(one, topics)
            continue
        for partition, error in unlisted_of([one]):
            if is_shown(partition, view) and (topics is None or partition.topic in topics):
                failed(error)
        is_listed = isinstance(one, LogDirListing)
        wanted += [
            some
            for some in partitions_of([one])
            if (not is_listed or is_shown(some, view)) and (topics is None or some.topic in topics)
        ]
    others = paths_of_others(
        [*wanted, *(one.partition for one in files)],
        lambda: metadata_logs(targets),
        dead=view == LogView.ALL,
    )
    logs: list[Target] = []
    for shown in each_shown([one for one in wanted if one.path not in others], view):
        if isinstance(shown, Target):
            logs.append(shown)
        else:
            failed(shown)
    if replicas == Replicas.BEST:
        logs = best_targets(logs, merges=view != LogView.ALL)
    return sorted([*(one for one in files if one.partition.path not in others), *logs], key=_place)


def _file(file: FileEntry, topics: Collection[str] | None) -> list[Target]:
    require_log(file)
    segments, parent = segments_of(file)
    is_wanted = topics is None or parent.topic in topics
    return [Target(parent, segments, parent, is_file=True)] if is_wanted else []


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
    return plan_reading(Shown(target.partition, target.segments, target.difference), selection)


def plans_of(
    target: Target, wanted: Selection, notes: Callable[[Defect], object]
) -> Iterator[ReadPlan]:
    """Yield the plans to read what is wanted of a log; of several copies there are many.

    Args:
        target: the log.
        wanted: which of its records.
        notes: as for `sound_parts`.

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
        for part in sound_parts(split, notes):
            yield plan_within(plan_of_split(part, Losses(part, notes)), wanted)


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


def missing_in(target: Target, wanted: Selection) -> Iterator[Defect]:
    """Yield the finding about wanted offsets that are missing between the segments of a log."""
    if target.is_file:
        return
    yield from answered(  # a broker may have cleaned the log since it was listed
        lambda: _missing(target, wanted),
        lambda: _missing(shown_now(listed_again(target.listed), wanted.view), wanted),
    )


def _missing(target: Target, wanted: Selection) -> list[Defect]:
    segments = target.partition.segments
    # Whatever the columns need is loaded only if there is a gap.
    bounds = wanted.from_offset, wanted.to_offset
    found = gaps_between(segments, *bounds)
    if target.copies:
        log = log_of(target, Request(view=wanted.view))
        found = (one for one in found if log.lacks(*one))
    if next(found, None) is None:
        return []
    from kafkalog.check.segments import missing_offsets

    return list(missing_offsets(target.partition, segments, *bounds))
