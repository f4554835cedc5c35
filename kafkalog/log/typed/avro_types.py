"""The types of columns for schemas of Avro, and how values become those of their logical types."""

from __future__ import annotations

import decimal
import struct
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa

from kafkalog.log.typed import lake_types
from kafkalog.log.typed.avro_values import Cursor, read_bytes, read_int
from kafkalog.log.typed.cells import COUNTER
from kafkalog.log.typed.remarks import LOST_DIGITS, Remark
from kafkalog.log.typed.schema_size import SchemaSize

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.log.typed.avro_schema import Node

    Conversion = Callable[[Any], Any]

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int": lake_types.INTEGER,
    "long": lake_types.INTEGER,
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "string": lake_types.TEXT,
    "enum": lake_types.TEXT,
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "big-decimal": lake_types.TEXT,
    "connect-decimal": lake_types.TEXT,
    "scaled-decimal": lake_types.TEXT,
    "uuid": lake_types.TEXT,
    "zoned-timestamp": lake_types.TIMESTAMP,
    "duration": lake_types.struct_type(
        [(name, lake_types.INTEGER) for name in ("months", "days", "millis")]
    ),
}
_FAMILIES: Final = {
    "time": lake_types.TEXT,
    "timestamp": lake_types.TIMESTAMP,
    "local-timestamp": lake_types.LOCAL_TIMESTAMP,
}
NANOSECONDS: Final = {"millis": 1_000_000, "micros": 1000, "nanos": 1}
"""In the units of logical types."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
MICROS: Final = tuple(
    (one.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND for one in (datetime.min, datetime.max)
)
"""The first and the last microsecond of the calendar, years 1 to 9999, since 1970."""
DAYS: Final = tuple(one.toordinal() - date(1970, 1, 1).toordinal() for one in (date.min, date.max))
"""Likewise the first and the last day."""
# What Python makes texts of, which takes the square of their time.
_DIGITS_MAX: Final = 4300
_DECIMAL_SIZE_MAX: Final = 1785
_EXACT: Final = decimal.Context(prec=decimal.MAX_PREC, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


@dataclass(slots=True, eq=False)
class Shape:
    """What a part of a schema becomes in a column.

    Attributes:
        type: of the column; JSON text of the whole part with `is_json`.
        parts: for each field of a record and branch of a union, or for the items of an array or a
            map; None for what the column lacks.
        names: those of the struct's fields, for each of `parts`; none for a union that is no
            struct.
        main: if a value has one of several types: that of the column; these are a struct then.
        others: the field and the shape of each of the others, by the id of the writer's type.
    """

    type: Any
    parts: list[Shape | None] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    is_json: bool = False
    main: Shape | None = None
    others: dict[int, tuple[str, Shape]] = field(default_factory=dict)


class Shapes:
    """Makes the shape of a schema.

    Attributes:
        remarks: parts that have no type of their own.
    """

    def __init__(self) -> None:
        self.remarks: list[Remark] = []
        self._size = SchemaSize()
        self._above: set[int] = set()  # records around the part

    def of(self, node: Node) -> Shape:
        """Return the shape of a column.

        Raises:
            UsageError: it would have too many fields, or too many levels.
        """
        return self._shape(node, "") or self._json("", "null alone")

    def _json(self, path: str, reason: str) -> Shape:
        self.remarks.append(Remark(path, "json", reason))
        return Shape(lake_types.JSON, is_json=True)

    def _shape(self, node: Node, path: str) -> Shape | None:
        """Return the shape of a part; None if it can only be null."""
        with self._size.inside(path or "the top"):
            if node.kind == "null":
                return None
            if node.kind == "union":
                return self._union(node, path)
            if node.kind == "record" and not node.logical:
                return self._record(node, path)
            if node.kind in ("array", "map"):
                return self._container(node, path)
            return Shape(scalar_type(node))

    def _container(self, node: Node, path: str) -> Shape:
        is_array = node.kind == "array"
        part = self._shape(node.parts[0], path + ("[]" if is_array else "{}"))
        if part is None:
            return self._json(path, f"{node.kind} of nulls")
        kind = pa.list_(part.type) if is_array else pa.map_(pa.string(), part.type)
        return Shape(kind, [part])

    def _record(self, node: Node, path: str) -> Shape:
        if id(node) in self._above:
            return self._json(path, f"the record {node.short} within itself")
        self._above.add(id(node))
        parts = []
        for one in node.fields:
            place = f"{path}.{one.name}" if path else one.name
            parts.append(self._shape(one.type, place))
            if parts[-1] is None:
                self.remarks.append(Remark(place, "omitted", "null alone"))
        self._above.remove(id(node))
        aliases = {one.name: one.aliases for one in node.fields}
        return _struct([one.name for one in node.fields], parts, aliases)

    def _union(self, node: Node, path: str) -> Shape | None:
        others = [one for one in node.parts if one.kind != "null"]
        if not others:
            return None
        wider = _wider(others)
        if wider is not None:
            parts = [None if one.kind == "null" else Shape(wider) for one in node.parts]
            return Shape(wider, [*parts])
        if len(others) == 1:
            part = self._shape(others[0], path)
            assert part is not None  # neither null nor a union
            return Shape(part.type, [part if one is others[0] else None for one in node.parts])
        names = branch_names(node)
        shapes = [
            self._shape(one, f"{path}.{name}" if path else name)
            for one, name in zip(node.parts, names, strict=True)
        ]
        return _struct(names, shapes)


def _struct(
    names: list[str],
    parts: list[Shape | None],
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> Shape:
    """Return the shape of a struct of the parts that a column has."""
    pairs = [(name, one) for name, one in zip(names, parts, strict=True) if one is not None]
    kind = lake_types.struct_type([(name, one.type) for name, one in pairs])
    if pairs:
        kind = pa.struct(
            lake_types.with_aliases(marked(column, one), (aliases or {}).get(name, ()))
            for column, (name, one) in zip(kind, pairs, strict=True)
        )
    columns = iter([one.name for one in kind])
    return Shape(kind, parts, ["" if one is None else next(columns) for one in parts])


def marked(column: Any, shape: Shape) -> Any:
    """Return the field of a shape, which says whether its text is JSON."""
    bottom: Shape | None = shape
    while bottom is not None and not bottom.names and not bottom.is_json:
        bottom = next((one for one in bottom.parts if one is not None), None)
    return column if bottom is None or bottom.names else lake_types.as_json_text(column)


def scalar_type(node: Node) -> Any:
    """Return the type of a column of what has no parts."""
    if node.logical == "decimal":
        return lake_types.decimal_type(node.precision, node.scale)
    family = node.logical.rpartition("-")[0]
    found = _FAMILIES.get(family) or _LOGICAL.get(node.logical)
    return found or _PLAIN[node.kind]


def _wider(nodes: list[Node]) -> Any:
    """Return the one type of integers, or of floating-point numbers; None for others."""
    kinds = {one.kind for one in nodes}
    if any(one.logical for one in nodes):
        return None
    if kinds == {"int", "long"}:
        return lake_types.INTEGER
    return pa.float64() if kinds == {"float", "double"} else None


def is_struct(node: Node) -> bool:
    """Return whether a union becomes a struct with a field for each branch."""
    others = [one for one in node.parts if one.kind != "null"]
    return len(others) > 1 and _wider(others) is None


def branch_names(node: Node) -> list[str]:
    """Return the names of a union's branches: short ones, unless two are equal."""
    short = [one.short for one in node.parts]
    return [
        one.name.replace(".", "_") if one.name and short.count(name) > 1 else name
        for name, one in zip(short, node.parts, strict=True)
    ]


