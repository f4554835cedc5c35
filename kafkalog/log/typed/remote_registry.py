"""A registry that is asked by HTTP for the schemas that data needs.

It is not trusted: what it says is bounded in size, number and time, and has the types that it
should have, or is an error. Name, password and token go to its origin alone.
"""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.parse
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import CorruptDataError, UnreadableError, UsageError
from kafkalog.io.engine import in_order
from kafkalog.io.paths import http
from kafkalog.io.paths.retry import temporary, tried
from kafkalog.log.typed.registered import Registered, SchemaRegistry, registered

if TYPE_CHECKING:
    from kafkalog.log.typed.framing import SchemaId, TypedForm

VARIABLES: Final = "KAFKALOG_REGISTRY_"
"""What the names of the environment variables about registries begin with."""
_SECRETS: Final = ("USER", "TOKEN", "KEY_PASSWORD")
SECRET_VARIABLES: Final = frozenset(f"{VARIABLES}{one}" for one in _SECRETS)
"""Those whose values are not shown."""
_ID_MAX: Final = (1 << 31) - 1
_ANSWER_SIZE_MAX: Final = 16 << 20
_PARTS_MAX: Final = 500_000  # of one answer: each takes up to fifty times what it takes in JSON
_VERSIONS_MAX: Final = 10_000
_SIZE_MAX: Final = 128 << 20  # of all schemas in memory
_SECONDS_MAX: Final = 600.0  # of all answers together
_UNKNOWN_MAX: Final = 1000
_SUBJECTS_MAX: Final = 16  # of one schema that are looked at
_AT_ONCE: Final = 8
_TOKEN_SIZE_MAX: Final = 64 << 10
# No such subject, version, or schema: Confluent's numbers, which others have taken over.
_NOT_THERE: Final = (40401, 40402, 40403)
_BUSY: Final = frozenset((429, 500, 502, 503, 504))
# A path that an old registry lacks, or that we may not see.
_NO_ANSWER: Final = frozenset((403, 404, 405))


class _ById(dict["SchemaId", Registered]):
    """The schemas of a registry by id; one that is not there is fetched."""

    def __init__(self, registry: RemoteRegistry) -> None:
        super().__init__()
        self._registry = registry

    def __missing__(self, schema_id: SchemaId) -> Registered:
        found = self._registry.fetch(schema_id)
        if found is None:
            raise KeyError(schema_id)
        return found

    def get(self, schema_id: SchemaId, default: Any = None) -> Any:
        try:
            return self[schema_id]
        except KeyError:
            return default

    def __contains__(self, schema_id: object) -> bool:
        return self.get(schema_id) is not None  # type: ignore[arg-type] # nothing else is asked


