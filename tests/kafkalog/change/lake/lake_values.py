"""Values of all types that typed columns have, at their extremes, and logs whose records have them.

Expected values are those given here, in types of Python; a decoder of this module's own takes the
bytes of a record for the name of a row.
"""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.change.lake import Export, ExportRequest, TableFormat, Writing
from kafkalog.log.typed import TypedColumn, TypedForm
from kafkalog.log.typed.lake_types import (
    INTEGER,
    JSON,
    LOCAL_TIMESTAMP,
    TEXT,
    TIMESTAMP,
    UNSIGNED,
    decimal_type,
    struct_type,
)
from tests.builders import batch, record, write_log
from tests.kafkalog.change.lake.appending import REQUEST, Inline, add

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pytest

    from kafkalog.change.lake import ExportSummary
    from kafkalog.log.typed.remarks import Remark

_POINT: Final = struct_type([("x", INTEGER), ("at", TIMESTAMP)])
_FIELDS: Final = [
    ("flag", pa.bool_()),
    ("whole", INTEGER),
    ("unsigned", UNSIGNED),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("price", decimal_type(12, 2)),
    ("digits", decimal_type(38, 38)),
    ("duration", decimal_type(21, 9)),
    ("large", decimal_type(50, 2)),
    ("text", TEXT),
    ("data", pa.binary()),
    ("day", pa.date32()),
    ("at", TIMESTAMP),
    ("local", LOCAL_TIMESTAMP),
    ("any", JSON),
    ("empty", struct_type([])),
    ("point", _POINT),
    ("a b,c.d", TEXT),
    ("é;{}()=", TEXT),
    ("case", INTEGER),
    ("Case", INTEGER),
    ("numbers", pa.list_(UNSIGNED)),
    ("points", pa.list_(_POINT)),
    ("lists", pa.list_(pa.list_(TEXT))),
    ("by_name", pa.map_(TEXT, _POINT)),
    ("by_number", pa.map_(UNSIGNED, TEXT)),
    ("by_flag", pa.map_(pa.bool_(), pa.list_(pa.float64()))),
    ("in_map", pa.map_(TEXT, struct_type([("a b", TEXT), ("a_b", TEXT)]))),
]
LAKE_TYPE: Final = struct_type(_FIELDS)
NAMES: Final = [one.name for one in LAKE_TYPE]
_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999)  # of both kinds
_FIRST: Final = datetime(1, 1, 1)  # likewise
_MOST: Final = {
    "flag": True, "whole": 2**63 - 1, "unsigned": Decimal(2**64 - 1),
    "float": 3.4028234663852886e38, "double": 1.7976931348623157e308,
    "price": Decimal("9999999999.99"),
    "digits": Decimal("0." + "9" * 38), "duration": Decimal("315576000000.999999999"),
    "large": "9" * 48 + ".99", "text": "é\U0001f600\u0000", "data": bytes(range(256)),
    "day": date(9999, 12, 31), "at": _LAST.replace(tzinfo=UTC), "local": _LAST,
    "any": '{"n":18446744073709551616,"x":[null,"NaN"]}', "empty": {"_present": True},
    "point": {"x": 1, "at": _LAST.replace(tzinfo=UTC)}, "a b,c.d": "named", "é;{}()=": "oddly",
    "case": 1, "Case_2": 2, "numbers": [Decimal(2**64 - 1), None, Decimal(0)],
    "points": [{"x": None, "at": None}, None], "lists": [[], None, ["", None]],
    "by_name": {"": None, "p": {"x": -1, "at": _FIRST.replace(tzinfo=UTC)}},
    "by_number": {Decimal(2**64 - 1): "most", Decimal(0): None},
    "by_flag": {True: [math.nan], False: []}, "in_map": {"k": {"a b": "1", "a_b": "2"}},
}  # fmt: skip
_LEAST: Final = {
    "flag": False, "whole": -(2**63), "unsigned": Decimal(0), "float": -0.0, "double": -0.0,
    "price": Decimal("-9999999999.99"), "digits": Decimal("-0." + "9" * 38),
    "duration": Decimal("-315576000000.000000001"), "large": "-0.01", "text": "", "data": b"",
    "day": date(1, 1, 1), "at": _FIRST.replace(tzinfo=UTC), "local": _FIRST, "any": "null",
    "empty": None, "point": {"x": None, "at": None}, "a b,c.d": "", "é;{}()=": "", "case": 0,
    "Case_2": 0, "numbers": [], "points": [], "lists": [], "by_name": {}, "by_number": {},
    "by_flag": {}, "in_map": {},
}  # fmt: skip
_ODD: Final = {
    **_LEAST, "float": math.nan, "double": math.nan, "at": datetime(1969, 12, 31, tzinfo=UTC),
    "numbers": [None],
}  # fmt: skip
_INFINITE: Final = {**_LEAST, "float": math.inf, "double": -math.inf}
VALUES: Final[Mapping[bytes, Any]] = {
    b"most": _MOST, b"least": _LEAST, b"odd": _ODD, b"infinite": _INFINITE,
    b"nulls": dict.fromkeys(NAMES),
}  # fmt: skip
ROWS: Final = (*VALUES, None)


class ByName:
    """Decodes the name of a row to its value, and has made some remarks, and lost something.

    Args:
        kind: the type of the column.
        values: what names decode to.
        remarks: what it says about the column.
    """

    def __init__(
        self, kind: Any, values: Mapping[bytes, Any], remarks: Sequence[Remark] = ()
    ) -> None:
        self.type = kind
        self.remarks = list(remarks)
        self.losses: Counter[str] = Counter()
        self.lost: Mapping[bytes, Sequence[str]] = {}
        self._values = values

    def decode(self, data: bytes, schema_id: object = None) -> Any:
        assert schema_id is None
        if data not in self._values:
            raise ValueError("no such row")
        self.losses.update(self.lost.get(data, ()))
        return self._values[data]


def decodes(monkeypatch: pytest.MonkeyPatch, **decoders: ByName) -> tuple[TypedColumn, ...]:
    """Let columns of `key` and `value` be decoded by these, in this process."""
    monkeypatch.setattr(TypedColumn, "_decoder", lambda column: decoders[column.source])
    return tuple(TypedColumn(source, TypedForm.AVRO, source.encode()) for source in decoders)


def log_of(place: Path, rows: Sequence[bytes | None]) -> Path:
    """Write a log whose keys and values are names of rows; one that exists gets longer."""
    records = [record(n, one, one) for n, one in enumerate(rows)]
    write_log(place / "logs" / "orders-0", batch(0, records))
    return place / "logs" / "orders-0"


def exported(
    log: Path, to: Path, typed: Sequence[TypedColumn], form: TableFormat,
    writing: Writing | None = None, **options: Any,
) -> ExportSummary:  # fmt: skip
    """Export a log once: an Iceberg table grows, others do not."""
    asked = ExportRequest(
        (str(log),), REQUEST, None, writing or Writing(), tuple(typed), form,
        append=form == TableFormat.ICEBERG,
    )  # fmt: skip
    if asked.append:
        return add(asked, to, **options)[-1]
    with Export(asked, str(to), **options) as one:
        one.run(Inline())
        return one.summary()
