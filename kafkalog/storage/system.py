"""What the operating system says, in our words; names that last."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

from kafkalog.errors import DestinationExistsError, UnwritableError

NO_LOCKS: Final = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
"""A file system without locks says one of these."""

CANNOT_EXCHANGE: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""A kernel or file system that cannot exchange two names says one of these."""
_EXCHANGE: Final = 2


def exchange(directory: int, name: str, other: str) -> None:
    """Exchange two names in an open directory at once: `renameat2` with `RENAME_EXCHANGE`."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError) as error:  # another system, an old C library
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from error
    if rename(directory, os.fsencode(name), directory, os.fsencode(other), _EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def sync_directory(path: str) -> None:
    """Make the names in a directory last."""
    directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def exists(path: str) -> DestinationExistsError:
    """What is said where something is in the way."""
    return DestinationExistsError(
        "It already exists.", path=path, hint="Choose another name, or remove it."
    )


def unwritable(error: OSError | ValueError, path: str) -> UnwritableError:
    """What is said where writing fails."""
    number = error.errno if isinstance(error, OSError) else None
    reason = os.strerror(number) if number else str(error)
    return UnwritableError(f"It cannot be written: {reason}.", path=path)