class RemoteRegistry(SchemaRegistry):
    """The schemas of a registry; each is fetched when it is asked for, and kept.

    Data can claim any number of ids, and a value without a schema can begin as if it had one: after
    a thousand ids that it does not have, a registry is asked for no others.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client.place, _ById(self))
        self._client = client
        self._unknown: set[SchemaId] = set()
        self._by_guid: dict[str, int | None] = {}
        self._numbers: dict[str, list[int]] = {}
        self._size = 0
        self._lock = Lock()  # of the size; to ask twice for the same does no harm

    @property
    def remote_place(self) -> str | None:
        return self.place

    def fetch(self, schema_id: SchemaId) -> Registered | None:
        """Return a schema that is not known yet; None if the registry has none with this id."""
        if self.lacks(schema_id):
            return None
        if len(self._unknown) >= _UNKNOWN_MAX:
            self.refused += 1
            return None
        kind = "ids" if isinstance(schema_id, int) else "guids"
        row = self._client.ask(f"/schemas/{kind}/{schema_id}", is_new=kind == "guids")
        if row is None:
            self._unknown.add(schema_id)
            return None
        return self._added(row, {"id": schema_id, "subject": None, "version": 0})

    def asked(self, schema_id: SchemaId) -> Registered | None:
        """Return the schema with an id; None if the registry says that it does not have it.

        Raises:
            UnreadableError: the registry was not asked for all ids.
        """
        found = self.by_id.get(schema_id)
        if found is None and not self.lacks(schema_id):
            raise UnreadableError(
                f"It lacks more than {_UNKNOWN_MAX} ids of schemas, and is asked for no others.",
                path=self.place,
            )
        return found

    def lacks(self, schema_id: SchemaId) -> bool:
        """Return whether it is known that there is no such id."""
        return schema_id in self._unknown or (isinstance(schema_id, int) and schema_id > _ID_MAX)

    def number_of(self, guid: str) -> int | None:
        """Return the number of the schema with a GUID; None if it has none in the main context."""
        if guid not in self._by_guid:
            one = self.by_id.get(guid)
            if one is None:
                return None
            path = f"/schemas/guids/{guid}/ids"
            rows = self._client.ask(path, is_new=True) or []
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise self._client.strange("no list of ids", path)
            numbers = [row.get("id") for row in rows if row.get("context") == "."]
            number = numbers[0] if numbers and type(numbers[0]) is int else None
            if number is not None:
                self.add(replace(one, id=number))
            self._by_guid[guid] = number
        return self._by_guid[guid]

    def in_subject(self, schema_id: SchemaId) -> Registered | None:
        found = super().in_subject(schema_id)
        if found is None or found.subject is not None or not isinstance(schema_id, int):
            return found
        path = f"/schemas/ids/{schema_id}/versions"
        rows = self._client.ask(path, is_new=True) or []
        try:
            places = sorted((str(row["subject"]), int(row["version"])) for row in rows)
        except (TypeError, KeyError, ValueError):
            raise self._client.strange("no list of versions", path) from None
        known = [self.version(*place) for place in places[:_SUBJECTS_MAX]]
        return next((one for one in known if one is not None and one.id == schema_id), found)

    def version(self, subject: str, number: int) -> Registered | None:
        found = super().version(subject, number)
        if found is None:
            path = f"{_path_of(subject)}/{number}?deleted=true"
            row = self._client.ask(path)
            if row is not None:
                found = self._added(row, {"subject": subject, "version": number})
        return found

    def all_versions(self, subject: str) -> list[Registered]:
        """Return the versions of a subject that are not deleted; all of them if all are."""
        if subject not in self._numbers:
            path = _path_of(subject)
            found = self._client.ask(path) or self._client.ask(f"{path}?deleted=true") or []
            are_numbers = isinstance(found, list) and all(type(one) is int for one in found)
            if not are_numbers or len(found) > _VERSIONS_MAX:
                raise self._client.strange(f"no list of at most {_VERSIONS_MAX} versions", path)
            self._numbers[subject] = found
        numbers = self._numbers[subject]
        made = in_order(lambda one: self.version(subject, one), numbers, _AT_ONCE)
        return [one for one in made if one is not None]

    def _added(self, row: Any, known: dict[str, Any]) -> Registered:
        if not isinstance(row, dict):
            raise self._client.strange("no schema")
        one = registered({**row, **known}, self.place, is_named=True)
        with self._lock:
            # What Python takes for a text that is not ASCII is more than its length.
            self._size += one.text.__sizeof__() + 1000
            if self._size > _SIZE_MAX:
                raise UnreadableError(
                    f"The schemas that are needed have more than {_SIZE_MAX >> 20} MiB.",
                    path=self.place,
                )
            self.add(one)
        return one


class RemoteWriters(Mapping["SchemaId", tuple[str, ...]]):
    """What `TypedColumn.writers` has, and what it would have of the schemas of a registry.

    Args:
        known: what it has.
        form: what the schemas are.
        place: of the registry.
    """

    def __init__(self, known: dict[SchemaId, tuple[str, ...]], form: TypedForm, place: str) -> None:
        self._known, self._form, self._place = known, form, place

    def __getitem__(self, schema_id: SchemaId) -> tuple[str, ...]:
        found = self._known.get(schema_id)
        if found is None:
            registry = registry_at(self._place)
            one = registry.asked(schema_id)
            if one is None or one.form.lower() != self._form:
                raise KeyError(schema_id)
            try:
                found = self._known[schema_id] = registry.texts(one)
            except UsageError as error:  # without what it refers to it decodes nothing
                raise KeyError(schema_id) from error
        return found

    def __bool__(self) -> bool:
        """Return True: there may be one that is not known yet."""
        return True

    def __iter__(self) -> Iterator[SchemaId]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class Client:
    """Asks one registry.

    Args:
        url: where it is, with name and password if need be.

    Attributes:
        place: the URL as it is shown: without name and password.

    Raises:
        UsageError: the URL, or an environment variable about it, is malformed.
    """

    def __init__(self, url: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            _ = parts.port
            user, password = parts.username, parts.password
        except ValueError:  # whose words may have the password
            raise UsageError(
                "The URL of the registry is malformed.",
                hint="Write characters of a password that are not letters or digits as %XX.",
            ) from None
        # Not in the URL: errors and logs would show the password.
        plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
        self.place = plain.geturl()
        self._base = self.place.rstrip("/")
        self._user = None if user is None else f"{_unquoted(user)}:{_unquoted(password or '')}"
        self._tls = _tls() if parts.scheme == "https" else None
        self._authorization()  # which may be malformed
        self._seconds = 0.0

    def ask(self, path: str, *, is_new: bool = False) -> Any:
        """Return what is at a path, in types of JSON; None if the registry has no such thing.

        Args:
            path: below that of the registry.
            is_new: whether old registries have nothing there.

        Raises:
            TemporaryError, UnreadableError: it does not answer.
            CorruptDataError: this is no answer of a registry.
        """
        try:
            data = tried(self.place, self._asked, path)
        except http.StatusError as error:
            if error.status == HTTPStatus.NOT_FOUND and (is_new or _is_of_registry(error.body)):
                return None
            if is_new and error.status in _NO_ANSWER:
                return None
            raise self._unanswered(error) from None
        return self._parsed(data, path)

    def strange(self, what: str, path: str = "") -> CorruptDataError:
        """Return the error of an answer that is something else than was asked for."""
        return CorruptDataError(f"The registry answers with {what}.", path=f"{self._base}{path}")

    def _asked(self, path: str) -> bytes:
        begun = time.monotonic()
        secrets = {} if (said := self._authorization()) is None else {"Authorization": said}
        try:
            return http.get(
                f"{self._base}{path}", {"Accept": "application/json"}, secrets,
                size_max=_ANSWER_SIZE_MAX, tls=self._tls,
            )  # fmt: skip
        except http.StatusError as error:
            if error.status in _BUSY:
                busy = temporary(f"the registry answers: {error}", self.place)
                busy.after_s = error.after_s
                raise busy from None
            raise
        except (OSError, ValueError) as error:
            raise self._unanswered(error) from None
        finally:
            self._seconds += time.monotonic() - begun
            if self._seconds > _SECONDS_MAX:
                raise UnreadableError(
                    f"The registry's answers took more than {_SECONDS_MAX:.0f} s.", path=self.place
                )

    def _unanswered(self, error: Exception) -> UnreadableError:
        is_refused = isinstance(error, http.StatusError) and error.status == HTTPStatus.UNAUTHORIZED
        return UnreadableError(
            f"The registry does not answer: {error}.",
            path=self.place,
            hint=f"{VARIABLES}USER, or {VARIABLES}TOKEN" if is_refused else None,
        )

    def _authorization(self) -> str | None:
        """Return the header that says who asks; a file with a token is read again each time."""
        user, token = (os.environ.get(f"{VARIABLES}{one}") for one in ("USER", "TOKEN"))
        path = os.environ.get(f"{VARIABLES}TOKEN_FILE")
        if self._user is not None:
            user, token, path = self._user, None, None
        if [user, token, path].count(None) < 2:  # of three
            raise UsageError(
                f"{VARIABLES}USER, {VARIABLES}TOKEN and {VARIABLES}TOKEN_FILE: one is enough."
            )
        if user is not None:
            if ":" not in user:
                raise UsageError(f"{VARIABLES}USER must be NAME:PASSWORD.")
            return f"Basic {b64encode(user.encode()).decode()}"
        if path is not None:
            try:
                with open(path, encoding="ascii", errors="replace") as file:
                    token = file.read(_TOKEN_SIZE_MAX)
            except OSError as error:
                raise UsageError(
                    f"The token cannot be read: {error.strerror}.", path=path
                ) from None
        if token is None:
            return None
        token = token.strip()
        if not (token and token.isascii() and token.isprintable()):
            raise UsageError("The token of the registry is no line of ASCII.", path=path)
        return f"Bearer {token}"

    def _parsed(self, data: bytes, path: str) -> Any:
        # Also of those in the text of a schema, which describes no column by then.
        if max(data.count(b"{"), data.count(b"[")) > _PARTS_MAX:
            raise self.strange(f"more than {_PARTS_MAX} objects or lists", path)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self.strange(f"what is no JSON: {error}", path) from None


def opened(url: str) -> RemoteRegistry:
    """Return the registry at a URL, which answers, for this process.

    Raises:
        TemporaryError, UnreadableError, CorruptDataError, UsageError: as `Client`.
    """
    client = Client(url)
    # Before data needs it: whether it is there at all, and lets us in.
    forms = client.ask("/schemas/types", is_new=True)
    if not isinstance(forms, list | None):
        raise client.strange("no list of forms of schemas")
    found = _registries[client.place] = RemoteRegistry(client)
    return found


def registry_at(place: str) -> RemoteRegistry:
    """Return the registry that this process opened, or open it with what the environment has.

    Raises:
        as `opened`.
    """
    found = _registries.get(place)
    return opened(place) if found is None else found


_registries: Final[dict[str, RemoteRegistry]] = {}


def _path_of(subject: str) -> str:
    return f"/subjects/{urllib.parse.quote(subject, safe='')}/versions"


def _unquoted(text: str) -> str:
    return urllib.parse.unquote(text)


def _is_of_registry(body: bytes) -> bool:
    """Return whether an error is about what a registry has, and not about a path of the server."""
    with suppress(ValueError, RecursionError):
        found = json.loads(body)
        return isinstance(found, dict) and found.get("error_code") in _NOT_THERE
    return False


def _tls() -> ssl.SSLContext | None:
    """Return whom the environment trusts, and what it shows of us; None for the usual."""
    ca, certificate, key, password = (
        os.environ.get(f"{VARIABLES}{one}") for one in ("CA", "CERTIFICATE", "KEY", "KEY_PASSWORD")
    )
    if certificate is None and key is not None:
        raise UsageError(f"{VARIABLES}KEY needs {VARIABLES}CERTIFICATE.")
    if ca is None and certificate is None:
        return None
    try:
        made = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            # Without a password, OpenSSL would ask the terminal for it.
            made.load_cert_chain(certificate, key, lambda: password or "")
    except (OSError, ValueError) as error:
        words = getattr(error, "reason", None) or getattr(error, "strerror", None) or "malformed"
        raise UsageError(
            f"The certificates for the registry cannot be read: {words}.",
            path=certificate if certificate is not None else ca,
            hint=f"{VARIABLES}CA, {VARIABLES}CERTIFICATE and {VARIABLES}KEY name PEM files.",
        ) from None
    return made
