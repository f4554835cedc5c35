"""Buckets of object stores: what is in them, listed and read through obstore.

All requests of the process share one budget. They are made by threads of a pool, so that Ctrl-C
ends a run that waits for an answer.

An object is read only as long as it is the one that was listed: each request carries its ETag.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kafkalog.errors import (
    FileChangedError,
    TemporaryError,
    UnreadableError,
    UnsupportedError,
    UsageError,
)
from kafkalog.io.paths.bucket_options import client_of, has_container_in_path
from kafkalog.io.paths.requests import NAMES_A_REQUEST, requests
from kafkalog.io.paths.retry import temporary, tried
from kafkalog.io.paths.uris import bucket_of, words_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from obstore import GetOptions

REQUESTS_MAX: Final = 64
"""How many requests are in progress at the same time in this process."""

_STATUS: Final = re.compile(r"status code: (\d{3})[^:\n]*")
_CODE: Final = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]+)</Message>")
_TRANSPORT: Final = re.compile(r"HTTP error|response body")
_KIND: Final = re.compile(r"kind: (Timeout|Connect)\b")
_REASON: Final = re.compile(r'message: "([^"]+)"')
_URL: Final = re.compile(r"https?://\S+")
_BUSY: Final = frozenset((408, 429, 500, 502, 503, 504))
_OF_CREDENTIALS: Final = re.compile(r"credential|token", re.IGNORECASE)
_NOT_FOUND: Final = 404
_ASKS_WHO: Final = frozenset((301, 307, 400, 401, 403))  # or where

_T = TypeVar("_T")


class Listed(NamedTuple):
    """An object, as a listing shows it, or an answer about it alone; named as by `os.stat`, too.

    Attributes:
        size_bytes: its length; negative for a directory.
        modified_ns: when it was uploaded, in ns since 1970.
        etag: tells it from what is uploaded in its place; None if the store has none.
    """

    size_bytes: int
    modified_ns: int
    etag: str | None

    @property
    def st_mode(self) -> int:
        return stat.S_IFDIR if self.size_bytes < 0 else stat.S_IFREG

    @property
    def st_size(self) -> int:
        return self.size_bytes

    @property
    def st_mtime_ns(self) -> int:
        return self.modified_ns

    @property
    def st_ino(self) -> int:
        return 0

    def is_other(self, before: Listed) -> bool:
        """Return whether this is not the object that was there before."""
        if self.size_bytes != before.size_bytes:
            return True
        if self.etag is None or before.etag is None:
            return self.modified_ns // _SECOND != before.modified_ns // _SECOND
        return self.etag.removeprefix("W/") != before.etag.removeprefix("W/")


_uris: dict[str, str] = {}  # bucket to URI with options and credentials
_buckets: dict[tuple[str, str], Bucket] = {}  # by bucket and container
_answered: set[str] = set()  # buckets that something has answered for
_process: list[int] = []  # the one that has made clients
_lock = RLock()


def register(bucket: str, uri: str) -> bool:
    """Keep the URI of a bucket, with its options and credentials; return whether it is new."""
    with _lock:
        if _uris.get(bucket) == uri:
            return False
        _uris[bucket] = uri
        for one in [one for one in _buckets if one[0] == bucket]:
            del _buckets[one]
        return True


def registered_uris() -> list[str]:
    """Return the URIs with options and credentials that were registered."""
    return list(_uris.values())


def bucket_at(path: str) -> Bucket:
    """Return the bucket or container that a path without options is in.

    Raises:
        UsageError: its URI has options without a meaning, or names no container.
        UnsupportedError: what reads it is not installed, or this process was forked too late.
    """
    name = bucket_of(path)
    container = ""
    if has_container_in_path(_uris.get(name, name)):
        container = path[len(name) :].strip("/").partition("/")[0]
        if not container:
            raise UsageError("The URI names no container.", path=path)
    with _lock:
        found = _buckets.get((name, container))
        if found is None or _process != [os.getpid()]:
            found = _buckets[name, container] = _made(name, container, path)
        return found


def _made(name: str, container: str, path: str) -> Bucket:
    if not _process:
        _process.append(os.getpid())
    elif _process != [os.getpid()]:
        raise UnsupportedError(
            "This process was forked from one that had read an object store, which its reader does "
            "not survive.",
            path=path,
            hint="Start processes by `spawn`, or fork them before the first store is read.",
        )
    uri = _uris.get(name, name)
    try:
        return Bucket(client_of(uri, container), name, container)
    except UnsupportedError:
        raise
    except Exception as error:  # noqa: BLE001 # obstore's, for options of all kinds
        raise UsageError(f"This cannot be read: {_words(error, uri)}.", path=path) from None


class Bucket:
    """A bucket of S3 or Google Cloud Storage, or a container of Azure; in any thread.

    All methods take paths: URIs without options. They raise

        FileNotFoundError: there is nothing at the path.
        TemporaryError: the store stays busy.
        UnreadableError: it does not return what was asked for, or nothing answers at all.

    Args:
        client: of obstore.
        name: as `bucket_of` returns it.
        container: the part of a path after that which is no part of a key.
    """

    def __init__(self, client: Any, name: str, container: str) -> None:
        self._client = client
        self.name = name
        self._skipped = len(f"{name}/{container}" if container else name)
        self._top = f"{name}/{container}" if container else name

    def key(self, path: str) -> str:
        """Return the key of a path."""
        return path[self._skipped :].strip("/")

    def list_below(self, path: str) -> list[tuple[str, Listed]]:
        """Return path and status of all objects below a path, from one listing.

        One with the path itself marks that there is such a directory, be it empty.
        """
        import obstore

        key = self.key(path)
        last: str | None = None
        found: list[tuple[str, Listed]] = []

        def ask() -> bool:
            """Return whether that was all: after an error it goes on where it ended."""
            nonlocal last
            before = last
            try:
                for page in obstore.list(
                    self._client, key or None, offset=last, chunk_size=NAMES_A_REQUEST
                ):
                    requests().asked(0 if last is None else 1)
                    last = page[-1]["path"]
                    found.extend(map(self._object, page))
            except _failures():
                if last == before:
                    raise
                return False
            return True

        while not self._asked(path, ask):
            pass
        return found

    def list_children(self, path: str) -> tuple[list[tuple[str, Listed]], list[str]]:
        """Return path and status of the objects in a directory, and its directories' paths.

        A mark is as in `list_below`.
        """
        import obstore

        key = self.key(path) or None
        found = self._asked(path, lambda: obstore.list_with_delimiter(self._client, key))
        directories = [f"{self._top}/{one}" for one in found["common_prefixes"]]
        return [*map(self._object, found["objects"])], directories

    def _object(self, meta: Any) -> tuple[str, Listed]:
        return f"{self._top}/{meta['path']}", _listed(meta)

    def head(self, path: str) -> Listed:
        """Return what an object is."""
        import obstore

        return _listed(self._asked(path, lambda: obstore.head(self._client, self.key(path))))

    def read(self, path: str, listed: Listed, position: int, size: int) -> bytes:
        """Return bytes of an object, at most up to its end.

        Raises:
            FileChangedError: it is not the object that was listed.
        """
        return self._asked(path, lambda: self._read(path, listed, position, size), position)[1]

    def ahead(
        self, path: str, listed: Listed | None, position: int, size: int
    ) -> Future[tuple[Listed, bytes]]:
        """Do what `read` does without waiting; the error is obstore's, after its own attempts.

        An object that is not listed is read as it is, and what it is is returned, too.
        """
        return _pool(os.getpid()).submit(self._read, path, listed, position, size)

    def _read(
        self, path: str, listed: Listed | None, position: int, size: int
    ) -> tuple[Listed, bytes]:
        import obstore

        options: GetOptions = {"range": (position, position + size)}
        if listed is not None:
            end = min(position + size, listed.size_bytes)
            options["range"] = (position, end)
            if (position, end) == (0, listed.size_bytes):
                del options["range"]
            if listed.etag is not None:
                options["if_match"] = listed.etag
        answer = obstore.get(self._client, self.key(path), options=options)
        now = _listed(answer.meta)
        if listed is not None and now.is_other(listed):  # some stores pass over the condition
            raise _replaced(path)
        data = answer.bytes().to_bytes()
        requests().got(len(data))
        return now, data

    def _asked(self, path: str, question: Callable[[], _T], position: int | None = None) -> _T:
        """Ask; ask again while the store is busy, as `kafkalog.io.paths.retry` says."""

        def ask() -> _T:
            try:
                answer = _pool(os.getpid()).submit(question).result()
            except FileNotFoundError:
                _answered.add(self.name)
                raise missing(path) from None
            except _failures() as error:
                raise self._error(error, path, position) from None
            _answered.add(self.name)
            return answer

        return tried(path, ask)

    def _error(
        self, error: Exception, path: str, position: int | None
    ) -> UnreadableError | TemporaryError | FileNotFoundError:
        """Return our error for one of obstore."""
        from obstore.exceptions import InvalidPathError, PreconditionError

        if isinstance(error, PreconditionError):
            return _replaced(path)
        text = str(error)
        words = _words(error, _uris.get(self.name, path))
        if isinstance(error, InvalidPathError | ValueError):
            return UnreadableError(
                f"There is a name that cannot be read here: {words}.", path=path,
                hint="Names with an empty part, or one of dots alone, are no paths.",
            )  # fmt: skip
        if (status := _status(text)) is not None:
            _answered.add(self.name)
        if status == _NOT_FOUND:  # of a listing: there is no such bucket
            return missing(path)
        is_busy = status in _BUSY if status else _TRANSPORT.search(text) is not None
        # Where nothing has ever answered, the address is wrong rather than the store busy.
        if is_busy and (status or self.name in _answered):
            return temporary(words, path)
        asks_who = status in _ASKS_WHO or _OF_CREDENTIALS.search(text) or "region" in text
        return UnreadableError(
            f"The object cannot be read: {words}.",
            path=path,
            position=position,
            hint="Are credentials for this store set, as for its own tools, and its region?"
            if asks_who
            else None,
        )


_SECOND: Final = 1_000_000_000  # in nanoseconds: Last-Modified has whole seconds


def _status(text: str) -> int | None:
    found = _STATUS.search(text)
    return None if found is None else int(found[1])


def missing(path: str) -> FileNotFoundError:
    """Return the error for a path at which there is nothing."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _replaced(path: str) -> FileChangedError:
    return FileChangedError("The object was replaced after it was listed.", path=path)


