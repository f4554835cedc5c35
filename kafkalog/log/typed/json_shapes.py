"""What the values that a schema allows look like in JSON: what columns are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalog.log.typed.connect_names import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

FLOAT32: Final = "float32"
FLOAT64: Final = "float64"
"""The forms of numbers that Kafka Connect wrote: what is no number, or infinite, is a text."""
DECIMAL_DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class Decimals:
    """Numbers with decimals of a fixed count.

    Attributes:
        is_packed: they may be base64 of the unscaled number, as Kafka Connect writes them.
        precision: how many digits they have at most.
    """

    scale: int
    is_packed: bool = False
    precision: int = DECIMAL_DIGITS

    @classmethod
    def of(cls, parameters: Any) -> Self | None:
        """Return those of Kafka Connect, by the parameters of their type; None without a scale."""
        if not isinstance(parameters, dict):
            return None
        scale = whole_number(parameters.get("scale"))
        precision = whole_number(parameters.get("connect.decimal.precision"))
        return None if scale is None else cls(scale, True, precision or DECIMAL_DIGITS)


@dataclass(frozen=True, slots=True)
class Members:
    """What is known of the members of objects.

    Attributes:
        named: those with a name.
        rest: the others; None if nothing is known of them.
        is_closed: there are no others.
    """

    named: Mapping[str, Shape] = field(default_factory=dict)
    rest: Shape | None = None
    is_closed: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What values a schema allows.

    Attributes:
        kinds: the names of types in JSON Schema, `number` mostly with `integer`; None for any.
        is_implied: the kinds are only guessed, from properties or items.
        text: why it has to be JSON text; empty if it need not.
        strings: the format of strings that are more than text: `date`, `date-time` or `base64`.
        numbers: what numbers are, if not float64: `FLOAT32`, `FLOAT64`, `Decimals`, or what
            `logical_of` returns; that also of objects.
        items: those of arrays; None if nothing is known of them.
        is_tuple: each place of arrays has items of its own.
        is_map: arrays are maps, of objects with `key` and `value`, or of lists of these two.
        members: those of objects.
    """

    kinds: frozenset[str] | None = None
    is_implied: bool = False
    text: str = ""
    strings: str | None = None
    numbers: str | Decimals | None = None
    items: Shape | None = None
    is_tuple: bool = False
    is_map: bool = False
    members: Members = Members()
