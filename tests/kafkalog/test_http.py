"""Documents of servers that are not trusted: where passwords go, and what ends."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import UnreadableError
from kafkalog.io.paths import http
from kafkalog.tables.schema_registry import read_registry
from tests.http_servers import Answering, basic, leads, says, server
from tests.kafkalog.wire.server.certificates import write_certificate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FORMS = b'["AVRO"]'
SECRET = basic("me:secret")


def registry(origin: str) -> str:
    return f"http://me:secret@{origin}"


def test_a_password_goes_to_the_origin_alone() -> None:
    """Also not when the other origin leads back to it by way of a name that looks like it."""
    with server(says(FORMS)) as other, server(leads(lambda: f"http://{other.origin}/x")) as first:
        assert read_registry(registry(first.origin)).place
    assert first.asked == [("/schemas/types", SECRET)]
    assert other.asked == [("/x", None)]


def test_a_password_stays_at_its_origin() -> None:
    """A registry may move its answer to another path."""

    def answer(to: Answering) -> None:
        (says(FORMS) if to.path == "/moved" else leads("/moved"))(to)

    with server(answer) as only:
        assert read_registry(registry(only.origin)).place
    assert [secret for _, secret in only.asked] == [SECRET] * 2


def test_an_origin_that_wants_the_password_is_named() -> None:
    """The user can name it."""
    with (
        server(lambda to: to.send_error(401)) as other,
        server(leads(lambda: f"http://{other.origin}/")) as first,
        pytest.raises(UnreadableError, match="401") as raised,
    ):
        read_registry(registry(first.origin))
    assert f"http://{other.origin}, to which it redirects, gets no password" in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("target", [
    "ftp://127.0.0.1/schemas", "file:///etc/passwd", "data:,[]", "gopher://127.0.0.1/",
    "http://u:p@127.0.0.1:x/", "http://[", "http://127.0.0.1:99999/",
])  # fmt: skip
def test_only_http_is_followed(target: str) -> None:
    """No other scheme, and what is no URL ends with an error of its own."""
    with server(leads(target)) as first, pytest.raises(UnreadableError, match="does not answer"):
        read_registry(registry(first.origin))
    assert len(first.asked) == 1


def test_redirects_are_counted() -> None:
    with (
        server(lambda to: leads(f"{to.path}x")(to)) as first,
        pytest.raises(UnreadableError, match="redirect"),
    ):
        read_registry(registry(first.origin))
    assert len(first.asked) == http._REDIRECTS_MAX + 1


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A certificate that clients trust."""
    certificate, key = write_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate, key)
    return made


def test_what_was_asked_by_https_is_not_asked_in_the_open(tls: ssl.SSLContext) -> None:
    with server(says(FORMS), tls) as good:
        assert read_registry(f"https://me:secret@{good.origin}").place
    with (
        server(says(FORMS)) as plain,
        server(leads(lambda: f"http://{plain.origin}/"), tls) as first,
        pytest.raises(UnreadableError, match="http://, which is not followed"),
    ):
        read_registry(f"https://me:secret@{first.origin}")
    assert (len(first.asked), plain.asked) == (1, [])


def dripping(head: bytes) -> Callable[[Answering], None]:
    """Return an answer that never ends, and is never silent for long."""

    def answer(to: Answering) -> None:
        to.wfile.write(head)
        while not to.server.is_over.wait(0.02):
            to.wfile.write(b" ")

    return answer


@pytest.mark.parametrize("head", [
    b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 99999\r\n\r\n",
])  # fmt: skip
def test_a_slow_answer_ends(head: bytes) -> None:
    """Each byte would begin the timeout of a socket again."""
    with (
        server(dripping(head)) as first,
        pytest.raises(OSError, match=r"not complete|redirect"),
    ):
        http.get(f"http://{first.origin}/", {}, {}, size_max=1 << 20, seconds_max=0.5)


def test_a_handshake_that_does_not_come_ends() -> None:
    with server(dripping(b"")) as first, pytest.raises(OSError, match=r"."):
        http.get(f"https://{first.origin}/", {}, {}, size_max=1 << 20, seconds_max=0.5)


def forever(to: Answering) -> None:
    to.send_response(200)
    to.end_headers()
    while not to.server.is_over.is_set():
        to.wfile.write(b"x" * 1000)


@pytest.mark.parametrize("answer", [says(b"x" * 101), forever])
def test_an_answer_is_not_longer_than_wanted(answer: Callable[[Answering], None]) -> None:
    with server(answer) as first, pytest.raises(OSError, match="more than 100 bytes"):
        http.get(f"http://{first.origin}/", {}, {}, size_max=100)
    with server(says(b"x" * 100)) as first:
        assert len(http.get(f"http://{first.origin}/", {}, {}, size_max=100)) == 100


@pytest.mark.parametrize("answer", [
    b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[",
])  # fmt: skip
def test_what_is_no_answer_is_an_error(answer: bytes) -> None:
    """None of the exceptions of the library for HTTP gets out."""
    with (
        server(lambda to: to.wfile.write(answer)) as first,
        pytest.raises(UnreadableError, match="does not answer"),
    ):
        read_registry(registry(first.origin))
