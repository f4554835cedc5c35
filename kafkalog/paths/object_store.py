"""Objects of S3, Google Cloud Storage and Azure, read through pyarrow as if they were files.

Directories are prefixes. Objects have no permissions, no holes and no links, and their modification
time is that of their upload. A prefix without objects does not exist: an empty partition directory
does not survive its upload.

The path of an object is taken literally: nothing in it is percent-encoded. Options and credentials
of a URI are kept per bucket, for the whole process.
"""

from __future__ import annotations

import errno
import os
import stat as modes
import time
from dataclasses import dataclass
from datetime import datetime
from threading import RLock
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from kafkalog.errors import FileChangedError, UnreadableError, UnsupportedError, UsageError
from kafkalog.paths.object_cache import CONTENT_SIZE_MAX, Contents, Files, held_since, is_fresh
from kafkalog.paths.reading_errors import reading_error, require_regular
from kafkalog.paths.uris import SCHEMES, without_credentials, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.paths.object_cache import Version

REQUESTS_MAX: Final = 64
"""How many requests are in progress at the same time."""
_CONNECT_TIMEOUT_S: Final = 5.0
_RETRIED_FOR_S: Final = 15
_S3_OPTIONS: Final = ("region", "scheme", "endpoint_override")
_MARKS: Final = frozenset("?@:")  # of options and owners
_S3_WRITING: Final = ("allow_bucket_creation", "allow_bucket_deletion")


@dataclass(frozen=True, slots=True)
class _Store:
    """A bucket or an account; `prefix` plus the path in a URI is a path in `files`."""

    files: Any
    prefix: str


_uris: dict[str, str] = {}  # bucket to URI with options and credentials
_stores: dict[str, _Store] = {}  # bucket to its reader
_listings: dict[str, tuple[float, dict[str, os.stat_result]]] = {}  # directory to its contents
_prefetched: dict[str, float] = {}  # directories that were listed with all below, and when
_contents = Contents()
_files = Files()
_lock = RLock()


def normalize(uri: str) -> str:
    """Return the URI without options and credentials, which are kept for its bucket.

    Raises:
        UsageError: its scheme is unknown, or it names no bucket.
    """
    scheme, _, rest = uri.partition("://")
    if scheme in SCHEMES and _MARKS.isdisjoint(rest) and rest.strip("/") == rest != "":
        return uri  # as all paths are but the first
    if scheme not in SCHEMES:
        raise UsageError(
            f"{scheme}:// is not supported.",
            hint=f"A path, or {', '.join(f'{one}://' for one in SCHEMES)}.",
        )
    path = without_credentials(uri)
    bucket = _bucket(path)
    if bucket.endswith(("://", ":/", ":")):
        raise UsageError(
            "The URI names no bucket.", path=path, hint="For example s3://bucket/kafka-logs."
        )
    bare, mark, options = uri.partition("?")
    owner = "@".join(bare.partition("://")[2].split("@")[:-1])
    if mark or (owner and without_credentials(bare) != bare.rstrip("/")):
        host = bucket.partition("://")[2].rpartition("@")[2]
        full = f"{scheme}://{owner}{'@' if owner else ''}{host}{mark}{options}"
        with _lock:
            if _uris.get(bucket) != full:
                _uris[bucket] = full
                _stores.pop(bucket, None)
                forget()
    return path


def forget() -> None:
    """Forget what is known of all objects, and ask again."""
    with _lock:
        _listings.clear()
        _prefetched.clear()
        _contents.clear()
        _files.clear()


def registered_uris() -> list[str]:
    """Return the URIs with options and credentials that were registered."""
    return list(_uris.values())


def stat(path: str) -> os.stat_result:
    """Return the status of an object or of a directory of objects.

    Raises:
        FileNotFoundError: it is missing.
        UnreadableError: the store does not answer.
    """
    path = normalize(path)
    listed = _listed(path)
    if listed is not None:
        return listed
    store = _store_of(path)
    try:
        [found] = store.files.get_file_info([_key(store, path)])
    except failures() as error:
        raise _unreadable(error, path) from None
    if found.type.name == "NotFound":
        raise _missing(path)
    return _status(found)


def _listed(path: str) -> os.stat_result | None:
    """Return the status of an object by the listing of its directory; None if it is not listed.

    Raises:
        FileNotFoundError: the directory is listed without it.
    """
    directory, _, name = path.rpartition("/")
    with _lock:
        since, listed = _listings.get(directory, (0.0, {}))
        listed_itself, _ = _listings.get(path, (0.0, {}))
    if not is_fresh(since):
        return _DIRECTORY if is_fresh(listed_itself) else None
    if name not in listed:
        raise _missing(path)
    return listed[name]


