"""Keys and values that schemas decode, as JSON values and as cells."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kafkalog.io.wording import counted
from kafkalog.log.batches.condition import json_or_text
from kafkalog.log.columns.json_values import json_values
from kafkalog.log.typed import TypedForm
from kafkalog.log.typed.columns import one_value, python_value
from kafkalog.log.typed.connect import EachConnectDecoder
from kafkalog.log.typed.remarks import placed
from kafkalog.log.typed.type_names import names_of, one_type
from kafkalog.model import Header
from kafkalog.tables.schema_columns import SchemaIdDecoder
from kafkalog_cli.outcome import show_note, show_warning
from kafkalog_cli.output.remarks import loss_lines, remark_lines
from kafkalog_cli.output.text import bytes_cell, dumps

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from kafkalog.log.batches.condition import Reader
    from kafkalog.log.typed import TypedColumn
    from kafkalog.log.typed.model import Decoder
    from kafkalog.log.typed.registered import SchemaRegistry
    from kafkalog.log.typed.remarks import Remark
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.text import BytesFormat

Headers: TypeAlias = tuple[Header, ...]


class RowDecoder(Protocol):
    """Decodes keys or values one by one."""

    def decode(self, data: bytes, headers: Headers) -> tuple[Any, str | None]:
        """Return an Arrow array of one value, and why it does not decode.

        None for both if the bytes are not data with a schema.
        """

    def schema_id(self, data: bytes, headers: Headers) -> object:
        """Return the id of the schema that bytes have; None without one."""

    def type_name(self, data: bytes, headers: Headers) -> str | None:
        """Return the full name of the type of bytes; None if no known schema says it."""

    @property
    def remarks(self) -> Sequence[Remark]:
        """What the schemas have no type for."""

    @property
    def losses(self) -> Counter[str]:
        """How many of the values so far lost something, by what."""

    @property
    def notes(self) -> Sequence[str]:
        """What else to say of the values so far."""

    @property
    def warnings(self) -> Sequence[str]:
        """What is left out."""


class Decoded:
    """Keys or values as schemas decode them; counts those that do not decode.

    Args:
        source: `key` or `value`.
        form: what they are decoded as, for messages.
        make: returns what decodes them.
        has_ids: whether each may have the id of a schema.
        is_text: whether a value is the text of JSON.
        is_asked: whether somebody asked for it, so that an answer lacks what does not decode.

    Raises:
        UsageError: the schema is malformed.
        UnsupportedError: a package is missing.
    """

    def __init__(
        self,
        source: str,
        form: str,
        make: Callable[[], RowDecoder],
        *,
        has_ids: bool,
        is_text: bool = False,
        is_asked: bool = True,
    ) -> None:
        self._source, self._form = source, form
        self._make = make
        self._decoder = make()
        self.has_ids = has_ids
        self._is_text = is_text
        self._is_asked = is_asked
        self._count = self._failed = 0

    def value(self, data: bytes | None, headers: Headers) -> Any:
        """Return the JSON value, of a record with these headers; None where it does not decode."""
        if data is None:
            return None
        array, reason = self._decoder.decode(data, headers)
        self._count += 1
        self._failed += reason is not None
        if array is None:
            return None
        [value] = json_values(array, "base64")
        return json.loads(value) if self._is_text and value is not None else value

    def schema_id(self, data: bytes | None, headers: Headers) -> str | None:
        """Return the id of the schema that bytes have; None if they have none."""
        found = None if data is None else self._decoder.schema_id(data, headers)
        return None if found is None else str(found)

    def type_name(self, data: bytes | None, headers: Headers) -> str | None:
        """Return the full name of the type of bytes; None if no known schema says it."""
        return None if data is None else self._decoder.type_name(data, headers)

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

    @cached_property
    def _of_conditions(self) -> RowDecoder:
        return self._make()  # another one: that of the rows counts what these lost

    def _read(self, data: bytes, headers: Headers) -> Any:
        array, reason = self._of_conditions.decode(data, headers)
        is_bytes = array is None and reason is None
        return json_or_text(data) if is_bytes else python_value(array, reason)

    def report(self, outcome: Outcome) -> None:
        """Say what has other types, and what was lost; warn of what did not decode."""
        if self._count:
            name = f"{self._source}_decoded"
            remarks = placed({name: self._decoder.remarks})
            losses = loss_lines({name: self._decoder.losses})
            for line in (*remark_lines(remarks), *losses, *self._decoder.notes):
                show_note(line)
        for line in self._decoder.warnings:
            show_warning(line)
            outcome.lacks(self._is_asked)
        if self._failed:
            what = counted(self._failed, self._source)
            show_warning(f"{what} not decoded as {self._form}: shown as bytes")
            outcome.lacks(self._is_asked)


class _OfOneForm:
    """What a decoder of values of one form says of them."""

    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def __init__(self, decoder: Decoder | EachConnectDecoder) -> None:
        self._of_form = decoder

    @property
    def remarks(self) -> Sequence[Remark]:
        return self._of_form.remarks

    @property
    def losses(self) -> Counter[str]:
        return self._of_form.losses


class _ByColumn(_OfOneForm):
    """Decodes as a typed column does."""

    def __init__(self, column: TypedColumn) -> None:
        self._column = column
        self._decoder = column.decoder()
        super().__init__(self._decoder)

    def decode(self, data: bytes, headers: Headers) -> tuple[Any, str | None]:
        return one_value(self._column, self._decoder, data, headers)

    def schema_id(self, data: bytes, headers: Headers) -> object:
        return self._column.split(self._column.with_prefix(data, headers))[0]

    def type_name(self, data: bytes, headers: Headers) -> str | None:
        whole = self._column.with_prefix(data, headers)
        return one_type(self._column, names_of(self._column), whole)


class _ByMessage(_OfOneForm):
    """Decodes what Kafka Connect wrote, each by its own schema."""

    def __init__(self) -> None:
        self._decoder = EachConnectDecoder()
        super().__init__(self._decoder)

    def decode(self, data: bytes, headers: Headers) -> tuple[Any, str | None]:  # noqa: ARG002 # it has the schema itself
        return self._decoder.decode(data)

    def schema_id(self, data: bytes, headers: Headers) -> object:  # noqa: ARG002 # it has none
        return None

    def type_name(self, data: bytes, headers: Headers) -> str | None:  # noqa: ARG002 # nor this
        return None


def decoded_by_column(column: TypedColumn) -> Decoded:
    """Return what decodes values as a typed column does. Raises as `Decoded`."""
    if column.form == TypedForm.CONNECT:
        return Decoded(column.source, column.form, _ByMessage, has_ids=False)
    return Decoded(
        column.source, column.form, lambda: _ByColumn(column), has_ids=column.has_ids,
        is_text=not (column.schema or column.has_ids),
    )  # fmt: skip


def decoded_by_id(source: str, registry: SchemaRegistry, *, is_asked: bool) -> Decoded:
    """Return what decodes each value by the schema whose id it has.

    Args:
        is_asked: as for `Decoded`; else a missing package is no error either.
    """
    return Decoded(
        source, "its schema says",
        lambda: SchemaIdDecoder(source, registry, needs_all=is_asked),
        has_ids=True, is_asked=is_asked,
    )  # fmt: skip
