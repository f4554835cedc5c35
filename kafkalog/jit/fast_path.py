"""The one rule that says when the kernels are worth loading, and the word where a part is missing.

Loading numpy and the kernels takes some 80 milliseconds, in which the reference decoder reads about
a thousand records. Compiling them, once a machine, takes seconds.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from typing import Final

from kafkalog.errors import UnsupportedError
from kafkalog.jit.cache import on_unusable, unusable_words

FAST_SIZE_MIN: Final = 128 << 10
"""From so many bytes of log on compiled kernels are used."""

COMPILING_SIZE_MIN: Final = 16 << 20
"""From so many bytes of log on kernels are compiled where they have not been."""

_THREADS_MAX: Final = 8


def is_worth_it(size_bytes: int) -> bool:
    """Whether a log of this size is read faster with the kernels."""
    if size_bytes < FAST_SIZE_MIN:
        return False
    return (size_bytes >= COMPILING_SIZE_MIN or _are_compiled()) and kernels_work()


def _are_compiled() -> bool:
    try:
        from kafkalog.jit.native import is_compiled

        return is_compiled()
    except Exception:  # noqa: BLE001 # `kernels_work` finds it again, and reports it
        return True


@cache
def kernels_work() -> bool:
    """Return whether kernels can be loaded here, compiled first where they have not been.

    Where they cannot, the reference decoder does the work; `on_unusable` hears why.
    """
    try:
        from kafkalog.jit.native import probe

        probe()
    except Exception as raised:  # noqa: BLE001 # numba and LLVM raise kinds of their own
        cause = raised.__cause__ or raised
        words = " ".join(f"{type(cause).__name__}: {cause}".split())
        while on_unusable:
            on_unusable.pop()(unusable_words(words))
        return False
    return True


def require_arrow() -> None:
    """Raise `UnsupportedError` where pyarrow is missing."""
    if importlib.util.find_spec("pyarrow") is None:
        raise UnsupportedError(
            "Reading into Arrow columns needs pyarrow.", hint="pip install 'kafkalog[arrow]'"
        )


def default_threads() -> int:
    """As many as this process has processors, up to 8."""
    return min(len(os.sched_getaffinity(0)), _THREADS_MAX)
