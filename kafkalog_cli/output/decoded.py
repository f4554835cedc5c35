"""Keys and values that schemas decode, as JSON values and as cells."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.io.wording import counted
from kafkalog.log.columns.json_values import json_values
from kafkalog.log.typed.columns import one_value, plain_value
from kafkalog.log.typed.remarks import placed
from kafkalog_cli.outcome import show_note, show_warning
from kafkalog_cli.output.remarks import loss_lines, remark_lines
from kafkalog_cli.output.text import bytes_cell, dumps

if TYPE_CHECKING:
    from kafkalog.log.batches.condition import Reader
    from kafkalog.log.typed import TypedColumn
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
        self._count = self._failed = 0

    def value(self, data: bytes | None) -> Any:
        """Return the JSON value; None where it does not decode."""
        array, reason = one_value(self._column, self._decoder, data)
        self._count += data is not None
        self._failed += reason is not None
        [value] = json_values(array, "base64")
        return json.loads(value) if self._is_text and value is not None else value

    def cell(self, data: bytes | None, form: BytesFormat) -> str:
        """Return the cell of a table: that of the bytes where they do not decode."""
        value = self.value(data)
        if value is None:
            return bytes_cell(data, form)
        return value if isinstance(value, str) else dumps(value)

    @property
    def reader(self) -> Reader | None:
        """What decodes for conditions, which know JSON without a schema themselves."""
        # By a decoder of its own: that of the rows counts what these lost.
        return None if self._is_text else partial(plain_value, self._column, self._column.decoder())

    def report(self, outcome: Outcome) -> None:
        """Say what has other types, and what was lost; warn of what did not decode."""
        if self._count:
            remarks = placed({self._column.name: self._decoder.remarks})
            losses = {self._column.name: self._decoder.losses}
            for line in (*remark_lines(remarks), *loss_lines(losses)):
                show_note(line)
        if self._failed:
            what = counted(self._failed, self._column.source)
            show_warning(f"{what} not decoded as {self._column.form}: shown as bytes")
            outcome.lacks()
