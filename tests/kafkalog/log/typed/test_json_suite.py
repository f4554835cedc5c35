"""Every schema of JSON-Schema-Test-Suite has a column, which has the values that are valid."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa

from kafkalog.log.typed.json_schema import JsonDecoder
from kafkalog.log.typed.lake_types import NAME_KEY
from tests.kafkalog.log.typed.json_suite import cases
from tests.sampling import sampled, tries_everything

DRAFTS = 5
# Of each draft, values that are no objects, or no arrays, where a schema without a type has
# `properties`, or `items`: those are taken to say the type.
NOT_AS_IMPLIED = 13


def check(kind: Any, value: Any, given: Any, path: str, texts: set[str]) -> None:
    """Compare what a column has with the JSON that it is from.

    A null is a null or not there. JSON text has the same tokens, a number the same value, other
    scalars are the same. Lists have all items, maps all members, structs those of their fields,
    and `_additional` all others. A member that a struct has no field for may be null, or one that
    the schema does not name.

    Args:
        texts: the paths of the parts that are JSON text.
    """
    if value is None or given is None:
        assert value is given, path
    elif path in texts:
        assert json.dumps(json.loads(value)) == json.dumps(given), path
    elif pa.types.is_struct(kind):
        named = {(field.metadata or {}).get(NAME_KEY, field.name.encode()).decode(): field
                 for field in kind if field.name != "_additional"}  # fmt: skip
        for name, field in named.items():
            place = f"{path}.{name}".lstrip(".")
            check(field.type, value[field.name], given.get(name), place, texts)
        if "_additional" in value:
            rest = {name: one for name, one in given.items() if name not in named}
            place = f"{path}._additional".lstrip(".")
            check(kind.field("_additional").type, value["_additional"], rest, place, texts)
    elif pa.types.is_list(kind):
        assert len(value) == len(given), path
        for one, other in zip(value, given, strict=True):
            check(kind.value_type, one, other, f"{path}[]", texts)
    elif pa.types.is_map(kind):
        assert list(value) == list(given), path
        for name, one in value.items():
            check(kind.item_type, one, given[name], f"{path}{{}}", texts)
    else:
        assert value == given, path
        assert isinstance(value, bool) == isinstance(given, bool), path


def is_beyond_the_type(schema: Any, value: Any) -> bool:
    """Return whether a value is of another type than properties or items imply."""
    wanted = dict if "properties" in schema else list
    has_it = "properties" in schema or isinstance(schema.get("items"), dict)
    return has_it and "type" not in schema and not isinstance(value, wanted)


def test_valid_values_of_any_schema() -> None:
    """Each draft; none is refused, and columns are more than JSON text."""
    counts: Counter[str] = Counter()
    for case in sampled(cases(), 8):
        decoder = JsonDecoder(json.dumps(case.schema).encode(), case.references)
        texts = {one.path for one in decoder.remarks if one.type == "json"}
        counts["schemas"] += 1
        counts["typed"] += "" not in texts
        for given in case.valid:
            try:
                value = decoder.decode(json.dumps(given).encode())
            except ValueError:
                assert is_beyond_the_type(case.schema, given), case.name
                counts["beyond"] += 1
                continue
            [there] = pa.array([value], decoder.type).to_pylist(maps_as_pydicts="strict")
            try:
                check(decoder.type, there, given, "", texts)
            except AssertionError as error:
                raise AssertionError(
                    f"{case.name}: {given!r} in {decoder.type}: {there!r}"
                ) from error
            counts["values"] += 1
        assert not decoder.losses
    print(counts)
    assert counts["typed"] > counts["schemas"] // 4
    if tries_everything():
        assert counts["beyond"] == NOT_AS_IMPLIED * DRAFTS
        assert (counts["schemas"], counts["values"]) == (1404, 2823)
