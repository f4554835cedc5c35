"""The cache of scripts for pages: a directory that only this user can write to, or none.

Anybody who can write to the cache can put code into the pages of the user who reads it. Owner and
permissions are those of the opened directory and file; anything not exclusively ours is neither
used nor changed. Without a home directory, the scripts are simply made again.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_PRIVATE = 0o700  # nobody else may even list it
_OTHERS_WRITE = 0o022

on_refused: list[Callable[[str], None]] = []
"""Called once with a message if the content of the cache directory cannot be trusted."""


class NotOursError(Exception):
    """Somebody else can write to a directory or file."""


def cache_directory(environment: dict[str, str] | None = None) -> str | None:
    """Return `$XDG_CACHE_HOME/kafkalog`, created if missing; None if that is impossible.

    It must be a directory of this user that nobody else may write to.
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
        with suppress(FileExistsError):
            os.mkdir(path, _PRIVATE)
        with _own_directory(path):
            return path if os.access(path, os.W_OK | os.X_OK) else None
    except NotOursError as error:
        _refuse(error)
    except OSError:
        pass
    return None


def read_kept(path: str) -> bytes | None:
    """Return the bytes of a file in the cache directory; None if missing, or not only ours."""
    # Without O_NONBLOCK, opening a FIFO that somebody put there would wait for a writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with _own_directory(os.path.dirname(path)) as directory:
            # Relative to the directory that was checked: another may have its path by now.
            descriptor = os.open(os.path.basename(path), flags, dir_fd=directory)
            with open(descriptor, "rb") as file:
                _require_ours(os.fstat(descriptor), path, stat.S_ISREG)
                return file.read()
    except NotOursError as error:
        _refuse(error)
    except OSError:
        pass
    return None


def keep(path: str, data: bytes) -> None:
    """Put a file into the cache directory, whole or not at all; ignore a full disk."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    temporary = f"{secrets.token_hex(8)}.tmp"
    with suppress(OSError, NotOursError), _own_directory(os.path.dirname(path)) as directory:
        try:
            descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
            with open(descriptor, "wb") as file:
                file.write(data)
            name = os.path.basename(path)
            # Readers see the whole file or none.
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)


@contextmanager
def _own_directory(path: str) -> Iterator[int]:
    """Open a directory that only this user can write to; raise `NotOursError` for others."""
    # O_NOFOLLOW refuses links as well, but with an error that other causes share.
    if os.path.islink(path):
        raise NotOursError(f"{path} is a symbolic link")
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _require_ours(os.fstat(directory), path, stat.S_ISDIR)
        yield directory
    finally:
        os.close(directory)


def _require_ours(status: os.stat_result, path: str, is_kind: Callable[[int], bool]) -> None:
    if status.st_uid != os.geteuid():
        raise NotOursError(f"{path} belongs to another user")
    if not is_kind(status.st_mode) or stat.S_IMODE(status.st_mode) & _OTHERS_WRITE:
        raise NotOursError(f"others can write to {path}")


def _refuse(error: NotOursError) -> None:
    while on_refused:  # once: the next page would have the same to say
        on_refused.pop()(f"the scripts of pages cannot be cached: {error}")