# Values ------------------------------------------------------------------------------------------


def unit(writer: Node, reader: Node) -> int:
    """Return the nanoseconds that a number of the writer counts, for a reader with times."""
    family, _, name = reader.logical.rpartition("-")
    before, _, other = writer.logical.rpartition("-")
    return NANOSECONDS[other if before == family else name]


def conversion(
    writer: Node, reader: Node, losses: Counter[str], *, is_json: bool
) -> Conversion | None:
    """Return what makes a value of the column from one of a type without its logical type.

    The writer's unit or scale counts if it is of the same logical type. None to leave it as it is.

    Args:
        losses: counts values that lose digits.
        is_json: for JSON, not for a column.
    """
    logical = reader.logical
    family = logical.rpartition("-")[0]
    if family == "time":
        return _time(unit(writer, reader), 9 if logical.endswith("nanos") else 6)
    if logical == "zoned-timestamp":
        return _zoned(losses, is_json=is_json)
    if family in _FAMILIES:
        return _moment(unit(writer, reader), losses, is_utc=family == "timestamp", is_json=is_json)
    if logical == "decimal":
        return _decimal(writer, reader, is_json=is_json)
    if logical == "date":
        return _date_json if is_json else _date
    if logical == "connect-decimal":
        return lambda raw: _shown(_scaled(_integer(raw), reader.scale))
    if logical == "uuid" and reader.kind == "fixed":
        return lambda raw: str(UUID(bytes=raw))
    return _OTHERS.get(logical)


