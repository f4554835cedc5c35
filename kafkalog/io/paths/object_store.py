"""Objects of S3, Google Cloud Storage and Azure, read as if they were files.

Directories are prefixes. Objects have no permissions, no holes and no links, and their modification
time is that of their upload. A prefix without objects does not exist: an empty partition directory
does not survive its upload, unless an object marks it whose name ends with a slash.

The path of an object is taken literally: nothing in it is percent-encoded. Options and credentials
of a URI are kept per bucket, for the whole process.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, Final

from formats.file_names import parse_directory_name
from kafkalog.errors import FileChangedError, UnreadableError, UsageError
from kafkalog.io.paths import announced
from kafkalog.io.paths.buckets import Listed, bucket_at, missing, register
from kafkalog.io.paths.object_cache import CONTENT_SIZE_MAX, Contents, Seen, held_since, is_fresh
from kafkalog.io.paths.reading_errors import reading_error, require_regular
from kafkalog.io.paths.requests import NAMES_A_REQUEST, requests
from kafkalog.io.paths.uris import SCHEMES, bucket_of, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

_MARKS: Final = frozenset("?@:")  # of options and owners
_DIRECTORY: Final = Listed(-1, 0, None)
_UNLISTED: Final[tuple[float, dict[str, Listed]]] = (0.0, {})

_listings: dict[str, tuple[float, dict[str, Listed]]] = {}  # directory to its contents
_prefetched: dict[str, float] = {}  # directories that were listed with all below, and when
_contents = Contents()
_seen = Seen()
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
        _seen.clear()


def stat(path: str) -> os.stat_result:
    """Return the status of an object or of a directory of objects.

    Raises:
        FileNotFoundError: it is missing.
        UnreadableError: the store does not answer.
    """
    return _status(_look_at(normalize(path)))


def _look_at(path: str) -> Listed:
    """Return what is at a path, asked for unless it is known. Raises as `stat`."""
    found = _known(path) or _seen.get(path)
    if found is not None:
        return found
    if (found := announced.opened(path)) is not None:
        _seen.keep(path, found)
        return found
    bucket = bucket_at(path)
    requests().ask(2)  # a HEAD, and for what is no object a listing
    try:
        if not bucket.key(path):
            raise FileNotFoundError
        found = bucket.head(path)
    except FileNotFoundError:  # no object: is it a prefix?
        requests().asked(1)
        _list(path)
        return _DIRECTORY
    _seen.keep(path, found)
    return found


def _known(path: str) -> Listed | None:
    """Return what a listing says of a path; None if it is not listed.

    Raises:
        FileNotFoundError: its directory is listed without it.
    """
    directory, _, name = path.rpartition("/")
    since, listed = _listings.get(directory, _UNLISTED)
    if not is_fresh(since):
        return _DIRECTORY if is_fresh(_listings.get(path, _UNLISTED)[0]) else None
    if name not in listed:
        raise missing(path)
    return listed[name]


def contents(path: str) -> Mapping[str, Listed]:
    """Return name and status of all that is in a directory. Raises as `stat`."""
    path = normalize(path)
    since, listed = _listings.get(path, _UNLISTED)
    if not is_fresh(since):
        _known(path)  # raises if the directory around it is listed without it
        requests().ask()
        listed = _list(path)
    return listed


def _list(path: str) -> dict[str, Listed]:
    """List a directory, by a request that is counted already. Raises as `stat`."""
    objects, directories = bucket_at(path).list_children(path)
    if not objects and not directories:
        raise missing(path)
    requests().asked((len(objects) + len(directories) - 1) // NAMES_A_REQUEST)
    listed = {os.path.basename(one): status for one, status in objects if one != path}
    listed |= dict.fromkeys(map(os.path.basename, directories), _DIRECTORY)
    _keep({path: listed})
    return listed


def prefetch_listing(path: str) -> None:
    """List everything below a directory. Raises as `stat`.

    While listings are held, nothing is listed twice.

    Cost:
        A request per thousand objects; about 300 bytes of memory per object, for half a minute.
    """
    path = normalize(path)
    held = held_since()
    if held is not None and _prefetched.get(path, 0.0) >= held:
        return
    requests().ask()
    try:
        found = bucket_at(path).list_below(path)
    except UnreadableError:
        return  # each directory is listed by itself, and says what is wrong with it
    if not found:
        raise missing(path)
    _keep(_by_directory(path, found))
    _prefetched[path] = time.monotonic()


def _by_directory(path: str, found: Iterable[tuple[str, Listed]]) -> dict[str, dict[str, Listed]]:
    """Return the contents of a directory and of all below it."""
    skipped = len(path) + 1
    listed: dict[str, dict[str, Listed]] = {path: {}}
    for inner, status in found:
        if inner == path:
            continue
        *directories, name = inner[skipped:].split("/")
        place = path
        for directory in directories:
            listed[place][directory] = _DIRECTORY
            place = f"{place}/{directory}"
            listed.setdefault(place, {})
        listed[place][name] = status
    for place in [one for one, inside in listed.items() if inside]:
        for name, status in listed[place].items():
            if not status.size_bytes and _marks(f"{place}/{name}"):
                listed[place][name] = _DIRECTORY
                listed[f"{place}/{name}"] = {}
    return listed


def _marks(path: str) -> bool:
    """Return whether what is listed as an empty object marks an empty directory of a partition.

    A listing shows both without the slash at the end of the mark's name.
    """
    if parse_directory_name(os.path.basename(path)) is None:
        return False
    requests().ask()
    try:
        bucket_at(path).head(path)
    except FileNotFoundError:
        return True
    return False


def announce(places: Iterable[tuple[str, int]]) -> AbstractContextManager[None]:
    """Fetch in a block what will be read, ahead of its readers, as far as it is listed.

    Args:
        places: paths and positions, in the order in which they will be read; -1 for the end.
    """

    return announced.announced(_unread(places))


def _unread(places: Iterable[tuple[str, int]]) -> Iterator[announced.Place]:
    """Yield the places of which nothing is kept."""
    for uri, position in places:
        path = normalize(uri)
        try:
            listed = _known(path) or _seen.get(path)
        except FileNotFoundError:
            continue
        if listed is not None:
            if position < 0 or listed.size_bytes <= CONTENT_SIZE_MAX:
                position = max(listed.size_bytes - CONTENT_SIZE_MAX, 0)
            is_kept = len(_contents.get((path, listed)) or b"") >= listed.size_bytes - position
            if is_kept or position >= listed.size_bytes:
                continue
        if position >= 0:
            yield path, listed, position


@dataclass(frozen=True, slots=True)
class OpenObject:
    """An object, open for reading. What is uploaded in its place is never read for it.

    Attributes:
        path: its URI, normalized.
        modified_timestamp: when it was uploaded.
        is_small: whether it is fetched whole.
        read_at: reads at a position up to a number of bytes, fewer if the object is shorter.
    """

    path: str
    size_bytes: int
    modified_timestamp: int
    is_small: bool
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
        listed = _look_at(path)
        require_regular(path, listed.st_mode)
    except FileNotFoundError as error:
        raise reading_error(missing(path), path) from error
    size_bytes = listed.size_bytes
    version = (path, listed)

    def read_at(position: int, size: int) -> bytes:
        kept = _contents.get(version)
        if kept is not None and position >= size_bytes - len(kept):
            position -= size_bytes - len(kept)
            return kept[position : position + size]
        piece = announced.taken(version, position)
        start, data = piece or fetched(position, size)
        # A read that reached the end has what footers and last batches are looked up in.
        if data and start + len(data) == size_bytes:
            _contents.keep(version, data[-CONTENT_SIZE_MAX:])
        found = data[position - start : position - start + size]
        if piece is not None and len(found) < min(size, size_bytes - position):
            found += read_at(position + len(found), size - len(found))
        return found

    def fetched(position: int, size: int) -> tuple[int, bytes]:
        if size_bytes <= CONTENT_SIZE_MAX:
            position, size = 0, size_bytes
        try:
            requests().ask()
            return position, bucket_at(path).read(path, listed, position, size)
        except FileNotFoundError as error:
            raise reading_error(missing(path), path) from error
        except FileChangedError:
            _forget_directory(path)  # the next question lists again
            raise

    is_small = size_bytes <= CONTENT_SIZE_MAX
    return OpenObject(path, size_bytes, listed.modified_ns // 1_000_000, is_small, read_at)


def _forget_directory(path: str) -> None:
    _seen.drop(path)
    with _lock:
        _listings.pop(path.rpartition("/")[0], None)
        _prefetched.clear()


def _status(listed: Listed) -> os.stat_result:
    """Return type, size and modification time as `os.stat` does."""
    seconds = listed.modified_ns // 1_000_000_000
    return os.stat_result(
        (listed.st_mode, 0, 0, 1, 0, 0, max(listed.size_bytes, 0), seconds, seconds, seconds),
        {"st_mtime_ns": listed.modified_ns},
    )


def _keep(found: dict[str, dict[str, Listed]]) -> None:
    now = time.monotonic()
    with _lock:
        for path in [one for one, (since, _) in _listings.items() if not is_fresh(since)]:
            del _listings[path]
        _listings.update({path: (now, listed) for path, listed in found.items()})
