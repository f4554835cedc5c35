"""A plan: what a function that writes would do, and nothing is written before `apply`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from formats.late_classes import one_line
from kafkalog.errors import UsageError, raised
from kafkalog.io.rows import Rows
from kafkalog.io.wording import counted
from kafkalog.log.events import reporting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from kafkalog.errors import OnEvent

T = TypeVar("T")
R = TypeVar("R")


class Plan(Rows[T], Generic[T, R]):
    """The rows of what would change, and the way to change it.

    Args:
        command: the command that does the same.
        rows: what would change.
        kind: the class of the rows.
        apply: does it, and returns what was done; it gets the directory for originals.
        summary: the totals of what would be done, if it was computed.
        keeps_originals: whether there are originals to keep.

    Attributes:
        summary: the totals of what would be done; None if it has none.
    """

    def __init__(
        self,
        command: str,
        rows: Iterable[T],
        kind: type[T],
        *,
        apply: Callable[[str | None], R],
        summary: R | None = None,
        keeps_originals: bool = True,
    ) -> None:
        super().__init__(rows, kind)
        self.summary = summary
        self._command = command
        self._apply = apply
        self._keeps_originals = keeps_originals

    def apply(self, *, backup: str | None = None) -> R:
        """Do it, and return what was done.

        What is there by then counts: the work is planned again, behind a lock.

        Args:
            backup: a new directory for what is removed or replaced, so that `undo` can restore it.

        Raises:
            UsageError: a backup is given, and nothing is removed or replaced.
            KafkaLogError: it was refused, or stopped; what the function says that it raises.
        """
        if backup is not None and not self._keeps_originals:
            raise UsageError(f"{self._command} replaces nothing, so there is nothing to back up.")
        return self._apply(backup)

    def __repr__(self) -> str:
        first: list[Any] = [repr(one) for one in self[:1]]
        return one_line("Plan", self._command, counted(len(self), "row"), *first)


def _plan_or_apply(run: Any, advance: Callable[[int], None] | None) -> Iterable[Any]:
    answer: Iterable[Any] = (run.plan if run.is_plan else run.apply)(advance)
    return answer


def plan_of(
    command: str,
    kind: type[T],
    opened: Callable[..., AbstractContextManager[Any]],
    answers: Callable[[Any, Callable[[int], None] | None], Iterable[T]] = _plan_or_apply,
    *,
    to: str | None = None,
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Plan[T, Rows[T]]:
    """Return the plan of a run over a log directory, which is the same work without a destination.

    Args:
        opened: opens the run, with a `listener`; to change something also with `in_place` or `to`,
            and `backup`.
        answers: returns what a run plans, or has done; it gets what counts the bytes that are read.
        to: the new directory for a changed copy; None to change the logs themselves.
        on_event: is passed everything reported besides the results; without it the first failure is
            raised.
        progress: whether to draw a bar.
    """

    def work(**place: Any) -> Rows[T]:
        with (
            reporting(on_event or raised, progress=progress) as report,
            opened(listener=report, **place) as run,
        ):
            return Rows(answers(run, report.advance), kind)

    def apply(backup: str | None) -> Rows[T]:
        return work(backup=backup, **({"in_place": True} if to is None else {"to": to}))

    return Plan(command, work(), kind, apply=apply)
