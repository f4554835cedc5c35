"""What a run reports, as a caller of the library gets it: one function, and a bar if wanted."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from kafkalog.errors import Done, Listener, Progress
from kafkalog.files.log_dir import LogDirListing
from kafkalog.io.progress import byte_bar
from kafkalog.log.defects import Tolerant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafkalog.errors import Event, OnEvent
    from kafkalog.files.log_dir import Target


class Reporter(Listener):
    """Passes what a run reports to a function.

    Args:
        on_event: the function; None to raise errors and grave defects, and pass over the rest.
        bar: called with numbers of bytes as they are read; None if nobody looks.

    Attributes:
        advance: likewise, for the run; None if nobody hears of it.
    """

    def __init__(
        self, on_event: OnEvent | None, bar: Callable[[int], object] | None = None
    ) -> None:
        self._on_event = on_event or Tolerant().hear
        self._bar = bar
        self.advance = None if on_event is None and bar is None else self._advance

    def hear(self, event: Event) -> None:
        """Pass an event on."""
        self._on_event(event)

    def done(self, result: object) -> None:
        """Pass on that a part of the work is done."""
        self._on_event(Done(result))

    def _advance(self, size_bytes: int) -> None:
        if self._bar is not None:
            self._bar(size_bytes)
        self._on_event(Progress(size_bytes))


@contextmanager
def reporting(
    on_event: OnEvent | None, *, progress: bool, targets: Iterable[Target] = ()
) -> Iterator[Reporter]:
    """Open what passes on the events of a run.

    Args:
        on_event: a function that gets them; None to raise errors and grave defects.
        progress: whether to draw a bar.
        targets: what is read.
    """
    with ExitStack() as held:
        total = sum(map(size_of, targets)) if progress else 0
        bar = held.enter_context(byte_bar(total or None)) if progress else None
        yield Reporter(on_event, bar)


def size_of(target: Target) -> int:
    """Return the size of all that there is to read of a target."""
    if isinstance(target, LogDirListing):
        inner = sum(partition.size_bytes for partition in target.partitions)
        return inner + sum(entry.size_bytes for entry in target.files)
    return target.size_bytes
