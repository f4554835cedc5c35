"""Where compiled kernels are kept: a directory that only this user can write to, or nowhere.

Whoever can write to it can run code as the reader. Owner and permissions are those of the directory
and of the file that were opened; what is not ours alone is neither used nor changed. An install
that cannot be written and a user without a home are fine: the kernels are compiled again then.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_PRIVATE = 0o700
_OTHERS_WRITE = 0o022

on_compile: list[Callable[[], None]] = []
"""Called once, before kernels are compiled, which takes seconds."""

on_refused: list[Callable[[str], None]] = []
"""Called once with words for it, where what is in the cache directory cannot be trusted."""

on_unusable: list[Callable[[str], None]] = []
"""Called once with words for it, where kernels can be neither loaded nor compiled."""


class NotOursError(Exception):
    """A directory or file that somebody else can write to."""


def unusable_words(reason: str) -> str:
    """Words for kernels that cannot be used."""
    return f"the compiled decoder cannot be used ({reason}); using the slower one"


def cache_directory(environment: dict[str, str] | None = None) -> str | None:
    """`$XDG_CACHE_HOME/kafkalog`, made where missing; None where it cannot be had.

    It is used only if it is a directory of this user that nobody else may write to.
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
    """The bytes of a file in the cache directory; None where it is missing, or not ours alone."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with _own_directory(os.path.dirname(path)) as directory:
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
    """Put a file into the cache directory, whole or not at all; go on where the disk is full."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    temporary = f"{secrets.token_hex(8)}.tmp"
    with suppress(OSError, NotOursError), _own_directory(os.path.dirname(path)) as directory:
        try:
            descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
            with open(descriptor, "wb") as file:
                file.write(data)
            name = os.path.basename(path)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=directory)


@contextmanager
def _own_directory(path: str) -> Iterator[int]:
    """Open a directory that only this user can write to; raise `NotOursError` elsewhere."""
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
    while on_refused:
        on_refused.pop()(f"the compiled decoder cannot be cached: {error}")
