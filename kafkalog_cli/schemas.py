"""How keys and values are read: the words of the options about it, and what they ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from formats.late_classes import dataclass
from kafkalog.errors import NotAKafkaFileError, UsageError
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog_cli.output.text import BytesFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.files.log_dir import FileEntry, PartitionDir
    from kafkalog.tables.schema_registry import Registered, SchemaRegistry
    from kafkalog_cli.output.decoded import Decoded

_SCHEMA_SIZE_MAX: Final = 16 << 20
FORMS: Final = (*BytesFormat, *TypedForm)


@dataclass(frozen=True)
class Payload:
    """How keys or values are read.

    Attributes:
        source: `key` or `value`.
        form: how bytes are shown that are not decoded.
        typed: the form that a schema, or JSON itself, gives types to; None for plain bytes.
        framing: what precedes the data; None for the usual.
        schema: the file with the schema; None without one.
        message: full name of the Protobuf message; None for the first one.
        registry: the place with the schemas that the data was written with.
    """

    source: str
    form: BytesFormat
    typed: TypedForm | None = None
    framing: str | None = None
    schema: str | None = None
    message: str | None = None
    registry: str | None = None

    @property
    def is_auto(self) -> bool:
        """Whether the data itself shows what it is."""
        return self.typed is None and self.form == BytesFormat.AUTO

    def columns(self, topics: Sequence[str] = ()) -> tuple[TypedColumn, ...]:
        """Return the typed column, if it is one.

        Args:
            topics: the topics that are read.

        Raises:
            UsageError: the schema cannot be read, or does not decide what the column is.
        """
        if self.typed is None:
            return ()
        kind, schema_id = self._framing()
        is_by_id = self.registry is not None and kind != Framing.NONE
        if self.schema is None and not is_by_id and self.typed != TypedForm.JSON:
            raise UsageError(
                f"--{self.source}-format {self.typed} needs a schema.",
                hint=f"--{self.source}-schema FILE, or --registry PLACE",
            )
        contents = b"" if self.schema is None else _contents(self.schema)
        given = TypedColumn(self.source, self.typed, contents, self.message, kind, schema_id)
        assert self.registry is not None or not is_by_id, "ids need a place"
        return (_by_id(given, self.registry or "", topics) if is_by_id else given,)

    def _framing(self) -> tuple[Framing, int | None]:
        text = self.framing
        if text is None:
            text = Framing.NONE if self.registry is None else Framing.CONFLUENT
        name, colon, number = text.partition(":")
        is_known = name in tuple(Framing)
        # An id, if and only if there is a colon.
        if not is_known or bool(colon) != number.isdigit() or (colon and name == "none"):
            raise UsageError(
                f"{text!r} is not a framing.",
                hint="confluent, confluent:ID, apicurio, apicurio4, glue or none",
            )
        return Framing(name), int(number) if colon else None


def decoders(
    found: Iterable[Payload], logs: Iterable[PartitionDir | FileEntry]
) -> dict[str, Decoded]:
    """Return what decodes keys and values of some logs, by `key` and `value`.

    Raises:
        UsageError: a schema cannot be read, is malformed, or it is not clear which one is meant.
        UnsupportedError: a package is missing.
    """
    typed = [one for one in found if one.typed is not None]
    if not typed:
        return {}
    from kafkalog.io.jit.fast_path import require_arrow

    require_arrow("schemas")
    from kafkalog_cli.output.decoded import Decoded

    topics = topics_in(logs)
    return {column.source: Decoded(column) for one in typed for column in one.columns(topics)}


def topics_in(logs: Iterable[PartitionDir | FileEntry]) -> list[str]:
    """Return the topics of logs, by name."""
    from kafkalog.files.log_dir import PartitionDir
    from kafkalog.node.targets import partition_around

    around = (one if isinstance(one, PartitionDir) else partition_around(one.path) for one in logs)
    return sorted({one.topic for one in around})


def payloads(
    registry: str | None, key: tuple[str, str | None], value: tuple[str, str | None]
) -> tuple[Payload, Payload]:
    """Return how keys are read, and values, from formats and schemas as the options have them.

    Raises:
        UsageError: a word is unknown, or a schema is given for what has none.
    """
    found = _payload("key", *key, registry), _payload("value", *value, registry)
    if registry is not None and all(one.typed is None for one in found):
        raise UsageError(
            "--registry requires --value-format or --key-format.", hint="--value-format avro"
        )
    return found


def _payload(source: str, form: str, schema: str | None, registry: str | None) -> Payload:
    name, at, framing = form.partition("@")
    if name not in FORMS:
        raise UsageError(f"{form!r} is not a format of {source}s.", hint=", ".join(FORMS))
    if name not in tuple(TypedForm):
        if at or schema is not None:
            what = f"{form!r}" if at else f"--{source}-schema"
            raise UsageError(
                f"{what} is about data with a schema, and --{source}-format {name} has none.",
                hint=f"--{source}-format {', '.join(TypedForm)}",
            )
        return Payload(source, BytesFormat(name))
    typed = TypedForm(name)
    path, _, message = schema or "", "", ""
    if typed == TypedForm.PROTOBUF:
        path, _, message = path.partition("#")
    given = path or None, message or None
    return Payload(source, BytesFormat.AUTO, typed, framing if at else None, *given, registry)


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
    guids = tuple((guid, number) for guid, number in registry.guids().items() if number in writers)
    return replace(given, writers=tuple(writers.items()), guids=guids)


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


def _contents(path: str) -> bytes:
    """Read a schema file, which must be regular and small, unlike `/dev/zero`."""
    from kafkalog.io.paths.source import read_file

    try:
        return read_file(path, size_max=_SCHEMA_SIZE_MAX)
    except NotAKafkaFileError as error:
        raise UsageError("A schema must be a regular file of at most 16 MiB.", path=path) from error
