"""The schemas that values were written with: of a registry, of a `_schemas` topic, or of files.

A registry of Confluent's kind numbers all schemas. It keeps them in the topic `_schemas`, so the
disk of a broker has them, too, whether the registry is alive or not.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import urllib.parse
from base64 import b64decode, b64encode
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkalog.errors import CorruptDataError, NotAKafkaFileError, UnreadableError, UsageError
from kafkalog.files.log_dir import LogDirListing, PartitionDir
from kafkalog.io.paths import file_system, http
from kafkalog.io.paths.reading_errors import reading_error
from kafkalog.io.paths.source import read_file
from kafkalog.log.batches.selection import Selection
from kafkalog.model import Defect
from kafkalog.node.reader import read_records
from kafkalog.node.targets import open_targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.log.typed.framing import SchemaId

TOPIC: Final = "_schemas"
_SIZE_MAX: Final = 256 << 20
_SCHEMA_SIZE_MAX: Final = 16 << 20
_FORMS: Final = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
_ID: Final = re.compile(r"[0-9]{1,19}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ID_MAX: Final = (1 << 63) - 1
_REFERENCES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of a subject.

    Attributes:
        subject: its subject; None if it has none, as in a file.
        version: its number there.
        id: number of the schema, or UUID of its version.
        form: `AVRO`, `JSON` or `PROTOBUF`.
        text: the schema.
        references: name, subject and version of the schemas that it refers to.
        guid: what names it in headers and in prefixes with magic byte 1; None if unknown.
        is_deleted: whether it was deleted; what it wrote is still decoded by it.
    """

    subject: str | None
    version: int
    id: SchemaId
    form: str
    text: str
    references: tuple[tuple[str, str, int], ...] = ()
    guid: str | None = None
    is_deleted: bool = False

    @property
    def is_in_context(self) -> bool:
        """Whether its subject is in a context that is not the default one."""
        return self.subject is not None and self.subject.startswith(":.")


@dataclass
class SchemaRegistry:
    """The schemas of a registry."""

    place: str
    by_id: dict[SchemaId, Registered] = field(default_factory=dict)
    by_version: dict[tuple[str, int], Registered] = field(default_factory=dict)

    def add(self, one: Registered) -> None:
        """Add a schema, or replace that of the same version.

        Contexts have ids of their own: where they give two schemas one id, that of the default
        context counts.
        """
        if isinstance(one.id, int) or _ID.fullmatch(one.id):
            there = self.by_id.get(one.id)
            if there is None or there.is_in_context or not one.is_in_context:
                self.by_id[one.id] = one
        if one.subject is not None:
            self.by_version[one.subject, one.version] = one

    def latest(self, subject: str) -> Registered:
        """Return the latest version of a subject.

        Raises:
            UsageError: there is no such subject.
        """
        return self.versions(subject)[0]

    def versions(self, subject: str) -> list[Registered]:
        """Return all versions of a subject, the newest first; deleted ones only if all are.

        Raises:
            UsageError: there is no such subject.
        """
        found = [one for (name, _), one in self.by_version.items() if name == subject]
        found = [one for one in found if not one.is_deleted] or found
        if not found:
            source = subject.rpartition("-")[2]
            raise UsageError(
                f"There is no subject {subject} in {self.place}.",
                hint=f"Name the schema with the fields that you want: --{source}-schema FILE",
            )
        return sorted(found, key=lambda one: one.version, reverse=True)

    def of_form(self, form: str) -> list[Registered]:
        """Return the schemas of a format, in the order of their ids."""
        found = [one for one in self.by_id.values() if one.form == form]
        return sorted(found, key=lambda one: (isinstance(one.id, str), one.id))

    def guids(self) -> dict[str, int]:
        """Return the numbers of schemas by their GUIDs."""
        return {
            one.guid: one.id
            for one in self.by_id.values()
            if one.guid is not None and isinstance(one.id, int)
        }

    def with_references(self, one: Registered, name: str = "") -> list[tuple[str, str]]:
        """Return names and texts of a schema and of what it refers to, each after what it needs.

        Args:
            one: the schema.
            name: its name in the result; the others are called what their referrers call them.

        Raises:
            UsageError: a referenced schema is missing, or refers to itself.
        """
        texts: dict[str, str] = {}
        self._collect(one, name, texts, [], set())
        return list(texts.items())

    def _collect(
        self,
        one: Registered,
        called: str,
        texts: dict[str, str],
        above: list[Registered],
        whole: set[tuple[str | None, int]],
    ) -> None:
        if one in above:
            raise UsageError(f"The schema {one.id} of {self.place} refers to itself.")
        if len(above) > _REFERENCES_MAX:
            raise UsageError(f"A schema of {self.place} refers to too many others in turn.")
        is_known = (one.subject, one.version) in whole  # under another name
        for name, subject, version in () if is_known else one.references:
            referred = self.by_version.get((subject, version))
            if referred is None:
                raise UsageError(
                    f"The schema {one.id} of {self.place} refers to {name}, version {version} of "
                    f"the subject {subject}, which is missing."
                )
            self._collect(referred, name, texts, [*above, one], whole)
        whole.add((one.subject, one.version))
        if texts.setdefault(called, one.text) != one.text:
            raise UsageError(f"Two schemas of {self.place} are called {called} by one.")


