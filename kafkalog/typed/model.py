"""The description of a typed column, and its decoder."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import UnsupportedError, UsageError
from kafkalog.typed.schema_size import brief

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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

    def decode(self, data: bytes) -> Any:
        """Return a value that `pyarrow.array` accepts for the type.

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
    """

    source: str
    form: TypedForm
    schema: bytes
    message: str | None = None
    framing: Framing = Framing.NONE
    schema_id: int | None = None

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

            return AvroDecoder(self.schema)
        from kafkalog.typed.protobuf import ProtobufDecoder

        if self.message is None:
            raise UsageError("Protobuf needs the name of the message.")
        return ProtobufDecoder(
            self.schema, self.message, has_indexes=self.framing == Framing.CONFLUENT
        )

    def unframed(self, data: bytes) -> bytes:
        """Return the data without its prefix; raise `ValueError` if that is missing."""
        if self.framing == Framing.NONE:
            return data
        if len(data) < MAGIC_SIZE or data[0]:
            raise ValueError("no schema id")
        if self.schema_id not in (None, int.from_bytes(data[1:MAGIC_SIZE], "big")):
            raise ValueError("another schema")
        return data[MAGIC_SIZE:]

    def as_json(self) -> dict[str, Any]:
        """Return its fields, from which `from_json` rebuilds it."""
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
        """Rebuild the column from the result of `as_json`."""
        return cls(
            fields["source"],
            TypedForm(fields["form"]),
            base64.b64decode(fields["schema"]),
            fields["message"],
            Framing(fields["framing"]),
            fields["schema_id"],
        )


# How many rows, and how many bytes of them, are Python objects at a time.
_ROWS_AT_ONCE: Final = 4096
_SIZE_AT_ONCE: Final = 4 << 20
VALUE_SIZE_MAX: Final = 16 << 20
"""Larger values are not decoded, since each byte can become a Python object."""
# A value that Arrow cannot hold: a number that is too large, or text that is not Unicode.
_UNFIT: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)


def typed_column(column: TypedColumn, decoder: Decoder, data: Any) -> tuple[Any, int]:
    """Return the typed column, and the number of values that are null because they do not decode.

    Values of more than `VALUE_SIZE_MAX` bytes are not decoded.

    Args:
        column: describes the column.
        decoder: the result of `column.decoder`.
        data: a `pyarrow.BinaryArray`.
    """
    parts, failures = [], 0
    for start, end in _slices(data):
        values: list[Any] = []
        for one in data.slice(start, end - start):
            value = None
            if one.is_valid:
                try:
                    value = decoder.decode(column.unframed(_small(one)))
                except ValueError:
                    failures += 1
            values.append(value)
        try:
            parts.append(pa.array(values, decoder.type))
        except _UNFIT:
            array, unfit = _one_by_one(values, decoder.type)
            parts.append(array)
            failures += unfit
    if not parts:
        return pa.array([], decoder.type), 0
    return pa.concat_arrays(parts), failures


def failure(column: TypedColumn, decoder: Decoder, data: bytes | None) -> str | None:
    """Return why bytes do not decode, as `typed_column` judges it; None if they do, or are null."""
    if data is None:
        return None
    if len(data) > VALUE_SIZE_MAX:
        return f"larger than {VALUE_SIZE_MAX} bytes"
    try:
        pa.array([decoder.decode(column.unframed(data))], decoder.type)
    except _UNFIT as error:
        return brief(error)
    return None


def _slices(data: Any) -> Iterator[tuple[int, int]]:
    """Cut a column into ranges of rows, by count and by bytes."""
    sizes = pc.fill_null(pc.binary_length(data), 0).cast(pa.int64())
    ends = sizes.to_numpy(zero_copy_only=False).cumsum()
    start = before = 0
    while start < len(data):
        end = int(ends.searchsorted(before + _SIZE_AT_ONCE)) + 1
        end = min(end, start + _ROWS_AT_ONCE, len(data))
        yield start, end
        start, before = end, int(ends[end - 1])


def _small(value: Any) -> bytes:
    if value.as_buffer().size > VALUE_SIZE_MAX:
        raise ValueError("too large")
    data: bytes = value.as_py()
    return data


def _one_by_one(values: list[Any], kind: Any) -> tuple[Any, int]:
    parts, failures = [], 0
    for value in values:
        try:
            parts.append(pa.array([value], kind))
        except _UNFIT:
            parts.append(pa.nulls(1, kind))
            failures += 1
    return pa.concat_arrays(parts), failures
