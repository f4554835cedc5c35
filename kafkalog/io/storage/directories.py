"""Directories that appear whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from formats.file_names import staging_name
from kafkalog.errors import (
    DestinationExistsError,
    KafkaLogError,
    PartlyDoneError,
    ShortageError,
    UnwritableError,
    UsageError,
)
from kafkalog.io.paths import file_system
from kafkalog.io.paths.retry import tried
from kafkalog.io.storage.changes import Step, StepKind
from kafkalog.io.storage.files import (
    cloned,
    copy_bytes,
    source_opened,
    sync_directory,
    sync_file_system,
    take_after,
    take_after_directory,
    unwritable,
    walked,
)
from kafkalog.io.storage.locks import lock_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


BUILDING_SUFFIX: Final = ".kafkalog-partial"
"""Suffix of a directory that is still being written, or that a killed run left."""


def final_path(path: str) -> str:
    """Return the final path of a file below a `NewDirectory`."""
    return path.replace(f"{BUILDING_SUFFIX}/", "/").removesuffix(BUILDING_SUFFIX)


class NewDirectory:
    """A directory of files that appears whole, or not at all; use it as a context manager.

    The files are written below `<path>.kafkalog-partial`, next to the final place of the directory.
    If the block succeeds, every directory is synced, then the whole is renamed at once, then the
    directory around it is synced; otherwise everything is removed. After a crash there is the whole
    directory under its name, or only the partial one, which the next run removes.

    Not guaranteed: anything on a file system that ignores syncs. An empty directory of that name is
    replaced, and its owner and permissions are lost.

    Args:
        path: its final path: a free name, or an empty directory.
        like: the directory that it is made from: everything in it gets its owner and group, as far
            as we may set them, and no permission that it does not give.
        syncs_once: whether the whole file system is synced at the end instead of each file, which
            is much faster for thousands of small files.
        observe: called after each step on the disk.

    Attributes:
        given: the path as given, for what people read.
        has_its_name: whether it is there, whole.
        building: where its files are until the block ends.
        left_over_removed: whether a leftover of a killed run was removed first.

    Raises:
        DestinationExistsError: the path exists, or another run is writing it now.
        UnwritableError: it cannot be created there, or written.
        PartlyDoneError: it is there, and nobody knows whether it survives a crash.
    """

    def __init__(
        self,
        path: str,
        like: str | None = None,
        *,
        syncs_once: bool = False,
        observe: Callable[[Step], None] | None = None,
    ) -> None:
        self.given = path
        self._observe = observe
        self._syncs_once = syncs_once
        self.path = os.path.realpath(path)
        self.building = self.path + BUILDING_SUFFIX
        # Now, so that hours of work are not refused at the end; again when the name is given.
        require_vacant(self.path)
        self._begin(like)

    def _begin(self, like: str | None) -> None:
        """Make and lock the directory that the files are built in."""
        self.has_its_name = False
        try:
            self.left_over_removed = self._remove_left_over()
            os.mkdir(self.building)
            self._tell(StepKind.MAKE_DIRECTORY, self.building)
            # Locked before anything is in it: a second run takes what it finds here for a leftover,
            # and would remove it (`_remove_left_over`).
            try:
                self._lock = lock_directory(self.building)
            except BaseException:  # raised again
                os.rmdir(self.building)
                raise
            try:
                self._around = os.fstat(self._lock) if like is None else tried(like, os.stat, like)
                take_after_directory(self._lock, self._around)
            except (OSError, ShortageError):
                self._discard()
                raise
        except (OSError, ValueError) as error:
            raise unwritable(error, self.given) from error

    def __enter__(self) -> Self:
        return self

    def place(self, name: str) -> str:
        """Return the path of a file until the directory gets its name; `name` has slashes."""
        return os.path.join(self.building, name)

    @contextmanager
    def create(
        self, name: str, modified_timestamp: int | None = None, *, like: str | None = None
    ) -> Iterator[BinaryIO]:
        """Create a file, synced when the block ends, and the directories on the way to it.

        `modified_timestamp` sets its modification time, by which a broker judges a log without
        timestamps. With `like` it gets the owner, group, permissions and labels of that file.
        """
        path = self.place(name)
        try:
            self._make(os.path.dirname(path))
            # Two sources with one name are a mistake of ours: the second must not overwrite the
            # first.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
                yield file
                file.flush()
                if like is not None:
                    take_after(file.fileno(), os.path.realpath(like))
                else:
                    take_after_directory(file.fileno(), self._around)
                # After the last write, which sets the time itself.
                if modified_timestamp is not None:
                    os.utime(file.fileno(), ns=(modified_timestamp * 1_000_000,) * 2)
                self._tell(StepKind.CREATE, path)
                if not self._syncs_once:
                    os.fsync(file.fileno())
                    self._tell(StepKind.SYNC, path)
        except OSError as error:
            raise unwritable(error, self._final(name)) from error

    def copy(
        self,
        source: str,
        name: str,
        modified_timestamp: int,
        *,
        clones: bool,
        copies: bool = True,
        like: str | None = None,
    ) -> bool | None:
        """Copy a local file, with its modification time.

        Args:
            source: its path.
            name: the new file.
            modified_timestamp: its modification time.
            clones: whether the new file may share the blocks of the old one.
            copies: whether the bytes may be copied, too.
            like: as in `create`.

        Returns:
            Whether blocks are shared; None if they cannot be, and nothing may be copied.

        Raises:
            NotAKafkaFileError, NotFoundError, UnreadableError: the file cannot be read.
            UnwritableError: the new one cannot be written.
        """
        with (
            source_opened(source) as (opened, status),
            self.create(name, modified_timestamp, like=like) as file,
        ):
            if clones and cloned(opened, file.fileno()):
                return True
            if copies:
                copy_bytes(opened, file.fileno(), source, status.st_size)
        return False if copies else None

    def truncate(self, name: str, size_bytes: int) -> None:
        try:
            descriptor = os.open(self.place(name), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.ftruncate(descriptor, size_bytes)
                self._tell(StepKind.TRUNCATE, self.place(name))
                os.fsync(descriptor)
                self._tell(StepKind.SYNC, self.place(name))
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unwritable(error, self._final(name)) from error

    def write(self, name: str, data: bytes) -> None:
        """Write a file, replacing any file of that name; one with these bytes stays."""
        try:
            with open(self.place(name), "rb") as old:
                # One byte more than wanted tells a longer file from an equal one.
                if old.read(len(data) + 1) == data:
                    return
            self.remove(name)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise unwritable(error, self._final(name)) from error
        with self.create(name) as file:
            file.write(data)

    def make(self, name: str) -> None:
        """Make a directory and its parents."""
        try:
            self._make(self.place(name))
        except OSError as error:
            raise unwritable(error, self._final(name)) from error

    def remove(self, name: str) -> None:
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.place(name))
                self._tell(StepKind.REMOVE, self.place(name))
        except OSError as error:
            raise unwritable(error, self._final(name)) from error

    def remove_tree(self, name: str) -> None:
        """Remove a directory tree if present."""
        try:
            with suppress(FileNotFoundError):
                self._remove_tree(self.place(name))
        except OSError as error:
            raise unwritable(error, self._final(name)) from error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._publish()
        except OSError as failure:
            raise self.afterwards(unwritable(failure, self.path)) from failure
        finally:
            self._discard()

    def afterwards(self, error: KafkaLogError) -> KafkaLogError:
        """Return the error of what fails: partly done, once the directory has its name."""
        if not self.has_its_name or isinstance(error, PartlyDoneError):
            return error
        return PartlyDoneError(
            f"{self.given} is there, whole; afterwards this failed: {error.message}",
            path=error.path,
        )

    def _discard(self) -> None:
        """Remove a directory that did not get its name, and unlock it."""
        # The error that brought us here is the one to report; the next run removes what is left.
        with suppress(OSError):  # even so `rmtree` raises what `fstat` does
            self._remove_tree(self.building, ignore_errors=True)
        os.close(self._lock)

    def _remove_tree(self, path: str, *, ignore_errors: bool = False) -> None:
        # Listed before the removal, as there is nothing left to list after it.
        steps = []
        for directory, _, names in os.walk(path, topdown=False) if self._observe else ():
            steps += [Step(StepKind.REMOVE, os.path.join(directory, name)) for name in names]
            steps.append(Step(StepKind.REMOVE_DIRECTORY, directory))
        shutil.rmtree(path, ignore_errors=ignore_errors)
        for step in steps:
            self._tell(step.kind, step.path)

    def _publish(self) -> None:
        require_vacant(self.path)
        if self._syncs_once:
            self._sync_everything()
        else:
            # All names below are durable before the one rename that shows them; files are synced
            # already.
            for directory, _, _ in walked(self.building, topdown=False):
                self._sync(directory)
        self._rename(self.building, self.path)
        self.has_its_name = True
        # The rename itself: without it a crash may take the directory back to its partial name.
        self._sync(os.path.dirname(self.path))

    def _sync_everything(self) -> None:
        sync_file_system(self.building)
        self._tell(StepKind.SYNC_FILE_SYSTEM, self.building)

    def _sync(self, directory: str) -> None:
        sync_directory(directory)
        self._tell(StepKind.SYNC_DIRECTORY, directory)

    def _rename(self, path: str, new_path: str) -> None:
        os.rename(path, new_path)
        self._tell(StepKind.RENAME, path, new_path)

    def _remove_left_over(self) -> bool:
        """Remove the leftover of a killed run; return whether there was one."""
        if not file_system.is_there(self.building):
            return False
        # Fails while the run that builds it is alive: only what nobody holds is a leftover.
        lock = lock_directory(self.building)
        try:
            self._remove_tree(self.building)
        finally:
            os.close(lock)
        return True

    def _make(self, path: str) -> None:
        """Make a directory below the new one, with those on the way to it."""
        if file_system.is_there(path):
            return
        self._make(os.path.dirname(path))
        os.mkdir(path)
        made = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            take_after_directory(made, self._around)
        finally:
            os.close(made)
        self._tell(StepKind.MAKE_DIRECTORY, path)

    def _tell(self, kind: StepKind, path: str, new_path: str | None = None) -> None:
        if self._observe is not None:
            self._observe(Step(kind, path, new_path))

    def _final(self, name: str) -> str:
        return os.path.join(self.path, name)


class NewPartitions(NewDirectory):
    """Partitions that appear in a log directory, each whole or not at all.

    They are built in a directory that a broker takes for a deleted partition, and removes if a
    killed run left it. After `sync`, `vacate` makes room and `put` puts them in place, one by one;
    at the end of the block the rest is removed. Hold the lock of the log directory.

    Args:
        log_dir: the log directory; everything new gets its owner and permissions.
        observe: called after each step on the disk.

    Raises:
        DestinationExistsError: another run is using it.
        UnwritableError: it cannot be written.
    """

    def __init__(self, log_dir: str, observe: Callable[[Step], None] | None = None) -> None:
        self.given = log_dir
        self._observe = observe
        self._syncs_once = True
        self.path = os.path.realpath(log_dir)
        # A name that ends in `-delete`: a broker that starts after a crash queues it for deletion,
        # as LogManager.loadLog does; a name that is no partition's would stop the start.
        self.building = os.path.join(self.path, staging_name())
        self._begin(self.path)

    def sync(self) -> None:
        """Make all that was written durable."""
        try:
            self._sync_everything()
        except OSError as error:
            raise unwritable(error, self.path) from error

    def vacate(self, place: str) -> None:
        """Move the directory of a final name, if any, durably to what is removed at the end.

        See that it holds nothing.
        """
        final = self._final(place)
        try:
            if file_system.is_there(final):
                # Not removed in place: after a crash halfway through, half of an old partition
                # would be live.
                self._rename(final, self.place(secrets.token_hex(8)))
                self._sync(self.path)
        except OSError as error:
            raise unwritable(error, final) from error

    def put(self, name: str, place: str) -> None:
        """Put a partition in place under its final name, which is vacant, durably.

        Args:
            name: the new partition, as for `make`.
            place: its final name.
        """
        final = self._final(place)
        try:
            self._rename(self.place(name), final)
            self._sync(self.path)
        except OSError as error:
            raise unwritable(error, final) from error

    def _publish(self) -> None:
        """Leave the log directory as it is: `put` has put everything in place."""


def require_space(path: str, size_bytes: int) -> None:
    """Raise `UnwritableError` unless there is room for `size_bytes` where `path` will be."""
    free = free_space(path)
    if free < size_bytes:
        raise UnwritableError(
            f"The new files need up to {size_bytes} bytes; the file system has {free} left.",
            path=path,
            hint="Free some space, or choose another file system.",
        )


def free_space(path: str) -> int:
    """Return the free bytes where `path` will be."""
    try:
        return shutil.disk_usage(os.path.dirname(os.path.realpath(path))).free
    except OSError as error:
        raise unwritable(error, path) from error


def require_writable(path: str) -> None:
    """Raise `UnwritableError` if nothing can be created in a directory."""
    if not os.access(path, os.W_OK | os.X_OK):
        raise UnwritableError(
            "The directory cannot be written: it is read-only, or belongs to another user.",
            path=path,
            hint="Work on a copy.",
        )


def require_outside(path: str, sources: Iterable[str]) -> None:
    """Raise `UsageError` if a new directory would lie inside one of its sources."""
    wanted = os.path.realpath(path)
    found = map(os.path.realpath, sources)
    if any(os.path.commonpath((source, wanted)) == source for source in found):
        raise UsageError(
            "The destination lies inside the source.",
            path=path,
            hint="Choose a directory elsewhere.",
        )


def require_vacant(path: str) -> None:
    """Raise unless the path is free, or an empty directory that can be replaced."""
    if not file_system.is_there(path):
        return
    try:
        mode = tried(path, os.lstat, path).st_mode
        is_empty = stat.S_ISDIR(mode) and not tried(path, os.listdir, path)
    except OSError as error:
        raise unwritable(error, path) from error
    if not is_empty:
        raise DestinationExistsError(
            "It exists, and is not an empty directory.",
            path=path,
            hint="Choose another name, or remove it.",
        )
    if os.path.ismount(path):
        raise DestinationExistsError(
            "This is a mount point, which the new directory cannot replace.",
            path=path,
            hint=f"Choose a directory in it, such as {os.path.join(path, 'result')}.",
        )
