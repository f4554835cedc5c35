"""The one rule that says when the kernels are worth loading, and the word where a part is missing.

Loading numpy and the kernels takes some 80 milliseconds, in which the reference decoder reads about
a thousand records. Compiling them, once a machine, takes seconds.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Final

from kafkalog.errors import UnsupportedError

FAST_SIZE_MIN: Final = 128 << 10
"""From so many bytes of log on compiled kernels are used."""

COMPILING_SIZE_MIN: Final = 16 << 20
"""From so many bytes of log on kernels are compiled where they have not been."""

_THREADS_MAX: Final = 8


def is_worth_it(size_bytes: int) -> bool:
    """Whether a log of this size is read faster with the kernels."""
    if size_bytes < FAST_SIZE_MIN:
        return False
    if size_bytes >= COMPILING_SIZE_MIN:
        return True
    from kafkalog.columnar.native import is_compiled

    return is_compiled()


def require_arrow() -> None:
    """Raise `UnsupportedError` where pyarrow is missing."""
    if importlib.util.find_spec("pyarrow") is None:
        raise UnsupportedError(
            "Reading into Arrow columns needs pyarrow.", hint="pip install 'kafkalog[arrow]'"
        )


def default_threads() -> int:
    """As many as this process has processors, up to 8."""
    return min(len(os.sched_getaffinity(0)), _THREADS_MAX)
