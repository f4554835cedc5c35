"""Directories that fill file by file, each of which is whole or does not exist."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from formats.file_names import is_plain
from kafkalog.errors import RefusedError
from kafkalog.io.paths import file_system
from kafkalog.io.paths.reading_errors import reading_error, require_regular
from kafkalog.io.paths.retry import tried
from kafkalog.io.storage.files import make_directories, open_directory, unwritable, walked
from kafkalog.io.storage.locks import lock_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


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
            # A random name: two processes that write the same file do not share its temporary one.
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with self._opened(building) as around:
                try:
                    with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=around), "wb") as file:
                        yield file
                        file.flush()
                        # Before the rename, else a crash may show the name with none of the bytes.
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
        # O_NONBLOCK: a FIFO of that name is refused below instead of waited for.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            with self._opened(os.path.dirname(path)) as around:
                name = os.path.basename(path)
                descriptor = tried(path, os.open, name, flags, dir_fd=around)
            file = open(descriptor, "rb")  # noqa: SIM115 # closed when it was read
            try:
                require_regular(path, tried(path, os.fstat, file.fileno()).st_mode)
            except BaseException:  # raised again
                file.close()
                raise
        except FileNotFoundError:
            return None
        except OSError as error:
            raise reading_error(error, path) from error
        return _pieces(file, path)

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files by name, relative to the root, with slashes."""
        try:
            return tried(self.root, self._sizes) if file_system.is_there(self.root) else {}
        except OSError as error:
            raise reading_error(error, self.root) from error

    def _sizes(self) -> dict[str, int]:
        found = {}
        for place, _, names in walked(self.root):
            for name in names:
                path = os.path.join(place, name)
                found[os.path.relpath(path, self.root)] = os.lstat(path).st_size
        return found

    def remove(self, name: str) -> None:
        """Remove a file if present, and the directories below the root that become empty."""
        path = self._path(name)
        try:
            with suppress(FileNotFoundError), self._opened(os.path.dirname(path)) as around:
                os.unlink(os.path.basename(path), dir_fd=around)
        except OSError as error:
            raise unwritable(error, path) from error
        self._prune(os.path.dirname(path))

    def sweep(self) -> int:
        """Remove the leftovers of killed runs; return the number of files."""
        place = self._path(self._building)
        if not file_system.is_there(place):
            return 0
        names = file_system.names_in(place)
        for name in names:
            self.remove(f"{self._building}/{name}")
        self._prune(place)
        return len(names)

    def _prune(self, place: str) -> None:
        """Remove a directory, and those around it below the root, as far as they are empty."""
        with suppress(OSError):  # one is not empty, or somebody else has just removed it
            while place != self.root:
                os.rmdir(place)
                place = os.path.dirname(place)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other runs while the block runs; create the root, unless it stays empty.

        Raises:
            DestinationExistsError: another run is using it.
            UnwritableError: the root cannot be made.
        """
        new = list(self._not_there(self.root))
        try:
            self._make(self.root)
            lock = lock_directory(self.root)
        except OSError as error:
            raise unwritable(error, self.root) from error
        try:
            yield
        finally:
            os.close(lock)
            with suppress(OSError):  # something was written
                for path in new:
                    os.rmdir(path)

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
        # `_opened` needs the root; below it, directories are made relative to open descriptors.
        make_directories(self.root)
        for one in reversed([*self._not_there(path)]):
            around, name = os.path.split(one)
            with self._opened(around) as opened:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=opened)
                os.fsync(opened)

    @staticmethod
    def _not_there(path: str) -> Iterator[str]:
        """Yield a directory and those around it, up to the first that is there."""
        while not file_system.is_there(path):
            yield path
            path = os.path.dirname(path)


def _pieces(file: BinaryIO, path: str) -> Iterator[bytes]:
    with file:
        while piece := tried(path, _read, file, path):
            yield piece


def _read(file: BinaryIO, path: str) -> bytes:
    try:
        return file.read(_AT_ONCE)
    except OSError as error:
        raise reading_error(error, path) from error
