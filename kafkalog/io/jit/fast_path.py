"""Decides when to use the compiled kernels; raises if an optional dependency is missing.

Loading numpy and the kernels takes about 80 milliseconds, in which the reference decoder reads
more than a thousand records.
"""

from __future__ import annotations

import os
import resource
import sys
from functools import cache
from typing import TYPE_CHECKING, Final

from kafkalog.errors import OutOfMemoryError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

FAST_SIZE_MIN: Final = 128 << 10
"""Logs of at least this many bytes are read with compiled kernels."""

on_unusable: list[Callable[[str], None]] = []
"""Called once with a message if the kernels cannot be loaded."""

# Memory bounds of commands are per thread (`docs/memory.md`).
_THREADS_MAX: Final = 8

# Below half a GiB of address space, pyarrow ended in SIGABRT, or could not be imported.
_ARROW_SIZE: Final = 640 << 20


def is_worth_it(size_bytes: int) -> bool:
    """Return whether a log of this size is read faster with the kernels."""
    return size_bytes >= FAST_SIZE_MIN and kernels_work()


def require_known_decoder() -> None:
    """Raise `UsageError` if the environment names a decoder that there is not."""
    from formats import decoder  # the help needs nothing of `formats`

    if decoder.CHOSEN not in decoder.NAMES:
        raise UsageError(
            f"{decoder.VARIABLE} is {decoder.CHOSEN!r}; it can be {' or '.join(decoder.NAMES)}."
        )


@cache
def kernels_work() -> bool:
    """Return whether kernels can be loaded here, and are wanted.

    If not, the reference decoder does the work. `on_unusable` is called with the reason why they
    cannot be loaded.
    """
    from formats import decoder

    if decoder.BY_SCHEMA:
        return False
    try:
        from kafkalog.io.jit.native import probe

        probe()
    except (ArithmeticError, AttributeError, ImportError, OSError, UnsupportedError) as raised:
        words = " ".join(str(raised).split())
        while on_unusable:
            on_unusable.pop()(
                f"the compiled decoder cannot be used ({words}); using the slower one"
            )
        return False
    return True


def require_arrow(extras: str = "data", note: str | None = None) -> None:
    """Check that pyarrow can be loaded.

    Args:
        extras: what to install, for the error.
        note: what else to do, for the error.

    Raises:
        UnsupportedError: it is missing.
        OutOfMemoryError: the address space of this process is too small for it.
    """
    import importlib.util

    if importlib.util.find_spec("pyarrow") is None:
        raise UnsupportedError(
            "Reading into Arrow columns needs pyarrow, which is not installed.",
            note=note,
            hint=f"pip install 'kafkalog[{extras}]'",
        )
    if "pyarrow" not in sys.modules:
        require_address_space("Reading into Arrow columns", _ARROW_SIZE)


def require_address_space(what: str, size: int, hint: str = "Raise that limit.") -> None:
    """Raise `OutOfMemoryError` where native libraries would end the process, or fail to load."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < size:
        raise OutOfMemoryError(
            f"{what} needs {size >> 20} MiB of address space, and the limit of this process is "
            f"{limit >> 20} MiB (ulimit -v).",
            hint=hint,
        )


def default_threads() -> int:
    """Return the number of processors of this process, at most 8."""
    # Of this process: a container, or taskset, may allow fewer than the machine has.
    return min(len(os.sched_getaffinity(0)), _THREADS_MAX)
