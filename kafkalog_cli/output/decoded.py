"""Keys and values that schemas decode, as JSON values and as cells."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.io.wording import counted
from kafkalog.log.columns.json_values import json_values
from kafkalog.log.typed.columns import one_value, plain_value
from kafkalog_cli.outcome import show_warning
from kafkalog_cli.output.text import bytes_cell, dumps

if TYPE_CHECKING:
    from kafkalog.log.batches.condition import Reader
    from kafkalog.log.typed import TypedColumn
    from kafkalog.model import Header
    from kafkalog_cli.outcome import Outcome
    from kafkalog_cli.output.text import BytesFormat


class Decoded:
    """Keys or values as a schema decodes them; counts those that do not decode.

    Raises:
        UsageError: the schema is malformed.
        UnsupportedError: a package is missing.
    """

    def __init__(self, column: TypedColumn) -> None:
        self._column = column
        self._decoder = column.decoder()
        self._is_text = not (column.schema or column.writers)
        self._failed = 0

    def value(self, data: bytes | None, headers: tuple[Header, ...]) -> Any:
        """Return the JSON value, of a record with these headers; None where it does not decode."""
        array, reason = one_value(self._column, self._decoder, data, headers)
        self._failed += reason is not None
        [value] = json_values(array, "base64")
        return json.loads(value) if self._is_text and value is not None else value

    def cell(self, data: bytes | None, headers: tuple[Header, ...], form: BytesFormat) -> str:
        """Return the cell of a table: that of the bytes where they do not decode."""
        value = self.value(data, headers)
        if value is None:
            return bytes_cell(data, form)
        return value if isinstance(value, str) else dumps(value)

    @property
    def reader(self) -> Reader | None:
        """What decodes for conditions, which know JSON without a schema themselves."""
        return None if self._is_text else partial(plain_value, self._column, self._decoder)

    def report(self, outcome: Outcome) -> None:
        """Warn of what did not decode: the answer lacks it."""
        if self._failed:
            what = counted(self._failed, self._column.source)
            show_warning(f"{what} not decoded as {self._column.form}: shown as bytes")
            outcome.lacks()
