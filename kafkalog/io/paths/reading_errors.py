"""Translates errors of reading to ours: the operating system's, and construct's."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalog.errors import CorruptDataError, NotAKafkaFileError, NotFoundError, UnreadableError
from kafkalog.io.paths.retry import shortage
from kafkalog.io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from formats.constructs import ConstructError

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
    """Return our error for an `OSError` met while reading `path`.

    Raises:
        TemporaryError, OutOfMemoryError: it says nothing about the path.
    """
    if (short := shortage(error, path)) is not None:
        raise short from error
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return NotFoundError("No such file or directory.", path=path)
    reason = os.strerror(error.errno) if error.errno else str(error)
    hint = "Read it as the user who runs the broker." if error.errno == errno.EACCES else None
    return announced(UnreadableError(f"The path cannot be read: {reason}.", path=path, hint=hint))


_Unreadable = TypeVar("_Unreadable", bound=UnreadableError)


def announced(error: _Unreadable) -> _Unreadable:
    """Return the error, after reporting it to everyone in `on_unreadable`."""
    for hear in on_unreadable:
        hear(error)
    return error


class Unread:
    """Collects the files and directories that could not be read, even if the caller continued."""

    def __init__(self) -> None:
        self._errors: dict[str | None, UnreadableError] = {}

    def __bool__(self) -> bool:
        return bool(self._errors)

    def add(self, error: UnreadableError) -> None:
        """Remember the first failure of each path; in any thread."""
        self._errors.setdefault(error.path, error)

    def forget(self, path: str) -> None:
        """Forget a path: a finding already says that it cannot be read."""
        self._errors.pop(path, None)

    def error(self) -> UnreadableError:
        """Return the first failure; its note says how many more there are."""
        first, *others = self._errors.values()
        note = "The output is incomplete."
        if others:
            note = f"{counted(len(others), 'more path')} cannot be read. {note}"
        return UnreadableError(
            first.message, path=first.path, position=first.position, note=note, hint=first.hint
        )


@contextmanager
def unread_places() -> Iterator[Unread]:
    """Collect what cannot be read in the block; if there is any, the status must not be 0."""
    unread = Unread()
    on_unreadable.append(unread.add)
    try:
        yield unread
    finally:
        on_unreadable.remove(unread.add)


@contextmanager
def none_announced() -> Iterator[None]:
    """Read in the block what no answer lacks: nobody hears that it cannot be read."""
    kept = on_unreadable[:]
    on_unreadable.clear()
    try:
        yield
    finally:
        on_unreadable[:] = kept


def parse(schema: Any, data: bytes, path: str, *, reference: str = "file-malformed") -> Any:
    """Parse a file's bytes with a schema.

    Raises:
        CorruptDataError: the bytes do not follow the schema.
    """
    from formats.constructs import ConstructError

    try:
        return schema.parse(data)
    except ConstructError as error:
        raise CorruptDataError(
            f"The content cannot be parsed: {reason(error)}.", reference=reference, path=path
        ) from error


def reason(error: ConstructError) -> str:
    """Return construct's message without its path inside the schema."""
    return str(error).rpartition("\n")[2]
