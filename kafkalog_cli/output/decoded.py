"""Keys and values that schemas decode, as JSON values and as cells."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkalog.io.wording import counted
from kafkalog.log.batches.condition import json_or_text
from kafkalog.log.columns.json_values import json_values
from kafkalog.log.typed.columns import one_value, python_value
from kafkalog.model import Header
from kafkalog.tables.schema_columns import SchemaIdDecoder
from kafkalog_cli.outcome import show_warning
from kafkalog_cli.output.text import bytes_cell, dumps

if TYPE_CHECKING:
    from kafkalog.log.batches.condition import Reader
    from kafkalog.log.typed import TypedColumn
    from kafkalog.tables.schema_registry import SchemaRegistry
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.text import BytesFormat

Headers: TypeAlias = tuple[Header, ...]
_Decode: TypeAlias = Callable[[bytes, Headers], tuple[Any, str | None]]


class Decoded:
    """Keys or values as schemas decode them; counts those that do not decode.

    Args:
        source: `key` or `value`.
        form: what they are decoded as, for messages.
        decode: returns what bytes decode to, an Arrow array of one value, and why they do not; None
            for both if they stay bytes.
        schema_id: returns the id of the schema that bytes have, if they have one.
        is_text: whether a value is the text of JSON.
    """

    def __init__(
        self,
        source: str,
        form: str,
        decode: _Decode,
        schema_id: Callable[[bytes, Headers], object] | None = None,
        *,
        is_text: bool = False,
    ) -> None:
        self._source, self._form = source, form
        self._decode = decode
        self._schema_id = schema_id
        self._is_text = is_text
        self._failed = 0

    @property
    def has_ids(self) -> bool:
        """Whether each may have the id of a schema."""
        return self._schema_id is not None

    def value(self, data: bytes | None, headers: Headers) -> Any:
        """Return the JSON value, of a record with these headers; None where it does not decode."""
        if data is None:
            return None
        array, reason = self._decode(data, headers)
        self._failed += reason is not None
        if array is None:
            return None
        [value] = json_values(array, "base64")
        return json.loads(value) if self._is_text and value is not None else value

    def schema_id(self, data: bytes | None, headers: Headers) -> str | None:
        """Return the id of the schema that bytes have; None if they have none."""
        found = None if data is None or not self._schema_id else self._schema_id(data, headers)
        return None if found is None else str(found)

    def cell(self, data: bytes | None, headers: Headers, form: BytesFormat) -> str:
        """Return the cell of a table: that of the bytes where they do not decode."""
        value = self.value(data, headers)
        if value is None:
            return bytes_cell(data, form)
        return value if isinstance(value, str) else dumps(value)

    @property
    def reader(self) -> Reader | None:
        """What decodes for conditions, which know JSON without a schema themselves."""
        return None if self._is_text else self._read

    def _read(self, data: bytes, headers: Headers) -> Any:
        array, reason = self._decode(data, headers)
        is_bytes = array is None and reason is None
        return json_or_text(data) if is_bytes else python_value(array, reason)

    def report(self, outcome: Outcome) -> None:
        """Warn of what did not decode: the answer lacks it."""
        if self._failed:
            what = counted(self._failed, self._source)
            show_warning(f"{what} not decoded as {self._form}: shown as bytes")
            outcome.lacks()


def decoded_by_column(column: TypedColumn) -> Decoded:
    """Return what decodes values as a typed column does.

    Raises:
        UsageError: the schema is malformed.
        UnsupportedError: a package is missing.
    """
    decoder = column.decoder()

    def decode(data: bytes, headers: Headers) -> tuple[Any, str | None]:
        return one_value(column, decoder, data, headers)

    def schema_id(data: bytes, headers: Headers) -> object:
        return column.split(column.with_prefix(data, headers))[0]

    return Decoded(
        column.source, column.form, decode, schema_id if column.writers else None,
        is_text=not (column.schema or column.writers),
    )  # fmt: skip


def decoded_by_id(source: str, registry: SchemaRegistry) -> Decoded:
    """Return what decodes each value by the schema whose id it has."""
    decoder = SchemaIdDecoder(source, registry)

    def decode(data: bytes, headers: Headers) -> tuple[Any, str | None]:
        found = decoder.decode(data, headers)
        return (None, None) if found is None else (found.array, found.reason)

    return Decoded(source, "its schema says", decode, decoder.schema_id)
