"""The schemas of JSON-Schema-Test-Suite, each with the values that are valid by it.

    python -m tests.kafkalog.log.typed.json_suite CHECKOUT

takes them from a checkout of github.com/json-schema-org/JSON-Schema-Test-Suite into the corpus,
without its optional tests, and without the values that are not valid.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from kafkalog.log.typed.lake_types import NAME_KEY

PLACE = Path("tests/corpus/json-schemas")
SUITE = PLACE / "suite.json.xz"
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
REMOTE = "http://localhost:1234/"
"""Where the schemas suppose those that they refer to."""


class Case(NamedTuple):
    """A schema, the values that are valid by it, and the schemas that it refers to, by address."""

    name: str
    schema: Any
    valid: list[Any]
    references: dict[str, str]


def cases() -> list[Case]:
    """Return the cases; schemas of the drafts before 2019-09 do not name it, so it is added."""
    suite = json.loads(lzma.decompress(SUITE.read_bytes()))
    remotes = {REMOTE + name: json.dumps(one) for name, one in suite["remotes"].items()}
    found = []
    for file, groups in suite["tests"].items():
        draft = file.partition("/")[0]
        for group in groups:
            schema = group["schema"]
            if isinstance(schema, dict):
                schema = {"$schema": DRAFTS[draft], **schema}
            needed = remotes if REMOTE in json.dumps(schema) else {}
            found.append(Case(f"{file}: {group['name']}", schema, group["valid"], needed))
    return found


def compare(kind: Any, value: Any, given: Any, path: str, texts: set[str]) -> None:
    """Compare what a column has with the JSON that it is from.

    A null is a null or not there. JSON text has the same tokens, a number the same value, other
    scalars are the same. Lists have all items, maps all members, structs those of their fields,
    and `_additional` all others. Members that a struct has no field for are null, or not named by
    the schema.

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
            compare(field.type, value[field.name], given.get(name), place, texts)
        if "_additional" in value:
            there = value["_additional"]
            rest = {name: one for name, one in given.items()
                    if name not in named and (one is not None or name in there)}  # fmt: skip
            place = f"{path}._additional".lstrip(".")
            compare(kind.field("_additional").type, there, rest, place, texts)
    elif pa.types.is_list(kind):
        assert len(value) == len(given), path
        for one, other in zip(value, given, strict=True):
            compare(kind.value_type, one, other, f"{path}[]", texts)
    elif pa.types.is_map(kind):
        assert list(value) == list(given), path
        for name, one in value.items():
            compare(kind.item_type, one, given[name], f"{path}{{}}", texts)
    else:
        assert value == given, path
        assert isinstance(value, bool) == isinstance(given, bool), path


def make(checkout: Path) -> None:
    tests = {}
    for draft in DRAFTS:
        for file in sorted((checkout / "tests" / draft).glob("*.json")):
            tests[f"{draft}/{file.name}"] = [
                {
                    "name": group["description"],
                    "schema": group["schema"],
                    "valid": [one["data"] for one in group["tests"] if one["valid"]],
                }
                for group in json.loads(file.read_text())
            ]
    home = checkout / "remotes"
    remotes = {
        file.relative_to(home).as_posix(): json.loads(file.read_text())
        for file in sorted(home.rglob("*.json"))
    }
    PLACE.mkdir(exist_ok=True)
    text = json.dumps({"tests": tests, "remotes": remotes}, separators=(",", ":"))
    SUITE.write_bytes(lzma.compress(text.encode(), preset=9))
    (PLACE / "LICENSE").write_text((checkout / "LICENSE").read_text())


if __name__ == "__main__":
    make(Path(sys.argv[1]))
