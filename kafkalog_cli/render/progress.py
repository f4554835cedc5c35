"""Progress on stderr: bytes, rate and time left, for what takes longer than a second."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.log_dir import FileEntry, LogDir, PartitionDir

_DELAY_S = 1.0


@contextmanager
def byte_progress(
    targets: Sequence[LogDir | PartitionDir | FileEntry], *, enabled: bool
) -> Iterator[Callable[[int], None] | None]:
    """A function to call with each number of bytes done; None where nobody would see it.

    The bar appears after a second, so that short work shows nothing and loads nothing.
    """
    if not enabled or not sys.stderr.isatty():
        yield None
        return
    total = sum(_size(target) for target in targets)
    started = monotonic()
    done = 0
    advance: Callable[[int], None] | None = None

    with ExitStack() as shown:

        def report(size_bytes: int) -> None:
            nonlocal done, advance
            done += size_bytes
            if advance is not None:
                advance(size_bytes)
            elif monotonic() - started > _DELAY_S:
                advance = _show_bar(shown, total, done)

        yield report


def _show_bar(shown: ExitStack, total: int, done: int) -> Callable[[int], None]:
    """Show rich's bar until `shown` is closed; the returned function advances it."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    progress = shown.enter_context(
        Progress(
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
    )
    task = progress.add_task("", total=total, completed=done)
    return lambda size_bytes: progress.advance(task, size_bytes)


def _size(target: LogDir | PartitionDir | FileEntry) -> int:
    from kafkalog.log_dir import LogDir

    if isinstance(target, LogDir):
        inner = sum(partition.size_bytes for partition in target.partitions)
        return inner + sum(entry.size_bytes for entry in target.files)
    return target.size_bytes
