"""The options that name a schema of keys or values, and what they ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafkalog.errors import NotAKafkaFileError, UsageError
from kafkalog.log.typed import Framing, TypedColumn, TypedForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.tables.schema_registry import Registered, SchemaRegistry

_SCHEMA_SIZE_MAX: Final = 16 << 20

ValueSchemaOption = Annotated[str | None, typer.Option(
    metavar="FILE",
    help="JSON Schema, Avro schema (.avsc), or the output of protoc --include_imports -o.",
)]  # fmt: skip
ValueMessageOption = Annotated[str | None, typer.Option(
    metavar="NAME", help="Full name of the Protobuf message.",
)]  # fmt: skip
ValueFramingOption = Annotated[str | None, typer.Option(
    metavar="FRAMING",
    help="What precedes the data: none, confluent (five bytes with any schema id), "
         "confluent:ID (only this id), apicurio, apicurio4 (ids of 8 and 4 bytes) or glue.",
)]  # fmt: skip

SchemasOption = Annotated[str | None, typer.Option(
    metavar="PLACE",
    help="Decode by the schema ids in the data. PLACE is the URL of a registry, a log "
         "directory with _schemas, or a directory of files such as 12.avsc, 12.json, 12.proto "
         "or UUID.avsc. Default framing: confluent.",
)]  # fmt: skip


def typed_columns(
    source: str,
    form: TypedForm | None,
    schema: str | None,
    message: str | None,
    framing: str | None,
    *,
    option: str | None = None,
    schemas: str | None = None,
    topics: Sequence[str] = (),
) -> tuple[TypedColumn, ...]:
    """Return the typed column of a source that the options ask for; none without a form.

    Args:
        source: `key` or `value`.
        form: the value of `option`.
        framing: what precedes the data; None for the usual.
        option: the option that asks for it; `--key` or `--value` if None.
        schemas: the place with the schemas that the data was written with.
        topics: the topics that are read.
    """
    asking = option or f"--{source}"
    if form is None:
        if schema is not None or message is not None or framing not in (None, "none"):
            raise UsageError(f"{asking} is missing.", hint=f"{asking} json, avro or protobuf")
        return ()
    if framing is None:
        framing = Framing.NONE if schemas is None else Framing.CONFLUENT
    name, colon, number = framing.partition(":")
    # An id, if and only if there is a colon.
    if name not in tuple(Framing) or bool(colon) != number.isdigit() or (colon and name == "none"):
        raise UsageError(
            f"{framing!r} is not a framing.",
            hint="none, confluent, confluent:ID, apicurio, apicurio4 or glue",
        )
    schema_id = int(number) if colon else None
    is_by_id = schemas is not None and name != Framing.NONE
    if schema is None and not is_by_id:
        raise UsageError(f"{asking} {form} needs a schema.", hint=f"--{source}-schema FILE")
    kind = Framing(name)
    if schema is not None:
        given = TypedColumn(source, form, _contents(schema), message, kind, schema_id)
    else:
        given = TypedColumn(source, form, b"", message, kind, schema_id)
    return (_by_id(given, schemas, topics) if schemas and is_by_id else given,)


def _by_id(given: TypedColumn, place: str, topics: Sequence[str]) -> TypedColumn:
    """Return the column whose prefix says by which of many schemas a value was written.

    Without a file, the column has the versions of the subject of the topic. For Avro that is the
    latest, since each schema says itself what becomes of values of the others.
    """
    from kafkalog.log.typed.proto_files import MAIN, compiled
    from kafkalog.tables.schema_registry import read_registry

    registry = read_registry(place)
    schemas = registry.of_form(given.form.upper())
    if not given.schema:
        versions = _versions(given, registry, schemas, topics)
        if given.form == TypedForm.AVRO and not versions[0].references:
            given = replace(given, schema=versions[0].text.encode())
        else:
            given = replace(given, versions=tuple(one.id for one in versions))
    texts = {one.id: registry.with_references(one, MAIN) for one in schemas}
    if given.form == TypedForm.PROTOBUF:
        writers = compiled(texts)
    elif given.form == TypedForm.JSON:
        writers = {
            number: (*(word for pair in found[:-1] for word in pair), found[-1][1])
            for number, found in texts.items()
        }
    else:
        writers = {number: tuple(text for _, text in found) for number, found in texts.items()}
    return replace(given, writers=tuple(writers.items()))


def _versions(
    given: TypedColumn, registry: SchemaRegistry, schemas: list[Registered], topics: Sequence[str]
) -> list[Registered]:
    """Return the schemas that decide the type of a column, the newest first."""
    has_subjects = any(one.subject is not None for one in schemas)
    if schemas and not has_subjects and given.form != TypedForm.AVRO:
        return schemas[::-1]
    if len(topics) != 1:
        raise UsageError(
            f"--schemas has many schemas, and the column {given.source}_decoded has one.",
            hint=f"--{given.source}-schema FILE, or one --topic with the subject "
            f"TOPIC-{given.source}",
        )
    subject = f"{topics[0]}-{given.source}"
    found = [one for one in registry.versions(subject) if one.form == given.form.upper()]
    if not found:
        raise UsageError(f"The subject {subject} has no schema of {given.form}.")
    return found


def _contents(path: str) -> bytes:
    """Read a schema file, which must be regular and small, unlike `/dev/zero`."""
    from kafkalog.io.paths.source import read_file

    try:
        return read_file(path, size_max=_SCHEMA_SIZE_MAX)
    except NotAKafkaFileError as error:
        raise UsageError("A schema must be a regular file of at most 16 MiB.", path=path) from error