def names(path: str) -> list[str]:
    """Return the names in a directory, sorted. Raises as `stat`."""
    path = normalize(path)
    with _lock:
        since, listed = _listings.get(path, (0.0, {}))
    if not is_fresh(since):
        listed = {}
        for entry in _selected(path, recursive=False):
            listed[entry.base_name] = _status(entry)
        _keep({path: listed})
    return sorted(listed)


def prefetch_listing(path: str) -> None:
    """List everything below a directory with as few requests as possible. Raises as `stat`.

    While listings are held, nothing is listed twice.

    Cost:
        A request per thousand objects; about 400 bytes of memory per object, for half a minute.
    """
    path = normalize(path)
    held = held_since()
    if held is not None and _prefetched.get(path, 0.0) >= held:
        return
    store = _store_of(path)
    skipped = len(_key(store, path)) + 1
    found: dict[str, dict[str, os.stat_result]] = {path: {}}
    for entry in _selected(path, recursive=True):
        if entry.type.name != "File":
            continue
        *directories, name = entry.path[skipped:].split("/")
        place = path
        for directory in directories:
            found[place].setdefault(directory, _DIRECTORY)
            place = f"{place}/{directory}"
            found.setdefault(place, {})
        found[place][name] = _status(entry)
    _keep(found)
    _prefetched[path] = time.monotonic()


@dataclass(frozen=True, slots=True)
class OpenObject:
    """An object, open for reading.

    Its content is assumed not to change: stores replace objects whole. A replacement of the same
    length is noticed when the object is opened, not between that and the last read.

    Attributes:
        path: its URI, normalized.
        size_bytes: its size.
        mtime_ms: when it was uploaded.
        read_at: reads at a position up to a number of bytes, fewer if the object is shorter now.
    """

    path: str
    size_bytes: int
    mtime_ms: int
    read_at: Callable[[int, int], bytes]


