"""Versions of schemas as a registry numbers them, and what each refers to."""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkalog.errors import CorruptDataError, UsageError

if TYPE_CHECKING:
    from kafkalog.log.typed.framing import SchemaId

SCHEMA_SIZE_MAX: Final = 16 << 20
"""Of a schema's text, in characters."""
ID: Final = re.compile(r"[0-9]{1,19}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_ID_MAX: Final = (1 << 63) - 1
# In turn, and in all: a registry can make up new ones forever.
_DEPTH_MAX: Final = 100
_REFERENCES_MAX: Final = 1000


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
    """The schemas of a registry.

    Attributes:
        place: where they are.
        by_id: the schemas by their ids; one of a registry that is asked gets there by that.
        by_version: those that are known, by subject and version.
        refused: how often a schema was not looked for, after too many in vain.
    """

    place: str
    by_id: dict[SchemaId, Registered] = field(default_factory=dict)
    by_version: dict[tuple[str, int], Registered] = field(default_factory=dict)
    refused: int = 0

    def add(self, one: Registered) -> None:
        """Add a schema, or replace that of the same version.

        Contexts have ids of their own: where they give two schemas one id, that of the default
        context counts.
        """
        if isinstance(one.id, int) or ID.fullmatch(one.id):
            there = dict.get(self.by_id, one.id)  # which asks nobody for it
            if there is None or there.is_in_context or not one.is_in_context:
                self.by_id[one.id] = one
        if one.subject is not None:
            self.by_version[one.subject, one.version] = one

    @property
    def remote_place(self) -> str | None:
        """The place, if there are schemas that are not known before they are asked for."""
        return None

    def in_subject(self, schema_id: SchemaId) -> Registered | None:
        """Return a schema as a version of a subject that has it, if one has; None without one."""
        return self.by_id.get(schema_id)

    def version(self, subject: str, number: int) -> Registered | None:
        """Return a version of a subject; None if there is no such version."""
        return self.by_version.get((subject, number))

    def all_versions(self, subject: str) -> list[Registered]:
        """Return all versions of a subject, deleted ones included, in any order."""
        return [one for (name, _), one in self.by_version.items() if name == subject]

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
        found = self.all_versions(subject)
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

    def texts(self, one: Registered) -> tuple[str, ...]:
        """Return what `TypedColumn.writers` has of a schema. Raises as `with_references`."""
        *before, (_, text) = self.with_references(one)
        if one.form == "AVRO":
            return (*(referred for _, referred in before), text)
        return (*(word for pair in before for word in pair), text)

    def with_references(self, one: Registered) -> list[tuple[str, str]]:
        """Return names and texts of a schema and of what it refers to, each after what it needs.

        The names are what their referrers call them; the schema itself has none.

        Raises:
            UsageError: a referenced schema is missing, or refers to itself, or there is no end of
                them.
        """
        texts: dict[str, str] = {}
        self._collect(one, "", texts, [], set())
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
        if len(above) > _DEPTH_MAX or len(texts) > _REFERENCES_MAX:
            raise UsageError(f"A schema of {self.place} refers to too many others.")
        is_known = (one.subject, one.version) in whole  # under another name
        for name, subject, version in () if is_known else one.references:
            referred = self.version(subject, version)
            if referred is None:
                raise UsageError(
                    f"The schema {one.id} of {self.place} refers to {name}, version {version} of "
                    f"the subject {subject}, which is missing."
                )
            self._collect(referred, name, texts, [*above, one], whole)
        whole.add((one.subject, one.version))
        if texts.setdefault(called, one.text) != one.text:
            raise UsageError(f"Two schemas of {self.place} are called {called} by one.")


def registered(row: Any, place: str, *, is_named: bool = False) -> Registered:
    """Convert what a registry says about a version of a subject.

    Args:
        row: as the registry has it.
        place: the registry.
        is_named: whether a name may be its id, such as that of a file.

    Raises:
        CorruptDataError: it is no such thing.
    """
    try:
        references = tuple(
            (str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in row.get("references") or ()
        )
        number, text, subject = row["id"], row["schema"], row.get("subject")
        if not isinstance(subject, str | None):
            raise TypeError(f"{subject!r:.40} is no subject")
        has_name = is_named and isinstance(number, str)
        if not has_name and (type(number) is not int or not 0 <= number <= _ID_MAX):
            raise ValueError(f"{number!r:.40} is not the id of a schema")
        if not isinstance(text, str) or len(text) > SCHEMA_SIZE_MAX:
            raise ValueError(f"the schema {number} is no text of at most {SCHEMA_SIZE_MAX} bytes")
        form = row.get("schemaType") or "AVRO"
        guid = None if has_name else _guid(row, text, references)
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
