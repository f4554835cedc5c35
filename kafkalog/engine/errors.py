"""Errors of ours as JSON says them: those of a task are raised where its result is used."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafkalog import errors
from kafkalog.errors import (
    CorruptDataError,
    InternalError,
    KafkaLogError,
    as_internal_error,
    contained,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
        failures: gets the failure as `told` tells it; an error raised on purpose goes on.
    """

    def failed(error: KafkaLogError) -> None:
        if not isinstance(error, InternalError):
            raise error
        failures.append(told(error))

    with contained(path, failed):
        yield


def told(error: KafkaLogError) -> dict[str, Any]:
    """An error as a task returns it."""
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
    """The error that `told` told."""
    kind = getattr(errors, fields["class"], KafkaLogError)
    more = {name: fields[name] for name in ("path", "position", "note", "hint")}
    if issubclass(kind, CorruptDataError):
        more["reference"] = fields["reference"]
    error: KafkaLogError = kind(fields["message"], **more)
    return error
