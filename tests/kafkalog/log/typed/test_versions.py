"""One column for several versions of a schema: which types fit, what is passed on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkalog.log.typed.columns import typed_column
from kafkalog.log.typed.evolution import EvolvedDecoder
from kafkalog.log.typed.framing import Framing
from kafkalog.log.typed.lake_types import INTEGER, JSON, TEXT, TIMESTAMP, UNSIGNED, struct_type
from kafkalog.log.typed.model import TypedColumn, TypedForm
from kafkalog.log.typed.remarks import LOST_DIGITS, Remark

if TYPE_CHECKING:
    from collections.abc import Sequence


_A = struct_type([("a", TEXT)])
_NOTHING = struct_type([])
_A_B = struct_type([("a", TEXT), ("b", TIMESTAMP)])


class Version:
    """Decodes every value to the same one."""

    def __init__(self, kind: Any, value: Any = None, *json: str, loses: bool = False) -> None:
        self.type = kind
        self.remarks = [Remark(path, "json", "a union") for path in json]
        self.losses: Counter[str] = Counter()
        self._value, self._loses = value, loses

    def decode(self, data: bytes, schema_id: object = None) -> Any:
        assert (data, schema_id) == (b"", None)
        self.losses[LOST_DIGITS] += self._loses
        return self._value


def evolved(*versions: Version, newest: Sequence[int] = ()) -> EvolvedDecoder:
    """Return the decoder of versions whose ids are 0, 1 …; the first is the newest."""
    texts = {number: (str(number),) for number in range(len(versions))}
    return EvolvedDecoder(
        lambda text: versions[int(text[0])], texts, newest or range(len(versions))
    )


def of(kind: Any) -> Any:
    return struct_type([("id", INTEGER), ("n", kind)])


def outcome(new: Version, old: Version) -> Any:
    """Return the type of the field, or those of it and of its conflict fields."""
    decoder = evolved(new, old)
    kinds = {one.name: one.type for one in decoder.type if one.name != "id"}
    shown = [one for one in decoder.remarks if one.type == "conflict column"]
    assert [one.path for one in shown] == [one for one in kinds if one != "n"]
    return kinds if len(kinds) > 1 else kinds["n"]


@pytest.mark.parametrize(
    ("new", "old", "wanted"),
    [
        (INTEGER, INTEGER, INTEGER),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.float64(), INTEGER, pa.float64()),
        (INTEGER, pa.float64(), pa.float64()),
        (INTEGER, pa.float32(), {"n": INTEGER, "n__float": pa.float32()}),
        (UNSIGNED, INTEGER, {"n": UNSIGNED, "n__long": INTEGER}),
        (pa.decimal128(12, 2), pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
        (pa.decimal128(12, 2), pa.decimal128(12, 4), pa.decimal128(12, 2)),
        (INTEGER, pa.decimal128(12, 4), {"n": INTEGER, "n__decimal_12_4": pa.decimal128(12, 4)}),
        (TEXT, INTEGER, {"n": TEXT, "n__long": INTEGER}),
        (TEXT, TIMESTAMP, {"n": TEXT, "n__timestamp": TIMESTAMP}),
        (TEXT, pa.timestamp("us"), {"n": TEXT, "n__timestamp_ntz": pa.timestamp("us")}),
        (pa.bool_(), pa.date32(), {"n": pa.bool_(), "n__date": pa.date32()}),
        (pa.binary(), pa.bool_(), {"n": pa.binary(), "n__boolean": pa.bool_()}),
        (pa.list_(TEXT), TEXT, {"n": pa.list_(TEXT), "n__string": TEXT}),
        (TEXT, pa.list_(TEXT), {"n": TEXT, "n__list": pa.list_(TEXT)}),
        (pa.list_(TEXT), pa.list_(INTEGER), {"n": pa.list_(TEXT), "n__list": pa.list_(INTEGER)}),
        (TEXT, _A, {"n": TEXT, "n__struct": _A}),
        (_A, pa.map_(TEXT, TEXT), {"n": _A, "n__map": pa.map_(TEXT, TEXT)}),
        (pa.map_(TEXT, TEXT), pa.map_(INTEGER, TEXT),
         {"n": pa.map_(TEXT, TEXT), "n__map": pa.map_(INTEGER, TEXT)}),
        (_A, struct_type([("b", TEXT)]), struct_type([("a", TEXT), ("b", TEXT)])),
        (_A, _NOTHING, pa.struct([*_A, *_NOTHING])),
        (_NOTHING, _A, pa.struct([*_NOTHING, *_A])),
        (pa.map_(TEXT, pa.float64()), pa.map_(TEXT, INTEGER), pa.map_(TEXT, pa.float64())),
        (pa.list_(_A), pa.list_(_A_B), pa.list_(_A_B)),
    ],
)  # fmt: skip
def test_types_of_versions(new: Any, old: Any, wanted: Any) -> None:
    """What section 5 of the types says about files."""
    value = {"id": 1, "n": None}
    assert outcome(Version(of(new), value), Version(of(old), value)) == wanted


@pytest.mark.parametrize(
    ("new", "old", "wanted"),
    [
        (Version(of(JSON), {}, "n"), Version(of(JSON), {}, "n"), JSON),
        (Version(of(JSON), {}, "n"), Version(of(TEXT), {}), {"n": JSON, "n__string": TEXT}),
        (Version(of(TEXT), {}), Version(of(JSON), {}, "n"), {"n": TEXT, "n__json": JSON}),
        (Version(of(of(INTEGER)), {}), Version(of(JSON), {}, "n"),
         {"n": of(INTEGER), "n__json": JSON}),
        (Version(of(pa.map_(TEXT, JSON)), {}, "n{}"), Version(of(pa.map_(TEXT, TEXT)), {}),
         {"n": pa.map_(TEXT, JSON), "n__map": pa.map_(TEXT, TEXT)}),
    ],
)  # fmt: skip
def test_json_is_no_other_text(new: Version, old: Version, wanted: Any) -> None:
    """A reader of the column parses it as JSON, or not at all."""
    assert outcome(new, old) == wanted


def test_json_of_an_older_version_counts_for_the_next() -> None:
    """A field that only the second version has is JSON there, and any text in the third."""
    new = Version(struct_type([("id", INTEGER)]), {"id": 1})
    json, text = Version(of(JSON), {"id": 2}, "n"), Version(of(TEXT), {"id": 3})
    decoder = evolved(new, json, text)
    text._value = {"id": 3, "n": "t"}
    json._value = {"id": 2, "n": "{}"}
    assert pa.array([decoder.decode(b"", n) for n in range(3)], decoder.type).to_pylist() == [
        {"id": 1, "n": None, "n__string": None},
        {"id": 2, "n": "{}", "n__string": None},
        {"id": 3, "n": None, "n__string": "t"},
    ]
    assert decoder.remarks == [
        Remark("n", "json", "a union"),
        Remark("n__string", "conflict column", "n is string in the schema 2, not json"),
    ]


def test_conflicts_at_any_depth() -> None:
    """Also within lists of structs; what is JSON is said of the field that has it."""
    old = pa.list_(struct_type([("n", JSON), ("s", TEXT)]))
    value = {"id": 1, "n": [{"n": "[]", "s": "x"}, None]}
    new = Version(of(pa.list_(struct_type([("n", TEXT), ("s", INTEGER)]))), {"id": 2})
    decoder = evolved(new, Version(of(old), value, "n[].n"))
    wanted = {"n": None, "s": None, "n__json": "[]", "s__string": "x"}
    assert pa.array([decoder.decode(b"", 1)], decoder.type).to_pylist() == [
        {"id": 1, "n": [wanted, None]}
    ]
    assert decoder.remarks == [
        Remark("n[].n__json", "json", "a union"),
        Remark("n[].n__json", "conflict column", "n is json in the schema 1, not string"),
        Remark("n[].s__string", "conflict column", "s is string in the schema 1, not long"),
    ]


@pytest.mark.parametrize(("new", "old", "words"), [
    (pa.list_(INTEGER), pa.list_(TEXT), "list of string in the schema 1, not list of long"),
    (pa.map_(TEXT, pa.list_(INTEGER)), pa.map_(TEXT, pa.list_(pa.bool_())),
     "map of list of boolean in the schema 1, not map of list of long"),
    (pa.map_(INTEGER, TEXT), pa.map_(TEXT, TEXT),
     "map of string in the schema 1, not map of long to string"),
])  # fmt: skip
def test_a_conflict_says_what_is_in_lists_and_maps(new: Any, old: Any, words: str) -> None:
    decoder = evolved(Version(of(new)), Version(of(old), {"id": 1}))
    assert [one.reason for one in decoder.remarks] == [f"n is {words}"]


def test_a_name_that_is_taken() -> None:
    """A conflict field is never a field that a schema has."""
    new = struct_type([("id", INTEGER), ("n", INTEGER), ("N__String", TEXT)])
    old = Version(of(TEXT), {"id": 1, "n": "x"})
    other = Version(struct_type([("id", INTEGER), ("n__string_2", TEXT)]), {"n__string_2": "y"})
    decoder = evolved(Version(new, {"N__String": "real"}), old, other)
    rows = pa.array([decoder.decode(b"", n) for n in range(3)], decoder.type).to_pylist()
    assert [one.name for one in decoder.type] == [
        "id", "n", "N__String", "n__string_2", "n__string_2_2",
    ]  # fmt: skip
    assert [one["N__String"] for one in rows] == ["real", None, None]
    assert [one["n__string_2"] for one in rows] == [None, "x", None]
    assert [one["n__string_2_2"] for one in rows] == [None, None, "y"]


def test_a_schema_that_the_column_need_not_have() -> None:
    """Its values have the conflict fields that there are; for a new one it does not fit."""
    text = Version(of(TEXT), {"id": 1, "n": "x"})
    other = Version(of(TEXT), {"id": 2, "n": "y"})
    list_ = Version(of(pa.list_(TEXT)), {"id": 3})
    decoder = evolved(Version(of(INTEGER)), text, other, list_, newest=(0, 1))
    assert decoder.decode(b"", 2) == {"id": 2, "n__string": "y"}
    with pytest.raises(ValueError, match="schema 3 does not fit: n is list of string, and long in"):
        decoder.decode(b"", 3)


@pytest.mark.parametrize(
    ("new", "old", "names"),
    [("aA", "Aa", ["a", "A_2"]), ("ab", "A", ["a", "b", "A_2"])],
)
def test_fields_that_differ_in_case(new: str, old: str, names: list[str]) -> None:
    """They are two fields; each value is in that with its name."""
    versions = [Version(struct_type([(one, TEXT) for one in given])) for given in (new, old)]
    for version, given in zip(versions, (new, old), strict=True):
        fields = zip(version.type, given, strict=True)
        version._value = {one.name: letter for one, letter in fields}
    decoder = evolved(*versions)
    assert [one.name for one in decoder.type] == names
    rows = pa.array([decoder.decode(b"", n) for n in (0, 1)], decoder.type).to_pylist()
    for row, given in zip(rows, (new, old), strict=True):
        assert row == {one: one[0] if one[0] in given else None for one in names}


def test_remarks_and_losses_are_passed_on() -> None:
    """Each remark once; losses of all versions, also of one that the column has no fields of."""
    kind, value = of(JSON), {"id": 1, "n": "{}"}
    new = Version(kind, value, "n")
    old = Version(kind, value, "n", loses=True)
    other = Version(kind, value, "n", loses=True)
    decoder = evolved(new, old, other, newest=(0, 1))
    assert decoder.remarks == [Remark("n", "json", "a union")]
    column = TypedColumn("value", TypedForm.JSON, b"", framing=Framing.CONFLUENT)
    data = pa.array([b"\0\0\0\0" + bytes([number]) for number in (0, 1, 2, 1)], pa.binary())
    for calls in (1, 2):
        found = typed_column(column, decoder, data)
        assert found.array.to_pylist() == [value] * 4
        assert found.losses == {LOST_DIGITS: 3}
        assert decoder.losses == {LOST_DIGITS: 3 * calls}
