"""SASL/PLAIN and TLS: who is admitted, and errors in user and key files."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest

from formats.error_codes import ErrorCode
from kafkalog.errors import NotFoundError, UnreadableError, UsageError
from kafkalog.wire.server import security
from kafkalog.wire.server.model import Client, is_loopback
from kafkalog.wire.server.security import SaslPlain, tls_context
from tests.kafkalog.wire.server.certificates import write_certificate

if TYPE_CHECKING:
    from pathlib import Path

HANDSHAKE, VERSIONS, AUTHENTICATE, METADATA = 17, 18, 36, 3


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "_FAILURE_SECONDS", 0)


def answers(message: bytes, mechanism: str = "PLAIN") -> tuple[list[int], Client, SaslPlain]:
    """Return the error codes of a handshake and an authentication, and the resulting client."""
    sasl = SaslPlain({"alice": "secret", "bob": "pass=word"})
    client = Client("127.0.0.1", 1)

    async def run() -> list[int]:
        first = await sasl.handshake({"mechanism": mechanism}, 1, client)
        second = await sasl.authenticate({"authBytes": message}, 2, client)
        return [first["errorCode"], second["errorCode"]]

    return asyncio.run(run()), client, sasl


@pytest.mark.parametrize(("message", "user"), [
    (b"\0alice\0secret", "alice"), (b"\0bob\0pass=word", "bob"), (b"alice\0alice\0secret", "alice"),
])  # fmt: skip
def test_who_is_let_in(message: bytes, user: str) -> None:
    codes, client, sasl = answers(message)
    assert codes == [ErrorCode.NONE, ErrorCode.NONE]
    assert client.principal == user
    assert sasl.permits(METADATA, client)


@pytest.mark.parametrize("message", [
    b"", b"\0", b"\0\0", b"\0alice\0", b"\0alice\0Secret", b"\0alice\0secret\0", b"\0carol\0secret",
    b"\0\0secret", b"bob\0alice\0secret", b"alice\0secret", b"\xff\0\xff\0\xff", b"\0" * 1000,
])  # fmt: skip
def test_who_is_not(message: bytes) -> None:
    codes, client, sasl = answers(message)
    assert codes == [ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED]
    assert client.principal == "ANONYMOUS"
    assert not any(
        sasl.permits(key, client) for key in (HANDSHAKE, VERSIONS, AUTHENTICATE, METADATA)
    )


def test_the_order_of_requests() -> None:
    codes, client, sasl = answers(b"\0alice\0secret", "SCRAM-SHA-256")
    assert codes == [ErrorCode.UNSUPPORTED_SASL_MECHANISM, ErrorCode.ILLEGAL_SASL_STATE]
    assert [sasl.permits(key, client) for key in (VERSIONS, HANDSHAKE, AUTHENTICATE)] == [True] * 3
    assert not sasl.permits(METADATA, client)
    _, client, sasl = answers(b"\0alice\0secret")
    again = asyncio.run(sasl.handshake({"mechanism": "PLAIN"}, 1, client))
    assert again["errorCode"] == ErrorCode.ILLEGAL_SASL_STATE


def test_a_file_of_users(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("# who may read\n\nalice=secret\n bob =pass=word \n")
    sasl = SaslPlain.from_file(str(path))
    client = Client("127.0.0.1", 1)

    async def run() -> int:
        await sasl.handshake({"mechanism": "PLAIN"}, 1, client)
        answer = await sasl.authenticate({"authBytes": b"\0bob\0pass=word "}, 2, client)
        return int(answer["errorCode"])

    assert asyncio.run(run()) == ErrorCode.NONE


@pytest.mark.parametrize("content", [
    b"", b"# nobody\n", b"alice\n", b"alice=\n", b"=secret\n", b"a=1\na=2\n", b"\xff=1\n",
])  # fmt: skip
def test_a_file_that_is_none_of_users(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "users"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        SaslPlain.from_file(str(path))
    with pytest.raises(NotFoundError):
        SaslPlain.from_file(str(tmp_path / "none"))


def test_tls_files(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    assert tls_context(str(certificate), str(key)).minimum_version == ssl.TLSVersion.TLSv1_2
    with pytest.raises(UsageError):
        tls_context(str(certificate), str(certificate))
    with pytest.raises(UsageError):
        tls_context(str(key), str(certificate))
    with pytest.raises(UnreadableError):
        tls_context(str(certificate), str(tmp_path / "none"))
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UsageError):
        tls_context(str(certificate), str(write_certificate(other)[1]))
    with pytest.raises(UsageError, match="has a password"):
        tls_context(str(certificate), str(write_certificate(other, password=b"x")[1]))


def test_loopback() -> None:
    hosts = ("127.0.0.1", "127.1.2.3", "::1", "localhost", "0.0.0.0", "", "::", "10.0.0.1", "host")  # noqa: S104
    assert [is_loopback(host) for host in hosts] == [True] * 4 + [False] * 5
