"""A directory next to partitions where tasks write files, until a driver puts them in place.

Tasks may run twice, even at the same time, and be killed; so may the driver. A task writes in a
directory of its own, which gets its final name when it is complete: the files of the first one to
finish count, and nothing under a final name ever changes.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from formats.file_names import is_staging, staging_name
from kafkalog.io.paths.retry import tried
from kafkalog.io.storage.files import (
    open_directory,
    sync_directory,
    take_after_directory,
    unwritable,
)
from kafkalog.io.storage.locks import lock_directory

if TYPE_CHECKING:
    from collections.abc import Collection

_ATTEMPT: Final = "attempt-"


class StagingDirectory:
    """The driver's part; use it as a context manager, within the lock of the log directory.

    Results that a killed driver left are available again. At the end, good or bad, everything is
    removed, so that a task that is still running can write no new file. A crash may leave all of
    it.

    Args:
        around: the log directory, in which it is created if missing.

    Raises:
        DestinationExistsError: another run is using it.
        UnwritableError: it cannot be created or removed.
    """

    def __init__(self, around: str) -> None:
        self.path = os.path.join(around, staging_name())
        self._around = around

    def __enter__(self) -> Self:
        try:
            for name in tried(self._around, os.listdir, self._around):
                if is_staging(name) and name != staging_name():
                    shutil.rmtree(os.path.join(self._around, name))  # a removal was interrupted
            # Left by a killed run, whose results are used again.
            with suppress(FileExistsError):
                os.mkdir(self.path)
            self._file = lock_directory(self.path)
            take_after_directory(self._file, tried(self._around, os.stat, self._around))
        except OSError as error:
            raise unwritable(error, self.path) from error
        return self

    def keep(self, names: Collection[str]) -> None:
        """Remove leftovers of earlier runs, except results that begin with one of these names."""
        try:
            for name in tried(self.path, os.listdir, self.path):
                place = os.path.join(self.path, name)
                # Results are named DIGEST-STEP; attempts begin with no digest, so they all go.
                if name.split("-")[0] not in names:
                    _remove(place, _doomed(place))
        except OSError as error:
            raise unwritable(error, self.path) from error

    def remove(self, name: str) -> None:
        """Remove a result, and those whose names begin with its own and a dash."""
        try:
            for found in tried(self.path, os.listdir, self.path):
                if found == name or found.startswith(f"{name}-"):
                    place = os.path.join(self.path, found)
                    _remove(place, _doomed(place))
        except OSError as error:
            raise unwritable(error, self.path) from error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            _remove(self.path, os.path.join(self._around, staging_name(uuid.uuid4().hex)))
            # Without it a crash may bring back a directory that a broker then takes for a deleted
            # partition.
            sync_directory(self._around)
        except OSError as failure:
            raise unwritable(failure, self.path) from failure
        finally:
            os.close(self._file)


class Attempt:
    """A task's part: a directory for files that becomes `result` if the block succeeds.

    Otherwise it is removed. If another attempt finishes first, its files count, and these are
    removed.

    Args:
        staging: the staging directory, which must exist.
        result: the name of the result.

    Attributes:
        path: where to write; files must be synced when the block ends.

    Raises:
        UnwritableError: it cannot be created, or the staging directory is gone: the run has ended.
    """

    def __init__(self, staging: str, result: str) -> None:
        self._staging = staging
        self._result = os.path.join(staging, result)
        self.path = os.path.join(staging, _ATTEMPT + secrets.token_hex(8))

    def __enter__(self) -> Self:
        try:
            os.mkdir(self.path)
            with open_directory(os.path.realpath(self.path)) as made:
                take_after_directory(made, tried(self._staging, os.stat, self._staging))
        except OSError as error:
            raise unwritable(error, self.path) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                # Before the rename: a result that has its name is complete, also after a crash.
                sync_directory(self.path)
                self._publish()
                sync_directory(self._staging)
        except OSError as failure:
            raise unwritable(failure, self._result) from failure
        finally:
            with suppress(OSError):  # even so it raises what `fstat` does
                shutil.rmtree(self.path, ignore_errors=True)

    def _publish(self) -> None:
        try:
            os.rename(self.path, self._result)
        except OSError as error:
            # A rename replaces an empty directory only: the first attempt to finish wins.
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise


def _remove(path: str, doomed: str) -> None:
    """Remove a tree or a file.

    It is renamed first, so that nobody who is still writing can add to it.
    """
    os.rename(path, doomed)
    if os.path.isdir(doomed) and not os.path.islink(doomed):
        shutil.rmtree(doomed)
    else:
        os.unlink(doomed)  # files of a broker that took the directory for a partition


def _doomed(path: str) -> str:
    return f"{path}.{secrets.token_hex(4)}"
