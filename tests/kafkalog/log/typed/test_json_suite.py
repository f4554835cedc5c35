"""Every schema of JSON-Schema-Test-Suite has a column, which has the values that are valid."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa

from kafkalog.log.typed.json_schema import JsonDecoder
from kafkalog.log.typed.remarks import UNKNOWN_FIELDS
from tests.kafkalog.log.typed.json_suite import cases, compare
from tests.sampling import sampled, tries_everything

DRAFTS = 5
# Of each draft, values that are no objects, or no arrays, where a schema without a type has
# `properties`, or `items`: those are taken to say the type.
NOT_AS_IMPLIED = 13


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
                compare(decoder.type, there, given, "", texts)
            except AssertionError as error:
                raise AssertionError(
                    f"{case.name}: {given!r} in {decoder.type}: {there!r}"
                ) from error
            counts["values"] += 1
        assert not decoder.losses.keys() - {UNKNOWN_FIELDS}
    print(counts)
    assert counts["typed"] > counts["schemas"] // 4
    if tries_everything():
        assert counts["beyond"] == NOT_AS_IMPLIED * DRAFTS
        assert (counts["schemas"], counts["values"]) == (1404, 2823)
