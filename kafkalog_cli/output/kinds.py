"""The types of fields: how a value becomes a JSON value, and the cell of a table."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass
from kafkalog_cli.output.text import (
    BytesFormat,
    bytes_cell,
    bytes_value,
    dumps,
    full_time,
    record_time_column,
    size_text,
    time_cell,
    time_column,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog_cli.output.objects import Style


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a field.

    Attributes:
        name: its JSON type, as the docs name it.
        cell: how a value that is not None becomes a cell of a table, if not as it is in JSON.
        right: whether cells are aligned to the right.
        to_json: how a value becomes a JSON value, if it is not one.
        full: how it becomes text in a block of `-x`, if not as a cell.
        forms: how a value is written in a template that names a form: `{key:hex}`.
        is_time: whether it is a time, whose zone the title of a column names.
        is_data: whether cells may be cut on a terminal.
    """

    name: str
    cell: Callable[[Any, Style], object] | None = None
    right: bool = False
    to_json: Callable[[Any, Style], object] | None = None
    full: Callable[[Any, Style], object] | None = None
    forms: tuple[tuple[str, Callable[[Any, Style], str]], ...] = ()
    is_time: bool = False
    is_data: bool = False

    def cell_of(self, value: Any, style: Style) -> object:
        """Return the cell of a value that is not None."""
        if self.cell is not None:
            return self.cell(value, style)
        return value if self.to_json is None else dumps(self.to_json(value, style))

    def __or__(self, other: None) -> Kind:
        return replace(self, name=f"{self.name} or null")


def _plain(value: Any, _: Style) -> object:
    """Convert tuples to lists, and dataclasses to objects."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, tuple | list):
        return [_plain(one, _) for one in value]
    return value


def _iso(timestamp_ms: int, style: Style) -> str:
    return "" if timestamp_ms == -1 else time_cell(timestamp_ms, style.zone)


def _bytes_in(form: BytesFormat) -> Callable[[bytes, Style], str]:
    return lambda data, _: bytes_cell(data, form) if data else ""


ANY: Final = Kind("any")
ARRAY: Final = Kind("array", to_json=_plain, is_data=True)
BOOL: Final = Kind("boolean", lambda value, _: "true" if value else "false")
KEY: Final = Kind(
    "string, object or null",
    cell=lambda data, style: bytes_cell(data, style.key_form),
    to_json=lambda data, style: bytes_value(data, style.key_form),
    forms=(("text", _bytes_in(BytesFormat.TEXT)), ("hex", _bytes_in(BytesFormat.HEX)),
           ("base64", _bytes_in(BytesFormat.BASE64))),
    is_data=True,
)  # fmt: skip
VALUE: Final = Kind(
    "string, object or null",
    cell=lambda data, style: bytes_cell(data, style.value_form),
    to_json=lambda data, style: bytes_value(data, style.value_form),
)
INT: Final = Kind("integer", right=True)
OBJECT: Final = Kind("object", to_json=_plain, is_data=True)
RATIO: Final = Kind("number", cell=lambda value, _: f"{100 * value:.1f}%", right=True)
SIZE: Final = Kind("integer", size_text, right=True)
TEXT: Final = Kind("string", is_data=True)
TIME: Final = Kind("integer", time_column, full=full_time, forms=(("iso", _iso),), is_time=True)
RECORD_TIME: Final = replace(TIME, cell=record_time_column)