def read_registry(place: str) -> SchemaRegistry:
    """Read all schemas of a place.

    Args:
        place: the URL of a registry (`http://`, `https://`), a log directory or partition directory
            with the topic `_schemas`, or a directory of schemas whose names are their ids, such
            as `12.avsc`, `13.json`, `14.proto` or `UUID.avsc`; what these refer to is beside them,
            with names of their own.

    Raises:
        NotFoundError, UnreadableError: it cannot be read.
        CorruptDataError: it has no schemas, or malformed ones.
    """
    files: list[str] = []
    if place.startswith(("http://", "https://")):
        shown = _without_password(place)
        registry = SchemaRegistry(shown)
        rows: Iterable[Any] = _of_url(place, shown)
    else:
        registry = SchemaRegistry(place)
        files = list(_files(place))
        rows = _of_files(files) if files else _of_topic(place)
    is_topic = not (isinstance(rows, list) or files)
    for row in rows:
        # In a topic, one that is malformed is like one that is lost.
        with suppress(CorruptDataError) if is_topic else nullcontext():
            registry.add(_registered(row, registry.place))
    if not registry.by_id:
        raise CorruptDataError("There are no schemas here.", path=registry.place)
    return registry


def _registered(row: Any, place: str) -> Registered:
    """Convert what a registry says about a version of a subject."""
    try:
        references = tuple(
            (str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in row.get("references") or ()
        )
        number, text, subject = row["id"], row["schema"], row.get("subject")
        if not isinstance(subject, str | None):
            raise TypeError(f"{subject!r:.40} is no subject")
        is_file = isinstance(number, str) and row.get("file")
        if not is_file and (type(number) is not int or not 0 <= number <= _ID_MAX):
            raise ValueError(f"{number!r:.40} is not the id of a schema")
        if not isinstance(text, str) or len(text) > _SCHEMA_SIZE_MAX:
            raise ValueError(f"the schema {number} is no text of at most {_SCHEMA_SIZE_MAX} bytes")
        form = row.get("schemaType") or "AVRO"
        guid = None if is_file else _guid(row, text, references)
        return Registered(
            subject, int(row.get("version") or 0), number, str(form), text, references,
            guid, row.get("deleted") is True,
        )  # fmt: skip
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise CorruptDataError(
            f"This is not an entry of a registry: {' '.join(str(error).split()):.200}.", path=place
        ) from error


def _guid(row: Any, text: str, references: tuple[tuple[str, str, int], ...]) -> str | None:
    """Return the GUID of a schema: a registry's answer has it; in the topic, it is its MD5.

    A record of the topic lacks the MD5 if an old registry wrote it. It is then computed as
    `Schema.updateHash` does; what metadata and rules add to it is not known here.
    """
    with suppress(AttributeError, TypeError, ValueError):  # it costs only the GUID
        if row.get("guid") is not None:
            return str(UUID(row["guid"]))
        if row.get("md5") is not None:
            return str(UUID(bytes=b64decode(row["md5"], validate=True)))
    if row.get("guid") is not None or row.get("md5") is not None:
        return None
    if row.get("metadata") is not None or row.get("ruleSet") is not None:
        return None
    digest = hashlib.md5(text.encode("utf-8", "replace"), usedforsecurity=False)
    for name, subject, version in references:
        digest.update(f"{name}{subject}".encode("utf-8", "replace"))
        digest.update((version & 0xFFFFFFFF).to_bytes(4, "big"))
    return str(UUID(bytes=digest.digest()))


# Sources -----------------------------------------------------------------------------------------


def _of_url(url: str, shown: str) -> Any:
    """Ask a registry for all versions of all subjects, deleted ones included."""
    parts = urllib.parse.urlsplit(url)
    # Not in the URL: errors and logs would show the password.
    plain = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")
    secrets = {}
    if parts.username is not None:
        user = urllib.parse.unquote(parts.username)
        password = urllib.parse.unquote(parts.password or "")
        secrets["Authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
    try:
        data = http.get(
            plain.geturl().rstrip("/") + "/schemas?deleted=true", {"Accept": "application/json"},
            secrets, size_max=_SIZE_MAX,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise UnreadableError(f"The registry does not answer: {error}.", path=shown) from None
    return _list_of(data, shown)


def _without_password(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _list_of(data: bytes, place: str) -> list[Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"This is not JSON: {error}.", path=place) from error
    if not isinstance(found, list):
        raise CorruptDataError("This is not a list of schemas.", path=place)
    return found


def _files(place: str) -> Iterator[str]:
    """Yield the schemas of a directory, if the names of some of them are ids."""
    try:
        names = file_system.names(place)
    except NotADirectoryError:
        return
    except OSError as error:
        raise reading_error(error, place) from error
    found = [name for name in sorted(names) if os.path.splitext(name)[1] in _FORMS]
    if any(_ID.fullmatch(os.path.splitext(name)[0]) for name in found):
        yield from (os.path.join(place, name) for name in found)


def _of_files(paths: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield a version for each file; one whose name is no id is a subject of that name."""
    texts = {
        os.path.basename(path): read_file(path, _SCHEMA_SIZE_MAX).decode("utf-8", "replace")
        for path in paths
    }
    named = [name for name in texts if not _ID.fullmatch(os.path.splitext(name)[0])]
    for name, text in texts.items():
        stem, kind = os.path.splitext(name)
        referred = [one for one in named if one != name and one.endswith(kind) and f"{one}" in text]
        yield {
            "id": int(stem) if stem.isdecimal() else stem.lower(),
            "file": True,
            "subject": name if name in named else None,
            "schema": text,
            "schemaType": _FORMS[kind],
            "references": [{"name": one, "subject": one, "version": 0} for one in referred],
        }


def _of_topic(place: str) -> Iterator[dict[str, Any]]:
    """Yield the versions in `_schemas`, deleted ones included: records may still have them."""
    partitions = []
    with suppress(NotAKafkaFileError):
        partitions = [
            one
            for found in open_targets([place])
            for one in (found.partitions if isinstance(found, LogDirListing) else [found])
            if isinstance(one, PartitionDir) and one.topic == TOPIC
        ]
    if not partitions:
        raise CorruptDataError(
            f"There are no schemas here, and no topic {TOPIC}.",
            path=place,
            hint="Name a registry, a directory of files such as 12.avsc, 12.json or 12.proto, or a "
            "log directory with "
            f"{TOPIC}-0.",
        )
    # A registry keeps all in one partition: the last record of a version counts. What is lost by
    # damage decodes nothing, which is said of each value with its id.
    for record in read_records(partitions[0], Selection(data=True)):
        if not isinstance(record, Defect) and record.key is not None and record.value is not None:
            key, value = _object(record.key), _object(record.value)
            if key.get("keytype") == "SCHEMA":  # configs, deletions and pings have other keys
                yield value


def _object(data: bytes) -> dict[str, Any]:
    """Parse an object of JSON; what is none has no fields."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
