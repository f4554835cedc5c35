"""Decides when to use the compiled kernels; raises if an optional dependency is missing.

Loading numpy and the kernels takes about 80 milliseconds, in which the reference decoder reads
about a thousand records. Compiling them takes seconds, once per machine.
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from typing import Final

from kafkalog.errors import UnsupportedError
from kafkalog.jit.cache import on_unusable, unusable_words

FAST_SIZE_MIN: Final = 128 << 10
"""Logs of at least this many bytes are read with compiled kernels."""

COMPILING_SIZE_MIN: Final = 16 << 20
"""For logs of at least this many bytes, missing kernels are compiled."""

_THREADS_MAX: Final = 8


def is_worth_it(size_bytes: int) -> bool:
    """Return whether a log of this size is read faster with the kernels."""
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
    """Return whether kernels can be loaded here; compile them first if necessary.

    If they cannot, the reference decoder does the work, and `on_unusable` is called with the
    reason.
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
    """Raise `UnsupportedError` if pyarrow is missing."""
    if importlib.util.find_spec("pyarrow") is None:
        raise UnsupportedError(
            "Reading into Arrow columns needs pyarrow.", hint="pip install 'kafkalog[arrow]'"
        )


def default_threads() -> int:
    """Return the number of processors of this process, at most 8."""
    return min(len(os.sched_getaffinity(0)), _THREADS_MAX)
