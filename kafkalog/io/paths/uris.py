"""URIs of objects: which paths are URIs, and how they are shown without credentials."""

from __future__ import annotations

from typing import Final

from kafkalog.errors import UsageError

SCHEMES: Final = ("s3", "gs", "gcs", "abfs", "abfss")
"""Schemes of object stores."""


SEPARATOR: Final = "://"


LOCAL: Final = "file://"


def is_object(path: str) -> bool:
    """Return whether a path is the URI of an object, or of a prefix of objects."""
    return SEPARATOR in path and not path.startswith(LOCAL)


def without_credentials(uri: str) -> str:
    """Return a URI in a form that can be shown: options after `?` can hold credentials, too.

    In Azure's URIs the part before `@` names a container or account: only a password is removed.
    """
    if SEPARATOR not in uri:
        return uri
    scheme, _, rest = uri.partition("?")[0].partition(SEPARATOR)
    netloc, slash, inner = rest.partition("/")
    owner, at, host = netloc.rpartition("@")
    if not at and ":" in netloc and "@" in inner:  # a secret that contains a slash
        host, slash, inner = inner.rpartition("@")[2].partition("/")
    if scheme in ("abfs", "abfss") and at:
        name = owner.partition(":")[0]
        host = f"{name}@{host}" if name else host
    return f"{scheme}{SEPARATOR}{host}{slash}{inner}".rstrip("/")


def bucket_of(uri: str) -> str:
    """Return the part of a URI to which options belong: `s3://bucket`."""
    scheme, _, rest = uri.partition(SEPARATOR)
    return f"{scheme}{SEPARATOR}{rest.partition('/')[0]}"


def words_of(error: Exception, uri: str) -> str:
    """Return a library's error on one line, without the credentials of a URI."""
    from urllib.parse import unquote, urlsplit

    text = " ".join(str(error).split()).replace(uri, without_credentials(uri))
    # After that, Google's library repeats the message.
    text = text.partition(" error_info={")[0].removeprefix("google::cloud::Status(")
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
    """Raise for an object, if files must be locked, copied as they are, or changed.

    Raises:
        UsageError: the path is that of an object.
    """
    if is_object(path):
        raise UsageError(
            "This works on local files, not on objects.",
            path=without_credentials(path),
            hint="Copy the log directory to a local disk first.",
        )
