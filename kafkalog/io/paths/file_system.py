"""Paths: those of this machine, or URIs of objects in a store.

Local paths go straight to `os`. URIs (`s3://…`, `gs://…`, `abfs://…`) go to
`kafkalog.io.paths.object_store`, which is loaded on first use.
"""

from __future__ import annotations

import os
import stat as modes
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from formats.file_names import is_in_remote_storage, parse_file_name, plugin_directory
from kafkalog.errors import UnreadableError
from kafkalog.io.paths.reading_errors import reading_error
from kafkalog.io.paths.retry import tried
from kafkalog.io.paths.uris import LOCAL, SEPARATOR, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def normalize(path: str) -> str:
    """Return the path as all readers use it: without options, credentials or a trailing slash.

    The options and credentials of a URI are kept in this process for its bucket; the last ones
    count. `file://` URIs become local paths, and local paths stay as they are.

    Raises:
        UsageError: the URI has an unsupported scheme, or names no bucket.
    """
    if SEPARATOR not in path:
        return path
    if path.startswith(LOCAL):
        return path.removeprefix(LOCAL)
    from kafkalog.io.paths import object_store

    return object_store.normalize(path)


def absolute(path: str) -> str:
    """Return the path in a form that does not depend on the working directory."""
    return normalize(path) if is_object(path) else os.path.abspath(normalize(path))


def is_part(path: str) -> bool:
    """Return whether a path is that of a file of a segment as Aiven's plugin packs it."""
    if not is_in_remote_storage(parse_file_name(os.path.basename(path))):
        return False
    return plugin_directory(os.path.dirname(absolute(path))) is not None


def portable(path: str) -> str:
    """Make a path absolute, so that it is valid in other processes; leave a URI unchanged."""
    return path if is_object(path) else absolute(path)


def stat(path: str) -> os.stat_result:
    """Return the status of a file or directory; follow symbolic links.

    Objects have a type, a size and a time of modification.

    Raises:
        OSError: as `os.stat`; for an object, if it is missing.
        UnreadableError: the store does not answer.
        TemporaryError, OutOfMemoryError: see `kafkalog.io.paths.retry`.
    """
    if is_object(path):
        from kafkalog.io.paths import object_store

        return object_store.stat(path)
    return tried(path, os.stat, path)


def status(path: str) -> os.stat_result:
    """Return the status of what must be there, as `stat` does.

    Raises:
        NotFoundError, UnreadableError: it is missing, or its disk fails.
    """
    try:
        return stat(path)
    except OSError as error:
        raise reading_error(error, path) from error


def exists(path: str) -> bool:
    """Return whether a name exists, even as a broken symbolic link.

    A disk error counts as missing, and is reported to `reading_errors.on_unreadable`: for those who
    only read. Others ask `is_there`.

    Raises:
        UnreadableError: the store does not answer.
        TemporaryError, OutOfMemoryError: as `stat`.
    """
    try:
        return is_there(path)
    except UnreadableError:
        if is_object(path):
            raise
        return False


def is_there(path: str) -> bool:
    """Return whether a name exists, as `exists`; raise `UnreadableError` if its disk fails."""
    try:
        if is_object(path):
            stat(path)
        else:
            tried(path, os.lstat, path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # or a null byte in the name
        return False
    except OSError as error:
        raise reading_error(error, path) from error
    return True


def names(path: str) -> list[str]:
    """Return the names in a directory, sorted. Raises as `stat`."""
    listed = contents(path)
    return sorted(tried(path, os.listdir, path) if listed is None else listed)


def names_in(path: str) -> list[str]:
    """Return the names in what must be a directory, as `names` does. Raises as `status`."""
    try:
        return names(path)
    except OSError as error:
        raise reading_error(error, path) from error


def is_directory(path: str) -> bool:
    """Return whether there is a directory; no if its disk fails. Raises as `exists`."""
    try:
        return modes.S_ISDIR(stat(path).st_mode)
    except (OSError, ValueError):
        return False


class Status(Protocol):
    """What a disk and a listing of a store both say of a file, by the names of `os.stat_result`."""

    @property
    def st_mode(self) -> int: ...
    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime_ns(self) -> int: ...
    @property
    def st_ino(self) -> int: ...


def contents(path: str) -> Mapping[str, Status] | None:
    """Return what a store says at once of all in a directory; None on a disk. Raises as `stat`."""
    if not is_object(path):
        return None
    from kafkalog.io.paths import object_store

    return object_store.contents(path)


def prefetch_listing(path: str) -> None:
    """Announce that all directories below will be listed: a store can list them together."""
    if is_object(path):
        from kafkalog.io.paths import object_store

        object_store.prefetch_listing(path)


@contextmanager
def listings_held(paths: Iterable[str]) -> Iterator[None]:
    """List no directory of a store twice in the block, if paths of objects are among these."""
    if not any(map(is_object, paths)):
        yield
        return
    from kafkalog.io.paths import object_cache

    with object_cache.listings_held():
        yield


@contextmanager
def announced(places: Iterable[tuple[str, int]]) -> Iterator[None]:
    """Say what will be read in the block: a store fetches it ahead, as it was listed.

    Args:
        places: paths and positions, in order; one on a disk has no effect, nor have those after it.
    """
    left = iter(places)
    first = next(left, None)
    if first is None or requests_at_once(first[0]) == 1:
        yield
        return
    from kafkalog.io.paths import object_store

    with listings_held([first[0]]), object_store.announce(chain([first], left)):
        yield


def requests_at_once(path: str) -> int:
    """Return how many questions about files are best asked at the same time: 1 on a local disk."""
    from kafkalog.io.paths import reading

    # `RateLimiter` is not thread-safe.
    if not is_object(path) or reading.read_options().limiter is not None:
        return 1
    from kafkalog.io.paths.buckets import REQUESTS_MAX

    return REQUESTS_MAX


def registered_uris() -> list[str]:
    """Return URIs with credentials, for `normalize` in another process. Never show them."""
    from sys import modules

    # Not imported: who has not loaded it has registered nothing.
    buckets = modules.get("kafkalog.io.paths.buckets")
    return [] if buckets is None else buckets.registered_uris()
