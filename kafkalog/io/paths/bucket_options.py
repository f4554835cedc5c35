"""Clients of object stores, made of what a URI, the environment and files of AWS's tools say."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from kafkalog.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from urllib.parse import SplitResult

RETRIES: Final[dict[str, Any]] = {
    "max_retries": 5,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {
        "init_backoff": timedelta(milliseconds=50),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    },
}
"""How often a client asks again by itself, with jitter. `retry` waits for what lasts longer."""
# The whole of a piece may take long on a slow line; silence may not.
_CLIENT: Final[dict[str, Any]] = {
    "allow_http": True, "connect_timeout": "5s", "read_timeout": "20s", "timeout": "15m",
}  # fmt: skip
_S3_OPTIONS: Final = ("region", "scheme", "endpoint_override")
_S3_WRITING: Final = ("allow_bucket_creation", "allow_bucket_deletion")
_GCS_OPTIONS: Final = ("scheme", "endpoint_override", "retry_limit_seconds")
_GCS_WRITING: Final = ("default_bucket_location", "project_id")
_AZURE_OPTIONS: Final = ("enable_tls", "credential_kind", "tenant_id", "client_id",
                         "client_secret")  # fmt: skip
_USUAL_REGION: Final = "us-east-1"
_AWS: Final = "https://s3.amazonaws.com"
_REGION_TIMEOUT_S: Final = 5.0
_CREDENTIALS_FOR: Final = timedelta(minutes=5)  # botocore renews those that have less than ten left
_BLOB, _DFS = ".blob.core.windows.net", ".dfs.core.windows.net"


def client_of(uri: str, container: str) -> Any:
    """Return an obstore client.

    Args:
        uri: the URI of a bucket or an account, with options and credentials.
        container: the container of an account in Azure; empty if the URI names it.

    Raises:
        ValueError: an option is not known, or has no meaning.
        UnsupportedError: obstore is not installed, or what reads a profile.
    """
    try:
        from obstore import store
    except ImportError as error:
        raise UnsupportedError(
            "Reading objects needs obstore, which is not installed.",
            hint="pip install 'kafkalog[data]'",
        ) from error
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query))
    more: dict[str, Any] = {"client_options": _CLIENT, "retry_config": RETRIES}
    if parts.scheme == "s3":
        return store.S3Store(**of_s3(parts, options), **more)
    if parts.scheme in ("gs", "gcs"):
        if "retry_limit_seconds" in options:
            limit = timedelta(seconds=float(options["retry_limit_seconds"]))
            more["retry_config"] = {**RETRIES, "retry_timeout": limit}
        return store.GCSStore(**of_gcs(parts, options), **more)
    return store.AzureStore(**of_azure(parts, options, container), **more)


def has_container_in_path(uri: str) -> bool:
    """Return whether the part of a URI before its path names an account, not a container."""
    parts = urlsplit(uri)
    if parts.scheme not in ("abfs", "abfss"):
        return False
    host = parts.netloc.rpartition("@")[2]
    return host.endswith(_BLOB) or (not host.endswith(_DFS) and ("." in host or ":" in host))


def _require_known(scheme: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
    for name in options:
        if name not in known:
            raise ValueError(f"unexpected option {name} of an {scheme}:// URI")


def _endpoint(options: Mapping[str, str]) -> str | None:
    host = options.get("endpoint_override")
    if host is None or "://" in host:
        return host
    return f"{options.get('scheme', 'https')}://{host}"


def of_gcs(parts: SplitResult, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a client for Google Cloud Storage."""
    _require_known(parts.scheme, options, (*_GCS_OPTIONS, *_GCS_WRITING))
    found: dict[str, Any] = {"bucket": parts.netloc.rpartition("@")[2]}
    if parts.username == "anonymous":
        found["skip_signature"] = True
    if (endpoint := _endpoint(options)) is not None:
        found["base_url"] = endpoint
    return found


def of_azure(parts: SplitResult, options: Mapping[str, str], container: str) -> dict[str, Any]:
    """Return the arguments of a client for a container in Azure.

    URIs are as those of pyarrow: `abfs://container@account.dfs.core.windows.net/path`,
    `abfs://account.blob.core.windows.net/container/path`,
    `abfs://account@host:port/container/path` and `abfs://account@container/path`, each with the
    key of the account after a colon before `@`.
    """
    _require_known(parts.scheme, options, _AZURE_OPTIONS)
    owner, host = parts.username, parts.netloc.rpartition("@")[2]
    found: dict[str, Any] = {}
    tls = options.get("enable_tls", "true") != "false"
    if host.endswith(_BLOB):
        account: str | None = host.removesuffix(_BLOB)
    elif host.endswith(_DFS):
        account, container = host.removesuffix(_DFS), owner or ""
    else:
        account = owner
        if container:
            found["endpoint"] = f"http{'s' * tls}://{host}/{account or ''}".rstrip("/")
        else:
            container = host
    if parts.password is not None:
        found["account_key"] = unquote(parts.password)
    kind = options.get("credential_kind", "default")
    if kind == "anonymous":
        found["skip_signature"] = True
    elif kind == "cli":
        found["use_azure_cli"] = True
    elif kind not in ("default", "environment", "workload_identity"):
        raise ValueError(f"credential_kind {kind} is not known")
    found |= {name: options[name] for name in _AZURE_OPTIONS[2:] if name in options}
    return {"account_name": account, "container_name": container, **found}


