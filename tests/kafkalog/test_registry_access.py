"""As whom a registry knows us, whom we trust, and what is never shown."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import kafkalog as kafkalog_library
from kafkalog.errors import TemporaryError, UnreadableError, UsageError
from kafkalog.io.paths.retry import Retry, retrying
from kafkalog.log.typed import TypedColumn, remote_registry
from kafkalog.tables.schema_columns import column_of_topic
from kafkalog.tables.schema_registry import read_registry
from tests.builders import batch, record, write_log
from tests.http_servers import (
    Answering,
    basic,
    gives,
    leads,
    only_for,
    registry_of,
    says,
    server,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]

FIRST = {"subject": "t-value", "version": 1, "id": 7, "schema": '"string"'}
ANSWER = registry_of([FIRST])
SECRET = "hunter-2"  # noqa: S105 # of these tests


class Authority:
    """Signs certificates."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{place.name} CA")])
        place.mkdir()
        self.path = self._written("ca.pem", self._signed(self._name, self._key, is_ca=True))

    def _signed(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *names: x509.GeneralName,
        is_ca: bool = False,
        days: int = 1,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=3))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return made.sign(self._key, hashes.SHA256())

    def _written(self, name: str, certificate: x509.Certificate) -> Path:
        path = self._place / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def issued(
        self, name: str, host: str = "127.0.0.1", *, days: int = 1, password: bytes | None = None
    ) -> tuple[Path, Path]:
        """Return the paths of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        of_host = x509.IPAddress(ipaddress.ip_address(host))
        path = self._written(f"{name}.pem", self._signed(subject, key, of_host, days=days))
        locked = (
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption()
        )
        key_path = self._place / f"{name}.key"
        key_path.write_bytes(key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked
        ))  # fmt: skip
        return path, key_path


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ours")


def tls_of(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificate, key)
    if client_ca is not None:
        made.verify_mode = ssl.CERT_REQUIRED
        made.load_verify_locations(client_ca)
    return made


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def put(**variables: object) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(f"KAFKALOG_REGISTRY_{name}", str(value))

    return put


def test_credentials_of_the_environment(
    tmp_path: Path, environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with its password, a token, and a file whose token changes; the URL's come first."""
    environment(USER=f"me:{SECRET}")
    with server(only_for(basic(f"me:{SECRET}"), ANSWER)) as one:
        assert read_registry(f"http://{one.origin}").by_id.get(7)
    with server(only_for(basic("you:p/w"), ANSWER)) as one:
        assert read_registry(f"http://you:p%2Fw@{one.origin}").by_id.get(7)
    monkeypatch.delenv("KAFKALOG_REGISTRY_USER")
    environment(TOKEN=SECRET)
    with server(only_for(f"Bearer {SECRET}", ANSWER)) as one:
        assert read_registry(f"http://{one.origin}").by_id.get(7)
    monkeypatch.delenv("KAFKALOG_REGISTRY_TOKEN")
    file = tmp_path / "token"
    file.write_text("one\n")
    environment(TOKEN_FILE=file)
    with server(ANSWER) as one:
        found = read_registry(f"http://{one.origin}")
        file.write_text("other\n")
        assert found.by_id.get(7)
    assert [said for _, said in one.asked] == ["Bearer one", "Bearer other"]
    environment(TOKEN=SECRET)
    with pytest.raises(UsageError, match="one is enough"):
        read_registry("http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({"TOKEN": f"{SECRET}\nX-Header: x"}, "http://127.0.0.1:1"),
        ({"TOKEN": f"{SECRET}\x7f"}, "http://127.0.0.1:1"),
        ({"TOKEN": f"{SECRET}é"}, "http://127.0.0.1:1"),
        ({"USER": SECRET}, "http://127.0.0.1:1"),
        ({}, f"http://me:{SECRET}/@127.0.0.1:1"),
        ({}, f"http://me:{SECRET}[@127.0.0.1:1"),
        ({}, f"http://me:{SECRET}℀@127.0.0.1:1"),
        ({}, f"http://me:{SECRET}@127.0.0.1:port"),
        ({"CA": "/dev/null"}, f"https://me:{SECRET}@127.0.0.1:1"),
        ({"KEY": "/nowhere"}, f"https://me:{SECRET}@127.0.0.1:1"),
        ({"CERTIFICATE": "/nowhere"}, f"https://me:{SECRET}@127.0.0.1:1"),
    ],
)
def test_what_is_malformed_is_not_shown(
    environment: Callable[..., None], variables: dict[str, str], url: str
) -> None:
    environment(**variables)
    with pytest.raises(UsageError) as raised:
        read_registry(url)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None
    assert SECRET not in f"{raised.value} {raised.value.path} {raised.value.hint}"


