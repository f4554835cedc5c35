"""The options that name a schema of keys or values, and what they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from kafkalog.errors import NotAKafkaFileError, UsageError
from kafkalog.typed import Framing, TypedColumn, TypedForm

if TYPE_CHECKING:
    from collections.abc import Sequence

_SCHEMA_SIZE_MAX: Final = 16 << 20

ValueSchemaOption = Annotated[str | None, typer.Option(
    metavar="FILE",
    help="JSON Schema, Avro schema (.avsc), or the output of protoc --include_imports -o.",
)]  # fmt: skip
ValueMessageOption = Annotated[str | None, typer.Option(
    metavar="NAME", help="Full name of the Protobuf message.",
)]  # fmt: skip
ValueFramingOption = Annotated[str, typer.Option(
    metavar="FRAMING",
    help="What precedes the data: none, confluent (five bytes with any schema id), or "
         "confluent:ID (only this id).",
)]  # fmt: skip

SchemasOption = Annotated[str | None, typer.Option(
    metavar="PLACE",
    help="Decode Avro by the schema ids in the data: URL of a registry, log directory with "
         "_schemas, or directory of files such as 12.avsc.",
)]  # fmt: skip


def typed_columns(
    source: str,
    form: TypedForm | None,
    schema: str | None,
    message: str | None,
    framing: str,
    *,
    option: str | None = None,
    schemas: str | None = None,
    topics: Sequence[str] = (),
) -> tuple[TypedColumn, ...]:
    """Return the typed column of a source that the options ask for; none without a form.

    Args:
        source: `key` or `value`.
        form: the value of `option`.
        schema: a file.
        message: the full name of a Protobuf message.
        framing: what precedes the data.
        option: the option that asks for it; `--key` or `--value` if None.
        schemas: the place with the schemas that Avro was written with.
        topics: the topics that are read.
    """
    asking = option or f"--{source}"
    if form is None:
        if schema is not None or message is not None or framing != "none":
            raise UsageError(f"{asking} is missing.", hint=f"{asking} json, avro or protobuf")
        return ()
    if schemas is not None and form == TypedForm.AVRO:
        return (_by_id(source, schema, schemas, topics),)
    if schema is None:
        raise UsageError(f"{asking} {form} needs a schema.", hint=f"--{source}-schema FILE")
    name, colon, number = framing.partition(":")
    if name not in tuple(Framing) or bool(colon) != number.isdigit() or (colon and name == "none"):
        raise UsageError(f"{framing!r} is not a framing.", hint="none, confluent or confluent:ID")
    schema_id = int(number) if colon else None
    return (TypedColumn(source, form, _contents(schema), message, Framing(name), schema_id),)


def _by_id(source: str, schema: str | None, place: str, topics: Sequence[str]) -> TypedColumn:
    """Return the column of Avro whose prefix says by which of many schemas it was written.

    Without a file, the column has the latest schema of the subject of the topic.
    """
    from kafkalog.schema_registry import read_registry

    registry = read_registry(place)
    if schema is not None:
        wanted = _contents(schema)
    elif len(topics) == 1:
        latest = registry.latest(f"{topics[0]}-{source}")
        if latest.references:
            raise UsageError(
                f"The latest schema of {latest.subject} refers to others.",
                hint=f"Give a file that has all: --{source}-schema FILE.",
            )
        wanted = latest.text.encode()
    else:
        raise UsageError(
            f"--schemas has many schemas, and the column {source}_decoded has one.",
            hint=f"--{source}-schema FILE, or one --topic with the subject TOPIC-{source}",
        )
    writers = tuple(
        (number, tuple(registry.with_references(one)))
        for number, one in sorted(registry.by_id.items())
        if one.form == "AVRO"
    )
    return TypedColumn(source, TypedForm.AVRO, wanted, framing=Framing.CONFLUENT, writers=writers)


def _contents(path: str) -> bytes:
    """Read a schema file, which must be regular and small, unlike `/dev/zero`."""
    from kafkalog.paths.source import read_file

    try:
        return read_file(path, size_max=_SCHEMA_SIZE_MAX)
    except NotAKafkaFileError as error:
        raise UsageError("A schema must be a regular file of at most 16 MiB.", path=path) from error
