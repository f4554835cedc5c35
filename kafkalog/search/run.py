"""A search in all partitions of some places: once, or going on as a broker appends records.

Positions are kept as a stream keeps them (`kafkalog.tables.tailing`): across rolls, deletions,
moves to another directory, and logs that are cut and refilled under another leader.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Final

from kafkalog.defects import raise_defect
from kafkalog.errors import KafkaLogError, UsageError, raised
from kafkalog.logs import Wanted, selection_of
from kafkalog.model import Defect, Isolation, LogView, Record
from kafkalog.search.scanning import (
    Found,
    is_bulk,
    is_gone,
    logs_of,
    missing_in,
    plan_of,
    records_of,
)
from kafkalog.state.transactions import owners
from kafkalog.tables.model import Bounds, End, Replicas, Request, name_of
from kafkalog.tables.moved import Losses
from kafkalog.tables.reading import plan_of_split
from kafkalog.tables.tailing import Tail
from kafkalog.targets import open_targets
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from typing import Unpack

    from kafkalog.batches.selection import ReadPlan, Selection
    from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir
    from kafkalog.search.scanning import Failed, Progress
    from kafkalog.tables.model import Split
    from kafkalog.tables.planning import Target


@dataclass
class Search:
    """A search: where, for what, and who hears of what is in the way.

    Attributes:
        targets: log directories, partition directories and single logs.
        selection: the records that are wanted, and the view they are read in; `limit` holds for
            each partition.
        topics: only these; None for all.
        replicas: how several copies of a partition are handled.
        failed: called with the error of a log that cannot be read; the others are searched.
        progress: called with numbers of bytes as they are read.
        below_start: the logs that have records below the log start offset, which are left out,
            with that offset; those searched so far.
    """

    targets: Sequence[LogDirListing | PartitionDir | FileEntry]
    selection: Selection
    topics: Collection[str] | None = None
    replicas: Replicas = Replicas.BEST
    failed: Failed = raised
    progress: Progress | None = None
    below_start: dict[str, int] = field(default_factory=dict, init=False)
    _owners: dict[int, str] | None = field(default=None, repr=False)

    @cached_property
    def logs(self) -> list[Target]:
        """The logs that are searched, by topic, partition and path."""
        return logs_of(
            self.targets,
            self.selection.view,
            topics=self.topics,
            replicas=self.replicas,
            failed=self.failed,
        )

    @cached_property
    def bulk(self) -> bool:
        """Whether the kernels are used."""
        return is_bulk(self.logs)

    def found(self) -> Iterator[Found | Defect]:
        """Yield the records by topic, partition and offset, and defects where they were met."""
        for target in self.logs:
            try:
                wanted = self._above_start(target)
                for record in records_of(plan_of(target, wanted), self.progress, bulk=self.bulk):
                    yield record if isinstance(record, Defect) else self.of(target, record)
                yield from missing_in(target, wanted)
            except KafkaLogError as error:
                if not is_gone(target, error):
                    self.failed(error)

    def _above_start(self, target: Target) -> Selection:
        """Return what is wanted of a log: of what a broker serves, from the log start offset on."""
        wanted = self.selection
        if target.is_file or wanted.view == LogView.ALL:
            return wanted
        log = UnifiedLog(target.partition)
        start, first = log.log_start_offset, wanted.from_offset or 0
        if max(first, log.first_offset) >= start:
            return wanted
        name = name_of(target.partition.topic, target.partition.partition)
        self.below_start[name] = start
        return replace(wanted, from_offset=start)

    def of(self, target: Target, record: Record) -> Found:
        """Return a record with its place and its writer."""
        partition = target.partition
        return Found(partition.topic, partition.partition, record, self.owner_of(record))

    def owner_of(self, record: Record) -> str | None:
        """Return the transactional id that wrote a record; None if it is not known."""
        if not record.batch.is_transactional:
            return None
        if self._owners is None:
            self._owners = owners(self.targets, failed=self.failed)
        return self._owners.get(record.batch.producer_id)


def latest(found: Iterable[Found | Defect], number: int) -> Iterator[Found | Defect]:
    """Yield defects as they come, then the records with the latest timestamps, oldest first."""
    kept: list[tuple[int, int, Found]] = []
    numbers = count()
    for one in found:
        if isinstance(one, Defect):
            yield one
        elif len(kept) < number:
            heapq.heappush(kept, (one.record.timestamp, next(numbers), one))
        elif kept:
            heapq.heappushpop(kept, (one.record.timestamp, next(numbers), one))
    for _, _, one in sorted(kept, key=lambda item: item[:2]):
        yield one


def find(
    *paths: str | os.PathLike[str],
    topics: Collection[str] | None = None,
    replicas: Replicas | str = Replicas.BEST,
    on_defect: Callable[[Defect], object] | None = None,
    **wanted: Unpack[Wanted],
) -> Iterator[Found]:
    """Yield the records in all partitions of some places that have a key, a producer, a header ….

    Args:
        paths: log directories, partition directories, and single logs.
        topics: only these topics.
        replicas: `best` reads the most complete copy of a partition, `all` reads every copy.
        on_defect: is passed each defect; without it the first grave one is raised.
        wanted: which records, as in `Log.records`; `limit` holds for each partition.

    Raises:
        UsageError: an argument has an invalid value.
        KafkaLogError: what is at a path cannot be read.
    """
    try:
        copies = Replicas(replicas)
    except ValueError:
        hint = f"There are {', '.join(Replicas)}."
        raise UsageError(f"{replicas!r} is not known.", hint=hint) from None
    search = Search(open_targets(paths), selection_of(wanted), topics, copies)
    take = on_defect or raise_defect
    for one in search.found():
        if isinstance(one, Defect):
            take(one)
        else:
            yield one


PAUSE_S: Final = 0.5
_SIZE_AT_ONCE: Final = 1 << 30


def follow(
    search: Search,
    *,
    lost: Callable[[Defect], object],
    wait: Callable[[], object] = lambda: time.sleep(PAUSE_S),
) -> Iterator[Found | Defect]:
    """Yield the records that a search finds from the log start offsets on, then new ones, forever.

    Args:
        search: what is searched; leftovers and single files do not grow and are passed over.
        lost: called with a finding for records that were deleted before they were read.
        wait: called when everything has been read.

    Raises:
        KafkaLogError: as `Tail`.
    """
    selection = search.selection
    is_committed = selection.isolation == Isolation.READ_COMMITTED
    topics = None if search.topics is None else frozenset(search.topics)
    request = Request(
        bounds=Bounds(topics=topics),
        isolation=selection.isolation if is_committed else Isolation.READ_UNCOMMITTED,
        replicas=search.replicas,
        internal=True,
        end=End.WATERMARK if is_committed else End.LOG,
        view=LogView.STARTED,
    )
    tail = Tail([one.path for one in search.targets], request, fails_on_loss=False)
    position = tail.beginning()
    while True:
        end = tail.advance(position, None, _SIZE_AT_ONCE)
        splits = tail.splits(position, end)
        for split in splits:
            yield from _found_in(split, search, lost)
        position = end
        if not splits:
            wait()


def _found_in(
    split: Split, search: Search, lost: Callable[[Defect], object]
) -> Iterator[Found | Defect]:
    plan = _wanted(plan_of_split(split, Losses(split, lost)), search.selection)
    number = None if split.partition < 0 else split.partition
    for record in records_of(plan, search.progress, bulk=search.bulk):
        if isinstance(record, Defect):
            yield record
        else:
            yield Found(split.topic, number, record, search.owner_of(record))


def _wanted(plan: ReadPlan, wanted: Selection) -> ReadPlan:
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
        again=None if again is None else lambda offset: _wanted(again(offset), wanted),
    )