def of_s3(parts: SplitResult, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of a client for a bucket of S3.

    What the URI does not say is looked up where AWS's tools look: in the environment, then in the
    profile of their files, if there are any. Without credentials anywhere, requests are not signed.
    """
    _require_known(parts.scheme, options, (*_S3_OPTIONS, *_S3_WRITING))
    bucket = parts.netloc.rpartition("@")[2]
    session = _session()
    found: dict[str, Any] = {"bucket": bucket}
    endpoint = _endpoint(options) or _configured_endpoint(session)
    if endpoint is not None:
        found["aws_endpoint_url_s3"] = endpoint  # which comes before those in the environment
    region = options.get("region") or _configured_region(session)
    # Buckets of other endpoints have no region that AWS could tell.
    if region is None:
        region = _USUAL_REGION if endpoint is not None else _region_of(bucket) or _USUAL_REGION
    found["region"] = region
    if endpoint is None and _ignores_endpoints():
        found["aws_endpoint_url_s3"] = f"https://s3.{region}.amazonaws.com"
    if parts.username is not None:
        found["access_key_id"] = unquote(parts.username)
        found["secret_access_key"] = unquote(parts.password or "")
        return found
    provider = None if session is None else _provider(session)
    if provider is not None:
        found["credential_provider"] = provider
    elif session is not None or not _may_have_credentials():
        found["skip_signature"] = True
    return found


def _profile() -> str | None:
    return os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE")


def _session() -> Any:
    """Return a session of botocore, which reads profiles; None without any, or without botocore.

    Raises:
        UnsupportedError: a profile is named, and botocore is not installed.
        ValueError: there is no such profile.
    """
    files = (("AWS_CONFIG_FILE", "~/.aws/config"),
             ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))  # fmt: skip
    paths = [os.path.expanduser(os.environ.get(name) or usual) for name, usual in files]
    profile = _profile()
    if profile is None and not any(map(os.path.exists, paths)):
        return None
    try:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ImportError as error:
        if profile is None:
            return None
        raise UnsupportedError(
            f"The profile {profile} of AWS is read by botocore, which is not installed.",
            hint="pip install botocore, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        ) from error
    session = Session()
    try:
        session.get_scoped_config()
    except BotoCoreError as error:
        raise ValueError(str(error)) from None
    return session


def _provider(session: Any) -> Callable[[], dict[str, Any]] | None:
    """Return what gives credentials, renewed in time; None if nothing does."""
    from botocore.exceptions import BotoCoreError

    try:
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise ValueError(str(error)) from None
    if credentials is None:
        return None

    def provide() -> dict[str, Any]:
        now = credentials.get_frozen_credentials()
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_FOR,
        }

    return provide


def _may_have_credentials() -> bool:
    """Return whether the client can find credentials where a program runs, and in its variables."""
    named = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE",
             "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
             "AWS_CONTAINER_CREDENTIALS_FULL_URI")  # fmt: skip
    is_off = os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
    return not is_off or any(os.environ.get(name) for name in named)


def _ignores_endpoints() -> bool:
    return os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true"


def _configured_endpoint(session: Any) -> str | None:
    if _ignores_endpoints():
        return None
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if os.environ.get(name):
            return os.environ[name]
    if session is None:
        return None
    profile = session.get_scoped_config()
    services = session.full_config.get("services", {}).get(profile.get("services"), {})
    found = services.get("s3", {}).get("endpoint_url") or profile.get("endpoint_url")
    return None if found is None else str(found)


def _configured_region(session: Any) -> str | None:
    found = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not found and session is not None:
        found = session.get_scoped_config().get("region")
    return found or None


def _region_of(bucket: str) -> str | None:
    """Return the region that AWS tells anybody a bucket is in; None if it says nothing."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    request = Request(f"{_AWS}/{bucket}", method="HEAD")  # noqa: S310 # https
    answer: Any = None
    with suppress(OSError):
        try:
            answer = urlopen(request, timeout=_REGION_TIMEOUT_S)  # noqa: S310 # https
        except HTTPError as error:  # of a bucket that is elsewhere, or that not everybody may see
            answer = error
        answer.close()
    return None if answer is None else answer.headers.get("x-amz-bucket-region")
