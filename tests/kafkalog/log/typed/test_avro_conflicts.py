"""Avro with conflict fields: values of versions are read, and what Java reads stays the same."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from kafkalog.log.typed import avro_columns
from kafkalog.log.typed.avro import AvroDecoder
from tests.kafkalog.log.typed.test_avro_java import REJECTS, by_rows, case_of, compare_columns
from tests.sampling import tries_everything

STILL = (
    *REJECTS,
    " is no symbol of the column",
    "which has no default",  # in the record at the top
    " is not null, which the column has",  # which lacks a field that can only be null
)
"""Reasons why a value of a version is a reject."""
WHOLE = 3
"""How many values of a case are not damaged: the first ones."""


def test_random_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schemas and values are those of which `test_avro_java` compares all with Java."""
    monkeypatch.setattr(avro_columns, "_ARRAYS_MIN", 1)
    counts: Counter[str] = Counter()
    for number in range(3000 if tries_everything() else 150):
        case = case_of(number)
        plain = AvroDecoder(case.reader.encode(), {1: [case.writer]})
        decoder = AvroDecoder(case.reader.encode(), {1: [case.writer]}, [1])
        rows = [by_rows(decoder, one) for one in case.values]
        compare_columns(decoder, case, rows)
        for place, (data, (value, reason)) in enumerate(zip(case.values, rows, strict=True)):
            before, why = by_rows(plain, data)
            if why is None:
                assert reason is None, (case, data, reason)
                assert has_all(value.to_pylist()[0], before.to_pylist()[0]), (case, data)
            elif place < WHOLE and reason is not None:
                assert any(one in reason for one in STILL) or (
                    is_top(case.tree) and "which the column has" in reason
                ), (case, data, reason)
            counts[f"{'read' if why is None else 'refused'}, {'no' if reason else 'read'}"] += 1
    print(counts)
    assert counts["refused, read"]


def fields(**kinds: list[str]) -> str:
    """Return a record of fields that may be null, each with a type and, after it, aliases."""
    made = [
        {"name": name, "type": ["null", kind], "default": None, "aliases": aliases}
        for name, (kind, *aliases) in kinds.items()
    ]
    return json.dumps({"type": "record", "name": "R", "fields": made})


@pytest.mark.parametrize("newest", [
    fields(x=["string", "old"], old=["long"]), fields(old=["long"], x=["string", "old"]),
])  # fmt: skip
def test_aliases_are_not_for_values_of_the_same_schema(newest: str) -> None:
    """A field of it that has the old name of another one is no conflict with that."""
    decoder = AvroDecoder(newest.encode(), {1: [newest], 2: [fields(old=["string"])]}, [1, 2])
    assert {one.name for one in decoder.type} == {"x", "old"}
    assert decoder.remarks == []
    parts = {"x": b"\2\2a", "old": b"\2\4"}
    names = [one["name"] for one in json.loads(newest)["fields"]]
    value = decoder.decode(b"".join(parts[name] for name in names), 1)
    assert value == {"x": "a", "old": 2}


def test_a_version_with_both_names_of_a_field_has_no_conflicts() -> None:
    """None of its values is read: Java calls the field a duplicate."""
    newest, both = fields(y=["string", "x"]), fields(x=["string"], y=["long"])
    decoder = AvroDecoder(newest.encode(), {1: [newest], 2: [both]}, [1, 2])
    assert [one.name for one in decoder.type] == ["y"]
    with pytest.raises(ValueError, match="two fields have one name"):
        decoder.decode(b"\2\2a\2\4", 2)


def is_top(tree: Any) -> bool:
    """Return whether the whole value can be of another type: it is no record."""
    return not isinstance(tree, dict) or tree["type"] != "record"


def has_all(found: Any, before: Any) -> bool:
    """Return whether a value is the same but for fields that are null."""
    if isinstance(before, dict):
        more = [found[name] for name in found if name not in before]
        return not any(one is not None for one in more) and all(
            has_all(found[name], one) for name, one in before.items()
        )
    if isinstance(before, (list, tuple)):
        return len(found) == len(before) and all(map(has_all, found, before))
    return bool(found == before or (found != found and before != before))
