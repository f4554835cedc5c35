"""Directories opened from the root on, name by name: no symbolic link is on the way.

What is done relative to such a descriptor is done in that directory, whoever renames or links
meanwhile.
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
    """Open a directory by its absolute path; close it with the block.

    Raises:
        OSError: it cannot be opened; `ENOTDIR` or `ELOOP` where a name is that of a link.
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
