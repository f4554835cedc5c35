"""Keys and values by the schemas whose ids they have: as one column, or each by its own."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import UnsupportedError, UsageError
from kafkalog.io.wording import counted
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.columns import one_value
from kafkalog.log.typed.type_names import names_of, one_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.log.typed.framing import SchemaId
    from kafkalog.log.typed.model import Decoder
    from kafkalog.log.typed.registered import Registered, SchemaRegistry
    from kafkalog.log.typed.remarks import Remark
    from kafkalog.model import Header

_FRAMINGS: Final = (Framing.CONFLUENT, Framing.APICURIO, Framing.GLUE)
FORMS: Final = frozenset(form.upper() for form in TypedForm if form.has_registry)
"""What a registry calls the forms that are decoded."""


def column_by_id(
    given: TypedColumn, registry: SchemaRegistry, topics: Sequence[str]
) -> TypedColumn:
    """Return a column whose values have the ids of the schemas that they were written with.

    Without a schema of its own, the column has the versions of the subject of the topic. For Avro
    that is the latest, since each schema says itself what becomes of values of the others.

    Args:
        given: the column without writers.
        topics: the topics that are read.

    Raises:
        UsageError: the registry does not decide what the column is.
    """
    schemas = registry.of_form(given.form.upper())
    if not given.schema:
        versions = _versions(given, registry, schemas, topics)
        given = replace(given, versions=tuple(one.id for one in versions))
        if given.form == TypedForm.AVRO and not versions[0].references:
            given = replace(given, schema=versions[0].text.encode())
    schemas = registry.of_form(given.form.upper())  # with those that were fetched by now
    writers = writers_of(registry, schemas)
    guids = tuple((guid, number) for guid, number in registry.guids().items() if number in writers)
    return replace(
        given, writers=tuple(writers.items()), guids=guids, place=registry.remote_place,
        names=other_names(given.form, schemas),
    )  # fmt: skip


def column_of_topic(
    registry: SchemaRegistry, topics: Sequence[str], source: str
) -> TypedColumn | None:
    """Return the typed column of a topic, in the form that its subject has; None without one.

    Args:
        registry: the schemas.
        topics: the one topic.
        source: `key` or `value`.

    Raises:
        UsageError: there are several topics, or the registry does not decide what the column is.
    """
    require_one(topics)
    subject = f"{topics[0]}-{source}"
    if not registry.all_versions(subject):
        return None
    latest = registry.latest(subject)
    if latest.form not in FORMS:
        return None
    given = TypedColumn(source, TypedForm(latest.form.lower()), b"", framing=Framing.CONFLUENT)
    return column_by_id(given, registry, topics)


def require_one(topics: Sequence[str]) -> None:
    """Raise `UsageError` unless there is one topic: a registry has schemas of many."""
    if len(topics) != 1:
        raise UsageError(
            "A registry has many schemas, and a column has one.",
            hint="Name one topic, or --value-format and --value-schema",
        )


def _versions(
    given: TypedColumn, registry: SchemaRegistry, schemas: list[Registered], topics: Sequence[str]
) -> list[Registered]:
    """Return the schemas that decide the type of a column, the newest first."""
    has_subjects = any(one.subject is not None for one in schemas)
    if schemas and not has_subjects and given.form != TypedForm.AVRO:
        return schemas[::-1]
    if len(topics) != 1:
        raise UsageError(
            f"--registry has many schemas, and the column {given.source}_decoded has one.",
            hint=f"--{given.source}-schema FILE, or one --topic with the subject "
            f"TOPIC-{given.source}",
        )
    subject = f"{topics[0]}-{given.source}"
    found = [one for one in registry.versions(subject) if one.form == given.form.upper()]
    if not found:
        raise UsageError(f"The subject {subject} has no schema of {given.form}.")
    return found


def other_names(form: TypedForm, schemas: Iterable[Registered]) -> tuple[tuple[SchemaId, str], ...]:
    """Return what values of JSON Schemas without a title are called: the subject, if any."""
    if form != TypedForm.JSON:
        return ()
    return tuple((one.id, one.subject) for one in schemas if one.subject is not None)


def writers_of(
    registry: SchemaRegistry, schemas: Iterable[Registered]
) -> dict[SchemaId, tuple[str, ...]]:
    """Return what `TypedColumn.writers` has of some schemas."""
    texts: dict[SchemaId, tuple[str, ...]] = {}
    for one in schemas:
        # Without what it refers to it decodes nothing, which is no matter for the others.
        with suppress(UsageError):
            texts[one.id] = registry.texts(one)
    return texts


class SchemaIdDecoder:
    """Decodes each key or value by the schema whose id it has, whatever its form.

    An id in a header counts always, one in a prefix only if the registry has it: any value can
    begin with a zero byte.

    Args:
        source: `key` or `value`.
        registry: the schemas.
        needs_all: whether a missing package is an error; else it is why a value does not decode.
    """

    def __init__(self, source: str, registry: SchemaRegistry, *, needs_all: bool = True) -> None:
        self._registry = registry
        self._harmless = (UsageError,) if needs_all else (UsageError, UnsupportedError)
        guids = tuple(registry.guids().items())
        self._framed = {
            form: [
                TypedColumn(
                    source, form, b"", framing=one, guids=guids, place=registry.remote_place
                )
                for one in _FRAMINGS
            ]
            for form in TypedForm
            if form.has_registry
        }
        self._decoders: dict[
            tuple[Framing, SchemaId, str | None], tuple[TypedColumn, Decoder] | UsageError
        ] = {}
        self._texts: dict[SchemaId, tuple[str, ...]] = {}
        self._unknown = 0

    def schema_id(self, data: bytes, headers: Iterable[Header]) -> SchemaId | None:
        """Return the id of the schema that bytes of a record were written with, if they have it."""
        return self._identified(data, headers)[1]

    @property
    def notes(self) -> list[str]:
        """What to say of values so far that may have an id which the registry lacks."""
        if not self._unknown:
            return []
        what = counted(self._unknown, self._framed[TypedForm.AVRO][0].source)
        like = f"would be the id of a schema that {self._registry.place} does not have"
        return [f"the first bytes of {what} {like}: shown as bytes"]

    @property
    def warnings(self) -> list[str]:
        """What to warn of: schemas that were not looked for."""
        if not self._registry.refused:
            return []
        place = self._registry.place
        return [
            f"{place} lacks too many ids, and was asked for no others: values with them are bytes"
        ]

    @property
    def remarks(self) -> list[Remark]:
        """What the schemas so far have no type for."""
        return [*dict.fromkeys(one for made in self._used for one in made.remarks)]

    @property
    def losses(self) -> Counter[str]:
        """How many of the values so far lost something, by what."""
        return sum((made.losses for made in self._used), Counter[str]())

    @property
    def _used(self) -> list[Decoder]:
        return [one[1] for one in self._decoders.values() if not isinstance(one, UsageError)]

    def decode(self, data: bytes, headers: Iterable[Header]) -> tuple[Any, str | None]:
        """Return what bytes of a record decode to, and why they do not decode.

        An Arrow array of one value; None for both if the bytes have no id.

        Raises:
            UnsupportedError: a package is missing that is needed.
        """
        framed, schema_id, whole = self._identified(data, headers)
        if schema_id is None:
            self._unknown += any(
                one.split(data)[0] is not None for one in self._framed[TypedForm.AVRO]
            )
            return None, None
        if schema_id not in self._registry.by_id:
            return None, f"the schema {schema_id} is unknown"
        message = self._message(framed, schema_id, whole)
        made = self._made(framed, schema_id, message)
        if isinstance(made, UsageError):
            return None, made.message
        # Its id stands before it by now, also if a header had it.
        return one_value(*made, whole)

    def _identified(
        self, data: bytes, headers: Iterable[Header]
    ) -> tuple[TypedColumn, SchemaId | None, bytes]:
        for place, column in enumerate(self._framed[TypedForm.PROTOBUF]):
            whole = column.with_prefix(data, headers)
            schema_id, _ = column.split(whole)
            is_in_header = whole is not data
            if schema_id is not None and (is_in_header or schema_id in self._registry.by_id):
                # What follows an id in headers depends on the form, which it stands for.
                there = self._registry.by_id.get(schema_id)
                form = there.form.lower() if there and there.form in FORMS else TypedForm.PROTOBUF
                column = self._framed[TypedForm(form)][place]
                return column, schema_id, column.with_prefix(data, headers)
        return column, None, data

    def _made(
        self, framed: TypedColumn, schema_id: SchemaId, message: str | None
    ) -> tuple[TypedColumn, Decoder] | UsageError:
        """Return the column and decoder of a schema; the error if it decodes nothing.

        Args:
            message: of Protobuf the message; None for the first one.
        """
        key = framed.framing, schema_id, message
        found = self._decoders.get(key)
        if found is None:
            found = self._decoders[key] = self._new(framed, schema_id, message)
        return found

    def _new(
        self, framed: TypedColumn, schema_id: SchemaId, message: str | None
    ) -> tuple[TypedColumn, Decoder] | UsageError:
        one = self._registry.by_id[schema_id]
        try:
            if one.form not in FORMS:
                raise UsageError(f"{one.form} is not a form of schemas.")
            form = TypedForm(one.form.lower())
            if schema_id not in self._texts:
                self._texts[schema_id] = self._registry.texts(one)
            writers = ((schema_id, self._texts[schema_id]),)
            column = replace(
                framed, form=form, message=message, writers=writers, versions=(schema_id,),
                names=other_names(form, [one]),
            )  # fmt: skip
            return column, column.decoder()
        except self._harmless as error:
            return UsageError(error.message)

    def type_name(self, data: bytes, headers: Iterable[Header]) -> str | None:
        """Return the full name of the type of bytes of a record; None if no known schema says it.

        Raises:
            UnsupportedError: a package is missing that is needed.
        """
        framed, schema_id, whole = self._identified(data, headers)
        return None if schema_id is None else self._type_name(framed, schema_id, whole)

    def _type_name(self, framed: TypedColumn, schema_id: SchemaId, whole: bytes) -> str | None:
        if schema_id not in self._registry.by_id:
            return None
        first = self._made(framed, schema_id, None)
        if isinstance(first, UsageError):
            return None
        column, _ = first
        return one_type(column, names_of(column), whole)

    def _message(self, framed: TypedColumn, schema_id: SchemaId, whole: bytes) -> str | None:
        """Return the name of the message of Protobuf that data is of; None for the first one."""
        if self._registry.by_id[schema_id].form != TypedForm.PROTOBUF.upper():
            return None
        return self._type_name(framed, schema_id, whole)


def message_of(column: TypedColumn, data: bytes, headers: Iterable[Header]) -> str | None:
    """Return the full name of the message of Protobuf that data is of; None if nothing says it.

    Args:
        column: a column with writers.
        data, headers: of a record.
    """
    return one_type(column, names_of(column), column.with_prefix(data, headers))
