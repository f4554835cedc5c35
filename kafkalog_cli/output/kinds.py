"""The types of fields: how a value becomes a JSON value, and the cell of a table."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass
from kafkalog_cli.output.text import bytes_cell, bytes_value, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog_cli.output.objects import Style


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a field.

    Attributes:
        name: its JSON type, as the docs name it.
        cell: how a value that is not None becomes a cell of a table.
        right: whether cells are aligned to the right.
        to_json: how a value becomes a JSON value, if it is not one.
    """

    name: str
    cell: Callable[[Any, Style], object] = lambda value, _: value
    right: bool = False
    to_json: Callable[[Any, Style], object] | None = None

    def __or__(self, other: None) -> Kind:
        return replace(self, name=f"{self.name} or null")


def _plain(value: Any, _: Style) -> object:
    """Convert tuples to lists, and dataclasses to objects."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, tuple | list):
        return [_plain(one, _) for one in value]
    return value


ANY: Final = Kind("any")
ARRAY: Final = Kind("array", to_json=_plain)
BOOL: Final = Kind("boolean")
KEY: Final = Kind(
    "string, object or null",
    cell=lambda data, style: bytes_cell(data, style.key_form),
    to_json=lambda data, style: bytes_value(data, style.key_form),
)
VALUE: Final = Kind(
    "string, object or null",
    cell=lambda data, style: bytes_cell(data, style.value_form),
    to_json=lambda data, style: bytes_value(data, style.value_form),
)
INT: Final = Kind("integer", right=True)
OBJECT: Final = Kind("object", to_json=_plain)
RATIO: Final = Kind("number", cell=lambda value, _: f"{100 * value:.1f}%", right=True)
SIZE: Final = Kind("integer", size_text, right=True)
TEXT: Final = Kind("string")
TIME: Final = Kind("integer", time_text)
