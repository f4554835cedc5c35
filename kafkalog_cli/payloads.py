"""How keys and values are read: the words of the options about it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from formats.late_classes import dataclass
from kafkalog.errors import NotAKafkaFileError, UsageError
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog_cli.output.text import BytesFormat
from kafkalog_cli.values import is_number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.log.typed.registered import SchemaRegistry
    from kafkalog.tables.topic_types import ByData

_SCHEMA_SIZE_MAX: Final = 16 << 20
FORMS: Final = (*BytesFormat, *TypedForm)


class Place:
    """A place with schemas: read when it is needed, once for keys and values."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def schemas(self) -> SchemaRegistry:
        """The schemas. Raises as `read_registry`."""
        from kafkalog.tables.schema_registry import read_registry

        return read_registry(self.path)


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
    registry: Place | None = None

    @property
    def schemas(self) -> SchemaRegistry:
        """The schemas of the registry, which there must be. Raises as `read_registry`."""
        assert self.registry is not None, "ids need a place"
        return self.registry.schemas

    @property
    def is_auto(self) -> bool:
        """Whether the data itself shows what it is."""
        return self.typed is None and self.form == BytesFormat.AUTO

    def columns(self, topics: Sequence[str] = ()) -> tuple[TypedColumn, ...]:
        """Return the typed column; none for plain bytes.

        Args:
            topics: the topics that are read.

        Raises:
            UsageError: the schema cannot be read, or does not decide what the column is.
        """
        if self.typed is None:
            return ()
        kind, schema_id = self._framing()
        is_by_id = self.registry is not None and kind != Framing.NONE
        needs_schema = self.typed not in (TypedForm.JSON, TypedForm.CONNECT)
        if self.schema is None and not is_by_id and needs_schema:
            raise UsageError(
                f"--{self.source}-format {self.typed} needs a schema.",
                hint=f"--{self.source}-schema FILE, or --registry PLACE",
            )
        contents = b"" if self.schema is None else _contents(self.schema)
        given = TypedColumn(self.source, self.typed, contents, self.message, kind, schema_id)
        if not is_by_id:
            return (given,)
        from kafkalog.tables.schema_columns import column_by_id

        return (column_by_id(given, self.schemas, topics),)

    def by_data(self, topics: Sequence[str], *, are_split: bool = False) -> ByData | None:
        """Return the column of a table whose types the data decides; None if options decide it.

        Args:
            topics: the topics that are read.
            are_split: whether each of them will have its own.

        Raises:
            UsageError: there are several topics.
        """
        if self.typed == TypedForm.CONNECT:
            from kafkalog.tables.connect_columns import ConnectByData

            return ConnectByData(self.source)
        is_decided = self.schema is not None or self.message is not None
        if self.registry is None or is_decided or self.form != BytesFormat.AUTO:
            return None
        from kafkalog.tables.schema_columns import require_one
        from kafkalog.tables.topic_types import ColumnByData

        kind, schema_id = self._framing()
        if kind == Framing.NONE or schema_id is not None:
            return None
        if self.typed is None and not are_split:
            require_one(topics)
        elif self.typed is not None and not are_split:
            form = self.typed.upper()
            subjects = {one.subject for one in self.schemas.of_form(form)}
            # Files, of which all are versions of one schema.
            if len(topics) != 1 or (subjects == {None} and self.typed != TypedForm.AVRO):
                return None
            versions = self.schemas.all_versions(f"{topics[0]}-{self.source}")
            if any(one.form == form for one in versions):
                return None
        return ColumnByData(self.source, self.schemas, tuple(topics), self.typed, kind)

    def _framing(self) -> tuple[Framing, int | None]:
        text = self.framing
        if text is None:
            text = Framing.NONE if self.registry is None else Framing.CONFLUENT
        name, colon, number = text.partition(":")
        is_known = name in tuple(Framing)
        # An id, if and only if there is a colon.
        if not is_known or bool(colon) != is_number(number) or (colon and name == "none"):
            raise UsageError(
                f"{text!r} is not a framing.",
                hint="confluent, confluent:ID, apicurio, apicurio4, glue or none",
            )
        return Framing(name), int(number) if colon else None


def payloads(
    registry: str | None, key: tuple[str, str | None], value: tuple[str, str | None]
) -> tuple[Payload, Payload]:
    """Return how keys are read, and values, from formats and schemas as the options have them.

    Raises:
        UsageError: a word is unknown, or a schema is given for what has none.
    """
    place = None if registry is None else Place(registry)
    keys, values = _payload("key", *key, place), _payload("value", *value, place)
    if registry is not None and not any(
        _takes_registry(one) or one.is_auto for one in (keys, values)
    ):
        raise UsageError("--registry is about data with schemas.", hint="--value-format auto")
    if _takes_registry(values) and not keys.typed:  # one that is named leaves the other plain
        keys = replace(keys, registry=None)
    if _takes_registry(keys) and not values.typed:
        values = replace(values, registry=None)
    return keys, values


def _takes_registry(one: Payload) -> bool:
    return one.typed is not None and one.typed.has_registry


def _payload(source: str, form: str, schema: str | None, registry: Place | None) -> Payload:
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
        return Payload(source, BytesFormat(name), registry=registry)
    typed = TypedForm(name)
    if typed == TypedForm.CONNECT:
        if at or schema is not None:
            raise UsageError(
                f"--{source}-format {name} takes the schema that each {source} has next to its "
                "data.", hint=f"Leave out {'@' + framing if at else f'--{source}-schema'}.",
            )  # fmt: skip
        return Payload(source, BytesFormat.AUTO, typed)
    path, _, message = schema or "", "", ""
    if typed == TypedForm.PROTOBUF:
        path, _, message = path.partition("#")
    given = path or None, message or None
    return Payload(source, BytesFormat.AUTO, typed, framing if at else None, *given, registry)


def _contents(path: str) -> bytes:
    """Read a schema file, which must be regular and small, unlike `/dev/zero`."""
    from kafkalog.io.paths.source import read_file

    try:
        return read_file(path, size_max=_SCHEMA_SIZE_MAX)
    except NotAKafkaFileError as error:
        raise UsageError("A schema must be a regular file of at most 16 MiB.", path=path) from error
