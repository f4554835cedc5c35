"""The one rule for reading logs that change meanwhile: list again, and go on at the same offset.

A broker renames, truncates and deletes files while they are read. An open file can be read on
whatever becomes of its name; the next one may have been replaced by one of another name, which a
new listing shows. Each answer and each reading tries that a few times without getting on; then it
ends with an error that names the file and the offset reached.
"""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from time import sleep
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from kafkalog.errors import FileChangedError, KafkaLogError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.batches.selection import ReadPlan
    from kafkalog.log_dir import Segment
    from kafkalog.paths.source import Source
    from kafkalog.unified_log import UnifiedLog

T = TypeVar("T")
P = ParamSpec("P")

CHANGES: Final = (NotFoundError, FileChangedError)
"""What meets a reader whose files a broker renames, deletes or truncates."""
TRIES_MAX: Final = 10
_PAUSE_S: Final = 0.02


def answered(first: Callable[[], T], again: Callable[[], T]) -> T:
    """Answer a question about a log; where a file went away meanwhile, of a new listing.

    Args:
        first: answers it of a listing that is there.
        again: lists again, and answers it of that.

    Raises:
        KafkaLogError: what they raise, once nothing helps.
    """
    question = first
    for _ in range(TRIES_MAX):
        try:
            return question()
        except CHANGES:
            question = again
    return question()


def about_a_log(
    question: Callable[Concatenate[UnifiedLog, P], T],
) -> Callable[Concatenate[UnifiedLog, P], T]:
    """Have a question about a log asked again, of a new listing, where its files went away."""

    @wraps(question)
    def asked(log: UnifiedLog, /, *args: P.args, **options: P.kwargs) -> T:
        return answered(
            lambda: question(log, *args, **options),
            lambda: question(log.listed_again(), *args, **options),
        )

    return asked


def listing_again(question: Callable[P, T]) -> Callable[P, T]:
    """Have a question asked again that lists what it reads, where files went away meanwhile."""

    @wraps(question)
    def asked(*args: P.args, **options: P.kwargs) -> T:
        def ask() -> T:
            return question(*args, **options)

        return answered(ask, ask)

    return asked


class LivingWalk:
    """The segments of a plan, one after the other, found again where they went away.

    Attributes:
        plan: what is read now; its selection begins at the offset that was reached.
        next_offset: the offset after all that was read; None at the beginning.
    """

    def __init__(self, plan: ReadPlan) -> None:
        self.plan = plan
        self.next_offset: int | None = None
        self._left = list(plan.segments)
        # What is appended to later segments was not there when the reading was planned.
        self._last_base = max((segment.base_offset for segment in plan.segments), default=0)
        self._tries = 0
        self._reached: int | None = None
        self._error: KafkaLogError | None = None

    def take(self) -> Segment | None:
        """Return the next segment, None at the end."""
        return self._left.pop(0) if self._left else None

    def stop(self) -> None:
        """Take no more segments."""
        self._left = []

    def require_unchanged(self, source: Source) -> None:
        """Raise `FileChangedError` unless planned positions are those of the file that is open.

        It is asked after the opening: a file that was replaced does not come back.
        """
        if self.plan.is_unchanged is not None and not self.plan.is_unchanged():
            raise FileChangedError("The file was replaced after it was planned.", path=source.path)

    def interrupt(self, error: KafkaLogError, next_offset: int) -> None:
        """Note that what was taken could be used up to an offset only; `check` raises it."""
        self._error, self.next_offset = error, next_offset

    def check(self, next_offset: int) -> None:
        """Note that all was used up to an offset, unless it was interrupted; raises that."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        self.next_offset = next_offset
        if self.plan.reached is not None:
            self.plan.reached(next_offset)

    def go_on(self, error: KafkaLogError) -> None:
        """List the segments again that hold what is left.

        Raises:
            KafkaLogError: the error, where there is nothing to list, or it comes again and again.
        """
        while True:
            if self.next_offset != self._reached:
                self._tries, self._reached = 0, self.next_offset
            self._tries += 1
            if self.plan.again is None or self._tries > TRIES_MAX:
                raise self._told(error)
            try:
                plan = self.plan.again(self.next_offset)
            except CHANGES as changed:  # between two looks
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
    """Return whether a log may still grow: it does, or a broker is running that may write.

    Cost:
        With a running broker up to a tenth of a second, in which an append comes to its end.
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
