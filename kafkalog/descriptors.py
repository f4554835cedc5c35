"""Directories opened component by component from the root, so that no symbolic link is followed.

Operations relative to such a descriptor stay in that directory, even if somebody renames or links
it meanwhile.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIRECTORY: Final = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PASSED: Final = _DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)  # search permission is enough


@contextmanager
def open_directory(path: str) -> Iterator[int]:
    """Open a directory by its absolute path, and close it when the block ends.

    Raises:
        OSError: it cannot be opened; `ENOTDIR` or `ELOOP` if a component is a symbolic link.
    """
    names = [name for name in os.path.abspath(path).split(os.sep) if name]
    descriptor = os.open(os.sep, _PASSED if names else _DIRECTORY | os.O_RDONLY)
    try:
        for left, name in zip(range(len(names) - 1, -1, -1), names, strict=True):
            flags = _PASSED if left else _DIRECTORY | os.O_RDONLY
            inner = os.open(name, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)
