"""Who may connect, and how: TLS, and SASL with the mechanism PLAIN.

Follows `SaslServerAuthenticator` and `PlainSaslServer` of Kafka.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import ssl
from typing import TYPE_CHECKING, Final

from formats.error_codes import ErrorCode
from kafkalog.errors import UnreadableError, UsageError
from kafkalog.io.paths.source import read_file
from kafkalog.wire.server.model import Api

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.wire.server.model import Client, Fields

BEFORE_AUTHENTICATION: Final = {17: "SaslHandshake", 18: "ApiVersions", 36: "SaslAuthenticate"}
"""The APIs that are answered before a client has authenticated."""
_SASL_AUTHENTICATE: Final = 1
"""Before this version of SaslHandshake, what follows are no requests."""
_MECHANISM: Final = "PLAIN"
_STEP, _HANDSHAKE, _DONE, _FAILED = "sasl", "handshake", "done", "failed"
_FAILURE_SECONDS: Final = 0.1
"""`connection.failed.authentication.delay.ms` of a broker, by default."""
_USERS_SIZE_MAX: Final = 1 << 20


class SaslPlain:
    """Lets clients in that know the password of a user."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._digests = {name: _digest(password) for name, password in users.items()}

    @classmethod
    def from_file(cls, path: str) -> SaslPlain:
        """Read the users of a file: a line `USER=PASSWORD` each, `#` before comments.

        Raises:
            UsageError: a line is malformed, a user is repeated, or there is none.
            NotFoundError, UnreadableError, NotAKafkaFileError: the file cannot be read.
        """
        users: dict[str, str] = {}
        try:
            text = read_file(path, _USERS_SIZE_MAX).decode()
        except UnicodeDecodeError as error:
            raise UsageError("The file is not UTF-8.", path=path) from error
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, separator, password = line.partition("=")
            name = name.strip()
            if not (name and separator and password):
                raise UsageError(f"Line {number} is not USER=PASSWORD.", path=path)
            if name in users:
                raise UsageError(f"Line {number} repeats the user {name!r}.", path=path)
            users[name] = password
        if not users:
            raise UsageError("The file has no users.", path=path, hint="A line is USER=PASSWORD.")
        return cls(users)

    def apis(self) -> list[Api]:
        return [Api("SaslHandshake", self.handshake), Api("SaslAuthenticate", self.authenticate)]

    def knows(self, client: Client) -> bool:
        return client.state.get(_STEP) == _DONE

    def permits(self, api_key: int, client: Client) -> bool:
        """Return whether a client may send this request now; else its connection ends."""
        step = client.state.get(_STEP)
        return step == _DONE or (step != _FAILED and api_key in BEFORE_AUTHENTICATION)

    async def handshake(self, request: Fields, version: int, client: Client) -> Fields:
        code = ErrorCode.NONE
        # Before it, bare tokens of SASL would follow.
        if version < _SASL_AUTHENTICATE:
            code = ErrorCode.UNSUPPORTED_VERSION
        elif client.state.get(_STEP) is not None:
            code = ErrorCode.ILLEGAL_SASL_STATE
        elif request["mechanism"] != _MECHANISM:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        else:
            client.state[_STEP] = _HANDSHAKE
        return {"errorCode": code, "mechanisms": [_MECHANISM]}

    async def authenticate(self, request: Fields, version: int, client: Client) -> Fields:
        """Check user and password; a client that fails is answered late, and then no more."""
        if client.state.get(_STEP) != _HANDSHAKE:
            return _failed(ErrorCode.ILLEGAL_SASL_STATE, "There was no SaslHandshake request.")
        user = self._user(bytes(request["authBytes"]))
        if user is None:
            client.state[_STEP] = _FAILED
            await asyncio.sleep(_FAILURE_SECONDS)
            text = "Authentication failed: Invalid username or password"
            return _failed(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
        client.state[_STEP] = _DONE
        client.principal = user
        return _failed(ErrorCode.NONE, None)

    def _user(self, message: bytes) -> str | None:
        """Return the user if the password is right; takes the same time for every user."""
        parts = message.split(b"\0")
        given_id, user, password = ("", "", "")
        if len(parts) == 3:  # as RFC 4616 has it
            # Without a digest another one is compared: the time says nothing about who is known.
            given_id, user, password = (one.decode(errors="replace") for one in parts)
        expected = self._digests.get(user)
        is_right = hmac.compare_digest(_digest(password), expected or bytes(32))
        if expected is None or not is_right or given_id not in ("", user):
            return None
        return user


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


def _failed(code: ErrorCode, text: str | None) -> Fields:
    return {"errorCode": code, "errorMessage": text, "authBytes": b"", "sessionLifetimeMs": 0}


def tls_context(certificate: str, key: str) -> ssl.SSLContext:
    """Return what a listener with TLS needs.

    Args:
        certificate: file with the certificate in PEM, and those that signed it.
        key: file with its private key in PEM, without a password.

    Raises:
        UnreadableError: a file cannot be read.
        UsageError: they are no certificate and its key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        raise UsageError(
            f"The files are not a certificate and its key: {error.reason or error}.",
            path=certificate,
            hint="Give both in PEM, the key without a password.",
        ) from error  # fmt: skip
    except OSError as error:
        readable = os.access(certificate, os.R_OK)
        raise UnreadableError(
            f"The file cannot be read: {os.strerror(error.errno or 0)}.",
            path=key if readable else certificate,
        ) from error
    return context


def _no_password() -> str:
    raise UsageError("The private key has a password.", hint="Give one without.")
