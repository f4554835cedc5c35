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
    """Return the type of the column, or why the older version does not fit."""
    decoder = evolved(new, old)
    try:
        decoder.decode(b"", 1)
    except ValueError as error:
        return str(error).removeprefix("the schema 1 does not fit: ")
    return decoder.type.field("n").type


@pytest.mark.parametrize(
    ("new", "old", "wanted"),
    [
        (INTEGER, INTEGER, INTEGER),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.float64(), INTEGER, pa.float64()),
        (INTEGER, pa.float64(), pa.float64()),
        (INTEGER, pa.float32(), "n is float, and int64 in the column"),
        (UNSIGNED, INTEGER, "n is int64, and decimal128(20, 0) in the column"),
        (pa.decimal128(12, 2), pa.decimal128(10, 2),
         "n is decimal128(10, 2), and decimal128(12, 2) in the column"),
        (TEXT, INTEGER, "n is int64, and string in the column"),
        (pa.list_(TEXT), TEXT, "n is string, and a list in the column"),
        (_A, struct_type([("b", TEXT)]), "n has no field that the column has"),
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
        (Version(of(JSON), {}, "n"), Version(of(TEXT), {}), "n is string, and JSON in the column"),
        (Version(of(TEXT), {}), Version(of(JSON), {}, "n"), "n is JSON, and string in the column"),
        (Version(of(of(INTEGER)), {}), Version(of(JSON), {}, "n"),
         "n is JSON, and an object in the column"),
        (Version(of(pa.list_(of(JSON))), {}, "n[].n"), Version(of(pa.list_(of(TEXT))), {}),
         "n[].n is string, and JSON in the column"),
        (Version(of(pa.map_(TEXT, JSON)), {}, "n{}"), Version(of(pa.map_(TEXT, TEXT)), {}),
         "n{} is string, and JSON in the column"),
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
    assert [decoder.decode(b"", number)["id"] for number in (0, 1)] == [1, 2]
    with pytest.raises(ValueError, match="n is string, and JSON in the column"):
        decoder.decode(b"", 2)


@pytest.mark.parametrize("is_known", [True, False])
def test_fields_that_differ_in_case(*, is_known: bool) -> None:
    """No column has both names; a version whose fields have changed their names is no guess."""
    upper = struct_type([("Id", INTEGER)])
    swapped = [struct_type([(one, INTEGER) for one in names]) for names in ("aA", "Aa")]
    new, old = swapped if is_known else (struct_type([("id", INTEGER), ("b", TEXT)]), upper)
    decoder = evolved(Version(new, {}), Version(old, {}))
    with pytest.raises(ValueError, match="does not fit"):
        decoder.decode(b"", 1)


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
