"""One document by HTTP of a server that is not trusted: bounds on time, size and redirects."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from functools import partial
from typing import IO, TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping
    from email.message import Message

SCHEMES: Final = {"http": 80, "https": 443}
"""What is spoken, and the ports where nothing else is said."""
SECONDS_MAX: Final = 120.0
_SILENCE_SECONDS_MAX: Final = 30.0
_REASON_SIZE_MAX: Final = 64 << 10
_DIGITS_MAX: Final = 9
_REDIRECTS_MAX: Final = 5


class StatusError(OSError):
    """A server answers with another status than that of success.

    Attributes:
        status: the status.
        body: the beginning of what it says about it.
        after_s: how long it wants to be left alone.
    """

    def __init__(self, words: str, status: int, body: bytes, after_s: float) -> None:
        super().__init__(words)
        self.status, self.body, self.after_s = status, body, after_s


def get(
    url: str,
    headers: Mapping[str, str],
    secrets: Mapping[str, str],
    *,
    size_max: int,
    seconds_max: float = SECONDS_MAX,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """Return what a server answers, after its redirects.

    Args:
        url: the URL, of `http` or `https`.
        headers: what each request says.
        secrets: headers that only the origin of the URL gets: its scheme, host and port.
        size_max: how long the answer may be.
        seconds_max: how long all of it may take, however slowly the server goes on.
        tls: what the same origin is trusted by, and what we show it; others get the usual.

    Raises:
        StatusError: it has no such document for now, or for us.
        OSError: it does not answer with the document, or leads somewhere else than `http` and
            `https`, or from `https` to `http`; the reason is in `str()`.
    """
    with _Deadline(seconds_max) as deadline:
        redirects = _Redirects(url, secrets)
        opener = urllib.request.OpenerDirector()
        # No handlers of `ftp:`, `file:` and `data:`, which `urlopen` brings along.
        for handler in (
            urllib.request.ProxyHandler(), urllib.request.UnknownHandler(),
            urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPErrorProcessor(),
            redirects, _Http(deadline), _Https(deadline, _origin(url), tls),
        ):  # fmt: skip
            opener.add_handler(handler)
        request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 # no others open
        redirects.let_in(request)
        try:
            with opener.open(request, timeout=min(_SILENCE_SECONDS_MAX, seconds_max)) as response:
                data: bytes = response.read(size_max + 1)  # one more, to see that it is too much
        except (OSError, http.client.HTTPException, ValueError) as error:
            deadline.require()
            words = f"{_words(error)}{redirects.note()}"
            if isinstance(error, urllib.error.HTTPError):
                body = b""
                # Of a redirect it is closed by now.
                with suppress(OSError, http.client.HTTPException, ValueError):
                    body = error.read(_REASON_SIZE_MAX)
                error.close()
                after = error.headers.get("Retry-After", "")
                # It can also be a date, which no registry gives.
                after_s = float(after) if after.isdecimal() and len(after) < _DIGITS_MAX else 0.0
                raise StatusError(words, error.code, body, after_s) from None
            raise OSError(words) from None
        deadline.require()
    if len(data) > size_max:
        raise OSError(f"its answer has more than {size_max} bytes")
    return data


def _words(error: Exception) -> str:
    is_status = isinstance(error, urllib.error.HTTPError)
    reason = error if is_status else getattr(error, "reason", None) or error
    return " ".join(str(reason).split()).rstrip(".:") or type(error).__name__


_Origin = tuple[str, str | None, int | None]


def _origin(url: str) -> _Origin:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or SCHEMES.get(parts.scheme)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and keeps secrets from other origins."""

    max_redirections = _REDIRECTS_MAX

    def __init__(self, url: str, secrets: Mapping[str, str]) -> None:
        self._origin = _origin(url)
        self._secrets = secrets
        self._stranger = ""

    def let_in(self, request: urllib.request.Request) -> None:
        """Add the secrets to a request, if it goes where they belong."""
        scheme, host, port = _origin(request.full_url)
        if (scheme, host, port) != self._origin:
            self._stranger = f"{scheme}://{host}:{port}"
            return
        for name, value in self._secrets.items():
            # The other kind of headers is copied to wherever a redirect leads.
            request.add_unredirected_header(name, value)

    def note(self) -> str:
        """Return what an error needs to say about an origin that got no secrets."""
        if not self._stranger or not self._secrets:
            return ""
        return f" ({self._stranger}, to which it redirects, gets no password)"

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str,
        headers: Message, newurl: str,
    ) -> urllib.request.Request | None:  # fmt: skip
        fp.close()  # the caller would read all of its body
        scheme = urlsplit(newurl).scheme
        if scheme not in SCHEMES or (urlsplit(req.full_url).scheme, scheme) == ("https", "http"):
            raise urllib.error.URLError(f"it redirects to {scheme}://, which is not followed")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if request is not None:
            self.let_in(request)
        return request


class _Deadline:
    """Ends the connections of the block when its time is over; a context manager.

    The timeout of a socket begins again with each byte.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_over = False
        self._opened = ExitStack()
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._opened.close()

    def watch(self, one: socket.socket) -> None:
        # A descriptor of its own: TLS takes that of the connection over, and closes it.
        again = socket.socket(one.family, one.type, one.proto, os.dup(one.fileno()))
        self._sockets.append(self._opened.enter_context(again))
        if self._is_over:
            self._end()

    def require(self) -> None:
        """Raise `TimeoutError` if the time is over."""
        if self._is_over:
            raise TimeoutError(f"the answer is not complete after {self._seconds:.0f} s")

    def _end(self) -> None:
        self._is_over = True
        for one in list(self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Plain(http.client.HTTPConnection):
    deadline: _Deadline

    def connect(self) -> None:
        super().connect()
        self.deadline.watch(self.sock)


class _Tls(http.client.HTTPSConnection, _Plain):
    """Watched from before its handshake: `HTTPSConnection` connects as its next base does."""


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(partial(_connection, _Plain, self._deadline), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline, origin: _Origin, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._deadline, self._of_origin, self._tls = deadline, origin, tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        made = partial(_connection, _Tls, self._deadline)
        is_own = self._tls is not None and _origin(req.full_url) == self._of_origin
        tls = self._tls if is_own else ssl.create_default_context()
        return self.do_open(made, req, context=tls)


def _connection(kind: type[_Plain], deadline: _Deadline, *given: Any, **options: Any) -> _Plain:
    made = kind(*given, **options)
    made.deadline = deadline
    return made
