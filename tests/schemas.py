"""Checks rows that commands print against the schemas in `docs/schemas/1`."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tests.checkout import ROOT

SCHEMAS = ROOT / "docs" / "schemas" / "1"
_CHECKED_MAX = 20
"""Rows of each type and run that are checked: later ones come from the same code."""


@cache
def validator(name: str) -> Any:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def mistakes(row: dict[str, Any]) -> list[str]:
    """List what the schema of a row does not allow."""
    found = validator(row["type"]).iter_errors(row)
    return [f"{row['type']} {'/'.join(map(str, one.path))}: {one.message}" for one in found]


def check_rows(out: bytes) -> None:
    seen: Counter[str] = Counter()
    for line in out.splitlines():
        if line.startswith(b'{"type":'):
            row = json.loads(line)
            seen[row["type"]] += 1
            if seen[row["type"]] <= _CHECKED_MAX:
                assert mistakes(row) == []
