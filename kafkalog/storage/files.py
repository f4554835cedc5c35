"""Files that appear whole, or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Self

from kafkalog.storage.ownership import take_after
from kafkalog.storage.system import exists, sync_directory, unwritable

if TYPE_CHECKING:
    from types import TracebackType


class NewFile:
    """A file that appears whole, or not at all; use it as a context manager and write to `file`.

    The bytes go to `<path>.<random>.tmp` in the same directory. Where the block ends well, they are
    synced, then the file gets its name, then the directory is synced; else they are removed. After
    a crash there is the whole file under its name or none; the temporary file may be left.

    Not guaranteed: what a file system does that ignores syncs, or has no links: there a file that
    somebody else creates under the same name in the last moment is replaced.

    Args:
        path: what it shall be called.
        replaces: whether a file of that name is replaced: it is the old one or the new one, whole,
            at any moment, with the owner and permissions of the old one.

    Raises:
        DestinationExistsError: there is something of that name, also when the block ends, and it
            is not to be replaced.
        UnwritableError: it cannot be created there, or written.
    """

    def __init__(self, path: str, *, replaces: bool = False) -> None:
        self.path = path
        self._replaces = replaces
        if not replaces and os.path.lexists(path):
            raise exists(path)
        self._temporary = f"{path}.{secrets.token_hex(4)}.tmp"
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(self._temporary, flags, 0o666)
        except (OSError, ValueError) as error:
            raise unwritable(error, path) from error
        self.file: BinaryIO = os.fdopen(descriptor, "wb")
        self._is_wanted = True

    def __enter__(self) -> Self:
        return self

    def discard(self) -> None:
        """Leave no file, however the block ends."""
        self._is_wanted = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None and self._is_wanted:
                self.file.flush()
                if self._replaces and os.path.lexists(self.path):
                    take_after(self.file.fileno(), os.path.realpath(self.path))
                os.fsync(self.file.fileno())
                self.file.close()
                self._publish()
        except OSError as failure:
            raise unwritable(failure, self.path) from failure
        finally:
            with suppress(OSError):
                self.file.close()
            with suppress(FileNotFoundError):
                os.unlink(self._temporary)
        if isinstance(error, OSError):
            raise unwritable(error, self.path) from error

    def _publish(self) -> None:
        """Give the file its name, and make that last."""
        if self._replaces:
            os.replace(self._temporary, self.path)
        else:
            self._link()
        sync_directory(os.path.dirname(self.path) or ".")

    def _link(self) -> None:
        """Give the file its name, unless there is one of that name by now."""
        try:
            os.link(self._temporary, self.path)
        except FileExistsError as error:
            raise exists(self.path) from error
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            os.rename(self._temporary, self.path)  # a file system without links
        else:
            os.unlink(self._temporary)