def test_credentials_do_not_reach_another_origin(environment: Callable[..., None]) -> None:
    environment(TOKEN=SECRET)
    with (
        server(ANSWER) as other,
        server(leads(lambda: f"http://{other.origin}/schemas/types")) as one,
    ):
        read_registry(f"http://{one.origin}")
    assert one.asked == [("/schemas/types", f"Bearer {SECRET}")]
    assert other.asked == [("/schemas/types", None)]


def test_a_client_certificate(authority: Authority, environment: Callable[..., None]) -> None:
    """Shown to who asks for it, with a key that has a password; without it there is no answer."""
    tls = tls_of(*authority.issued("server"), authority.path)
    certificate, key = authority.issued("client", password=SECRET.encode())
    with server(ANSWER, tls) as one:
        environment(CA=authority.path)
        with pytest.raises(UnreadableError, match=r"(?i)certificate.required|alert|reset|EOF"):
            read_registry(f"https://{one.origin}")
        environment(CERTIFICATE=certificate, KEY=key)
        with pytest.raises(UsageError, match="certificates for the registry"):
            read_registry(f"https://{one.origin}")  # and no question on the terminal
        environment(KEY_PASSWORD=SECRET)
        assert read_registry(f"https://{one.origin}").by_id.get(7)


def test_a_client_certificate_is_not_shown_elsewhere(
    tmp_path: Path, authority: Authority, environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Nor does our authority vouch for others: these need one that the machine trusts."""
    others = Authority(tmp_path / "others")
    certificate, key = authority.issued("client")
    environment(CA=authority.path, CERTIFICATE=certificate, KEY=key)
    shown: list[object] = []

    def answer(to: Answering) -> None:
        shown.append(to.connection.getpeercert())  # type: ignore[attr-defined] # of TLS
        says(b"[]")(to)

    theirs = tls_of(*others.issued("server"))
    theirs.verify_mode = ssl.CERT_OPTIONAL
    theirs.load_verify_locations(authority.path)
    with (
        server(answer, theirs) as other,
        server(leads(lambda: f"https://{other.origin}/"), tls_of(*authority.issued("s"))) as one,
    ):
        with pytest.raises(UnreadableError, match="CERTIFICATE_VERIFY_FAILED"):
            read_registry(f"https://{one.origin}")
        monkeypatch.setenv("SSL_CERT_FILE", str(others.path))
        read_registry(f"https://{one.origin}")
    assert shown == [None]


@pytest.mark.parametrize(
    ("host", "days", "reason"),
    [("127.0.0.1", -1, "expired"), ("127.0.0.2", 1, "not valid for '127.0.0.1'")],
)
def test_certificates_that_are_not_trusted(
    authority: Authority, environment: Callable[..., None], host: str, days: int, reason: str
) -> None:
    """Expired, of another host, and of an authority that nobody named."""
    with server(ANSWER, tls_of(*authority.issued("server", host, days=days))) as one:
        with pytest.raises(UnreadableError, match="unable to get local issuer"):
            read_registry(f"https://me:{SECRET}@{one.origin}")
        environment(CA=authority.path)
        with pytest.raises(UnreadableError, match=reason):
            read_registry(f"https://me:{SECRET}@{one.origin}")
    assert one.asked == []


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_registry_is_asked_again(status: int) -> None:
    """Not before the time that it names, and not for longer than a run waits."""
    slept: list[float] = []
    later = ["7", "", "30", "no number"]

    def answer(to: Answering) -> None:
        if not later:
            ANSWER(to)
            return
        to.send_response(status)
        to.send_header("Retry-After", later.pop())
        to.send_header("Content-Length", "0")
        to.end_headers()

    with server(answer) as one:
        with retrying(Retry(60, sleep=slept.append, jitter=lambda: 0.0)):
            assert read_registry(f"http://{one.origin}").by_id.get(7)
        assert slept[1::2] == [30, 7]
        assert max(slept[::2]) < 1
        later.append("3600")
        with (
            retrying(Retry(60, sleep=pytest.fail)),
            pytest.raises(TemporaryError, match=f"{status}"),
        ):
            read_registry(f"http://{one.origin}")


def test_a_worker_asks_by_itself(
    environment: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another process there is what the environment has, and not what was in the URL."""
    with server(only_for(basic(f"me:{SECRET}"), ANSWER)) as one:
        found = read_registry(f"http://me:{SECRET}@{one.origin}")
        column = column_of_topic(found, ["t"], "value")
        assert column is not None
        sent = json.dumps(column.as_json() | {"writers": []})
        assert SECRET not in sent
        monkeypatch.setattr(remote_registry, "_registries", {})
        with pytest.raises(UnreadableError, match="Unauthorized"):
            TypedColumn.from_json(json.loads(sent)).decoder()
        environment(USER=f"me:{SECRET}")
        decoder = TypedColumn.from_json(json.loads(sent)).decoder()
        assert decoder.decode(b"\x02x", 7) == "x"
        with pytest.raises(ValueError, match="the schema 8 is unknown"):
            decoder.decode(b"\x02x", 8)


def test_a_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not for hosts that it is not for."""
    with server(ANSWER) as one, server(says(b'["AVRO"]')) as proxy:
        monkeypatch.setenv("http_proxy", f"http://{proxy.origin}")
        read_registry("http://registry.invalid/base")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        read_registry(f"http://{one.origin}")
    assert [path for path, _ in proxy.asked] == ["http://registry.invalid/base/schemas/types"]
    assert [path for path, _ in one.asked] == ["/schemas/types"]


def test_secrets_are_nowhere_in_what_is_written(
    tmp_path: Path, kafkalog: Kafkalog, environment: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Not in an export, its manifest, its output, nor in what `explain config` says."""
    write_log(tmp_path / "log" / "t-0", batch(0, [record(0, b"k", b"\0\0\0\0\7\x02x")]))
    write_log(tmp_path / "log" / "other-0", batch(0, [record(0, b"k", b"text")]))
    with server(only_for(basic(f"me:{SECRET}"), ANSWER)) as one:
        for number, (url, variables) in enumerate([
            (f"http://me:{SECRET}@{one.origin}", {}),
            (f"http://{one.origin}", {"USER": f"me:{SECRET}"}),
        ]):  # fmt: skip
            environment(**variables)
            lake = tmp_path / f"lake{number}"
            words = ("export", tmp_path / "log", "-t", "t", "-r", url, "--to", lake)
            done = kafkalog(*words, "-o", "ndjson")
            assert done.status == 0, done.stderr
            assert json.loads(done.stdout.splitlines()[-1])["rows"] == 1
            written = b"".join(one.read_bytes() for one in lake.rglob("*") if one.is_file())
            assert one.origin.encode() in written, "the manifest names the place"
            for text in (done.stdout, done.stderr.encode(), written):
                assert SECRET.encode() not in text
            again = kafkalog(*words)
            assert again.status == 0, again.stderr
        url = f"http://me:{SECRET}@{one.origin}"
        for words in (("export", "--to", tmp_path / "no"), ("sql", "-c", "SELECT 1")):
            none = kafkalog(words[0], tmp_path / "log", "-t", "other", "-r", url, *words[1:])
            assert (none.status, "has no subject other-value" in none.stderr) == (2, True)
            assert SECRET not in none.stderr
        with pytest.raises(UsageError, match="no subject") as raised:
            kafkalog_library.dataset(tmp_path / "log", topics=["other"], registry=url)
        assert SECRET not in str(raised.value)
        environment(TOKEN=SECRET, KEY_PASSWORD=SECRET)
    monkeypatch.setenv("KAFKALOG_FIND_REGISTRY", f"http://me:{SECRET}@registry:8081")
    config = tmp_path / "config.toml"
    config.write_text(f'[place.ex]\npaths = ["x"]\nregistry = "https://me:{SECRET}@host"\n')
    monkeypatch.setenv("KAFKALOG_CONFIG", str(config))
    shown = kafkalog("explain", "config")
    assert b"https://***@host" in shown.stdout
    assert b"http://***@registry:8081" in shown.stdout
    assert b"KAFKALOG_REGISTRY_TOKEN" in shown.stdout
    assert SECRET.encode() not in shown.stdout


def test_name_and_password_are_answered_with_an_error_that_names_the_variables() -> None:
    with server(lambda to: gives(to, {}, 401)) as one, pytest.raises(UnreadableError) as raised:
        read_registry(f"http://{one.origin}")
    assert raised.value.hint == "KAFKALOG_REGISTRY_USER, or KAFKALOG_REGISTRY_TOKEN"
