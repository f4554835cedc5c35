"""Reading logs that change meanwhile: list the partition again, and continue at the same offset.

A broker renames, truncates and deletes files while they are read. An open file stays readable
whatever happens to its name; the next file may have been replaced by one with another name, which a
new listing shows. Each lookup and each scan retries a few times without progress, then ends with an
error that names the file and the offset reached.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import wraps
from time import sleep
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from formats.file_names import partition_of
from kafkalog.errors import FileChangedError, KafkaLogError, NotFoundError
from kafkalog.paths import file_system

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.batches.selection import ReadPlan
    from kafkalog.log_dir import Segment
    from kafkalog.paths.source import Source
    from kafkalog.unified_log import UnifiedLog
    from kafkalog.view import Frontier

T = TypeVar("T")
P = ParamSpec("P")

CHANGES: Final = (NotFoundError, FileChangedError)
"""Errors that a reader meets when a broker renames, deletes or truncates files under it."""
# without progress: more than a broker changes while one answer is found
TRIES_MAX: Final = 10
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


def gone_partition(error: KafkaLogError) -> str | None:
    """Return the partition directory that a broker has deleted or renamed; None if it is there."""
    if not isinstance(error, CHANGES) or error.path is None:
        return None
    path = file_system.absolute(error.path)
    place = path if partition_of(path) else os.path.dirname(path)
    return None if partition_of(place) is None or file_system.exists(place) else place


def about_a_log(
    question: Callable[Concatenate[UnifiedLog, P], T],
) -> Callable[Concatenate[UnifiedLog, P], T]:
    """Decorate a question about a log: if its files change, it is asked about a new listing."""

    @wraps(question)
    def asked(log: UnifiedLog, /, *args: P.args, **options: P.kwargs) -> T:
        return answered(
            lambda: question(log, *args, **options),
            lambda: question(log.listed_again(), *args, **options),
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
    """

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan
        self.next_offset: int | None = None
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
        if not self._left:
            return None
        self._taken = self._left[0].base_offset
        return self._left.pop(0)

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
        self._error, self.next_offset = error, next_offset

    def check(self, next_offset: int | None) -> None:
        """Record that everything up to an offset was read; raise the error if it was not.

        The offset is None after a batch that nobody knows the place of.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error
        if next_offset is None:
            return
        self.next_offset = next_offset
        if self.plan.reached is not None:
            self.plan.reached(next_offset)

    def go_on(self, error: KafkaLogError) -> None:
        """List the segments that hold the remaining offsets again.

        Raises:
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
            except CHANGES as changed:  # changed while it was being listed
                error = changed
                continue
            self._resume(plan)
            return

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
        again = self.plan.again
        self.plan = replace(plan, selection=selection, aborted=aborted, again=again)
        self._left = [
            segment
            for segment in self.plan.wanted(plan.segments)
            if segment.base_offset <= self._last_base
        ]

    def _told(self, error: KafkaLogError) -> KafkaLogError:
        if error.note is None and self.next_offset is not None:
            error.note = f"Offsets up to {self.next_offset - 1} were read before."
        return error


def is_being_written(source: Source, log_dir: str) -> bool:
    """Return whether a log may still grow: it just did, or a running broker may write to it.

    Cost:
        With a running broker up to a tenth of a second, so that an append in progress can complete.
    """
    from kafkalog.broker_lock import is_broker_running

    if source.has_changed():
        return True
    if is_broker_running(log_dir):
        for _ in range(5):
            sleep(_PAUSE_S)
            if source.has_changed():
                return True
    return False
