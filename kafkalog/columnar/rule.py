"""The one rule that says when the kernels are worth loading, and the word where they are missing.

Loading numba takes 0.3 to 0.5 seconds, in which the reference decoder reads a few megabytes.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Final

from kafkalog.errors import UnsupportedError

FAST_SIZE_MIN: Final = 2 << 20
"""From so many bytes of log on the kernels are used."""

_THREADS_MAX: Final = 8
_NEEDED: Final = ("numba", "numpy", "pyarrow")


def require_engine() -> None:
    """Raise `UnsupportedError` where a package that the columnar core needs is missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"Reading into columns needs {', '.join(missing)}.",
            hint="pip install 'kafkalog[fast]'",
        )


def default_threads() -> int:
    """As many as this process has processors, up to 8."""
    return min(len(os.sched_getaffinity(0)), _THREADS_MAX)


def is_worth_it(size_bytes: int) -> bool:
    """Whether the kernels are there and a log of this size is read faster with them."""
    return size_bytes >= FAST_SIZE_MIN and all(
        importlib.util.find_spec(name) is not None for name in ("numba", "numpy")
    )
