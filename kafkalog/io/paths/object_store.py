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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import FileChangedError, UsageError
from kafkalog.io.paths.object_cache import CONTENT_SIZE_MAX, Contents, Files, held_since, is_fresh
from kafkalog.io.paths.object_clients import asked, io_threads, register, store_of
from kafkalog.io.paths.reading_errors import reading_error, require_regular
from kafkalog.io.paths.requests import NAMES_A_REQUEST, requests
from kafkalog.io.paths.uris import SCHEMES, bucket_of, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.io.paths.object_cache import Version

_MARKS: Final = frozenset("?@:")  # of options and owners
_SAMPLES: Final = 16  # directories that are looked into before all are listed
_DIRECTORIES_MIN: Final = 64  # else all are listed at once
_FILES_MIN: Final = 16  # in a directory, else listing it by itself takes longer
_PAGES_MIN: Final = 8


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
    bucket = bucket_of(path)
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
            if register(bucket, full):
                forget()
    return path


def forget() -> None:
    """Forget what is known of all objects, and ask again."""
    with _lock:
        _listings.clear()
        _prefetched.clear()
        _contents.clear()
        _files.clear()


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
    store = store_of(path)
    requests().ask(2)  # a HEAD, and for what is no object a listing
    [found] = asked(path, lambda: store.files.get_file_info([store.key(path)]))
    if found.type.name != "File":
        requests().asked(1)  # no object: is it a prefix?
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


def contents(path: str) -> dict[str, os.stat_result]:
    """Return name and status of all that is in a directory. Raises as `stat`."""
    path = normalize(path)
    with _lock:
        since, listed = _listings.get(path, (0.0, {}))
    if not is_fresh(since):
        listed = {}
        for entry in _selected(path, recursive=False):
            listed[entry.base_name] = _status(entry)
        _keep({path: listed})
    return listed


def prefetch_listing(path: str, at_once: int = 1) -> None:
    """List everything below a directory. Raises as `stat`.

    While listings are held, nothing is listed twice. A listing of everything comes page by page,
    each after the other. Where it would have many, directories of many files are listed by
    themselves, several at a time, unless requests are bounded.

    Args:
        at_once: how many requests may be in progress at the same time.

    Cost:
        A request per thousand objects, or one per directory if these have `_FILES_MIN` files on
        average; some to find that out; about 400 bytes of memory per object, for half a minute.
    """
    path = normalize(path)
    held = held_since()
    if held is not None and _prefetched.get(path, 0.0) >= held:
        return
    found = None
    if at_once > 1 and requests().allowed is None:
        found = _each_below(path, at_once)
    _keep(_below(path) if found is None else found)
    _prefetched[path] = time.monotonic()


def _below(path: str) -> dict[str, dict[str, os.stat_result]]:
    """Return the contents of a directory and of all below it, from one listing."""
    skipped = len(store_of(path).key(path)) + 1
    found: dict[str, dict[str, os.stat_result]] = {path: {}}
    for entry in _selected(path, recursive=True):
        status = _status(entry)
        if status is _DIRECTORY:
            continue
        *directories, name = entry.path[skipped:].split("/")
        place = path
        for directory in directories:
            found[place].setdefault(directory, _DIRECTORY)
            place = f"{place}/{directory}"
            found.setdefault(place, {})
        found[place][name] = status
    return found


def _each_below(path: str, at_once: int) -> dict[str, dict[str, os.stat_result]] | None:
    """Do what `_below` does with a listing for each directory; None if that would not pay.

    Some directories show how many files there are. One that is gone meanwhile is left out.
    """
    with _lock:
        since, top = _listings.get(path, (0.0, {}))
    names = sorted(name for name, status in top.items() if modes.S_ISDIR(status.st_mode))
    if len(names) < _DIRECTORIES_MIN or not is_fresh(since):
        return None

    def listed(name: str) -> dict[str, dict[str, os.stat_result]]:
        try:
            return _known_leaf(f"{path}/{name}") or _below(f"{path}/{name}")
        except FileNotFoundError:
            return {}

    seen = names[:: len(names) // _SAMPLES]
    with io_threads(), ThreadPoolExecutor(at_once, "listing") as pool:
        found = dict(zip(seen, pool.map(listed, seen), strict=True))
        files = sum(len(inside) for each in found.values() for inside in each.values())
        if files < len(seen) * max(_FILES_MIN, _PAGES_MIN * NAMES_A_REQUEST / len(names)):
            return None
        left = [name for name in names if name not in found]
        found |= zip(left, pool.map(listed, left), strict=True)
    whole = {path: {name: top[name] for name in top if found.get(name, True)}}
    for each in found.values():
        whole |= each
    return whole


def _known_leaf(path: str) -> dict[str, dict[str, os.stat_result]] | None:
    """Return the contents of a directory without directories, if it was listed lately."""
    with _lock:
        since, listed = _listings.get(path, (0.0, {}))
    is_leaf = not any(modes.S_ISDIR(status.st_mode) for status in listed.values())
    return {path: listed} if is_fresh(since) and is_leaf else None


@dataclass(frozen=True, slots=True)
class OpenObject:
    """An object, open for reading.

    Its content is assumed not to change: stores replace objects whole. A replacement of the same
    length is noticed when the object is opened, not between that and the last read.

    Attributes:
        path: its URI, normalized.
        modified_timestamp: when it was uploaded.
        read_at: reads at a position up to a number of bytes, fewer if the object is shorter now.
    """

    path: str
    size_bytes: int
    modified_timestamp: int
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
        place = (size_bytes, 0) if is_small else (size, position)
        try:
            file = _file(version)
            requests().ask()
            data: bytes = asked(path, lambda: file.read_at(*place), position)
        except FileNotFoundError as error:
            raise reading_error(_missing(path), path) from error
        requests().got(len(data))
        start = 0 if is_small else position
        # A read that reached the end has what footers and last batches are looked up in.
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
    store = store_of(path)
    requests().ask()
    try:
        file = asked(path, lambda: store.files.open_input_file(store.key(path)))
        status = _status_of(file)
    except FileNotFoundError:
        return stat(path)  # a directory, perhaps
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
        store = store_of(path)
        requests().ask()
        file = asked(path, lambda: store.files.open_input_file(store.key(path)))
        if file.size() != size_bytes or _is_of_another_time(file, modified_ns):
            # The next question lists again.
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
    # Arrow marks empty directories by objects of this type.
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

    store = store_of(path)
    requests().ask()
    selector = fs.FileSelector(store.key(path), recursive=recursive)
    try:
        found = asked(path, lambda: store.files.get_file_info(selector))
    except FileNotFoundError:
        raise _missing(path) from None
    requests().listed(len(found))
    yield from found


def _keep(found: dict[str, dict[str, os.stat_result]]) -> None:
    now = time.monotonic()
    with _lock:
        for path in [one for one, (since, _) in _listings.items() if not is_fresh(since)]:
            del _listings[path]
        _listings.update({path: (now, listed) for path, listed in found.items()})


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
