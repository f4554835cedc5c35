"""A bar of bytes for callers of the library that ask for it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def byte_bar(total: int | None) -> Iterator[Callable[[int], object]]:
    """Show a bar on stderr while the block runs; it is called with numbers of bytes.

    Args:
        total: the number of bytes of all the work; None if it is not known.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("", total=total)
        yield lambda size_bytes: shown.advance(task, size_bytes)
