"""Temporary trouble of reading: told from what is wrong with a file, and waited for.

Only here is a `TemporaryError` made of what a disk or a store says, so that no reader takes a busy
store or a lack of descriptors for damage, for a missing file, or for another answer.
"""

from __future__ import annotations

import errno
import os
import re
import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from formats.late_patterns import pattern
from kafkalog.errors import OutOfMemoryError, ShortageError, TemporaryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUDGET_S: Final = 60.0
"""How long a run waits in all for what fails for now."""
_PAUSE_MIN_S: Final = 0.05
_PAUSE_MAX_S: Final = 5.0
_CALM_S: Final = 600.0
_TOO_MANY_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE))
_TEMPORARY: Final = frozenset((errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT, *_TOO_MANY_FILES))
# What pyarrow's clients of S3, GCS and Azure say of servers that are busy, and of connections.
_BUSY: Final = pattern(
    r"\b(HTTP status|status code|StatusCode|HTTP)\W{0,2}\s*(429|50[0234])\b|SLOW_?DOWN|THROTTL"
    r"|SERVICE_?UNAVAILABLE|INTERNAL_?(FAILURE|ERROR)|REQUEST_?TIMEOUT|SERVER_?BUSY|TIMED_?\s?OUT"
    r"|RESOURCE_EXHAUSTED|DEADLINE_EXCEEDED|UNAVAILABLE\b",
    re.IGNORECASE,
)
_UNREACHABLE: Final = pattern(
    r"NETWORK_CONNECTION|curlCode: \d+|CURL error \[\d+\]|couldn'?t connect"
    r"|connection (was )?reset|empty reply",
    re.IGNORECASE,
)

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _random() -> float:
    import random  # few runs wait for something

    return random.random()  # noqa: S311 # no secret


class Retry:
    """The time that a run spends on waiting for what fails for now, in all of its threads.

    Pauses that overlap count once. After ten minutes without a pause all of the budget is there
    again: a server or an export that watches runs for months.

    Args:
        budget_s: how long to wait in all.
        clock, sleep: as those of `time`.
        jitter: returns a number from 0 to 1, so that many readers do not ask at the same moment.
    """

    def __init__(
        self,
        budget_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = _random,
    ) -> None:
        self.budget_s = budget_s
        self._clock, self._sleep, self._jitter = clock, sleep, jitter
        self._left_s = budget_s
        self._waits_until = clock()
        self._lock = Lock()

    def now(self) -> float:
        """Return the time, for `wait`."""
        return self._clock()

    def wait(self, attempt: int, least_s: float = 0.0, since: float | None = None) -> bool:
        """Wait after a failed attempt, counted from 0; return False if the budget is spent.

        Args:
            attempt: the number of the attempt.
            least_s: what is too early to try again; False, too, if that is beyond the budget.
            since: when the first attempt began; False, too, if they took as long as the budget.
        """
        if since is not None and self._clock() - since > self.budget_s:
            return False
        pause = min(_PAUSE_MIN_S * 2.0 ** min(attempt, 16), _PAUSE_MAX_S)
        pause = max(pause * (1 + self._jitter()) / 2, least_s)
        with self._lock:
            now = self._clock()
            if now > self._waits_until + _CALM_S:
                self._left_s = self.budget_s
            paid = max(self._waits_until - now, 0.0)
            if self._left_s <= 0 or least_s > paid + self._left_s:
                return False
            pause = min(pause, paid + self._left_s)
            self._left_s -= min(max(pause - paid, 0.0), self._left_s)
            self._waits_until = now + max(pause, paid)
        self._sleep(pause)
        return True


_runs: Final = [Retry(BUDGET_S)]
"""The first is for what reads without a run: who imported the library, a task of Spark."""


@contextmanager
def retrying(retry: Retry | None = None) -> Iterator[Retry]:
    """Wait in the block as long as one budget lasts, by default `BUDGET_S`."""
    _runs.append(retry or Retry(BUDGET_S))
    try:
        yield _runs[-1]
    finally:
        _runs.pop()


def tried(path: str, call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call what reads a path; call it again after temporary trouble while the budget lasts.

    Raises:
        TemporaryError, OutOfMemoryError: the trouble lasts. Nothing is known about the path.
        Exception: whatever else the call raises.
    """
    attempt, since = 0, _runs[-1].now()
    while True:
        try:
            return call(*args, **kwargs)
        except Exception as error:  # raised again unless `shortage` knows it
            short = shortage(error, path)
            if short is None:
                raise
            if not (
                isinstance(short, TemporaryError) and _runs[-1].wait(attempt, short.after_s, since)
            ):
                if short is error:
                    raise
                raise short from error
        attempt += 1


def shortage(error: Exception, path: str) -> ShortageError | None:
    """Return what to raise for an error that says nothing about the path; None for any other."""
    if isinstance(error, ShortageError):
        return error
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ENOMEM:
        return OutOfMemoryError(path=path)
    if number in _TEMPORARY:
        hint = "Allow more open files: `ulimit -n 65536`." if number in _TOO_MANY_FILES else None
        return temporary(os.strerror(number or 0), path, hint=hint)
    return None


def temporary(words: str, path: str, *, hint: str | None = None) -> TemporaryError:
    """Return the error for trouble that somebody described in words."""
    return TemporaryError(
        f"This fails for now: {words}.",
        path=path,
        note="This is no damage, and no answer of the run is complete.",
        hint=hint or "Repeat the command later.",
    )


def is_busy(words: str) -> bool:
    """Return whether a store's error text describes a temporary failure."""
    return _BUSY.search(words) is not None or is_unreachable(words)


def is_unreachable(words: str) -> bool:
    """Return whether a store's error text describes a failed connection."""
    return _UNREACHABLE.search(words) is not None
