"""A search in all partitions of some places."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, Unpack

from formats.late_classes import dataclass
from kafkalog.answers.logs import Wanted, selection_of
from kafkalog.answers.search.scanning import (
    Found,
    is_bulk,
    logs_of,
    plans_of,
    records_of,
)
from kafkalog.errors import (
    DataError,
    GoneError,
    KafkaLogError,
    Listener,
    ReplacedError,
    ShortageError,
)
from kafkalog.files.offsets import name_of
from kafkalog.io.paths import file_system
from kafkalog.io.rows import Rows
from kafkalog.io.wording import some_of
from kafkalog.log.batches import merged
from kafkalog.log.defects import DELETED, Events, make_defect
from kafkalog.log.events import reporting
from kafkalog.log.living import TRIES_MAX, listed_now
from kafkalog.model import Defect, LogView, Record, Replicas, Severity, named_member
from kafkalog.node.state.transactions import owners
from kafkalog.node.targets import open_targets
from kafkalog.tables.model import Bounds, Request, log_of
from kafkalog.tables.planning import missing_in

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence

    from kafkalog.answers.search.scanning import Progress
    from kafkalog.errors import OnEvent
    from kafkalog.files.log_dir import FileEntry, LogDirListing, PartitionDir
    from kafkalog.files.offsets import LogOffset
    from kafkalog.log.batches.selection import Selection
    from kafkalog.tables.planning import Target


T = TypeVar("T")


@dataclass
class Search:
    """A search: where, for what, and who hears of what is in the way.

    Attributes:
        targets: log directories, partition directories and single logs.
        selection: the records that are wanted, and the view they are read in; `limit` holds for
            each partition.
        topics: only these; None for all.
        numbers: only partitions with these numbers; None for all.
        internal: whether internal topics are searched that are not named.
        replicas: how several copies of a partition are handled.
        listener: hears of a log that cannot be read; the others are searched.
        progress: called with numbers of bytes as they are read.
        below_start: the logs that have records below the log start offset, which are left out,
            with that offset; those searched so far.
    """

    targets: Sequence[LogDirListing | PartitionDir | FileEntry]
    selection: Selection
    topics: Collection[str] | None = None
    numbers: Container[int | None] | None = None
    internal: bool = True
    replicas: Replicas = Replicas.BEST
    listener: Listener = field(default_factory=Listener)
    progress: Progress | None = None
    below_start: dict[str, int] = field(default_factory=dict, init=False)
    _owners: dict[int, str] | None = field(default=None, repr=False)

    @cached_property
    def logs(self) -> list[Target]:
        """The logs that are searched, by topic, partition and path."""
        with file_system.listings_held(one.path for one in self.targets):
            return self._logs_of(self.targets, Bounds(self.topics, self.numbers))

    def _logs_of(
        self, targets: Sequence[LogDirListing | PartitionDir | FileEntry], bounds: Bounds
    ) -> list[Target]:
        request = Request(
            bounds=bounds, replicas=self.replicas, internal=self.internal,
            view=self.selection.view, named=bounds,
        )  # fmt: skip
        return logs_of(targets, request, self.listener)

    @cached_property
    def bulk(self) -> bool:
        return is_bulk(self.logs)

    def found(self) -> Iterator[Found | Defect]:
        """Yield the records by topic, partition and offset, and defects where they were met."""

        def found_in(target: Target) -> Iterator[Found | Defect]:
            wanted = self._above_start(target)
            yield from self._in(target, wanted)
            yield from missing_in(target, wanted.view, wanted.from_offset, wanted.to_offset)

        return self.in_each(found_in)

    def in_each(self, found_in: Callable[[Target], Iterator[T]]) -> Iterator[T]:
        """Yield what is found in each log; what stops the work on one concerns only that one.

        If the topic was deleted and created again meanwhile, the new log is searched, too; a
        warning says so if the old one had matches, since the answer then mixes two topics.
        """
        with file_system.announced(self._places()):
            for target in self.logs:
                yield from self._contained(target, found_in)

    def _places(self) -> Iterator[tuple[str, int]]:
        """Yield the logs that are read from their beginnings; none if parts of them are wanted."""
        one = self.selection
        bounds = one.from_offset, one.to_offset, one.from_time, one.to_time, one.limit
        if any(bound is not None for bound in bounds):
            return
        for target in self.logs:
            yield from ((segment.log.path, 0) for segment in target.segments)

    def _contained(
        self, target: Target, found_in: Callable[[Target], Iterator[T]], tries: int = TRIES_MAX
    ) -> Iterator[T]:
        has_found = False
        try:
            try:
                for one in found_in(target):
                    has_found = True
                    yield one
            except ReplacedError as error:
                if not tries:
                    raise
                if has_found:
                    defect = make_defect(DELETED, target.partition.path, error.message)
                    self.listener.hear(replace(defect, severity=Severity.WARNING))
                now = [listed_now(target.partition)]
                for new in self._logs_of(now, Bounds()):
                    yield from self._contained(new, found_in, tries - 1)
        except ShortageError:
            raise
        except GoneError:
            pass  # a broker has deleted it meanwhile
        except KafkaLogError as error:
            self.listener.hear(error)

    def _in(self, target: Target, wanted: Selection) -> Iterator[Found | Defect]:
        left, met = wanted.limit, Events()
        for plan in plans_of(target, wanted, met):
            yield from met.defects  # met while planning, so before the records of the plan
            met.heard.clear()
            for record in records_of(plan, self.progress, bulk=self.bulk):
                if isinstance(record, Defect):
                    yield record
                    continue
                yield self.of(target, record)
                if left is not None and (left := left - 1) == 0:
                    return
        yield from met.defects

    def _above_start(self, target: Target) -> Selection:
        """Return what is wanted of a log: of what a broker serves, from the log start offset on."""
        wanted = self.selection
        if target.is_file or wanted.view == LogView.ALL:
            return wanted
        log = log_of(target, Request(view=wanted.view))
        start, first = log.log_start_offset, wanted.from_offset or 0
        if max(first, log.first_offset) >= start:
            return wanted
        name = name_of(target.partition.topic, target.partition.partition)
        self.below_start[name] = start
        return replace(wanted, from_offset=start)

    def beyond(self) -> list[str]:
        """Say which logs were searched beyond what consumers get yet; not of a part of each log."""
        end = self.selection.to_offset
        names = [
            f"{name} from {mark.known}"
            for name, mark in self._high_watermarks
            if mark.above and (end is None or end > mark.known)
        ]
        return [f"also searched above the high watermark: {some_of(names)}"] if names else []

    def below_watermark(self) -> dict[str, int]:
        """Return the logs that end below the high watermark which is noted, with it."""
        marks = self._high_watermarks
        return {name: mark.known + mark.missing for name, mark in marks if mark.missing}

    @cached_property
    def _high_watermarks(self) -> list[tuple[str, LogOffset]]:
        wanted, found = self.selection, []
        if wanted.view == LogView.ALL or wanted.limit is not None:
            return []
        for target in (one for one in self.logs if not one.is_file):
            with suppress(DataError):  # the search has reported it
                mark = log_of(target, Request(view=wanted.view)).offsets.high_watermark
                partition = target.partition
                found.append((name_of(partition.topic, partition.partition), mark))
        return found

    def of(self, target: Target, record: Record) -> Found:
        """Return a record with its place and its writer."""
        partition = target.partition
        return Found(partition.topic, partition.partition, record, self.owner_of(record))

    def owner_of(self, record: Record) -> str | None:
        """Return the transactional id that wrote a record; None if it is not known."""
        if not record.batch.is_transactional:
            return None
        if self._owners is None:
            self._owners = owners(self.targets, failed=self.listener.hear)
        return self._owners.get(record.batch.producer_id)


def latest(found: Iterable[Found | Defect], number: int) -> Iterator[Found | Defect]:
    """Yield defects as they come, then the records with the latest timestamps, oldest first."""
    return merged.latest(
        ((None if isinstance(one, Defect) else one.record.timestamp, one) for one in found), number
    )


def find(
    *paths: str | os.PathLike[str],
    topics: Collection[str] | None = None,
    replicas: Replicas | str = Replicas.BEST,
    on_event: OnEvent | None = None,
    progress: bool = False,
    **wanted: Unpack[Wanted],
) -> Rows[Found]:
    """Return the records in all partitions of some places that have a key, a producer, a header ….

    Args:
        paths: log directories, partition directories, and single logs.
        topics: only these topics.
        replicas: `best` reads the most complete copy of a partition, `all` reads every copy.
        on_event: is passed each defect, logs that cannot be read, and what was read; without it the
            first error or grave defect is raised.
        progress: whether to draw a bar while it reads.
        wanted: which records, as in `Log.records`; `limit` holds for each partition.

    Raises:
        UsageError: an argument has an invalid value.
        KafkaLogError: what is at a path cannot be read.
    """
    copies = named_member(Replicas, replicas)
    selection = selection_of(wanted)
    targets = open_targets(paths)

    def found() -> Iterator[Found]:
        with reporting(on_event, progress=progress, targets=targets) as report:
            search = Search(
                targets, selection, topics, replicas=copies, listener=report,
                progress=report.advance,
            )  # fmt: skip
            for one in search.found():
                if isinstance(one, Defect):
                    report.hear(one)
                else:
                    yield one

    return Rows(found, Found)
