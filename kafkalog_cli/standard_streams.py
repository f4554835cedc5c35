"""Stdout and stderr of this process, with write failures handled in one place."""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

from kafkalog.errors import INCOMPLETE, NO, UnwritableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

_STDOUT: Final = 1
_STDERR: Final = 2


class OutputError(Exception):
    """Stdout cannot be written, and there is no reason to go on.

    Not a `KafkaLogError`: it concerns no input, and code that continues after a bad input must not
    catch it.
    """


class _Stream(io.FileIO):
    """A descriptor that is written until the first failure, and ignored from then on.

    Attributes:
        failure: the first failure.
        stops_work: whether a failure is raised as `OutputError`.
        is_lasting: whether it writes lines to a terminal, which stay there.
        is_paged: whether a pager shows on a terminal what is written.
    """

    def __init__(self, descriptor: int, *, stops_work: bool, is_transient: bool = False) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.failure: OSError | None = None
        self.stops_work = stops_work
        self.is_paged = False
        self.is_lasting = not is_transient and self.isatty()

    def isatty(self) -> bool:
        """Return whether people read it on a terminal."""
        return self.is_paged or super().isatty()

    def write(self, data: Buffer, /) -> int:
        """Write as much as the system accepts; after a failure, discard everything."""
        if self.failure is not None:
            return memoryview(data).nbytes
        if self.is_lasting:
            for erase in [*before_lines]:
                erase()
        try:
            while (count := super().write(data)) is None:  # a non-blocking pipe or terminal
                select.select([], [self], [])
        except BrokenPipeError:  # see `main`: no failure, the reader has had enough
            raise
        except OSError as error:
            self.failure = error
            if self.stops_work:
                raise OutputError from error
            return memoryview(data).nbytes
        return count


_streams: list[_Stream] = []
before_lines: Final[list[Callable[[], None]]] = []
"""Called before anything is written to a terminal: they erase what is shown for a while."""


def transient_stream() -> TextIO:
    """Return stderr for what `before_lines` erases: a progress bar."""
    return _text(_Stream(_STDERR, stops_work=False, is_transient=True), sys.stderr, "replace")


def open_streams() -> None:
    """Make `sys.stdout` and `sys.stderr` streams that remember a failure.

    A closed descriptor is opened so that writing fails, before another file gets its number.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # For reading, so that writes to it fail.
            os.open(os.devnull, os.O_RDONLY)  # the lowest free number
    out = _Stream(_STDOUT, stops_work=True)
    err = _Stream(_STDERR, stops_work=False)
    _streams[:] = [out, err]
    sys.stdout = _text(out, sys.stdout, "strict")
    sys.stderr = _text(err, sys.stderr, "backslashreplace")


def _text(stream: _Stream, before: TextIO | None, errors: str) -> TextIO:
    """Return a text stream with the settings that Python chose."""
    return io.TextIOWrapper(
        io.BufferedWriter(stream),
        encoding=(before and before.encoding) or "utf-8",
        errors=(before and before.errors) or errors,
        line_buffering=stream.fileno() == _STDERR or stream.isatty(),
    )


def stand_for_terminal() -> None:
    """Write to stdout from now on as to a terminal: a pager shows it there."""
    for stream in _streams[:1]:
        stream.is_paged = True


def put_work_first() -> None:
    """Continue the work from now on if stdout cannot be written: it changes or writes files."""
    for stream in _streams:
        stream.stops_work = False


def require_stdout() -> None:
    """Flush the output before somebody bases a decision on it.

    Raises:
        OutputError: it cannot be written.
    """
    sys.stdout.flush()
    if _streams and _streams[0].failure is not None:
        _streams[0].stops_work = True  # there is no work
        raise OutputError


def close_streams(status: int) -> tuple[int, UnwritableError | None]:
    """Flush both streams.

    Returns:
        The status of the command, and the error if something could not be written.
    """
    for text in (sys.stdout, sys.stderr):
        with suppress(OutputError):
            text.flush()
    for stream in _streams:
        if stream.failure is not None:
            name = "stdout" if stream.fileno() == _STDOUT else "stderr"
            reason = os.strerror(stream.failure.errno or 0)
            error = UnwritableError(f"The output cannot be written: {reason}.", path=name)
            return _status_without_output(status), error
    return status, None


def _status_without_output(status: int) -> int:
    """Return the status if the work ended with `status`, but its output was lost."""
    is_done = status in (0, NO, INCOMPLETE)
    if is_done and not _streams[0].stops_work:
        return INCOMPLETE
    return max(status, UnwritableError.exit_code)
