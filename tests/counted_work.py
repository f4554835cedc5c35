"""Counts what code does, where a clock would count what the machine does besides."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@dataclass
class Work:
    """What a block did.

    Attributes:
        calls: of functions, in Python and C, with their returns; by threads of the block, too.
        read_bytes: read by position.
    """

    calls: int = 0
    read_bytes: int = 0


@contextmanager
def counted_work() -> Iterator[Work]:
    """Count the work of a block; the numbers are there when it has ended."""
    work = Work()
    ticks = itertools.count()  # its steps are atomic
    sizes: list[int] = []

    def tick(*_: object) -> None:
        next(ticks)

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            result = call(*args)
            sizes.append(result if isinstance(result, int) else len(result))
            return result

        return counted

    with pytest.MonkeyPatch.context() as patched:
        for name in ("pread", "preadv"):
            patched.setattr(os, name, counting(getattr(os, name)))
        threading.setprofile(tick)
        sys.setprofile(tick)
        try:
            yield work
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    work.calls, work.read_bytes = next(ticks), sum(sizes)


def require_linear(act: Callable[[int], object], sizes: Sequence[int], most: float = 1.5) -> None:
    """Require that the work per unit of size does not grow from the first size to the last.

    Quadratic work grows by the ratio of the sizes.
    """
    act(sizes[0])  # imports, and what is made once
    works = []
    for size in sizes:
        with counted_work() as work:
            act(size)
        works.append(work)
    grown = sizes[-1] / sizes[0]
    first, last = works[0], works[-1]
    assert last.calls <= most * grown * first.calls, works
    assert last.read_bytes <= most * grown * max(first.read_bytes, 1), works
