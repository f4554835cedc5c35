"""Errors of the operating system for a path that is read, translated to ours."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, TypeVar

from kafkalog.errors import NotAKafkaFileError, NotFoundError, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable

on_unreadable: list[Callable[[UnreadableError], None]] = []
"""Called, in any thread, with each read failure, even if the caller continues."""


def require_regular(path: str, mode: int) -> None:
    """Raise `NotAKafkaFileError` unless the mode is that of a regular file."""
    if stat.S_ISREG(mode):
        return
    kind = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}.get(
        stat.S_IFMT(mode), "a device"
    )
    raise NotAKafkaFileError(f"This is {kind}, not a regular file.", path=path)


def reading_error(error: OSError, path: str) -> NotFoundError | UnreadableError:
    """Return our error for an `OSError` met while reading `path`."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFoundError("No such file or directory.", path=path)
    reason = os.strerror(error.errno) if error.errno else str(error)
    hint = "Read it as the user who runs the broker." if error.errno == errno.EACCES else None
    return announced(UnreadableError(f"It cannot be read: {reason}.", path=path, hint=hint))


_Unreadable = TypeVar("_Unreadable", bound=UnreadableError)


def announced(error: _Unreadable) -> _Unreadable:
    """Return the error, after reporting it to everyone in `on_unreadable`."""
    for hear in on_unreadable:
        hear(error)
    return error
