"""Where files are: paths of this machine, or URIs of objects in a store.

What is asked about a path of this machine is asked of `os`, without a detour. URIs (`s3://…`,
`gs://…`, `abfs://…`) go to `kafkalog.objects`, which is loaded when there is one.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from kafkalog.errors import UsageError

SCHEMES: Final = ("s3", "gs", "gcs", "abfs", "abfss")
"""Of object stores."""
_SEPARATOR: Final = "://"
_LOCAL: Final = "file://"


def is_object(path: str) -> bool:
    """Whether a path is the URI of an object, or of a prefix of objects."""
    return _SEPARATOR in path and not path.startswith(_LOCAL)


def settle(path: str) -> str:
    """The path as all that reads takes it: no options, no credentials, nothing behind it.

    The options and credentials of a URI are kept in this process for its bucket; those that were
    given last count. `file://` URIs become paths of this machine, and these stay as they are.

    Raises:
        UsageError: the URI is of another scheme, or names no bucket.
    """
    if _SEPARATOR not in path:
        return path
    if path.startswith(_LOCAL):
        return path.removeprefix(_LOCAL)
    from kafkalog import objects

    return objects.settle(path)


def absolute(path: str) -> str:
    """The path, whatever the working directory is."""
    return settle(path) if is_object(path) else os.path.abspath(settle(path))


def portable(path: str) -> str:
    """Make a path mean the same in other processes: absolute; a URI stays as it is."""
    return path if is_object(path) else absolute(path)


def stat(path: str) -> os.stat_result:
    """What is known of a file or directory; symbolic links are followed.

    Objects have a type, a size and a time of modification.

    Raises:
        OSError: as `os.stat`; for an object, where there is none.
        UnreadableError: the store does not say.
    """
    if is_object(path):
        from kafkalog import objects

        return objects.stat(path)
    return os.stat(path)


def exists(path: str) -> bool:
    """Whether there is something of that name, be it a broken symbolic link.

    A disk that does not say counts as a no, and is announced to `source.on_unreadable`.

    Raises:
        UnreadableError: the store does not say.
    """
    if not is_object(path):
        try:
            os.lstat(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                from kafkalog.source import reading_error

                reading_error(error, path)  # announced
            return False
        except ValueError:
            return False
        return True
    try:
        stat(path)
    except FileNotFoundError:
        return False
    return True


def names(path: str) -> list[str]:
    """The names in a directory, sorted. Raises as `stat`."""
    if is_object(path):
        from kafkalog import objects

        return objects.names(path)
    return sorted(os.listdir(path))


def foresee(path: str) -> None:
    """Say that all directories in one will be listed: of a store, all are asked for together."""
    if is_object(path):
        from kafkalog import objects

        objects.foresee(path)


def given() -> list[str]:
    """URIs with all options and credentials, for `settle` in another process. Never shown."""
    from sys import modules

    objects = modules.get("kafkalog.objects")
    return [] if objects is None else objects.given()


def without_credentials(uri: str) -> str:
    """A URI as it can be shown: options behind `?` can hold credentials as well.

    Of Azure's, what is before the `@` names a container or an account: only a password goes.
    """
    if _SEPARATOR not in uri:
        return uri
    scheme, _, rest = uri.partition("?")[0].partition(_SEPARATOR)
    netloc, slash, inner = rest.partition("/")
    owner, at, host = netloc.rpartition("@")
    if not at and ":" in netloc and "@" in inner:  # a secret with a slash
        host, slash, inner = inner.rpartition("@")[2].partition("/")
    if scheme in ("abfs", "abfss") and at:
        name = owner.partition(":")[0]
        host = f"{name}@{host}" if name else host
    return f"{scheme}{_SEPARATOR}{host}{slash}{inner}".rstrip("/")


def words_of(error: Exception, uri: str) -> str:
    """What a library says, on one line, without the credentials of a URI that it was told."""
    from urllib.parse import unquote, urlsplit

    text = " ".join(str(error).split()).replace(uri, without_credentials(uri))
    try:
        parts = urlsplit(uri)
    except ValueError:
        return "the URI is malformed"
    owner = parts.netloc.rpartition("@")[0]
    for secret in (owner, parts.password, parts.username, parts.query):
        for form in (secret, unquote(secret)) if secret else ():
            text = text.replace(form, "…")
    return text.rstrip(".")


def require_local(path: str) -> None:
    """Refuse an object, where files are locked, copied as they are, or changed.

    Raises:
        UsageError: the path is that of an object.
    """
    if is_object(path):
        raise UsageError(
            "This works on local files, not on objects.",
            path=without_credentials(path),
            hint="Copy the log directory to a local disk first.",
        )
