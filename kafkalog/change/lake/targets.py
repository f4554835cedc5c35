"""The destination of an export: a local directory, or a prefix in an object store."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol
from urllib.parse import quote

from kafkalog.change.lake.model import BUILDING
from kafkalog.errors import (
    DestinationExistsError,
    TemporaryError,
    UnreadableError,
    UnwritableError,
    UsageError,
)
from kafkalog.io.codecs import crc32c
from kafkalog.io.paths import file_system
from kafkalog.io.paths.object_clients import failures
from kafkalog.io.paths.retry import is_busy, temporary
from kafkalog.io.paths.uris import SCHEMES, without_credentials, words_of
from kafkalog.io.storage import FileTree, spooled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from kafkalog.tables import Split

_AT_ONCE: Final = 8 << 20


def directory_of(name: str, value: str) -> str:
    """Return Hive's name of the rows with a value: special characters are escaped as in URLs."""
    return f"{name}={quote(os.fsencode(value), safe='')}"


def file_name(
    splits: list[Split], replica: int | None, suffix: str, commit: int | None = None, *,
    names_topic: bool = True,
) -> str:  # fmt: skip
    """Return a file name that states where the rows begin and end: base offsets and positions.

    Args:
        splits: consecutive splits of one partition.
        replica: ordinal of the partition directory, if a partition has several.
        suffix: end of the name.
        commit: number of the commit that adds the file, if a table has several.
        names_topic: whether the topic is a directory of the destination, not one around it.
    """
    first, last = splits[0], splits[-1]
    if first.end:
        name = f"{first.base_offset:020d}-{first.start}"
        if last.path != first.path:
            name += f"-{last.base_offset:020d}"
        name += f"-{last.end}"
    else:
        name = str(first.table)
    if replica is not None:
        name = f"replica{replica}-{name}"
    if commit is not None:
        name = f"commit{commit:08d}-{name}"
    directory = f"partition={first.partition}"
    if names_topic:
        directory = f"{directory_of('topic', first.topic)}/{directory}"
    return f"{directory}/{name}{suffix}"


class Target(Protocol):
    """Where files are written, by relative name with slashes; each appears whole or not at all."""

    shown: str
    """Its name in messages, without credentials."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Provide a file to write, which replaces one of that name if the block succeeds."""

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None if missing."""

    def has(self, name: str) -> bool:
        """Return whether a file exists."""

    def sizes(self) -> dict[str, int]:
        """Return the sizes of all files by name."""

    def checksum(self, name: str) -> int | None:
        """Return the CRC-32C of a file; None if reading it again proves nothing."""

    def remove(self, name: str) -> None:
        """Remove a file if present."""

    def sweep(self) -> int:
        """Remove files that killed runs left half-written; return their number."""

    def locked(self) -> AbstractContextManager[None]:
        """Exclude other runs, as far as possible."""


def open_target(uri: str) -> Target:
    """Return the target that a path or a URI names.

    Raises:
        UsageError: the URI has an unsupported scheme, or is malformed.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return LocalTarget(uri)
    if scheme == "file":
        return LocalTarget(rest)
    if scheme not in SCHEMES:
        raise UsageError(
            f"An export cannot go to {scheme}://.",
            hint=f"A local directory, or {', '.join(f'{one}://' for one in SCHEMES)}.",
        )
    return ObjectTarget(uri)


class LocalTarget:
    """A local directory, or one of a file system that all workers see."""

    def __init__(self, path: str) -> None:
        if file_system.is_there(path) and not file_system.is_directory(path):
            raise DestinationExistsError(
                "It exists, and is not a directory.", path=path, hint="Choose another name."
            )
        self.shown = path
        self.tree = FileTree(path, BUILDING)
        self.create = self.tree.create
        self.read = self.tree.read
        self.sizes = self.tree.sizes
        self.remove = self.tree.remove
        self.sweep = self.tree.sweep
        self.locked = self.tree.locked

    def has(self, name: str) -> bool:
        return file_system.is_there(os.path.join(self.tree.root, name))

    def checksum(self, name: str) -> int | None:
        """Return the CRC-32C of a file; None if missing."""
        pieces = self.tree.pieces(name)
        if pieces is None:
            return None
        result = 0
        for piece in pieces:
            result = crc32c(piece, result)
        return result


class ObjectTarget:
    """A prefix in an object store.

    A file is written to the local disk, below `TMPDIR`, and uploaded in parts when it is complete:
    the object appears with the last of them. Nothing keeps two runs from writing at the same time,
    but they write the same bytes. Nobody sees the parts of an interrupted upload; some stores keep
    them until a rule of the bucket removes them.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.shown = without_credentials(uri)
        from pyarrow import fs

        try:
            self._files, self._root = fs.FileSystem.from_uri(uri)
        except OSError as error:
            raise self._unreadable(error) from None
        except failures() as error:
            raise UsageError(
                f"This cannot hold an export: {self._words(error)}.", path=self.shown
            ) from None  # the cause would show the URI
        self._root = self._root.rstrip("/")
        if not self._root:
            raise UsageError(
                "The URI names no bucket.", path=self.shown, hint="For example s3://bucket/lake."
            )

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        with spooled() as file:
            yield file
            file.seek(0)
            try:
                with self._files.open_output_stream(self._path(name)) as stream:
                    shutil.copyfileobj(file, stream, _AT_ONCE)
            except failures() as error:
                raise UnwritableError(
                    f"The file cannot be written: {self._words(error)}.",
                    path=f"{self.shown}/{name}",
                ) from None

    def read(self, name: str) -> bytes | None:
        try:
            with self._files.open_input_stream(self._path(name), compression=None) as stream:
                data: bytes = stream.read()
                return data
        except FileNotFoundError:
            return None
        except failures() as error:
            raise self._unreadable(error) from None

    def has(self, name: str) -> bool:
        from pyarrow import fs

        try:
            [found] = self._files.get_file_info([self._path(name)])
        except failures() as error:
            raise self._unreadable(error) from None
        return bool(found.type == fs.FileType.File)

    def sizes(self) -> dict[str, int]:
        from pyarrow import fs

        chosen = fs.FileSelector(self._root, recursive=True, allow_not_found=True)
        try:
            found = self._files.get_file_info(chosen)
        except failures() as error:
            raise self._unreadable(error) from None
        skipped = len(self._root) + 1
        return {one.path[skipped:]: one.size for one in found if one.type == fs.FileType.File}

    def checksum(self, name: str) -> int | None:  # noqa: ARG002 # the protocol's
        """Return None: objects are always whole, and their size identifies them."""
        return None

    def remove(self, name: str) -> None:
        try:
            self._files.delete_file(self._path(name))
        except FileNotFoundError:
            return
        except failures() as error:
            raise UnwritableError(
                f"The file cannot be removed: {self._words(error)}.", path=f"{self.shown}/{name}"
            ) from None

    def sweep(self) -> int:
        """Return 0: objects are never half-written."""
        return 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do nothing: object stores have no locks."""
        yield

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _words(self, error: Exception) -> str:
        return words_of(error, self._uri)

    def _unreadable(self, error: Exception) -> UnreadableError | TemporaryError:
        words = self._words(error)
        if is_busy(words):
            return temporary(words, self.shown)
        return UnreadableError(f"The directory cannot be read: {words}.", path=self.shown)
