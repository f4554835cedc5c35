"""The table of requests against the definitions in the jar of Kafka's clients."""

from __future__ import annotations

import json
import re
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from formats.error_codes import ErrorCode
from formats.message_table import requests
from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from formats.message_table import Field

TYPES = {
    "string": "str", "bytes": "bytes", "records": "records", "bool": "bool", "int8": "i8",
    "int16": "i16", "int32": "i32", "int64": "i64", "uint16": "u16", "float64": "f64",
    "uuid": "uuid",
}  # fmt: skip
OPEN = 1 << 15
UNSTABLE = {"InitProducerId": 6}
"""Declared with `latestVersionUnstable`: a broker does not offer it."""


@pytest.fixture(scope="module")
def definitions(newest_harness: str) -> dict[str, dict[str, Any]]:
    """Return every definition of a request or a response, by its name."""
    [jar] = (broker_data.target(newest_harness) / "lib").glob("kafka-clients-*.jar")
    with zipfile.ZipFile(jar) as archive:
        texts = [
            archive.read(name).decode()
            for name in archive.namelist()
            if re.fullmatch(r"common/message/\w+(Request|Response)\.json", name)
        ]
    parsed = [json.loads(re.sub(r"(?m)(^|\s)//.*$", "", text)) for text in texts]
    return {one["name"]: one for one in parsed}


@pytest.mark.parametrize("name", requests())
def test_the_table_says_what_the_definition_says(name: str, definitions: dict[str, Any]):
    """Versions, flexible versions, and every field of every version."""
    found, defined = requests()[name], definitions[name]
    assert (found.api_key, found.part) == (defined["apiKey"], defined["type"])
    versions = span(defined["validVersions"])
    unstable = UNSTABLE.get(found.family)
    assert found.versions == (range(versions.start, unstable) if unstable else versions)
    common = {one["name"]: one["fields"] for one in defined.get("commonStructs", ())}
    flexible = span(defined["flexibleVersions"])
    for version in found.versions:
        assert (version in found.flexible_versions) == (version in flexible)
        got = [of_table(one, version) for one in found.struct.fields_of(version)]
        assert got == list(of_definition(defined["fields"], version, common)), version


def of_table(field: Field, version: int) -> tuple[Any, ...]:
    inner = None
    if field.struct is not None:
        inner = [of_table(one, version) for one in field.struct.fields_of(version)]
    default = field.default if field.struct is None and not field.array else None
    return field.name, field.type, field.array, field.nullable, field.tag, default, inner


def of_definition(
    fields: list[dict[str, Any]], version: int, common: dict[str, Any]
) -> Iterator[tuple[Any, ...]]:
    for field in fields:
        if version not in span(field["versions"]):
            continue
        name = field["name"][0].lower() + field["name"][1:]
        kind, is_array = field["type"].removeprefix("[]"), field["type"].startswith("[]")
        tag = field["tag"] if version in span(field.get("taggedVersions", "none")) else None
        nullable = version in span(field.get("nullableVersions", "none"))
        if kind in TYPES:
            default = None if is_array else default_of(kind, field.get("default"))
            yield name, TYPES[kind], is_array, nullable, tag, default, None
        else:
            inner = list(of_definition(field.get("fields") or common[kind], version, common))
            yield name, "struct", is_array, nullable, tag, None, inner


def default_of(kind: str, stated: Any) -> Any:
    if stated == "null" or kind == "records":
        return None
    if kind == "bool":
        return str(stated).lower() == "true"
    if kind in ("string", "bytes", "uuid", "float64"):
        return {"string": "", "bytes": b"", "uuid": "A" * 22, "float64": 0.0}[kind]
    return int(str(stated or 0), 0)


def span(text: str) -> range:
    """Parse a range of versions: `none`, `3`, `0-4` or `2+`."""
    if text == "none":
        return range(0)
    first, dash, last = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return range(int(first), OPEN)
    return range(int(first), int(last if dash else first) + 1)


def test_error_codes_are_kafkas(newest_harness: str, tmp_path: Path):
    """They are compared with `Errors` of the same jar."""
    printed = broker_data.java("kafkalog.harness.ErrorCodes", cwd=tmp_path, release=newest_harness)
    assert dict(line.split() for line in printed.splitlines()) == {
        one.name: str(one.value) for one in ErrorCode
    }
