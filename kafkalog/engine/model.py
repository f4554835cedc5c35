"""An engine runs a function of ours for each of many tasks; errors cross it as JSON."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from kafkalog import errors
from kafkalog.errors import (
    CorruptDataError,
    InternalError,
    KafkaLogError,
    as_internal_error,
    contained,
)


def of_task(raised: Exception) -> KafkaLogError:
    """Return the error for what a task raised.

    Raises:
        MemoryError: another attempt, elsewhere, can have more.
    """
    if isinstance(raised, KafkaLogError):
        return raised
    if isinstance(raised, MemoryError):
        raise raised
    return as_internal_error(raised)


@contextmanager
def failures_kept(path: str, failures: list[dict[str, Any]]) -> Iterator[None]:
    """Let a failure of kafkalog on one thing cost a task only that.

    Args:
        path: what is worked on in the block.
        failures: gets the failure as returned by `told`; an error raised on purpose goes on.
    """

    def failed(error: KafkaLogError) -> None:
        if not isinstance(error, InternalError):
            raise error
        failures.append(told(error))

    with contained(path, failed):
        yield


def told(error: KafkaLogError) -> dict[str, Any]:
    """Return an error as a task returns it."""
    return {
        "class": type(error).__name__,
        "message": error.message,
        "reference": error.reference,
        "path": error.path,
        "position": error.position,
        "note": error.note,
        "hint": error.hint,
    }


def told_error(fields: Mapping[str, Any]) -> KafkaLogError:
    """Rebuild the error from the result of `told`."""
    kind = getattr(errors, fields["class"], KafkaLogError)
    more = {name: fields[name] for name in ("path", "position", "note", "hint")}
    if issubclass(kind, CorruptDataError):
        more["reference"] = fields["reference"]
    error: KafkaLogError = kind(fields["message"], **more)
    return error


Task = Mapping[str, Any]
"""A piece of work: what JSON can say, so that it looks the same wherever it is done."""

Work = Callable[[Task], Mapping[str, Any]]
"""A function of a module of ours, found by its name where a task is done. What it returns is what
JSON can say, too. It can run twice for one task (a worker was lost), even at the same time."""


Gathering = Callable[[Task, Iterator[bytes]], Iterator[bytes]]
"""As `Work`, of a task that can have pieces: it is given what these made, in their order."""

PieceWork = Callable[[Task], Iterator[bytes]]
"""As `Work`, of a piece of a task; what it makes goes to the task."""


class Engine(Protocol):
    """Runs tasks."""

    @property
    def workers(self) -> int:
        """How many tasks run at the same time."""

    def run(
        self,
        work: Work,
        tasks: Sequence[Task],
        *,
        done: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield (task index, result) as tasks complete.

        Args:
            work: what is done for each task.
            tasks: the tasks, in the order in which they are begun.
            done: called in this thread with the number of tasks done since the last call.

        Raises:
            KafkaLogError: what `work` raised for one of them; the others are stopped or let end.
                An interrupt stops them, too.
        """

    def stream(
        self,
        work: Gathering,
        tasks: Sequence[Task],
        piece_work: PieceWork,
        *,
        done: Callable[[int], None] | None = None,
    ) -> Generator[bytes, None, None]:
        """Yield the output of tasks, in their order; closing it stops what is in progress.

        Args:
            work: what is done for each task. It need not take all that the pieces made.
            tasks: the tasks. One with `pieces`, a list of tasks, is done when these are.
            piece_work: what is done for each piece, wherever there is room.
            done: as that of `run`.

        Raises:
            KafkaLogError: what a task or a piece raised, in place of what it would have given.
        """
