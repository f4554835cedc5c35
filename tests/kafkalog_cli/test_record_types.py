"""A topic with several types of values is one table, whose types its data decides.

The bytes are of Confluent's serializers with their strategies of subjects by record, and the values
are what went into them (`tests/serializers/make_types.py`); Avro is read by fastavro, too.
"""

from __future__ import annotations

import gzip
import io
import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import fastavro
import pytest

import kafkalog as kafkalog_library
from tests.builders import batch, record, write_log
from tests.kafkalog.log.typed.test_serialized import as_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]

CASES = {
    one["name"]: one
    for one in json.loads(Path("tests/corpus/record_types.json").read_text())["cases"]
}
TOMBSTONE: tuple[None, list[Any]] = (None, [])
ABORT = record(0, b"\0\0\0\0", b"\0\0\0\0\0\0")


def values_of(case: Any, *forms: str) -> list[tuple[bytes, list[Any]]]:
    return [
        (b64decode(one["data"]), [(key.encode(), b64decode(id_)) for key, id_ in one["headers"]])
        for one in rows_of(case, *forms)
    ]


def rows_of(case: Any, *forms: str) -> list[Any]:
    return [one for one in case["records"] if one["form"] in forms or not forms]


def write(place: Path, values: Sequence[tuple[bytes | None, Any]], base: int = 0) -> None:
    """Write a batch, compressed by gzip, to the topic `events`."""
    records = b"".join(record(n, b"k", one, headers=ids) for n, (one, ids) in enumerate(values))
    write_log(
        place / "events-0",
        batch(base, payload=gzip.compress(records), count=len(values), attributes=1),
        name=f"{base:020}",
    )


def exported(
    kafkalog: Kafkalog, disk: Path, to: Path, *words: object, topic: str = "events"
) -> Result:
    return kafkalog("export", disk, "-t", topic, "-r", disk, "--to", to, "-o", "ndjson", *words)


def table_of(place: Path) -> list[dict[str, Any]]:
    """Return the rows of an export, read with the columns of all of its files, by offset."""
    found = duckdb.read_parquet(f"{place}/**/*.parquet", union_by_name=True).order('"offset"')
    return list(found.to_arrow_table().to_pylist())


def without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [without_nulls(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: without_nulls(one) for name, one in value.items() if one is not None}


def expected(case: Any, *forms: str) -> list[Any]:
    """Return value and type of each record of some forms."""
    return [
        ({one["type"].rpartition(".")[2]: without_nulls(one["value"])}, one["type"])
        for one in rows_of(case, *forms)
    ]


def found_in(rows: list[dict[str, Any]]) -> list[Any]:
    return [(without_nulls(one["value_decoded"]), one["value_type"]) for one in rows]


@pytest.fixture(params=[*CASES])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    """A case, and a log directory with the topic of its registry."""
    one = CASES[request.param]
    return one, as_topic(tmp_path / "disk", one["versions"])


@pytest.mark.parametrize("forms", [("AVRO",), ("JSON",), ("PROTOBUF",), ()])
def test_each_type_has_a_field(
    case: tuple[Any, Path], forms: tuple[str, ...], kafkalog: Kafkalog, tmp_path: Path
) -> None:
    """In files, SQL and datasets alike; a tombstone is null, and has no type."""
    one, disk = case
    values = values_of(one, *forms)
    write(disk, [*values, TOMBSTONE])
    wanted = [*expected(one, *forms), (None, None)]
    result = exported(kafkalog, disk, tmp_path / "lake")
    assert result.status == 0, result.stderr
    rows = table_of(tmp_path / "lake")
    assert found_in(rows) == wanted
    ids = {(v["schemaType"], v["subject"].removeprefix("events-")) for v in one["versions"]}
    assert len({row["value_schema_id"] for row in rows}) <= len(ids) + 2  # two versions, and null
    query = 'SELECT value AS value_decoded, value_type FROM records ORDER BY "offset"'
    asked = kafkalog("sql", "-c", query, disk, "-t", "events", "-r", disk, "-o", "ndjson")
    assert asked.status == 0, asked.stderr
    assert found_in([json.loads(line) for line in asked.stdout.splitlines()]) == wanted
    there = kafkalog_library.dataset(disk, topics=["events"], registry=disk)
    table = there.to_table(["value_type", "value_decoded"])
    assert found_in(table.to_pylist()) == wanted
    dumped = kafkalog("dump-segment", disk / "events-0", "-r", disk, "-o", "ndjson")
    lines = [json.loads(line) for line in dumped.stdout.splitlines()]
    assert [line["value_type"] for line in lines if "offset" in line] == [
        kind for _, kind in wanted
    ]


def test_versions_of_a_type_are_one_field(
    case: tuple[Any, Path], kafkalog: Kafkalog, tmp_path: Path
) -> None:
    """As fastavro resolves them to the newest; also where all values have one type."""
    one, disk = case
    newest = max(
        (v for v in one["versions"] if "Order" in v["subject"]), key=lambda v: v["version"]
    )
    reader = fastavro.parse_schema(json.loads(newest["schema"]))
    wanted, values = [], []
    for row, pair in zip(rows_of(one, "AVRO"), values_of(one, "AVRO"), strict=True):
        if row["type"] == "shop.Order":
            data = pair[0] if pair[1] else pair[0][5:]
            version = min(len(row["value"]) - 1, 2)
            writer = next(
                v for v in one["versions"] if "Order" in v["subject"] and v["version"] == version
            )
            tree = fastavro.parse_schema(json.loads(writer["schema"]))
            wanted.append(fastavro.schemaless_reader(io.BytesIO(data), tree, reader))
            values.append(pair)
    assert len(wanted) == 3
    write(disk, values)
    assert exported(kafkalog, disk, tmp_path / "lake").status == 0
    rows = table_of(tmp_path / "lake")
    assert [row["value_decoded"] for row in rows] == wanted
    assert {row["value_type"] for row in rows} == {"shop.Order"}
