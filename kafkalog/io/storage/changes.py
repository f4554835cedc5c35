"""Changes to the files of one directory, step by step, in an order that survives a crash."""

from __future__ import annotations

import os
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO

from formats.file_names import is_plain
from formats.late_classes import dataclass
from kafkalog.errors import RefusedError
from kafkalog.io.paths import file_system
from kafkalog.io.paths.retry import tried
from kafkalog.io.storage.files import (
    CANNOT_EXCHANGE,
    cannot_exchange,
    copy_bytes,
    exchange,
    exists,
    open_directory,
    source_opened,
    sync_directory,
    take_after,
    take_after_directory,
    unwritable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEMPORARY_SUFFIX = ".tmp"
"""Kafka's own, for checkpoints that are being written: brokers ignore them."""


class StepKind(StrEnum):
    """The kind of a change to a directory."""

    CREATE = "create"
    """A new file has its bytes; neither they nor its name are durable yet."""
    TRUNCATE = "truncate"
    """A file is shorter; its new length is not durable yet."""
    SYNC = "sync"
    """The bytes of a file are durable."""
    LINK = "link"
    """A file has a second name, the new one, in this directory."""
    RENAME = "rename"
    """A file has another name, replacing any file of that name. Not durable yet."""
    REMOVE = "remove"
    """A name is gone. Not durable yet."""
    SYNC_DIRECTORY = "sync-directory"
    """All names in the directory are durable."""
    MAKE_DIRECTORY = "make-directory"
    """There is a new, empty directory. Its name is not durable yet."""
    REMOVE_DIRECTORY = "remove-directory"
    """An empty directory is gone. Not durable yet."""
    EXCHANGE = "exchange"
    """Two directories have exchanged names. Not durable yet."""
    SYNC_FILE_SYSTEM = "sync-file-system"
    """All names and bytes of the file system are durable."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step that was performed.

    Attributes:
        kind: the kind of step.
        path: path of the file or the directory.
        new_path: the new name of a `RENAME` or `LINK`, the other name of an `EXCHANGE`.
    """

    kind: StepKind
    path: str
    new_path: str | None = None


class ChangeWatch:
    """Watches for the first step that leaves a directory different from before.

    A new file that is removed again, as after a failed step, is not a change.

    Args:
        observe: also called with each step.

    Attributes:
        has_changed: whether there was such a step.
    """

    def __init__(self, observe: Callable[[Step], None] | None = None) -> None:
        self.has_changed = False
        self._observe = observe
        self._new: set[str] = set()

    def __call__(self, step: Step) -> None:
        if step.kind in (StepKind.CREATE, StepKind.MAKE_DIRECTORY):
            self._new.add(step.path)
        elif step.kind in (StepKind.REMOVE, StepKind.REMOVE_DIRECTORY) and step.path in self._new:
            self._new.discard(step.path)
        # A sync makes durable what an earlier step has counted.
        elif step.kind not in (StepKind.SYNC, StepKind.SYNC_DIRECTORY):
            self.has_changed = True
        if self._observe is not None:
            self._observe(step)


class Changes:
    """Changes to the files of one directory; each method takes effect immediately.

    Names are those of files in the directory itself. It is opened for each step without following
    links: a link that takes the place of a directory after `Changes` was made leads nowhere.

    Created or truncated files are synced before the method returns. Names are durable only after
    `sync_directory`: until then a crash may undo any of the renames and removals since the last
    one, in any combination, as far as the file system allows.

    Args:
        directory: a partition directory, or a log directory.
        observe: called after each step, so that a caller can tell what a crash would leave.

    Raises:
        UnwritableError: a step failed; earlier steps stay.
        DestinationExistsError: the file to be created exists.
        RefusedError: a name is a path, or the file to be replaced is a symbolic link.
    """

    def __init__(self, directory: str, observe: Callable[[Step], None] | None = None) -> None:
        self.directory = directory
        self.observe = observe
        # Resolved once: a link that replaces the directory later cannot redirect a step
        # (`_opened`).
        self._real = os.path.realpath(directory)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    @contextmanager
    def create(
        self, name: str, *, like: str | None = None, modified_timestamp: int | None = None
    ) -> Iterator[BinaryIO]:
        """Create a file; sync it when the block ends, remove it if the block fails.

        Args:
            like: path of a file whose owner, group, permissions and labels it gets, as far as we
                may set them; without one it gets owner and group of the directory, and no
                permission that the directory does not give.
            modified_timestamp: its modification time, milliseconds.
        """
        mtime_ns = None if modified_timestamp is None else modified_timestamp * 1_000_000
        with self._create(name, like, mtime_ns) as file:
            yield file

    @contextmanager
    def _create(self, name: str, like: str | None, mtime_ns: int | None) -> Iterator[BinaryIO]:
        path = self.path(name)
        try:
            # O_EXCL and O_NOFOLLOW: a file or link that somebody put there meanwhile is never
            # written into.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            with self._opened(name) as directory:
                around = tried(path, os.fstat, directory)  # first: if it fails, no file is left
                descriptor = os.open(name, flags, 0o666, dir_fd=directory)
        except FileExistsError as error:
            raise exists(path) from error
        except OSError as error:
            raise unwritable(error, path) from error
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                # Before the sync, which makes owner, permissions and time durable together with the
                # bytes.
                file.flush()
                if like is not None:
                    take_after(descriptor, like)
                else:
                    take_after_directory(descriptor, around)
                # The last write has set the time, so it is set after all of them.
                if mtime_ns is not None:
                    os.utime(descriptor, ns=(mtime_ns, mtime_ns))
                self._tell(StepKind.CREATE, path)
                os.fsync(descriptor)
                self._tell(StepKind.SYNC, path)
        except BaseException as error:  # raised again: Ctrl-C leaves no half-written file
            self.remove(name, missing_ok=True)
            if isinstance(error, OSError):
                raise unwritable(error, path) from error
            raise

    def replace(self, name: str, data: bytes) -> None:
        """Replace a small file atomically, so that it is always either the old or the new one.

        It is written under a temporary name first, as Kafka writes checkpoints.
        """
        self._require_plain(name)
        temporary = name + TEMPORARY_SUFFIX
        old = self.path(name)
        # A rename would replace the link, and leave the file that it leads to as it was.
        require_no_link(old)
        # Left by a killed run, or by a broker that died while it wrote the checkpoint.
        self.remove(temporary, missing_ok=True)
        with self.create(temporary, like=old if file_system.is_there(old) else None) as file:
            file.write(data)
        # The bytes are synced by now: a crash after the rename never shows a file that is empty or
        # half written. As `CheckpointFile.write`: temporary file, fsync, atomic rename, fsync of
        # the directory.
        self.rename(temporary, name)
        self.sync_directory()

    def link(self, source: str, name: str) -> None:
        """Link a file from elsewhere under a name here; copy it across file systems."""
        path = self.path(name)
        try:
            around, source_name = os.path.split(source)
            with open_directory(os.path.realpath(around)) as other, self._opened(name) as directory:
                os.link(source_name, name, src_dir_fd=other, dst_dir_fd=directory,
                        follow_symlinks=False)  # fmt: skip
        except FileExistsError as error:
            raise exists(path) from error
        # Another file system (EXDEV), one without links, or too many links: the bytes do as well.
        except OSError:
            self._copy(source, name)
        else:
            self._tell(StepKind.LINK, source, path)

    def _copy(self, source: str, name: str, size_bytes: int | None = None) -> None:
        """Copy a file, or its beginning, under a name here; a whole copy keeps its time."""
        with source_opened(source, os.O_NOFOLLOW) as (opened, status):
            whole = status.st_mtime_ns if size_bytes is None else None
            wanted = status.st_size if size_bytes is None else size_bytes
            with self._create(name, source, whole) as copy:
                copy_bytes(opened, copy.fileno(), source, wanted)

    def rename(self, name: str, new_name: str) -> None:
        """Rename a file, replacing any file of that name."""
        path, new_path = self.path(name), self.path(new_name)
        try:
            with self._opened(name, new_name) as directory:
                os.rename(name, new_name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            raise unwritable(error, path) from error
        self._tell(StepKind.RENAME, path, new_path)

    def remove(self, name: str, *, missing_ok: bool = False) -> None:
        path = self.path(name)
        try:
            with self._opened(name) as directory:
                os.unlink(name, dir_fd=directory)
        except FileNotFoundError as error:
            if not missing_ok:
                raise unwritable(error, path) from error
        except OSError as error:
            raise unwritable(error, path) from error
        else:
            self._tell(StepKind.REMOVE, path)

    def truncate(self, name: str, size_bytes: int) -> None:
        """Cut off the end of a file.

        A file with a second name, such as a backup, is replaced by a shorter copy: the other name
        keeps the whole file.
        """
        path = self.path(name)
        try:
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            with self._opened(name) as directory:
                descriptor = os.open(name, flags, dir_fd=directory)
            try:
                # A backup is a hard link: cutting the file in place would cut the backup with it.
                is_shared = tried(path, os.fstat, descriptor).st_nlink > 1
                if not is_shared:
                    os.ftruncate(descriptor, size_bytes)
                    self._tell(StepKind.TRUNCATE, path)
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise unwritable(error, path) from error
        if not is_shared:
            self._tell(StepKind.SYNC, path)
            return
        temporary = name + TEMPORARY_SUFFIX
        self.remove(temporary, missing_ok=True)
        self._copy(path, temporary, size_bytes)
        self.rename(temporary, name)

    def set_times(self, mtime_ns: int) -> None:
        """Set the directory's modification time, in nanoseconds."""
        try:
            with self._opened() as directory:
                os.utime(directory, ns=(mtime_ns, mtime_ns))
        except OSError as error:
            raise unwritable(error, self.directory) from error

    def make_directory(self, name: str, *, like: str | None = None) -> None:
        """Make an empty directory with owner, group, permissions and labels of another."""
        path = self.path(name)
        try:
            with self._opened(name) as directory:
                os.mkdir(name, dir_fd=directory)
            # Opened again without following links, for the case that it was swapped for one
            # meanwhile.
            if like is not None:
                with open_directory(os.path.join(self._real, name)) as made:
                    take_after(made, like)
        except FileExistsError as error:
            raise exists(path) from error
        except OSError as error:
            raise unwritable(error, path) from error
        self._tell(StepKind.MAKE_DIRECTORY, path)

    def remove_directory(self, name: str) -> None:
        path = self.path(name)
        try:
            with self._opened(name) as directory:
                os.rmdir(name, dir_fd=directory)
        except OSError as error:
            raise unwritable(error, path) from error
        self._tell(StepKind.REMOVE_DIRECTORY, path)

    def exchange(self, name: str, other: str) -> None:
        """Exchange the names of two files or directories atomically.

        Raises:
            UnsupportedError: the kernel or the file system cannot.
        """
        path, new_path = self.path(name), self.path(other)
        try:
            with self._opened(name, other) as directory:
                exchange(directory, name, directory, other)
        except OSError as error:
            if error.errno in CANNOT_EXCHANGE:
                raise cannot_exchange(self.directory) from error
            raise unwritable(error, path) from error
        self._tell(StepKind.EXCHANGE, path, new_path)

    def sync_directory(self) -> None:
        """Sync the directory, so that all its names are durable."""
        try:
            sync_directory(self._real)
        except OSError as error:
            raise unwritable(error, self.directory) from error
        self._tell(StepKind.SYNC_DIRECTORY, self.directory)

    def _require_plain(self, name: str) -> None:
        if not is_plain(name):
            raise RefusedError(
                "This is not the name of a file in the directory.", path=self.path(name)
            )

    @contextmanager
    def _opened(self, *names: str) -> Iterator[int]:
        for name in names:
            self._require_plain(name)
        with open_directory(self._real) as descriptor:
            yield descriptor

    def _tell(self, kind: StepKind, path: str, new_path: str | None = None) -> None:
        if self.observe is not None:
            self.observe(Step(kind, path, new_path))


def require_no_link(path: str) -> None:
    """Raise `RefusedError` if a file to be replaced is a symbolic link."""
    if os.path.islink(path):
        raise RefusedError(
            "This is a symbolic link out of the directory.",
            path=path,
            hint="Work on the directory it leads to, or on a copy.",
        )
