"""Where compiled kernels are kept: a directory that belongs to this user alone, or nowhere.

Whoever can write it can run code as the reader. An install that cannot be written and a user
without a home are fine: the kernels are compiled anew then.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PRIVATE = 0o700

on_compile: list[Callable[[], None]] = []
"""Called once, before kernels are compiled, which takes seconds."""

on_unusable: list[Callable[[str], None]] = []
"""Called once with words for it, where kernels can be neither loaded nor compiled."""


def unusable_words(reason: str) -> str:
    """Words for kernels that cannot be used."""
    return f"the fast core cannot be used ({reason}): the slower decoder reads instead"


def cache_directory(environment: dict[str, str] | None = None) -> str | None:
    """`$XDG_CACHE_HOME/kafkalog`, made where missing; None where it cannot be had.

    It is used only if it is a directory of this user that nobody else may enter.
    """
    values = os.environ if environment is None else environment
    base = values.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = values.get("HOME", "")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".cache")
    path = os.path.join(base, "kafkalog")
    try:
        os.makedirs(base, exist_ok=True)
        return path if _is_private(path) else None
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
