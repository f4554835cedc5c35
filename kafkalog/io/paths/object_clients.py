"""Clients of object stores: one for each bucket or account, made by pyarrow on first use."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from kafkalog.errors import TemporaryError, UnreadableError, UnsupportedError, UsageError
from kafkalog.io.paths.retry import is_busy, is_unreachable, temporary, tried
from kafkalog.io.paths.uris import bucket_of, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REQUESTS_MAX: Final = 64
"""How many requests are in progress at the same time."""
_CONNECT_TIMEOUT_S: Final = 5.0
_RETRIED_FOR_S: Final = 5
_S3_OPTIONS: Final = ("region", "scheme", "endpoint_override")
_S3_WRITING: Final = ("allow_bucket_creation", "allow_bucket_deletion")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Store:
    """A bucket or an account; `prefix` plus the path in a URI is a path in `files`."""

    files: Any
    prefix: str

    def key(self, path: str) -> str:
        """Return the path in `files` of a URI without options."""
        return (self.prefix + path[len(bucket_of(path)) :]).strip("/")


_uris: dict[str, str] = {}  # bucket to URI with options and credentials
_stores: dict[str, Store] = {}  # bucket to its reader
_answered: set[str] = set()  # buckets that something has answered for
_lock = RLock()


def register(bucket: str, uri: str) -> bool:
    """Keep the URI of a bucket, with its options and credentials; return whether it is new."""
    with _lock:
        if _uris.get(bucket) == uri:
            return False
        _uris[bucket] = uri
        _stores.pop(bucket, None)
        return True


def registered_uris() -> list[str]:
    """Return the URIs with options and credentials that were registered."""
    return list(_uris.values())


def store_of(path: str) -> Store:
    """Return the client for a path. Raises `UsageError` or `UnreadableError` if there is none."""
    bucket = bucket_of(path)
    with _lock:
        store = _stores.get(bucket)
        if store is None:
            try:
                store = _stores[bucket] = _made(_uris.get(bucket, bucket))
            except OSError as error:
                raise unreadable(error, path) from None
            except failures() as error:
                words = words_of(error, _uris.get(bucket, bucket))
                raise UsageError(f"This cannot be read: {words}.", path=path) from None
        return store


def asked(path: str, question: Callable[[], _T], position: int | None = None) -> _T:
    """Ask a store; ask again while it is busy, as `kafkalog.io.paths.retry` says.

    Raises:
        FileNotFoundError: there is no such object.
        TemporaryError: the store stays busy.
        UnreadableError: it does not return what was asked for, or nothing answers at all.
    """

    def ask() -> _T:
        try:
            answer = question()
        except (FileNotFoundError, MemoryError):
            raise
        except failures() as error:
            raise unreadable(error, path, position) from None
        _answered.add(bucket_of(path))
        return answer

    return tried(path, ask)


def _made(uri: str) -> Store:
    """Return the reader for a URI's bucket; it times out after half a minute if possible."""
    fs = _file_systems()
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query))
    host = parts.netloc.rpartition("@")[2]
    if parts.scheme == "s3":
        for name in options:
            if name not in (*_S3_OPTIONS, *_S3_WRITING):
                raise ValueError(f"unexpected option {name} of an s3:// URI")
        region = options.get("region")
        # Buckets of other endpoints have no region that AWS could tell.
        if region is None and "endpoint_override" not in options:
            region = fs.resolve_s3_region(host)
        files = _with_connections(
            fs.S3FileSystem,
            access_key=None if parts.username is None else unquote(parts.username),
            secret_key=None if parts.password is None else unquote(parts.password),
            region=region,
            scheme=options.get("scheme"),
            endpoint_override=options.get("endpoint_override"),
            connect_timeout=_CONNECT_TIMEOUT_S,
        )
        return Store(files, host)
    mark = "&" if parts.query else "?"
    if parts.scheme in ("gs", "gcs") and "retry_limit_seconds" not in options:
        uri = f"{uri}{mark}retry_limit_seconds={_RETRIED_FOR_S}"
    bare, mark, query = uri.partition("?")
    files, root = fs.FileSystem.from_uri(f"{bare}/_{mark}{query}")
    return Store(files, root.removesuffix("_").rstrip("/"))


def _with_connections(made: Callable[..., Any], **options: Any) -> Any:
    """Return a client with a connection per request in progress: it has one per thread for I/O."""
    with io_threads():
        return made(**options)


@contextmanager
def io_threads() -> Iterator[None]:
    """Give pyarrow a thread for each request in progress: its listings wait in threads for I/O."""
    import pyarrow as pa

    usual = pa.io_thread_count()
    pa.set_io_thread_count(max(usual, REQUESTS_MAX))
    try:
        yield
    finally:
        pa.set_io_thread_count(usual)


def _file_systems() -> Any:
    try:
        from pyarrow import fs
    except ImportError as error:
        raise UnsupportedError(
            "Reading objects needs pyarrow, which is not installed.",
            hint="pip install 'kafkalog[data]'",
        ) from error
    return fs


def failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that pyarrow's file systems raise."""
    try:
        from pyarrow import ArrowException
    except ImportError:
        return ()
    # ValueError for malformed names, NotImplementedError if a store was not built into pyarrow.
    return (OSError, ValueError, NotImplementedError, ArrowException)


def unreadable(
    error: Exception, path: str, position: int | None = None
) -> UnreadableError | TemporaryError:
    """Return the error for a store that does not return something."""
    words = words_of(error, _uris.get(bucket_of(path), path))
    # Where nothing has ever answered, the address is wrong rather than the store busy.
    if is_busy(words) and (bucket_of(path) in _answered or not is_unreachable(words)):
        return temporary(words, path)
    denied = any(word in words for word in ("ACCESS_DENIED", "access token", "CredentialEx"))
    return UnreadableError(
        f"The object cannot be read: {words}.",
        path=path,
        position=position,
        hint="Are credentials for this store set, as for its own tools?" if denied else None,
    )
