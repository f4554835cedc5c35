"""Progress on stderr of work that takes longer than a second: bytes, tasks, a wait."""

from __future__ import annotations

import sys
import threading
from contextlib import closing, contextmanager
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from rich.progress import Progress, ProgressColumn

    from kafkalog.errors import Event
    from kafkalog.files.log_dir import Target
    from kafkalog.io.engine import Engine, Gathering, PieceWork, Task, Work

_DELAY_S = 1.0


class Bar:
    """A bar of things done; it appears after a second: short work shows and loads nothing."""

    def __init__(self, total: int, words: str = "") -> None:
        self.total = total
        self.done = 0
        self._words = words
        self._appears = monotonic() + _DELAY_S
        self._bar: Progress | None = None

    def __call__(self, count: int) -> None:
        self.done += count
        self.update()

    def update(self) -> None:
        """Show what is done, of the total."""
        if self._bar is None and monotonic() > self._appears:
            self._bar = _shown_bar(*self._columns())
            self._task = self._bar.add_task(self._words)
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._task, total=self.total, completed=self.done)

    def _columns(self) -> Sequence[ProgressColumn]:
        from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn

        return MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the bar while the block writes lines to the same terminal."""
        if self._bar is None or not sys.stdout.isatty():
            yield
            return
        self._bar.stop()
        yield
        sys.stdout.flush()
        self._bar.start()

    def close(self) -> None:
        """Remove the bar for good."""
        self._appears = inf
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class ByteProgress(Bar):
    """A bar for bytes."""

    def _columns(self) -> Sequence[ProgressColumn]:
        from rich.progress import DownloadColumn, TransferSpeedColumn

        return DownloadColumn(binary_units=True), TransferSpeedColumn()


def _shown_bar(*columns: ProgressColumn) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    return Progress(
        BarColumn(),
        *columns,
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        redirect_stdout=False,  # rich would replace `sys.stdout`, and rows go to its buffer
        redirect_stderr=False,
    )


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
    """An engine that shows a bar of tasks, after a second."""

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
        with closing(Bar(len(tasks), "tasks")) as bar:
            yield from self._engine.run(work, tasks, done=_both(bar, done))

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
