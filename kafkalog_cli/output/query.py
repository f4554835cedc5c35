"""How `sql` shows the rows of an answer."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kafkalog.errors import UsageError
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import BytesFormat, bytes_cell, bytes_value, dumps
from kafkalog_cli.output.writer import Format

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.spark.query import Answer

Values = tuple[Any, ...]


def query_view(answer: Answer, form: BytesFormat) -> View[Values]:
    """One row a row; columns as the query names them."""

    def cell(number: int) -> Callable[[Values], object]:
        return lambda row: _cell(row[number], form)

    columns = [
        Column(name, cell(number), right=answer.numeric[number], fold=not answer.numeric[number])
        for number, name in enumerate(answer.names)
    ]
    return View(
        tuple(columns),
        lambda row: {
            name: _value(value, form) for name, value in zip(answer.names, row, strict=True)
        },
    )


def require_names(answer: Answer, form: Format) -> None:
    """Raise `UsageError` where objects would have two fields of one name."""
    twice = {name for name in answer.names if answer.names.count(name) > 1}
    if twice and form != Format.TABLE:
        raise UsageError(
            f"Two columns have the name {min(twice)!r}.", hint="Name one of them: … AS other."
        )


def _cell(value: Any, form: BytesFormat) -> str:
    if value is None:
        return "-"
    if isinstance(value, bytes):
        return bytes_cell(value, form)
    plain = _value(value, form)
    return plain if isinstance(plain, str) else dumps(plain)


def _value(value: Any, form: BytesFormat) -> Any:
    """As JSON has it; what it has no number for is text."""
    if isinstance(value, bytes):
        return bytes_value(value, form)
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if isinstance(value, list):
        return [_value(inner, form) for inner in value]
    if isinstance(value, dict):
        return {name: _value(inner, form) for name, inner in value.items()}
    return value if isinstance(value, bool | int | float | str | None) else str(value)
