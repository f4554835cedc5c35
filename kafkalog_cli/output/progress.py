"""Progress on stderr of work that takes longer than a second: bytes, tasks, a wait."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import closing, contextmanager
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from kafkalog_cli.output.text import has_colours
from kafkalog_cli.standard_streams import before_lines, transient_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

    from kafkalog.errors import Event
    from kafkalog.files.log_dir import Target
    from kafkalog.io.engine import Engine, Gathering, PieceWork, Task, Work

_DELAY_S = 1.0
_PAUSE_S = 0.5


class Bar:
    """A bar of what is done; it appears after a second: short work shows and loads nothing.

    Any other line on the terminal erases it; it comes back when the lines have paused.
    """

    def __init__(self, total: int, words: str = "") -> None:
        self.total = total
        self.done = 0
        self._words = words
        self._appears = inf if _is_dumb() else monotonic() + _DELAY_S
        self._bar: Progress | None = None
        self._is_shown = False

    def __call__(self, count: int) -> None:
        self.done += count
        self.update()

    def update(self) -> None:
        """Show what is done, of the total."""
        if not self._is_shown and monotonic() > self._appears:
            self._show()
        if self._bar is not None:
            self._bar.update(self._task, total=self.total, completed=self.done)

    def _show(self) -> None:
        if self._bar is None:
            self._bar = _bar(*self._columns())
            self._task = self._bar.add_task(self._words)
            before_lines.append(self.erase)
        self._is_shown = True
        self._bar.start()

    def _columns(self) -> Sequence[ProgressColumn]:
        from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

        return MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn()

    def erase(self) -> None:
        """Remove the bar, until there has been no other line for a while."""
        if self._bar is not None and self._is_shown:
            self._bar.stop()
            self._is_shown = False
        self._appears = max(self._appears, monotonic() + _PAUSE_S)

    def close(self) -> None:
        """Remove the bar for good."""
        self.erase()
        self._appears = inf
        if self._bar is not None:
            before_lines.remove(self.erase)
            self._bar = None


class ByteProgress(Bar):
    """A bar for bytes."""

    def _columns(self) -> Sequence[ProgressColumn]:
        from rich.progress import DownloadColumn, TransferSpeedColumn

        return DownloadColumn(binary_units=True), TransferSpeedColumn()


def _bar(*columns: ProgressColumn) -> Progress:
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    return Progress(
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=_console(),
        transient=True,
        redirect_stdout=False,  # rich would replace `sys.stdout`, and rows go to its buffer
        redirect_stderr=False,
    )


def _is_dumb() -> bool:
    """Return whether the terminal could not erase a bar."""
    return os.environ.get("TERM") == "dumb"


def _console() -> Console:
    from rich.console import Console

    return Console(file=transient_stream(), no_color=not has_colours(sys.stderr))


@contextmanager
def byte_progress(targets: Sequence[Target], *, enabled: bool) -> Iterator[ByteProgress | None]:
    """Open a bar to be called with each number of bytes done; None if nobody would see it."""
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    from kafkalog.log.events import size_of

    with closing(ByteProgress(sum(map(size_of, targets)))) as progress:
        yield progress


def advancing(
    progress: ByteProgress | None, hear: Callable[[Event], object]
) -> Callable[[Event], None]:
    """Return a function that shows progress in a bar, and passes all other events on."""
    from kafkalog.errors import Progress as BytesRead

    def take(event: Event) -> None:
        if not isinstance(event, BytesRead):
            hear(event)
        elif progress is not None:
            progress(event.size_bytes)

    return take


class ShownEngine:
    """An engine that shows a bar, after a second: of bytes if the tasks say how many they read."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def workers(self) -> int:
        return self._engine.workers

    @property
    def is_here(self) -> bool:
        return self._engine.is_here

    def run(
        self,
        work: Work,
        tasks: Sequence[Task],
        *,
        done: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        sizes = [task.get("size_bytes") for task in tasks]
        known = [size for size in sizes if isinstance(size, int)]
        if len(known) < len(tasks):
            with closing(Bar(len(tasks), "tasks")) as bar:
                yield from self._engine.run(work, tasks, done=_both(bar, done))
            return
        with closing(ByteProgress(sum(known))) as bar:
            for number, result in self._engine.run(work, tasks, done=done):
                bar(known[number])
                yield number, result

    def stream(
        self,
        work: Gathering,
        tasks: Sequence[Task],
        piece_work: PieceWork,
        *,
        done: Callable[[int], None] | None = None,
    ) -> Generator[bytes, None, None]:
        """Run as `Engine.stream` does; the bar stays until the first task returns something."""
        with closing(Bar(len(tasks), "tasks")) as bar:
            for given in self._engine.stream(work, tasks, piece_work, done=_both(bar, done)):
                bar.close()
                yield given


def _both(bar: Bar, done: Callable[[int], None] | None) -> Callable[[int], None]:
    def advance(count: int) -> None:
        bar(count)
        if done is not None:
            done(count)

    return advance


@contextmanager
def partition_progress(*, enabled: bool) -> Iterator[Callable[[int, int], None]]:
    """Open a bar to be called with the number of partitions done, and of all."""
    with closing(Bar(0, "partitions")) as bar:

        def advance(done: int, total: int) -> None:
            bar.done, bar.total = done, total
            if enabled and sys.stderr.isatty():
                bar.update()

        yield advance


@contextmanager
def waiting_for(words: str, *, enabled: bool) -> Iterator[None]:
    """Show a message and a spinner while the block runs, after a second, on a terminal."""
    if not enabled or not sys.stderr.isatty() or _is_dumb():
        yield
        return
    status = _console().status(words)
    timer = threading.Timer(_DELAY_S, status.start)

    def end() -> None:
        timer.cancel()
        timer.join()  # or it could start the spinner after `stop`
        status.stop()

    timer.start()
    before_lines.append(end)
    try:
        yield
    finally:
        before_lines.remove(end)
        end()