def _time(nanoseconds: int, digits: int) -> Conversion:
    return lambda number: lake_types.time_text(number * nanoseconds, digits)


def _moment(nanoseconds: int, losses: Counter[str], *, is_utc: bool, is_json: bool) -> Conversion:
    def moment(number: int) -> Any:
        micros, rest = divmod(number * nanoseconds, 1000)
        if not MICROS[0] <= micros <= MICROS[1]:
            raise ValueError(f"{number} is a time beyond the years 1 to 9999")
        if is_json:
            text = (_EPOCH + micros * _MICROSECOND).isoformat()[:-6]
            if rest:
                text = f"{text if '.' in text else text + '.000000'}{rest:03}"
            return text + "Z" * is_utc
        if rest:
            losses[LOST_DIGITS] += 1
        return micros

    return moment


def _zoned(losses: Counter[str], *, is_json: bool) -> Conversion:
    def zoned(text: str) -> Any:
        try:
            found = datetime.fromisoformat(text)
        except ValueError as error:
            raise ValueError(f"{text!r:.40} is no time") from error
        if found.tzinfo is None:
            raise ValueError(f"{text!r:.40} is a time without a zone")
        if is_json:
            return text
        # Python takes six decimals and drops the others.
        _, _, decimals = text.partition(".")
        if decimals[6:].rstrip("Z").partition("+")[0].partition("-")[0].strip("0"):
            losses[LOST_DIGITS] += 1
        return (found - _EPOCH) // _MICROSECOND

    return zoned


def _date(number: int) -> int:
    if not DAYS[0] <= number <= DAYS[1]:
        raise ValueError(f"{number} is a day beyond the years 1 to 9999")
    return number


def _date_json(number: int) -> date:
    return date(1970, 1, 1) + timedelta(days=_date(number))


def _integer(raw: bytes) -> int:
    if not raw:
        raise ValueError("a decimal without bytes")
    if len(raw) > _DECIMAL_SIZE_MAX:
        raise ValueError(f"a decimal of more than {_DIGITS_MAX} digits")
    return int.from_bytes(raw, "big", signed=True)


def _scaled(number: int, scale: int) -> Decimal:
    return Decimal(number).scaleb(-scale, _EXACT)


def _shown(number: Decimal) -> str:
    """Return all digits, with zeros up to the decimal point unless they would be endless."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # a finite number
    return COUNTER.add_text(f"{number:f}" if abs(exponent) <= _DIGITS_MAX else str(number))


def _decimal(writer: Node, reader: Node, *, is_json: bool) -> Conversion:
    scale, before = reader.scale, writer.scale if writer.logical == "decimal" else reader.scale
    up, down = 10 ** max(scale - before, 0), 10 ** max(before - scale, 0)
    is_text = lake_types.decimal_type(reader.precision, scale) == lake_types.TEXT
    bound = 0 if is_text else 10**reader.precision

    def exact(raw: bytes) -> Any:
        number, rest = divmod(_integer(raw) * up, down)
        if rest:
            raise ValueError(f"a decimal of more than {scale} decimals")
        if bound and abs(number) >= bound:
            raise ValueError(f"a decimal of more than {reader.precision} digits")
        found = _scaled(number, scale)
        return _shown(found) if is_text and not is_json else found

    return exact


def _big_decimal(raw: bytes) -> str:
    """Read the unscaled bytes, with their size before them, and the scale."""
    cursor = Cursor(raw)
    number = _integer(read_bytes(cursor))
    return _shown(_scaled(number, read_int(cursor)))


def _duration(raw: bytes) -> dict[str, int]:
    return dict(zip(("months", "days", "millis"), struct.unpack("<III", raw), strict=True))


_OTHERS: Final[dict[str, Conversion]] = {
    "big-decimal": _big_decimal,
    "duration": _duration,
    "scaled-decimal": lambda found: _shown(_scaled(_integer(found["value"]), found["scale"])),
}
