"""Directories that appear whole or not at all, and directories that fill file by file."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Final, Self

from kafkalog.errors import (
    DestinationExistsError,
    RefusedError,
    UnreadableError,
    UnwritableError,
    UsageError,
)
from kafkalog.names import is_plain
from kafkalog.storage.files import (
    open_directory,
    sync_directory,
    take_after,
    take_after_directory,
    unwritable,
)
from kafkalog.storage.locks import lock_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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

    Attributes:
        given: the path as given, for what people read.
        building: where its files are until the block ends.
        left_over_removed: whether a leftover of a killed run was removed first.

    Raises:
        DestinationExistsError: the path exists, or another run is writing it now.
        UnwritableError: it cannot be created there, or written.
    """

    def __init__(self, path: str, like: str | None = None) -> None:
        self.given = path
        self.path = os.path.realpath(path)
        self.building = self.path + BUILDING_SUFFIX
        require_vacant(self.path)
        try:
            self.left_over_removed = _remove_left_over(self.building)
            os.mkdir(self.building)
            self._lock = lock_directory(self.building)
            try:
                self._around = os.stat(like) if like is not None else os.fstat(self._lock)
                take_after_directory(self._lock, self._around)
            except OSError:
                self._discard()
                raise
        except (OSError, ValueError) as error:
            raise unwritable(error, path) from error

    def __enter__(self) -> Self:
        return self

    def place(self, name: str) -> str:
        """Return the path of a file until the directory gets its name; `name` has slashes."""
        return os.path.join(self.building, name)

    @contextmanager
    def create(
        self, name: str, mtime_ms: int | None = None, *, like: str | None = None
    ) -> Iterator[BinaryIO]:
        """Create a file, synced when the block ends, and the directories on the way to it.

        `mtime_ms` sets its modification time, by which a broker judges a log without timestamps.
        With `like` it gets the owner, group, permissions and labels of that file.
        """
        path = self.place(name)
        try:
            self._make(os.path.dirname(path))
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
                yield file
                file.flush()
                if like is not None:
                    take_after(file.fileno(), os.path.realpath(like))
                else:
                    take_after_directory(file.fileno(), self._around)
                if mtime_ms is not None:
                    os.utime(file.fileno(), ns=(mtime_ms * 1_000_000,) * 2)
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(error, self._final(name)) from error

    def write(self, name: str, data: bytes) -> None:
        """Write a file, replacing any file of that name."""
        self.remove(name)
        with self.create(name) as file:
            file.write(data)

    def make(self, name: str) -> None:
        """Make a directory and its parents."""
        try:
            self._make(self.place(name))
        except OSError as error:
            raise unwritable(error, self._final(name)) from error

    def remove(self, name: str) -> None:
        """Remove a file if present."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.place(name))
        except OSError as error:
            raise unwritable(error, self._final(name)) from error

    def remove_tree(self, name: str) -> None:
        """Remove a directory tree if present."""
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(self.place(name))
        except OSError as error:
            raise unwritable(error, self._final(name)) from error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._publish()
        except OSError as failure:
            raise unwritable(failure, self.path) from failure
        finally:
            self._discard()

    def _discard(self) -> None:
        """Remove a directory that did not get its name, and unlock it."""
        shutil.rmtree(self.building, ignore_errors=True)
        os.close(self._lock)

    def _publish(self) -> None:
        require_vacant(self.path)
        for directory, _, _ in os.walk(self.building, topdown=False):
            sync_directory(directory)
        os.rename(self.building, self.path)
        sync_directory(os.path.dirname(self.path))

    def _make(self, path: str) -> None:
        """Make a directory below the new one, with those on the way to it."""
        if os.path.isdir(path):
            return
        self._make(os.path.dirname(path))
        os.mkdir(path)
        with open_directory(path) as made:
            take_after_directory(made, self._around)

    def _final(self, name: str) -> str:
        return os.path.join(self.path, name)


def require_space(path: str, size_bytes: int) -> None:
    """Raise `UnwritableError` unless there is room for `size_bytes` where `path` will be."""
    free = free_space(path)
    if free < size_bytes:
        raise UnwritableError(
            f"It needs up to {size_bytes} bytes; the file system has {free} left.",
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
            "It cannot be written: it is read-only, or belongs to another user.",
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
    if not os.path.lexists(path):
        return
    try:
        is_empty = stat.S_ISDIR(os.lstat(path).st_mode) and not os.listdir(path)
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


def _remove_left_over(path: str) -> bool:
    """Remove the leftover of a killed run; return whether there was one."""
    if not os.path.lexists(path):
        return False
    lock = lock_directory(path)
    try:
        shutil.rmtree(path)
    finally:
        os.close(lock)
    return True


_AT_ONCE: Final = 1 << 20


class FileTree:
    """A directory with files below it, each of which is whole or does not exist.

    A file's bytes go to `<root>/<building>/<random>` and are synced, then the file gets its name,
    then the directory around it is synced. A crash may leave files in `building`, and nowhere else;
    `sweep` removes them. Several processes may write, even the same file: the last one wins.

    Not guaranteed: anything on a file system that ignores syncs.

    Args:
        root: created with the first file, if missing.
        building: where files are until they are complete, relative to it.
    """

    def __init__(self, root: str, building: str) -> None:
        self.root = os.path.abspath(root)
        self._building = building

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Provide a file to write, which replaces one of that name if the block succeeds.

        Raises:
            UnwritableError: it cannot be written.
        """
        path = self._path(name)
        place, last = os.path.split(path)
        building, temporary = self._path(self._building), secrets.token_hex(8)
        try:
            self._make(building)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with self._opened(building) as around:
                try:
                    with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=around), "wb") as file:
                        yield file
                        file.flush()
                        os.fsync(file.fileno())
                    self._make(place)
                    with self._opened(place) as target:
                        os.replace(temporary, last, src_dir_fd=around, dst_dir_fd=target)
                        os.fsync(target)
                except BaseException:  # raised again: Ctrl-C leaves no half-written file
                    with suppress(OSError):
                        os.unlink(temporary, dir_fd=around)
                    raise
        except OSError as error:
            raise unwritable(error, path) from error

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None if missing."""
        return b"".join(pieces) if (pieces := self.pieces(name)) is not None else None

    def pieces(self, name: str) -> Iterator[bytes] | None:
        """Yield the bytes of a file in pieces; None if missing."""
        path = self._path(name)
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            with self._opened(os.path.dirname(path)) as around:
                descriptor = os.open(os.path.basename(path), flags, dir_fd=around)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UnreadableError(f"{error.strerror}.", path=path) from error
        file = open(descriptor, "rb")  # noqa: SIM115 # closed when it was read
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise UnreadableError("This is not a regular file.", path=path)
        return _pieces(file)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files by name, relative to the root, with slashes."""
        found = {}
        for place, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(place, name)
                found[os.path.relpath(path, self.root)] = os.lstat(path).st_size
        return found

    def remove(self, name: str) -> None:
        """Remove a file if present, and its directory if that becomes empty."""
        path = self._path(name)
        try:
            with suppress(FileNotFoundError), self._opened(os.path.dirname(path)) as around:
                os.unlink(os.path.basename(path), dir_fd=around)
        except OSError as error:
            raise unwritable(error, path) from error
        with suppress(OSError):
            os.rmdir(os.path.dirname(path))

    def sweep(self) -> int:
        """Remove the leftovers of killed runs; return the number of files."""
        place = self._path(self._building)
        with suppress(FileNotFoundError, NotADirectoryError):
            names = os.listdir(place)
            for name in names:
                self.remove(f"{self._building}/{name}")
            with suppress(OSError):
                os.rmdir(place)
            return len(names)
        return 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other runs while the block runs; create the root.

        Raises:
            DestinationExistsError: another run is using it.
            UnwritableError: the root cannot be made.
        """
        try:
            self._make(self.root)
            lock = lock_directory(self.root)
        except OSError as error:
            raise unwritable(error, self.root) from error
        try:
            yield
        finally:
            os.close(lock)

    def _path(self, name: str) -> str:
        """Return the path of a file; raise `RefusedError` for a name that leads out of the tree."""
        if not all(map(is_plain, name.split("/"))):
            raise RefusedError("This is not the name of a file in the directory.", path=self.root,
                               note=f"The name is {name[:200]!a}.")  # fmt: skip
        return os.path.join(self.root, name)

    @contextmanager
    def _opened(self, place: str) -> Iterator[int]:
        """Open the root or a directory below it, without following symbolic links."""
        below = os.path.relpath(place, self.root)
        with open_directory(os.path.join(os.path.realpath(self.root), below)) as opened:
            yield opened

    def _make(self, path: str) -> None:
        """Make a directory and those on the way to it, all of them durable."""
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for one in reversed(missing):
            around, name = os.path.split(one)
            if not f"{one}/".startswith(f"{self.root}/") or one == self.root:
                with suppress(FileExistsError):
                    os.mkdir(one)
                sync_directory(around)
                continue
            with self._opened(around) as opened:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=opened)
                os.fsync(opened)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_AT_ONCE):
            yield piece
