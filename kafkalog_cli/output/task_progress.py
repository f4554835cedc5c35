"""Progress on stderr of engines: that Spark is starting, and how many tasks are done."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from kafkalog.engine import Engine
    from kafkalog.engine.model import Gathering, PieceWork, Task, Work

_DELAY_S = 1.0


class ShownEngine:
    """An engine whose runs have a bar of tasks; it appears after a second.

    Args:
        engine: what does the work.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def workers(self) -> int:
        """How many tasks run at the same time."""
        return self._engine.workers

    def run(
        self,
        work: Work,
        tasks: Sequence[Task],
        *,
        done: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """As `Engine.run`."""
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
        """As `Engine.stream`; the bar is there until the first task has given something."""
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
    """Tasks done, of all tasks; rich is loaded when there is something to show."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._started = monotonic()
        self._bar: Any = None

    def advance(self, count: int) -> None:
        self._done += count
        if self._bar is None and monotonic() - self._started > _DELAY_S:
            self._bar = _bar_of_tasks()
            self._task = self._bar.add_task("tasks", total=self._total)
            self._bar.start()
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def waiting_for(words: str, *, enabled: bool) -> Iterator[None]:
    """Words and a spinner while the block runs, after a second; nothing where nobody sees it."""
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
        timer.join()
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
        redirect_stdout=False,
        redirect_stderr=False,
    )
