"""An engine runs one of our functions for each of many tasks; errors are passed as JSON."""

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
    """Return the error for an exception that a task raised.

    Raises:
        MemoryError: passed on, because another attempt may have more memory.
    """
    if isinstance(raised, KafkaLogError):
        return raised
    if isinstance(raised, MemoryError):
        raise raised
    return as_internal_error(raised)


@contextmanager
def failures_kept(path: str, failures: list[dict[str, Any]]) -> Iterator[None]:
    """Confine an unexpected failure to one item of a task.

    Args:
        path: the path that the block works on.
        failures: gets the failure as returned by `told`; errors raised on purpose are passed on.
    """

    def failed(error: KafkaLogError) -> None:
        if not isinstance(error, InternalError):
            raise error
        failures.append(told(error))

    with contained(path, failed):
        yield


def told(error: KafkaLogError) -> dict[str, Any]:
    """Serialize an error for a task's result."""
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
"""A piece of work, limited to JSON values so that it is the same wherever it runs."""

Work = Callable[[Task], Mapping[str, Any]]
"""A function in one of our modules, which remote workers look up by name. It also returns JSON
values. It can run twice for one task (if a worker is lost), even at the same time.
"""


Gathering = Callable[[Task, Iterator[bytes]], Iterator[bytes]]
"""Like `Work`, for a task that can have pieces: gets what these made, in order."""

PieceWork = Callable[[Task], Iterator[bytes]]
"""Like `Work`, for a piece of a task; its output goes to the task."""


class Engine(Protocol):
    """Runs tasks."""

    @property
    def workers(self) -> int:
        """Number of tasks that run at the same time."""

    def run(
        self,
        work: Work,
        tasks: Sequence[Task],
        *,
        done: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield (task index, result) as tasks complete.

        Args:
            work: the function to run for each task.
            tasks: the tasks, in the order in which they are started.
            done: called in this thread with the number of tasks done since the last call.

        Raises:
            KafkaLogError: raised by `work` for one of them; the others are stopped or allowed to
                end.
                An interrupt also stops them.
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
            work: the function to run for each task. It need not consume all output of the pieces.
            tasks: the tasks. A task with `pieces`, a list of tasks, runs after these.
            piece_work: the function to run for each piece, wherever there is room.
            done: as for `run`.

        Raises:
            KafkaLogError: raised by a task or a piece, in place of its output.
        """
