"""Counts what code does, where a clock would count what the machine does besides."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kafkalog.io.codecs.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class Work:
    """What a block did.

    Attributes:
        calls: of functions, in Python and C, with their returns; by threads of the block, too.
        read_bytes: read by position.
        unpacked_bytes: that a codec's output took or refused.
    """

    calls: int = 0
    read_bytes: int = 0
    unpacked_bytes: int = 0


@contextmanager
def counted_work() -> Iterator[Work]:
    """Count the work of a block; the numbers are there when it has ended."""
    work = Work()
    ticks = itertools.count()  # its steps are atomic, unlike those of an attribute
    read: list[int] = []
    unpacked: list[int] = []

    def tick(*_: object) -> None:
        next(ticks)

    def reading(call: Callable[..., Any]) -> Callable[..., Any]:
        def read_and_note(*args: Any) -> Any:
            result = call(*args)
            read.append(result if isinstance(result, int) else len(result))
            return result

        return read_and_note

    reserve = Output.reserve

    def reserve_and_note(output: Output, size: int) -> None:
        unpacked.append(size)
        reserve(output, size)

    with (
        patch.object(os, "pread", reading(os.pread)),
        patch.object(os, "preadv", reading(os.preadv)),
        patch.object(Output, "reserve", reserve_and_note),
    ):
        threading.setprofile(tick)
        sys.setprofile(tick)
        try:
            yield work
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type] # as its documentation has it
    work.calls, work.read_bytes, work.unpacked_bytes = next(ticks), sum(read), sum(unpacked)
