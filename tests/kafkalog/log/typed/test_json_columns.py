"""JSON by columns, compared with JSON value by value: the same rows, reasons and losses."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkalog.log.typed import TypedColumn, TypedForm, json_columns, json_schema
from kafkalog.log.typed.columns import typed_column
from kafkalog.log.typed.remarks import LOCAL_AS_UTC, LOST_DIGITS, UNKNOWN_FIELDS
from tests.kafkalog.log.typed.both_ways import both
from tests.kafkalog.log.typed.test_json_valid import near, schema
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

SCHEMAS = 3000 if tries_everything() else 75
VALUES = 40
# Of each kind those that mostly fit, and those that mostly do not.
INTEGERS = ("0", "-0", "7", "-12", "9223372036854775807", "-9223372036854775808", "1.0", "1e3")
NOT_INTEGERS = (
    "9223372036854775808", "-9223372036854775809", "123456789012345678901", "01", "+1", "-", "0x1",
    "1_000", "1" * 5000, "0.5",
)  # fmt: skip
NUMBERS = (
    *INTEGERS, "123456789012345678901", "-0.0", "0.0", "0e5", "1E+3", "0.1", "-2.5", "1e-7", "1e22",
    "1e23", "0.30000000000000004", "0.1000000000000000055511151231257827", "123456789012345e22",
    "9007199254740993", "9007199254740992", "9007199254740993.0", "1234567890123456.7", "4.35",
    "2.2250738585072014e-308", "5e-324", "4e-324", "1e-400", "1.7976931348623157e308",
    "3.4028236e38", "0.000001234567890123456789", "1" * 40, "1.50000000000000000000000",
)  # fmt: skip
NOT_NUMBERS = (
    *NOT_INTEGERS, "1e400", "-1e400", ".5", "1.", "1e", "1e+", "NaN", "Infinity", "-Infinity",
)  # fmt: skip
TEXTS = (
    '""', '"x"', '"\u00e9\U0001d11e"', r'"\u00e9"', r'"\ud834\udd1e"', r'"a\tb\/\"\\"', '"seven77"',
    '"12345678\\n"', '"' + "long" * 9 + '"', '"\x7f"', '"1234567\u00e9"', '"MTIz"', '"MTI="',
)  # fmt: skip
NOT_TEXTS = (
    r'"\ud834"', r'"\x"', r'"\u12g4"', '"a\tb"', '"open', '"!"', "'x'", "1", "nul", "[1,]", '{"a"}',
)  # fmt: skip
DATES = ("2024-02-29", "1970-01-01", "1969-12-31", "0001-01-01", "9999-12-31", "2000-02-29")
ODD_DATES = (
    "2023-02-29", "0000-01-01", "2024-13-01", "2024-00-10", "2024-1-010", "2024-W01-1", "20240101",
    "1900-02-29", "2024-04-31", "+024-01-01", "2024-01-0a", "2024-01-00",
)  # fmt: skip
CLOCKS = ("00:00:00", "23:59:59", "12:34:56.789", "12:34:56.123456", "12:34:56.1234567")
ODD_CLOCKS = (
    "12:34:56.123456000", "12:34:56.5", "12:34:56.", "24:00:00", "12:60:00", "23:59:60", "12:34",
    "12:34:56,789", "-1:00:00", "12.34.56",
)  # fmt: skip
ZONES = ("Z", "z", "", "+00:00", "-00:00", "+02:00", "-23:59")
ODD_ZONES = ("+24:00", "+0200", "+02", "+02:60", "+02:00:30", " Z", "UTC")
DEFINITIONS = {"$defs": {str(number): {"type": "integer"} for number in range(3)}}
NAMES = ("a", "b", "A", "bc", "a_long_name", "\u00e9", 'q"', "back\\slash")


def drawn_schema(rng: Random, depth: int = 0) -> Any:
    """Return a schema as those of records are, or one of any kind."""
    if rng.random() < 0.1:
        return schema(rng, 2, 99)
    draw = rng.random()
    if depth < 3 and (draw < 0.2 or not depth):
        names = rng.sample(NAMES, rng.randint(1, 5))
        found = {"type": "object", "properties": {n: drawn_schema(rng, depth + 1) for n in names}}
        if rng.random() < 0.1:
            found["additionalProperties"] = drawn_schema(rng, depth + 1)
        return found
    if depth < 3 and draw < 0.3:
        return {"type": "array", "items": drawn_schema(rng, depth + 1)}
    if depth < 3 and draw < 0.4:
        return {"type": "object", "additionalProperties": drawn_schema(rng, depth + 1)}
    return rng.choice((
        {"type": "integer"}, {"type": "number"}, {"type": "string"}, {"type": "boolean"},
        {"type": ["null", "string"]}, {"type": "string", "format": "date"},
        {"type": "string", "format": "date-time"}, {"type": "number", "connect.type": "float32"},
        {"type": "string", "contentEncoding": "base64"}, {"type": "number", "format": "decimal"},
        {"type": "null"}, True,
    ))  # fmt: skip


def blank(rng: Random) -> str:
    return rng.choice(("", "", "", "", " ", "\n", "\t \r")) if rng.random() < 0.5 else ""


class Texts:
    """Draws JSON texts that often fit a schema.

    Args:
        odds: how likely each part is odd.
    """

    def __init__(self, rng: Random, odds: float) -> None:
        self.rng = rng
        self.odds = odds

    def drawn(self, usual: Sequence[str], odd: Sequence[str]) -> str:
        return self.rng.choice(odd if self.rng.random() < self.odds else usual)

    def of(self, tree: Any) -> str:
        """Return a text."""
        rng = self.rng
        kind = tree.get("type") if isinstance(tree, dict) else None
        if isinstance(kind, list) and rng.random() < 0.5:
            kind = rng.choice(kind)
        if kind == "object":
            return self.object(tree)
        if kind == "array":
            items = [self.of(tree.get("items")) for _ in range(rng.randrange(4))]
            return f"[{blank(rng)}{f'{blank(rng)},{blank(rng)}'.join(items)}{blank(rng)}]"
        if kind == "string":
            return self.string(tree.get("format"))
        if kind in ("integer", "number"):
            return self.number(kind)
        if rng.random() < self.odds:
            return rng.choice(NOT_TEXTS)
        return json.dumps(near(rng, tree, DEFINITIONS, 2), ensure_ascii=rng.random() < 0.5)

    def string(self, form: str | None) -> str:
        rng = self.rng
        if form == "date":
            return f'"{self.drawn(DATES, ODD_DATES)}"'
        if form == "date-time":
            place = rng.randrange(10**6)
            plain = f"{1900 + place % 200}-0{1 + place % 9}-1{place % 10}"
            day = self.drawn([plain], DATES + ODD_DATES)
            separator = self.drawn("TTT ", "t_")
            return (
                f'"{day}{separator}{self.drawn(CLOCKS, ODD_CLOCKS)}{self.drawn(ZONES, ODD_ZONES)}"'
            )
        return self.drawn(TEXTS, NOT_TEXTS)

    def number(self, kind: str) -> str:
        rng = self.rng
        if kind == "integer":
            plain = str(rng.randrange(-(10**18), 10**18) >> rng.randrange(60))
            return self.drawn((plain, rng.choice(INTEGERS)), NOT_INTEGERS)
        double = rng.choice((rng.random(), rng.gauss(0, 1e6), 10.0 ** rng.uniform(-320, 300)))
        digits = f"{rng.randrange(-(10**6), 10**6)}.{rng.randrange(10 ** rng.randint(1, 19))}"
        return self.drawn((repr(double), digits, rng.choice(NUMBERS)), NOT_NUMBERS)

    def object(self, tree: Any) -> str:
        rng = self.rng
        members = [one for one in tree.get("properties", {}).items() if rng.random() < 0.9]
        if rng.random() < 0.1:
            rng.shuffle(members)
        more = tree.get("additionalProperties")
        if isinstance(more, dict):
            members += [(rng.choice(NAMES), more) for _ in range(rng.randrange(3))]
        if rng.random() < self.odds / 2:
            members.append((rng.choice((*NAMES, "aa", "")), True))
        parts = []
        for name, one in members:
            key = json.dumps(name, ensure_ascii=rng.random() < self.odds)
            parts.append(f"{blank(rng)}{key}{blank(rng)}:{blank(rng)}{self.of(one)}{blank(rng)}")
        return "{" + ",".join(parts) + blank(rng) + "}"


def damaged(data: bytes, rng: Random) -> bytes:
    """Return a text with a byte that is changed, added or lost, cut, or with more around it."""
    draw = rng.random()
    if draw < 0.2:
        return (
            rng.choice((b"\xef\xbb\xbf%s", b"%s}", b" %s ", b"%s,", b"%s\0", b"[" * 70 + b"%s"))
            % data
        )
    place = rng.randrange(len(data) + 1)
    if draw < 0.4:
        return data[:place]
    byte = rng.choice(
        (b'"', b"\\", b"\xff", b"\xc3", b"\0", b"0", b"-", b",", b":", b"}", b"]", b"e")
    )
    return data[:place] + byte + data[place + rng.randrange(2) :]


def test_both_ways_say_the_same() -> None:
    """Values, rejects with their reasons and losses, for drawn schemas and texts."""
    rng = drawn_for("columns of JSON")
    counts: Counter[str] = Counter()
    for number in range(SCHEMAS):
        tree = drawn_schema(rng)
        if not isinstance(tree, dict):
            continue
        tree |= DEFINITIONS
        values = []
        for _ in range(VALUES):
            data = Texts(rng, rng.choice((0, 0, 0.1))).of(tree).encode()
            values.append(damaged(data, rng) if rng.random() < 0.1 else data)
        column = TypedColumn("value", TypedForm.JSON, json.dumps(tree).encode())
        array = pa.array([b"before", *values, b"", None], pa.binary())[1:]
        found, wanted, rows = both(column, array)
        assert found == wanted, f"{number} {json.dumps(tree)}"
        counts += found.losses
        counts["rejects"] += len(found.failures)
        counts["by columns"] += rows
    print(counts)
    wanted_kinds = (LOST_DIGITS, LOCAL_AS_UTC, UNKNOWN_FIELDS, "rejects", "by columns")
    assert all(counts[name] > SCHEMAS // 8 for name in wanted_kinds), counts
    assert counts["by columns"] > SCHEMAS * VALUES // 8


CASES = {
    "type": "object",
    "properties": {
        "i": {"type": "integer"},
        "n": {"type": "number"},
        "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        "t": {"type": "string"},
        "x": {},
    },
}


@pytest.mark.parametrize(
    ("text", "is_by_columns"),
    [
        ('{"i":1,"n":2.5,"m":{"a":1},"t":"a","x":[1e400, "\\u00e9"]}', True),
        ('{"m":{"a":1,"a":2}}', False),  # a name twice: the last counts, in the place of the first
        ('{"i":"a","i":1}', True),  # here too, and its place is settled
        ('{"i":1,"i":null}', True),
        ('{"\\u0069":1}', False),
        ('{"m":{"\\u0061":1}}', False),
        ('{"i":1.0,"n":9007199254740993}', True),  # Python reads the part alone
        ('{"i":1.5}', False),
        ('{"t":"\\ud83d\\ude00"}', False),
        ('{"t":1}', False),
        ('{"other":[{"a":[]},{}]}', True),
        ('{"other":[{"a":[],}]}', False),
        ('{"x":{"b":1,"a":1,"b":-0}}', True),
        ('{"x":' + "[" * 70 + "]" * 70 + "}", False),
        ("\ufeff{}", False),
        (" {} \n", True),
        ("{}{}", False),
        ("null", True),
        ("[]", False),
    ],
)
def test_what_is_left_to_python(text: str, *, is_by_columns: bool) -> None:
    """It says what becomes of what is rare; it is asked, and what it says is taken."""
    column = TypedColumn("value", TypedForm.JSON, json.dumps(CASES).encode())
    found, wanted, rows = both(column, pa.array([text.encode()], pa.binary()))
    assert found == wanted
    assert rows == is_by_columns


def test_any_json_is_checked_by_columns() -> None:
    """The text stays as it is, with its blanks; what is no JSON is a reject with its reason."""
    rng = drawn_for("any JSON")
    column = TypedColumn("value", TypedForm.JSON, b"")
    tree = {"type": "object", "additionalProperties": True}
    values = [Texts(rng, 0.1).of(tree).encode() for _ in range(300)]
    values += [damaged(one, rng) for one in values]
    found, wanted, rows = both(column, pa.array([*values, b"", None], pa.binary()))
    assert found == wanted
    assert rows > 200


def test_most_values_are_read_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read without a Python object of any of them."""
    tree = {"type": "object", "properties": {
        "i": {"type": "integer"}, "n": {"type": "number"}, "t": {"type": "string"},
        "d": {"type": "string", "format": "date"},
        "l": {"type": "array", "items": {"type": "integer"}},
        "m": {"type": "object", "additionalProperties": {"type": "boolean"}},
    }}  # fmt: skip
    rows = [
        {
            "i": n,
            "n": n / 7,
            "t": f"{n} \u00e9",
            "d": "2024-02-29",
            "l": [n] * (n % 3),
            "m": {"a": True},
        }
        for n in range(300)
    ]
    column = TypedColumn("value", TypedForm.JSON, json.dumps(tree).encode())
    for module in (json_schema, json_columns):
        monkeypatch.setattr(module, "parsed", lambda *_: 1 // 0)
    decoder = column.decoder()
    data = pa.array([json.dumps(row, ensure_ascii=False).encode() for row in rows], pa.binary())
    array, failures, losses = typed_column(column, decoder, data)
    assert not failures
    assert not losses
    found = pa.array(json.loads(json.dumps(array.to_pylist(maps_as_pydicts="strict"), default=str)))
    assert found.to_pylist() == rows