def _listed(meta: Any) -> Listed:
    modified = meta["last_modified"]
    nanoseconds = int(modified.timestamp()) * _SECOND + modified.microsecond * 1000
    etag = meta["e_tag"]
    # In Azure's listings they have no quotes.
    if etag is not None and not etag.endswith('"'):
        etag = f'"{etag}"'
    return Listed(meta["size"], nanoseconds, etag)


@lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:
    """Return the threads of this process: a child process has none of its parent's."""
    return ThreadPoolExecutor(REQUESTS_MAX, "requests")


def _failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that obstore raises, but for what is missing."""
    from obstore.exceptions import BaseError

    return BaseError, ValueError


def _words(error: Exception, uri: str) -> str:
    """Return what an error says in a few words, without the credentials of a URI."""
    first, _, debug = str(error).partition("\n\nDebug source")
    if (status := _STATUS.search(first)) is not None:
        told = [found[1] for one in (_CODE, _MESSAGE) if (found := one.search(first))]
        words = f"{status[0]}".replace("status code:", "HTTP status").rstrip()
        return words_of(ValueError(f"{words}, {': '.join(told)}" if told else words), uri)
    reasons = [one for one in _REASON.findall(debug) if one.strip()]
    if kind := _KIND.search(debug):
        reasons.append({"Timeout": "timed out", "Connect": "no connection"}[kind[1]])
    words = _URL.sub("it", first.rpartition(" - ")[2] or first)
    return words_of(ValueError(": ".join([words, *reasons[-1:]])), uri)
