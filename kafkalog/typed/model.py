"""The description of a typed column, and its decoder."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from kafkalog.errors import UnsupportedError, UsageError
from kafkalog.typed.schema_size import brief

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC_SIZE: Final = 5
# What the libraries raise for malformed schemas, besides errors of their own.
_MALFORMED: Final = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
    MemoryError, NotImplementedError, AssertionError,
)  # fmt: skip


class TypedForm(StrEnum):
    """The format of the bytes."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Framing(StrEnum):
    """The prefix before the data."""

    NONE = "none"
    CONFLUENT = "confluent"
    """A zero byte and the id of a schema in a registry, four bytes; for Protobuf also the indexes
    of the message.
    """


class Decoder(Protocol):
    """Decodes bytes to values."""

    type: Any
    """The `pyarrow.DataType` of the column."""

    def decode(self, data: bytes, schema_id: int | None = None) -> Any:
        """Return a value that `pyarrow.array` accepts for the type.

        Args:
            data: the bytes.
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
            `protoc --include_imports -o` writes it.
        message: for Protobuf, the full name of the message.
        framing: the prefix before the data.
        schema_id: with a framing, decode only data with this schema id; None for any.
        writers: for Avro, the schemas by which data is decoded, by the id in its prefix: the texts
            of a schema and, before it, of those that it refers to. If empty, `schema` decodes all.
    """

    source: str
    form: TypedForm
    schema: bytes
    message: str | None = None
    framing: Framing = Framing.NONE
    schema_id: int | None = None
    writers: tuple[tuple[int, tuple[str, ...]], ...] = ()

    @property
    def name(self) -> str:
        """The column's name."""
        return f"{self.source}_decoded"

    def decoder(self) -> Decoder:
        """Return the decoder of the column.

        Raises:
            UsageError: the schema is malformed, or has something that no column can hold.
            UnsupportedError: a package is missing.
        """
        try:
            return self._decoder()
        except ModuleNotFoundError as error:
            raise UnsupportedError(
                f"To decode {self.form} needs a package that is missing: {error.name}.",
                hint=f"pip install 'kafkalog[{self.form}]'",
            ) from error
        except _MALFORMED as error:
            raise UsageError(
                f"The schema of the {self.source}s is malformed: {brief(error)}."
            ) from error

    def _decoder(self) -> Decoder:
        if self.form == TypedForm.JSON:
            from kafkalog.typed.json_schema import JsonDecoder

            return JsonDecoder(self.schema)
        if self.form == TypedForm.AVRO:
            from kafkalog.typed.avro import AvroDecoder

            return AvroDecoder(self.schema, dict(self.writers))
        from kafkalog.typed.protobuf import ProtobufDecoder

        if self.message is None:
            raise UsageError("Protobuf needs the name of the message.")
        return ProtobufDecoder(
            self.schema, self.message, has_indexes=self.framing == Framing.CONFLUENT
        )

    def unframed(self, data: bytes) -> tuple[bytes, int | None]:
        """Return the data without its prefix, and the schema id there.

        Raises:
            ValueError: the prefix is missing, or has another id than is wanted.
        """
        if self.framing == Framing.NONE:
            return data, None
        schema_id = self.schema_id_of(data)
        if schema_id is None:
            raise ValueError("no schema id")
        if self.schema_id not in (None, schema_id):
            raise ValueError(f"the schema is {schema_id}, not {self.schema_id}")
        return data[MAGIC_SIZE:], schema_id

    def schema_id_of(self, data: bytes) -> int | None:
        """Return the schema id in the prefix of data; None if it has none."""
        if self.framing == Framing.NONE or len(data) < MAGIC_SIZE or data[0]:
            return None
        return int.from_bytes(data[1:MAGIC_SIZE], "big")

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
        )
