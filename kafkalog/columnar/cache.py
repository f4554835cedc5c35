"""Where compiled kernels are kept: a directory that belongs to this user alone, or nowhere.

numba's cache holds pickles, so that whoever can write it can run code as the reader. An install
that cannot be written and a user without a home are fine: the kernels are compiled anew then.
"""

from __future__ import annotations

import importlib
import os
import stat
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PRIVATE = 0o700


def cache_directory(environment: dict[str, str] | None = None) -> str | None:
    """`$XDG_CACHE_HOME/kafkalog/numba`, made where missing; None where it cannot be had.

    It is used only if it is a directory of this user that nobody else may enter.
    """
    values = os.environ if environment is None else environment
    base = values.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = values.get("HOME", "")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".cache")
    parent = os.path.join(base, "kafkalog")
    path = os.path.join(parent, "numba")
    try:
        os.makedirs(base, exist_ok=True)
        return path if _is_private(parent) and _is_private(path) else None
    except OSError:
        return None


def _is_private(path: str) -> bool:
    """Make the directory if it is missing; whether it is ours and closed to all others."""
    try:
        os.mkdir(path, _PRIVATE)
    except FileExistsError:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(status.st_mode) & ~_PRIVATE:
            os.chmod(path, _PRIVATE)
    return os.access(path, os.W_OK | os.X_OK)


@cache
def _directory() -> str | None:
    return cache_directory()


def kernel(function: Callable[..., Any]) -> Any:
    """`numba.njit(nogil=True)` with the cache in our directory; numba's settings stay as found."""
    import numba

    config: Any = importlib.import_module("numba.core.config")

    directory = None if config.DISABLE_JIT else _directory()
    if directory is None:
        return numba.njit(nogil=True)(function)
    before = config.CACHE_DIR
    config.CACHE_DIR = directory
    try:
        return numba.njit(nogil=True, cache=True)(function)
    finally:
        config.CACHE_DIR = before
