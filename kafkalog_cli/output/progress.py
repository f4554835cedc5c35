"""Progress on stderr: bytes, rate and time left, for what takes longer than a second."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.progress import Progress, TaskID

    from kafkalog.log_dir import FileEntry, LogDir, PartitionDir

_DELAY_S = 1.0


class ByteProgress:
    """A bar for bytes; it appears after a second, so that short work shows and loads nothing.

    Attributes:
        total, done: bytes of the whole work, and of what is done.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._started = monotonic()
        self.done = 0
        self._bar: tuple[Progress, TaskID] | None = None

    def __call__(self, size_bytes: int) -> None:
        """So many bytes more are done."""
        self.done += size_bytes
        if self._bar is not None:
            self._bar[0].advance(self._bar[1], size_bytes)
        elif monotonic() - self._started > _DELAY_S:
            self._bar = _show_bar(self.total, self.done)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """No bar while the block writes lines to the same terminal."""
        if self._bar is None or not sys.stdout.isatty():
            yield
            return
        self._bar[0].stop()
        yield
        sys.stdout.flush()
        self._bar[0].start()

    def close(self) -> None:
        """Take the bar away; for good, where nothing is done any more."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None


@contextmanager
def byte_progress(
    targets: Sequence[LogDir | PartitionDir | FileEntry], *, enabled: bool
) -> Iterator[ByteProgress | None]:
    """To be called with each number of bytes done; None where nobody would see it."""
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    progress = ByteProgress(sum(_size(target) for target in targets))
    try:
        yield progress
    finally:
        progress.close()


@contextmanager
def share_of(
    progress: Callable[[int], None] | None, size_bytes: int
) -> Iterator[Callable[[int], None] | None]:
    """One piece of the work, to be called with bytes of it: what is not read counts at its end."""
    if progress is None:
        yield None
        return
    left = size_bytes

    def advance(done: int) -> None:
        nonlocal left
        done = min(done, left)
        left -= done
        progress(done)

    try:
        yield advance
    finally:
        progress(left)


def _show_bar(total: int, done: int) -> tuple[Progress, TaskID]:
    """Show rich's bar."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    progress = Progress(
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = progress.add_task("", total=total, completed=done)
    progress.start()
    return progress, task


def _size(target: LogDir | PartitionDir | FileEntry) -> int:
    from kafkalog.log_dir import LogDir

    if isinstance(target, LogDir):
        inner = sum(partition.size_bytes for partition in target.partitions)
        return inner + sum(entry.size_bytes for entry in target.files)
    return target.size_bytes
