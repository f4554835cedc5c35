"""The display of the answers of queries: columns named as in the query, values of every kind."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kafkalog.errors import UsageError
from kafkalog_cli.output.objects import Column, View
from kafkalog_cli.output.text import BytesFormat, bytes_cell, bytes_value, dumps
from kafkalog_cli.output.writer import Format, Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.model import Defect
    from kafkalog.tables.model import Answer

Values = tuple[Any, ...]


def write_answer(
    answer: Answer, form: Format, bytes_form: BytesFormat, on_defect: Callable[[Defect], None]
) -> None:
    """Write the rows of an answer as they come.

    Raises:
        UsageError: objects would have two fields with one name.
    """
    _require_names(answer, form)
    with Writer(_view(answer, bytes_form), form, on_defect) as writer:
        for row in answer.rows:
            writer.write(row)


def _view(answer: Answer, form: BytesFormat) -> View[Values]:
    """Return the view of an answer, with columns named as in the query."""

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


def _require_names(answer: Answer, form: Format) -> None:
    """Raise `UsageError` if objects would have two fields with one name."""
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
    """Convert a value for JSON; numbers that JSON does not have become text."""
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
