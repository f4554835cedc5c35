"""The requests of a run that read object stores: how many there were, and how many there may be.

They are counted as S3 charges them: a piece of an object is one, a listing is one per thousand
names. What the client repeats after an error is not counted, nor what is written.
"""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

from kafkalog.errors import RequestsExceededError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


NAMES_A_REQUEST: Final = 1000  # S3 lists no more at once


class Requests:
    """Counts the requests of a run, in any thread.

    Attributes:
        allowed: how many there may be; None for any number.
        count: how many there were.
        size_bytes: what they got of the contents of objects.
        is_exceeded: whether one was refused.
        are_elsewhere: whether other processes make requests, too, which are not counted.
    """

    def __init__(self) -> None:
        self.allowed: int | None = None
        self.count = 0
        self.size_bytes = 0
        self.is_exceeded = False
        self.are_elsewhere = False
        self._lock = Lock()

    def ask(self, most: int = 1) -> None:
        """Count a request that is about to be made, and may become several.

        Raises:
            RequestsExceededError: there would be too many.
        """
        with self._lock:
            self.is_exceeded |= self.allowed is not None and self.count + most > self.allowed
            if not self.is_exceeded:
                self.count += 1
                return
        raise self.error()

    def spare(self) -> bool:
        """Count a request that could wait; return False if there may be none."""
        with self._lock:
            if self.allowed is not None and self.count >= self.allowed:
                return False
            self.count += 1
            return True

    def asked(self, more: int) -> None:
        """Count what one request has become. Raises as `ask`."""
        with self._lock:
            self.count += more
            self.is_exceeded |= self.allowed is not None and self.count > self.allowed
        if self.is_exceeded:
            raise self.error()

    def got(self, size: int) -> None:
        with self._lock:
            self.size_bytes += size

    def leave(self) -> None:
        """Let other processes make requests, too.

        Raises:
            UsageError: there is a bound, which they would not keep.
        """
        if self.allowed is not None:
            raise UsageError(
                "--max-requests does not bound what tasks of Spark request.",
                hint="Leave out --max-requests, or --spark.",
            )
        self.are_elsewhere = True

    def error(self) -> RequestsExceededError:
        """Return what a run ends with that would need more."""
        return RequestsExceededError(
            f"This needs more requests to object stores than --max-requests {self.allowed} allows.",
            note="The output is incomplete.",
            hint="Allow more, or name fewer partitions.",
        )


_runs = [Requests()]


def requests() -> Requests:
    return _runs[-1]


@contextmanager
def requests_counted() -> Iterator[Requests]:
    """Count the requests in the block by themselves."""
    _runs.append(Requests())
    try:
        yield requests()
    finally:
        _runs.pop()
