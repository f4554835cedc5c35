"""The description of a typed column, and its decoder."""

from __future__ import annotations

import base64
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, Self

from formats.late_classes import dataclass
from kafkalog.errors import UsageError
from kafkalog.log.typed.framing import (
    MESSAGE_HEADER,
    Framing,
    SchemaId,
    TypedForm,
    delimited_name,
    id_headers,
    is_whole_id,
    split,
    unpacked,
)  # fmt: skip
from kafkalog.log.typed.schema_size import MALFORMED, brief, missing_package

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kafkalog.log.typed.remarks import Remark
    from kafkalog.model import Header


class Decoder(Protocol):
    """Decodes bytes to values."""

    type: Any
    """The `pyarrow.DataType` of the column: one of `lake_types`."""

    @property
    def remarks(self) -> Sequence[Remark]:
        """The parts of the column that have another type than one may expect."""

    @property
    def losses(self) -> Counter[str]:
        """How many of the values so far lost something, by what: `LOST_DIGITS` for example."""

    def decode(self, data: bytes, schema_id: SchemaId | None = None) -> Any:
        """Return a value that `pyarrow.array` accepts for the type.

        Args:
            schema_id: the id of the schema that they were written with, if a prefix has it.

        Raises:
            ValueError: the bytes are not such a value.
        """


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A typed column.

    Attributes:
        source: `key` or `value`.
        form: the format of its bytes.
        schema: the schema file's bytes: a JSON Schema, an Avro schema, or a descriptor set as
            `protoc --include_imports -o` writes it; empty if `versions` describe the column, or for
            any JSON.
        message: for Protobuf, the full name of the message; None for the first one.
        framing: the prefix before the data.
        schema_id: with a framing, decode only data with this schema id; None for any.
        writers: the schemas by which data is decoded, by the id in its prefix. If empty, `schema`
            decodes all. The texts of a schema and, before it, of those that it refers to; but for
            Avro with the name before each of these. None is parsed before data has its id. Those of
            Kafka Connect are numbered, since each value has the text itself.
        versions: ids of the `writers` whose fields the column has, the newest first; with a schema
            for Avro, those that it has conflict fields for.
        guids: the ids of `writers` that are numbers, by their GUIDs.
        place: the URL of a registry that has further `writers`, without name and password; each
            process asks it by itself.
        names: for JSON, what values of a schema without a title are called, by its id.
        type_name: the full name of the one type of its values, if their ids decided that.
        types: the columns of several types, each with the name of its field: the column is a struct
            of them. Its own `writers` are the unions of Avro whose branches are such types.
        is_flat: whether a table has the fields of the column in its place.
    """

    source: str
    form: TypedForm
    schema: bytes
    message: str | None = None
    framing: Framing = Framing.NONE
    schema_id: int | None = None
    writers: tuple[tuple[SchemaId, tuple[str, ...]], ...] = ()
    versions: tuple[SchemaId, ...] = ()
    guids: tuple[tuple[str, int], ...] = ()
    place: str | None = None
    names: tuple[tuple[SchemaId, str], ...] = ()
    type_name: str | None = None
    types: tuple[tuple[str, TypedColumn], ...] = ()
    is_flat: bool = False

    @property
    def has_ids(self) -> bool:
        """Whether each value has the id of its schema."""
        if self.form == TypedForm.CONNECT:
            return False
        return bool(self.writers or self.types) or self.place is not None

    def all_writers(self) -> Mapping[SchemaId, tuple[str, ...]]:
        """Return the `writers`, and those of the registry: each is fetched when it is needed."""
        if self.place is None:
            return dict(self.writers)
        from kafkalog.log.typed.remote_registry import RemoteWriters

        return RemoteWriters(dict(self.writers), self.form, self.place)

    @property
    def name(self) -> str:
        """The column's name."""
        return f"{self.source}_decoded"

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The names of the columns with the ids of schemas and the names of types, if any."""
        return (f"{self.source}_schema_id", f"{self.source}_type") if self.has_ids else ()

    def decoder(self) -> Decoder:
        """Return the decoder of the column.

        Raises:
            UsageError: the schema is malformed, or has something that no column can hold.
            UnsupportedError: a package is missing.
        """
        try:
            return self._decoder()
        except ModuleNotFoundError as error:
            raise missing_package(self.form, error) from error
        except MALFORMED as error:
            raise UsageError(
                f"The schema of the {self.source}s is malformed: {brief(error)}."
            ) from error

    def _decoder(self) -> Decoder:
        if self.types:
            from kafkalog.log.typed.several_types import SeveralTypes

            return SeveralTypes(self, [one.decoder() for _, one in self.types])
        if self.form == TypedForm.JSON:
            from kafkalog.log.typed.json_schema import (
                AnyJsonDecoder,
                JsonDecoder,
                decoder_of_texts,
            )

            if not self.has_ids:
                return JsonDecoder(self.schema) if self.schema else AnyJsonDecoder()
            made = JsonDecoder(self.schema) if self.schema else None
            return self._evolved(decoder_of_texts, made)
        if self.form == TypedForm.CONNECT:
            from kafkalog.log.typed.connect import ConnectDecoder

            return ConnectDecoder(self.writers, self.versions)
        if self.form == TypedForm.AVRO:
            from kafkalog.log.typed.avro import AvroDecoder

            writers = self.all_writers()
            schema = self.schema or writers[self.versions[0]]
            return AvroDecoder(schema, writers, self.versions)
        from kafkalog.log.typed.protobuf import ProtobufDecoder

        if self.has_ids:
            from kafkalog.log.typed.protobuf import ProtobufVersions

            make = ProtobufVersions(self.schema, self.message, self.framing)
            return self._evolved(make, make.column)
        if self.message is None:
            raise UsageError("Protobuf needs the name of the message.")
        return ProtobufDecoder(self.schema, self.message, self.framing)

    def _evolved(self, make: Callable[[Sequence[str]], Decoder], column: Decoder | None) -> Decoder:
        from kafkalog.log.typed.evolution import EvolvedDecoder

        versions = () if column else self.versions
        return EvolvedDecoder(make, self.all_writers(), versions, column)

    def unframed(self, data: bytes) -> tuple[bytes, SchemaId | None]:
        """Return the data without its prefix, and the schema id there.

        Raises:
            ValueError: the prefix is missing, or has another id than is wanted.
        """
        if self.framing == Framing.NONE:
            return data, None
        schema_id, start = self.split(data)
        if schema_id is None:
            raise ValueError("no schema id")
        if self.schema_id not in (None, schema_id):
            raise ValueError(f"the schema is {schema_id}, not {self.schema_id}")
        return unpacked(self.framing, data, start), schema_id

    def split(self, data: bytes) -> tuple[SchemaId | None, int]:
        """Return the schema id in the prefix, and where what follows begins; None without one.

        Raises:
            KafkaLogError: the registry of a GUID does not answer.
        """
        schema_id, start = split(self.framing, data)
        if isinstance(schema_id, str):
            number = _numbers(self.guids).get(schema_id)
            if number is None and self.place is not None and self.framing == Framing.CONFLUENT:
                from kafkalog.log.typed.remote_registry import registry_at

                number = registry_at(self.place).number_of(schema_id)
            return schema_id if number is None else number, start
        return schema_id, start

    def id_headers(self) -> list[tuple[str, bytes]]:
        """Return the headers that may have the schema id, as `framing.id_headers` does."""
        return id_headers(self.framing, self.source)

    def with_prefix(self, data: bytes, headers: Iterable[Header]) -> bytes:
        """Return the data of a record with the schema id before it that a header has, if any.

        A header that is no id leaves nothing, which has no id either.
        """
        last = {one.key: one.value for one in headers if one.value is not None}
        for name, before in self.id_headers() if last else ():
            if (found := last.get(name.encode())) is not None:
                if not self.is_id(found):
                    return b""
                message = last.get(MESSAGE_HEADER.encode()) if self.has_message_header else None
                named = b"" if message is None else delimited_name(message)
                return before + found + named + data
        return data

    def is_id(self, value: bytes) -> bool:
        """Return whether the value of one of the `id_headers` is an id."""
        is_of_message = self.form == TypedForm.PROTOBUF
        if self.types and is_of_message:  # of this schema it need not be
            schema_id, _ = self.split(value + b"\0")
            is_of_message = any(
                one.form == TypedForm.PROTOBUF and schema_id in dict(one.writers)
                for _, one in self.types
            )
        return is_whole_id(self.framing, value, names_message=is_of_message)

    @property
    def has_message_header(self) -> bool:
        """Whether a header names the message that data is of."""
        return self.form == TypedForm.PROTOBUF and self.framing == Framing.APICURIO

    def as_json(self) -> dict[str, Any]:
        """Return its fields, from which `from_json` rebuilds it."""
        return {
            "source": self.source,
            "form": self.form,
            "schema": base64.b64encode(self.schema).decode(),
            "message": self.message,
            "framing": self.framing,
            "schema_id": self.schema_id,
            "writers": [[number, list(texts)] for number, texts in self.writers],
            "versions": list(self.versions),
            "guids": [list(one) for one in self.guids],
            "place": self.place,
            "names": [list(one) for one in self.names],
            "type_name": self.type_name,
            "types": [[name, one.as_json()] for name, one in self.types],
            "is_flat": self.is_flat,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild the column from the result of `as_json`."""
        return cls(
            fields["source"],
            TypedForm(fields["form"]),
            base64.b64decode(fields["schema"]),
            fields["message"],
            Framing(fields["framing"]),
            fields["schema_id"],
            tuple((number, tuple(texts)) for number, texts in fields["writers"]),
            tuple(fields["versions"]),
            tuple((guid, number) for guid, number in fields["guids"]),
            fields.get("place"),
            tuple((number, name) for number, name in fields.get("names", ())),
            fields.get("type_name"),
            tuple((name, cls.from_json(one)) for name, one in fields.get("types", ())),
            fields.get("is_flat", False),
        )


@lru_cache(8)
def _numbers(guids: tuple[tuple[str, int], ...]) -> dict[str, int]:
    return dict(guids)