def open_object(uri: str) -> OpenObject:
    """Open an object. What a listing says of it needs no request.

    Raises:
        NotFoundError: it is missing.
        NotAKafkaFileError: it is a prefix.
        UnreadableError: the store does not return it.
    """
    path = normalize(uri)
    try:
        status = _listed(path) or _opened(path)
        require_regular(path, status.st_mode)
    except FileNotFoundError as error:
        raise reading_error(_missing(path), path) from error
    size_bytes = status.st_size
    version = (path, status.st_mtime_ns, size_bytes)

    def read_at(position: int, size: int) -> bytes:
        kept = _contents.get(version)
        if kept is not None and position >= size_bytes - len(kept):
            position -= size_bytes - len(kept)
            return kept[position : position + size]
        is_small = size_bytes <= CONTENT_SIZE_MAX
        try:
            file = _file(version)
            data: bytes = file.read_at(*((size_bytes, 0) if is_small else (size, position)))
        except FileNotFoundError as error:
            raise reading_error(_missing(path), path) from error
        except failures() as error:
            raise _unreadable(error, path, position) from None
        start = 0 if is_small else position
        if data and start + len(data) == size_bytes:
            _contents.keep(version, data[-CONTENT_SIZE_MAX:])
        return data[position - start : position - start + size]

    return OpenObject(path, size_bytes, status.st_mtime_ns // 1_000_000, read_at)


def _opened(path: str) -> os.stat_result:
    """Open an object that is not listed, and return its status; of a directory its status only.

    Raises: as `stat`.
    """
    known = _files.version_of(path)
    if known is not None:
        return _status_with(known[2], known[1])
    store = _store_of(path)
    try:
        file = store.files.open_input_file(_key(store, path))
        status = _status_of(file)
    except FileNotFoundError:
        return stat(path)  # a directory, perhaps
    except failures() as error:
        raise _unreadable(error, path) from None
    if status is None:
        return stat(path)
    _files.keep((path, status.st_mtime_ns, status.st_size), file)
    return status


def _file(version: Version) -> Any:
    """Return an object, open; one request unless it was opened lately.

    Raises:
        FileChangedError: it has another size than it was listed with, or another time.
    """
    file = _files.get(version)
    path, modified_ns, size_bytes = version
    if file is None:
        store = _store_of(path)
        file = store.files.open_input_file(_key(store, path))
        if file.size() != size_bytes or _is_of_another_time(file, modified_ns):
            with _lock:
                _listings.pop(path.rpartition("/")[0], None)
            raise FileChangedError("The object was replaced after it was listed.", path=path)
        _files.keep(version, file)
    return file


def _is_of_another_time(file: Any, modified_ns: int) -> bool:
    """Return whether the store says of an open object that it was uploaded in another second."""
    told = _status_of(file)
    second = 1_000_000_000  # in nanoseconds: Last-Modified has whole seconds
    return told is not None and told.st_mtime_ns // second != modified_ns // second


def _status_of(file: Any) -> os.stat_result | None:
    """Return the status of an open object by what the store said of it; None if that is unknown."""
    told = {name.lower(): value for name, value in (file.metadata() or {}).items()}
    if b"directory" in told.get("content-type", b""):
        return None
    try:
        modified = datetime.fromisoformat(told["last-modified"].decode())
    except (KeyError, ValueError):
        return None
    seconds = int(modified.timestamp())
    return _status_with(file.size(), seconds * 1_000_000_000)


_DIRECTORY: Final = os.stat_result((modes.S_IFDIR, 0, 0, 1, 0, 0, 0, 0, 0, 0), {"st_mtime_ns": 0})


def _status(info: Any) -> os.stat_result:
    """Return type, size and modification time as `os.stat` does."""
    if info.type.name == "Directory":
        return _DIRECTORY
    return _status_with(info.size, info.mtime_ns or 0)


def _status_with(size_bytes: int, modified_ns: int) -> os.stat_result:
    seconds = modified_ns // 1_000_000_000
    return os.stat_result(
        (modes.S_IFREG, 0, 0, 1, 0, 0, size_bytes, seconds, seconds, seconds),
        {"st_mtime_ns": modified_ns},
    )


def _selected(path: str, *, recursive: bool) -> Iterator[Any]:
    from pyarrow import fs

    store = _store_of(path)
    try:
        yield from store.files.get_file_info(
            fs.FileSelector(_key(store, path), recursive=recursive)
        )
    except FileNotFoundError:
        raise _missing(path) from None
    except failures() as error:
        raise _unreadable(error, path) from None


def _keep(found: dict[str, dict[str, os.stat_result]]) -> None:
    now = time.monotonic()
    with _lock:
        for path in [one for one, (since, _) in _listings.items() if not is_fresh(since)]:
            del _listings[path]
        _listings.update({path: (now, listed) for path, listed in found.items()})


def _bucket(path: str) -> str:
    """Return the part of a path to which options belong: `s3://bucket`."""
    scheme, _, rest = path.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _key(store: _Store, path: str) -> str:
    inner = path[len(_bucket(path)) :]
    return (store.prefix + inner).strip("/")


def _store_of(path: str) -> _Store:
    bucket = _bucket(path)
    with _lock:
        store = _stores.get(bucket)
        if store is None:
            try:
                store = _stores[bucket] = _made(_uris.get(bucket, bucket))
            except OSError as error:
                raise _unreadable(error, path) from None
            except failures() as error:
                words = words_of(error, _uris.get(bucket, bucket))
                raise UsageError(f"This cannot be read: {words}.", path=path) from None
        return store


def _made(uri: str) -> _Store:
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
        return _Store(files, host)
    mark = "&" if parts.query else "?"
    if parts.scheme in ("gs", "gcs") and "retry_limit_seconds" not in options:
        uri = f"{uri}{mark}retry_limit_seconds={_RETRIED_FOR_S}"
    bare, mark, query = uri.partition("?")
    files, root = fs.FileSystem.from_uri(f"{bare}/_{mark}{query}")
    return _Store(files, root.removesuffix("_").rstrip("/"))


def _with_connections(made: Callable[..., Any], **options: Any) -> Any:
    """Return a client with a connection per request in progress: it has one per thread for I/O."""
    import pyarrow as pa

    usual = pa.io_thread_count()
    pa.set_io_thread_count(max(usual, REQUESTS_MAX))
    try:
        return made(**options)
    finally:
        pa.set_io_thread_count(usual)


def _file_systems() -> Any:
    try:
        from pyarrow import fs
    except ImportError as error:
        raise UnsupportedError(
            "Reading objects needs pyarrow, which is not installed.",
            hint="pip install 'kafkalog[arrow]'",
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


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _unreadable(error: Exception, path: str, position: int | None = None) -> UnreadableError:
    words = words_of(error, _uris.get(_bucket(path), path))
    denied = any(word in words for word in ("ACCESS_DENIED", "access token", "CredentialEx"))
    return UnreadableError(
        f"It cannot be read: {words}.",
        path=path,
        position=position,
        hint="Are credentials for this store set, as for its own tools?" if denied else None,
    )
