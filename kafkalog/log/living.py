"""Reading logs that change meanwhile: list the partition again, and continue at the same offset.

A broker renames, truncates and deletes files while they are read. An open file stays readable
whatever happens to its name; the next file may have been replaced by one with another name, which a
new listing shows. A partition is known by its topic id, not by its path: it may have moved to
another log directory of its node, or belong to a new topic of the name. Each lookup and each scan
retries a few times without progress, then ends with an error that names the file and the offset
reached.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import wraps
from time import sleep
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from formats.file_names import DirectoryState, FileKind
from kafkalog.errors import (
    ChangedSinceError,
    FileChangedError,
    GoneError,
    KafkaLogError,
    NotFoundError,
    ReplacedError,
)
from kafkalog.files.log_dir import list_partition
from kafkalog.files.text_files import properties_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.files.log_dir import PartitionDir, Segment
    from kafkalog.io.paths.source import Source
    from kafkalog.log.batches.selection import ReadPlan
    from kafkalog.node.frontier import Frontier
    from kafkalog.node.unified_log import UnifiedLog

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")

CHANGES: Final = (NotFoundError, FileChangedError)
"""Errors that a reader meets when a broker renames, deletes or truncates files under it."""
# Without progress: more changes than a broker makes while a question is answered.
TRIES_MAX: Final = 30
_PAUSE_S: Final = 0.02


def answered(first: Callable[[], T], again: Callable[[], T]) -> T:
    """Return the answer to a question about a log, retrying on a new listing if its files change.

    Args:
        first: answers from the existing listing.
        again: lists again, and answers from that.

    Raises:
        KafkaLogError: what they raise, once the retries are used up.
    """
    question = first
    for _ in range(TRIES_MAX):
        try:
            return question()
        except CHANGES:
            question = again
    return question()


def listed_again(partition: PartitionDir) -> PartitionDir:
    """List a partition again, with its part in remote storage, wherever its node has it now.

    Raises:
        GoneError: none of the log directories of the run has it any more.
        ReplacedError: they have another topic of its name.
        UnreadableError: it cannot be listed.
    """
    other = None
    for path in _places_of(partition):
        try:
            there = list_partition(path)
        except NotFoundError:
            continue
        if _is_of(partition.topic_id, there):
            known = partition.topic_id or there.topic_id
            found = replace(there, log_dirs=partition.log_dirs, topic_id=known)
            return found if partition.tier is None else partition.tier.join(found)
        other = other or there
    if other is None:
        raise GoneError("The partition is not here any more.", path=partition.path)
    raise ReplacedError("The topic was deleted and created again.", path=other.path)


def listed_now(partition: PartitionDir) -> PartitionDir:
    """List a partition again, or that of another topic of its name. Raises as `listed_again`."""
    try:
        return listed_again(partition)
    except ReplacedError as error:
        there = list_partition(error.path or partition.path)
        return replace(there, log_dirs=partition.log_dirs)


def _places_of(partition: PartitionDir) -> Iterator[str]:
    """Yield where a partition can be: at its path, or under its name elsewhere on its node."""
    yield partition.path
    own = partition.log_dir
    # A copy that is to become the partition does so where the partition is looked for.
    if partition.name is not None and partition.state == DirectoryState.LIVE:
        for log_dir in partition.log_dirs:
            if log_dir != own and are_of_one_node(own, log_dir):
                yield os.path.join(log_dir, partition.name.name)


def are_of_one_node(*log_dirs: str) -> bool:
    """Return whether log directories say that they are of the same node."""
    found = [properties_of(one) for one in log_dirs]
    nodes = {(one.cluster_id, one.node_id) for one in found if one is not None}
    return None not in found and len(nodes) == 1


def _is_of(topic_id: str | None, there: PartitionDir) -> bool:
    """Return whether a directory is of a topic by its id; one without an id is of any."""
    if topic_id is None or there.topic_id == topic_id:
        return True
    # Its id cannot be read, or was not written yet.
    return there.topic_id is None and any(there.live(FileKind.PARTITION_METADATA))


def about_a_log(
    question: Callable[Concatenate[UnifiedLog, P], T],
) -> Callable[Concatenate[UnifiedLog, P], T]:
    """Decorate a question about a log: if its files change, it is asked about a new listing."""
    return _about(question, lambda log: log.listed_again())


def about_a_partition(
    question: Callable[Concatenate[PartitionDir, P], T],
) -> Callable[Concatenate[PartitionDir, P], T]:
    """Decorate a question about the partition of a name: if it changes, about what is there now."""
    return _about(question, listed_now)


def _about(
    question: Callable[Concatenate[S, P], T], again: Callable[[S], S]
) -> Callable[Concatenate[S, P], T]:
    @wraps(question)
    def asked(about: S, /, *args: P.args, **options: P.kwargs) -> T:
        return answered(
            lambda: question(about, *args, **options),
            lambda: question(again(about), *args, **options),
        )

    return asked


def listing_again(question: Callable[P, T]) -> Callable[P, T]:
    """Decorate a question that lists what it reads: if files change, it is asked again."""

    @wraps(question)
    def asked(*args: P.args, **options: P.kwargs) -> T:
        def ask() -> T:
            return question(*args, **options)

        return answered(ask, ask)

    return asked


class LivingWalk:
    """Iterates over the segments of a plan, and finds them again if their files change.

    Attributes:
        plan: the current plan; its selection begins at the offset that was reached.
        next_offset: the offset after the last one read; None at the beginning.
        epoch: the leader epoch of the batch with that last one; -1 if it is not known.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan
        self.next_offset: int | None = None
        self.epoch = -1
        self._left = list(plan.segments)
        self._taken = -1  # base offset of the last one
        # Skip what is appended to later segments: it did not exist when the scan was planned.
        self._last_base = max((segment.base_offset for segment in plan.segments), default=0)
        self._tries = 0
        self._reached: int | None = None
        self._error: KafkaLogError | None = None

    def take(self) -> Segment | None:
        """Return the next segment, or None at the end."""
        if self._left and self.plan.frontier is not None:
            try:
                self._look_ahead(self.plan.frontier)
            except CHANGES as error:
                self.go_on(error)
        segment = self._left.pop(0) if self._left else None
        if segment is not None:
            self._taken = segment.base_offset
        if self.plan.on_segment is not None:
            self.plan.on_segment(segment)
        return segment

    def _look_ahead(self, frontier: Frontier) -> None:
        """Take the segments of the final view, if that has to be known to read the next one."""
        final = frontier.final_at(self._left[0])
        if final is not None:
            wanted = self.plan.wanted(final)
            self._left = [one for one in wanted if one.base_offset > self._taken]

    def stop(self) -> None:
        """Skip all remaining segments."""
        self._left = []

    def require_unchanged(self, source: Source) -> None:
        """Raise `FileChangedError` unless the planned positions belong to the file that is open.

        Called after opening, because a file that was replaced does not come back.
        """
        if self.plan.is_unchanged is not None and not self.plan.is_unchanged():
            raise FileChangedError("The file was replaced after it was planned.", path=source.path)

    def interrupt(self, error: KafkaLogError, next_offset: int) -> None:
        """Record that the segment could be read only up to an offset; `check` raises the error."""
        self._error, self.next_offset, self.epoch = error, next_offset, -1

    def check(self, next_offset: int | None, epoch: int = -1) -> None:
        """Record that everything up to an offset was read; raise the error if it was not.

        The offset is None after a batch that nobody knows the place of.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        if next_offset is None:
            return
        self.next_offset, self.epoch = next_offset, epoch
        if self.plan.reached is not None:
            self.plan.reached(next_offset, epoch)

    def go_on(self, error: KafkaLogError) -> None:
        """List the segments that hold the remaining offsets again.

        Raises:
            ChangedSinceError: other records have taken the place of those that were read.
            KafkaLogError: the error itself, if nothing can be listed or it keeps coming back.
        """
        while True:
            # Progress starts the count again: a long scan may meet many changes.
            if self.next_offset != self._reached:
                self._tries, self._reached = 0, self.next_offset
            self._tries += 1
            if self.plan.again is None or self._tries > TRIES_MAX:
                raise self._told(error)
            try:
                plan = self.plan.again(self.next_offset)
                self._require_same_records(plan)
            except CHANGES as changed:  # changed while it was being listed
                error = changed
                continue
            self._resume(plan)
            return

    def _require_same_records(self, plan: ReadPlan) -> None:
        """Raise `ChangedSinceError` if the last offset that was read has another leader epoch."""
        from kafkalog.log.batches.segment import OpenSegment

        last = -1 if self.next_offset is None or self.epoch < 0 else self.next_offset - 1
        for segment in plan.segments:
            following = segment.next_base_offset
            if segment.base_offset > last or (following is not None and following <= last):
                continue
            with OpenSegment(segment) as opened:
                batches = opened.batches(opened.start_before(last))
                found = next((one for one in batches if one.last_offset >= last), None)
            if found is None or found.base_offset > last:
                continue  # compaction removed it
            if found.leader_epoch not in (-1, self.epoch):
                raise ChangedSinceError(
                    "The log was cut while it was read, and has other records there now.",
                    path=segment.log.path, hint="Run the command again.",
                    note=f"Offsets up to {last} were read before.",
                )  # fmt: skip

    def _resume(self, plan: ReadPlan) -> None:
        old, new = self.plan.selection, plan.selection
        starts = (old.from_offset, new.from_offset, self.next_offset)
        ends = (old.to_offset, new.to_offset)
        selection = replace(
            new,
            from_offset=max((one for one in starts if one is not None), default=None),
            to_offset=min((one for one in ends if one is not None), default=None),
        )
        aborted = {**plan.aborted}
        for producer_id, transactions in self.plan.aborted.items():
            # Transactions of the old plan stay hidden, even if a new listing lacks their index.
            known = aborted.get(producer_id, [])
            aborted[producer_id] = known + [one for one in transactions if one not in known]
        again, on_segment = self.plan.again, self.plan.on_segment
        self.plan = replace(
            plan, selection=selection, aborted=aborted, again=again, on_segment=on_segment
        )
        self._left = [
            segment
            for segment in self.plan.wanted(plan.segments)
            if segment.base_offset <= self._last_base
        ]

    def _told(self, error: KafkaLogError) -> KafkaLogError:
        if error.note is None and self.next_offset is not None:
            error.note = f"Offsets up to {self.next_offset - 1} were read before."
        return error


def pause() -> None:
    """Let a broker finish what it is doing."""
    sleep(_PAUSE_S)


def is_being_written(source: Source, log_dir: str) -> bool:
    """Return whether a log may still grow: it just did, or a running broker may write to it.

    Cost:
        With a running broker up to a tenth of a second, so that an append in progress can complete.
    """
    from kafkalog.io.broker_lock import is_broker_running

    if source.has_changed():
        return True
    if is_broker_running(log_dir):
        for _ in range(5):
            pause()
            if source.has_changed():
                return True
    return False
