"""Progress on stderr of work that takes longer than a second: bytes, tasks, a wait."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from rich.progress import Progress, TaskID

    from kafkalog.files.log_dir import Target
    from kafkalog.io.engine import Engine, Gathering, PieceWork, Task, Work

_DELAY_S = 1.0


class ByteProgress:
    """A bar for bytes; it appears after a second, so that short work shows and loads nothing.

    Attributes:
        total, done: bytes of the whole work, and bytes done.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._started = monotonic()
        self.done = 0
        self._bar: tuple[Progress, TaskID] | None = None

    def __call__(self, size_bytes: int) -> None:
        """Add bytes that are done."""
        self.done += size_bytes
        if self._bar is not None:
            self._bar[0].advance(self._bar[1], size_bytes)
        elif monotonic() - self._started > _DELAY_S:
            self._bar = _show_bar(self.total, self.done)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the bar while the block writes lines to the same terminal."""
        if self._bar is None or not sys.stdout.isatty():
            yield
            return
        self._bar[0].stop()
        yield
        sys.stdout.flush()
        self._bar[0].start()

    def close(self) -> None:
        """Remove the bar; for good, once nothing is done any more."""
        if self._bar is not None:
            self._bar[0].stop()
            self._bar = None


@contextmanager
def byte_progress(targets: Sequence[Target], *, enabled: bool) -> Iterator[ByteProgress | None]:
    """Open a bar to be called with each number of bytes done; None if nobody would see it."""
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    progress = ByteProgress(sum(_size(target) for target in targets))
    try:
        yield progress
    finally:
        progress.close()


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
        redirect_stdout=False,  # rich would replace `sys.stdout`, and rows go to its buffer
        redirect_stderr=False,
    )
    task = progress.add_task("", total=total, completed=done)
    progress.start()
    return progress, task


def _size(target: Target) -> int:
    from kafkalog.files.log_dir import LogDirListing

    if isinstance(target, LogDirListing):
        inner = sum(partition.size_bytes for partition in target.partitions)
        return inner + sum(entry.size_bytes for entry in target.files)
    return target.size_bytes


class ShownEngine:
    """An engine that shows a bar of tasks, after a second.

    Args:
        engine: runs the tasks.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def workers(self) -> int:
        return self._engine.workers

    def run(
        self,
        work: Work,
        tasks: Sequence[Task],
        *,
        done: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        bar = _TaskBar(len(tasks))

        def advance(count: int) -> None:
            bar.advance(count)
            if done is not None:
                done(count)

        try:
            yield from self._engine.run(work, tasks, done=advance)
        finally:
            bar.close()

    def stream(
        self,
        work: Gathering,
        tasks: Sequence[Task],
        piece_work: PieceWork,
        *,
        done: Callable[[int], None] | None = None,
    ) -> Generator[bytes, None, None]:
        """Run as `Engine.stream` does; the bar stays until the first task returns something."""
        bar = _TaskBar(len(tasks))

        def advance(count: int) -> None:
            bar.advance(count)
            if done is not None:
                done(count)

        try:
            for given in self._engine.stream(work, tasks, piece_work, done=advance):
                bar.close()
                yield given
        finally:
            bar.close()


class _TaskBar:
    """Tasks done, of all tasks; rich is loaded on first use."""

    def __init__(self, total: int, words: str = "tasks") -> None:
        self._total = total
        self._words = words
        self._done = 0
        self._started = monotonic()
        self._bar: Any = None

    def advance(self, count: int) -> None:
        self.set(self._done + count, self._total)

    def set(self, done: int, total: int) -> None:
        self._done, self._total = done, total
        if self._bar is None and monotonic() - self._started > _DELAY_S:
            self._bar = _bar_of_tasks()
            self._task = self._bar.add_task(self._words, total=self._total)
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def partition_progress(*, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """Open a bar to be called with the number of partitions done, and of all."""
    bar = _TaskBar(0, "partitions")

    def advance(done: int, total: int) -> None:
        if enabled and sys.stderr.isatty():
            bar.set(done, total)

    try:
        yield advance
    finally:
        bar.close()


@contextmanager
def waiting_for(words: str, *, enabled: bool) -> Iterator[None]:
    """Show a message and a spinner while the block runs, after a second, on a terminal."""
    if not enabled or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    status = Console(file=sys.stderr).status(words)
    timer = threading.Timer(_DELAY_S, status.start)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # or it could start the spinner after `stop`
        status.stop()


def _bar_of_tasks() -> Any:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        redirect_stdout=False,  # as above
        redirect_stderr=False,
    )
