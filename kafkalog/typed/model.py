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
# What the libraries raise for schemas that are none, besides errors of their own.
_MALFORMED: Final = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError,
    MemoryError, NotImplementedError, AssertionError,
)  # fmt: skip


class TypedForm(StrEnum):
    """How bytes are to be read."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Framing(StrEnum):
    """What stands before the data."""

    NONE = "none"
    CONFLUENT = "confluent"
    """A zero byte and the id of a schema in a registry, four bytes; of Protobuf the indexes of the
    message, too."""


class Decoder(Protocol):
    """Makes values of bytes."""

    type: Any
    """The `pyarrow.DataType` of the column."""

    def decode(self, data: bytes) -> Any:
        """Return a value that `pyarrow.array` takes for the type.

        Raises:
            ValueError: the bytes are no such value.
        """


@dataclass(frozen=True, slots=True)
class TypedColumn:
    """A column to be made.

    Attributes:
        source: `key` or `value`.
        form: how its bytes are read.
        schema: the schema file's bytes: a JSON Schema, an Avro schema, or a descriptor set as
            `protoc --include_imports -o` writes it.
        message: of Protobuf: the full name of the message.
        framing: what stands before the data.
        schema_id: with a framing: only data of this schema is decoded; None: of any.
    """

    source: str
    form: TypedForm
    schema: bytes
    message: str | None = None
    framing: Framing = Framing.NONE
    schema_id: int | None = None

    @property
    def name(self) -> str:
        """What the column is called."""
        return f"{self.source}_decoded"

    def decoder(self) -> Decoder:
        """What makes it.

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

            return AvroDecoder(self.schema)
        from kafkalog.typed.protobuf import ProtobufDecoder

        if self.message is None:
            raise UsageError("Protobuf needs the name of the message.")
        return ProtobufDecoder(
            self.schema, self.message, has_indexes=self.framing == Framing.CONFLUENT
        )

    def unframed(self, data: bytes) -> bytes:
        """The data without what stands before it; raises `ValueError` where that is not there."""
        if self.framing == Framing.NONE:
            return data
        if len(data) < MAGIC_SIZE or data[0]:
            raise ValueError("no schema id")
        if self.schema_id not in (None, int.from_bytes(data[1:MAGIC_SIZE], "big")):
            raise ValueError("another schema")
        return data[MAGIC_SIZE:]

    def as_json(self) -> dict[str, Any]:
        """Its fields, of which `from_json` makes it again."""
        return {
            "source": self.source,
            "form": self.form,
            "schema": base64.b64encode(self.schema).decode(),
            "message": self.message,
            "framing": self.framing,
            "schema_id": self.schema_id,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the column of `as_json`."""
        return cls(
            fields["source"],
            TypedForm(fields["form"]),
            base64.b64decode(fields["schema"]),
            fields["message"],
            Framing(fields["framing"]),
            fields["schema_id"],
        )
