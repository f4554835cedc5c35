"""A topic with several types of values is one table, whose types its data decides.

The bytes are of Confluent's serializers with their strategies of subjects by record, and the values
are what went into them (`tests/serializers/make_types.py`); Avro is read by fastavro, too.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

import kafkalog as kafkalog_library
from kafkalog.errors import CorruptDataError
from kafkalog.log.typed.avro import AvroDecoder
from tests.builders import batch, record, write_log
from tests.http_servers import registry
from tests.kafkalog.log.typed.test_serialized import as_topic, without_nulls

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


@pytest.mark.sampled(2, each_value=True)
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


# Tables that grow --------------------------------------------------------------------------------


def shown(place: Path, kind: str) -> list[dict[str, Any]]:
    """Return the rows of a table as its own reader has them, by offset."""
    if kind == "files":
        return table_of(place)
    if kind == "delta":
        found = pa.table(deltalake.DeltaTable(str(place)).to_pyarrow_table())
    else:
        catalog = load_catalog("c", type="sql", uri=f"sqlite:///{place}/catalog.db")
        found = catalog.load_table("db.t").scan().to_arrow()
    return list(found.sort_by("offset").to_pylist())


def grow(kafkalog: Kafkalog, disk: Path, place: Path, kind: str, *words: object) -> Result:
    if kind != "iceberg":
        return exported(kafkalog, disk, place, "--append", "--as", kind, *words)
    more = ("--append", "--as", kind, "--set", f"warehouse={place}", *words)
    return exported(kafkalog, disk, Path("c.db.t"), *more)


@pytest.mark.parametrize("kind", ["files", "delta", "iceberg"])
def test_a_new_type_is_a_new_field(kafkalog: Kafkalog, tmp_path: Path, kind: str) -> None:
    """A run with one type keeps the struct of a table with several, and another type joins it."""
    case, place = CASES["record"], tmp_path / "lake"
    place.mkdir(exist_ok=True)
    disk = as_topic(tmp_path / "disk", case["versions"])
    runs = [
        rows_of(case, "AVRO")[:2],
        rows_of(case, "AVRO")[3:4],
        [],
        rows_of(case, "JSON", "AVRO"),
    ]
    done: list[Any] = []
    for rows in runs:
        values = [(b64decode(one["data"]), []) for one in rows]
        write(disk, [*values, TOMBSTONE], len(done))
        done += [*({one["type"]: one["value"]} for one in rows), None]
        result = grow(kafkalog, disk, place, kind)
        assert result.status == 0, result.stderr
    found = shown(place, kind)
    assert [one["value_type"] for one in found] == [next(iter(one or [None])) for one in done]
    for row, one in zip(found, done, strict=True):
        kinds = one or {}
        wanted = {name.rpartition(".")[2]: without_nulls(value) for name, value in kinds.items()}
        assert without_nulls(row["value_decoded"] or {}) == wanted
    assert {*found[0]["value_decoded"]} == {"Order", "Payment", "Refund", "Visit"}


@pytest.mark.parametrize("kind", ["files", "iceberg"])
def test_a_table_with_one_type_refuses_another(
    kafkalog: Kafkalog, tmp_path: Path, kind: str
) -> None:
    """Its fields are at the top; the error names both types, and the table stays as it is."""
    case, place = CASES["record"], tmp_path / "lake"
    place.mkdir(exist_ok=True)
    disk = as_topic(tmp_path / "disk", case["versions"])
    order, payment = values_of(case, "AVRO")[:2]
    write(disk, [order])
    assert grow(kafkalog, disk, place, kind).status == 0
    before = shown(place, kind)
    write(disk, [payment], 1)
    for _ in range(2):
        result = grow(kafkalog, disk, place, kind)
        assert result.status == 4
        assert "The table has values of shop.Order, and the run pay.Payment." in result.stderr
    assert shown(place, kind) == before


def test_one_type_that_an_option_names_joins_several(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """Its struct is that of its field; values without ids have no place there."""
    case, place = CASES["record"], tmp_path / "lake"
    disk = as_topic(tmp_path / "disk", case["versions"])
    write(disk, values_of(case, "AVRO", "PROTOBUF"))
    assert grow(kafkalog, disk, place, "files").status == 0
    base = len(rows_of(case, "AVRO", "PROTOBUF"))
    refund = values_of(case, "JSON")[:1]
    write(disk, refund, base)
    plain = ("--append", "--value-format", "json@none")
    refused = kafkalog("export", disk, "-t", "events", "--to", place, *plain)
    assert (refused.status, "values without a type" in refused.stderr) == (4, True)
    schema = tmp_path / "refund.json"
    schema.write_text(next(v["schema"] for v in case["versions"] if v["subject"] == "Refund"))
    named = ("--value-format", "json", "--value-schema", schema)
    result = grow(kafkalog, disk, place, "files", *named)
    assert result.status == 0, result.stderr
    last = table_of(place)[-1]
    assert without_nulls(last["value_decoded"]) == {"Refund": {"id": 3, "why": "broken"}}
    assert last["value_type"] == "Refund"


def test_names_of_fields_stay(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """Two types of one short name have the full ones, but not one whose field the table has."""
    texts = {1: avro("a.T", "x"), 2: avro("b.U", "x"), 3: avro("c.T", "y"), 4: avro("d.T", "y")}
    disk = as_topic(tmp_path / "disk", [
        {"subject": json.loads(text)["name"], "version": 1, "id": number, "schema": text}
        for number, text in texts.items()
    ])  # fmt: skip
    write(disk, [(of_text(1, "1"), []), (of_text(2, "2"), [])])
    assert grow(kafkalog, disk, tmp_path / "lake", "files").status == 0
    write(disk, [(of_text(3, "3"), []), (of_text(4, "4"), []), (of_text(1, "5"), [])], 2)
    assert grow(kafkalog, disk, tmp_path / "lake", "files").status == 0
    assert [without_nulls(one["value_decoded"]) for one in table_of(tmp_path / "lake")] == [
        {"T": {"x": "1"}}, {"U": {"x": "2"}}, {"c_T": {"y": "3"}}, {"d_T": {"y": "4"}},
        {"T": {"x": "5"}},
    ]  # fmt: skip
    assert exported(kafkalog, disk, tmp_path / "new").status == 0
    assert {*table_of(tmp_path / "new")[0]["value_decoded"]} == {"U", "a_T", "c_T", "d_T"}


def avro(name: str, *fields: str) -> str:
    parts = [{"name": one, "type": "string"} for one in fields]
    return json.dumps({"type": "record", "name": name, "fields": parts})


def of_text(schema_id: int, *texts: str) -> bytes:
    """Return a record of short texts as Avro writes it: each after twice its size."""
    data = b"".join(bytes([2 * len(one)]) + one.encode() for one in texts)
    return b"\0" + schema_id.to_bytes(4, "big") + data


# What is in a topic ------------------------------------------------------------------------------


def test_unions_and_records_are_one_table(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """A topic that moves from a union to schemas by record keeps its table; null is a branch."""
    a, b = avro("n.A", "x"), avro("n.B", "y")
    union = json.dumps(["null", json.loads(a), json.loads(b), "string", "long"])
    disk = as_topic(tmp_path / "disk", [
        {"subject": "events-value", "version": 1, "id": 1, "schema": union},
        {"subject": "n.A", "version": 1, "id": 2, "schema": a},
        {"subject": "n.C", "version": 1, "id": 3, "schema": avro("n.C", "z")},
    ])  # fmt: skip
    data = [b"\0\0\0\0\1\2\2p", b"\0\0\0\0\1\4\2q", b"\0\0\0\0\1\0", b"\0\0\0\0\1\6\2r"]
    wanted: list[Any] = [
        {"A": {"x": "p"}}, {"B": {"y": "q"}}, None, {"string": "r"}, {"A": {"x": "s"}},
        {"C": {"z": "t"}}, {"A": {"x": "u"}},
    ]  # fmt: skip
    types = ["n.A", "n.B", "null", "string", "n.A", "n.C", "n.A"]
    later = [of_text(2, "s"), of_text(3, "t")], [of_text(2, "u")]
    write(disk, [(one, []) for one in data])
    base = len(data)
    for some in ([], *later):
        if some:
            write(disk, [(one, []) for one in some], base)
            base += len(some)
        assert grow(kafkalog, disk, tmp_path / "grown", "files").status == 0
    assert exported(kafkalog, disk, tmp_path / "once").status == 0
    for place in ("grown", "once"):
        rows = table_of(tmp_path / place)
        assert [without_nulls(one["value_decoded"]) for one in rows] == wanted
        assert [one["value_type"] for one in rows] == types
        # One branch never occurs.
        assert {*rows[0]["value_decoded"]} == {"A", "B", "C", "string", "long"}


def test_messages_of_one_file_are_types(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """One id of one subject; the index before the message says which of them it is."""
    text = 'syntax = "proto3"; package p; message A { int64 a = 1; } message B { string b = 1; }'
    disk = as_topic(tmp_path / "disk", [
        {"subject": "events-value", "version": 1, "id": 7, "schema": text,
         "schemaType": "PROTOBUF"},
    ])  # fmt: skip
    values = [b"\0\x08\5", b"\2\2\n\1x", b"\2\2"]
    write(disk, [(b"\0\0\0\0\7" + one, []) for one in values])
    assert exported(kafkalog, disk, tmp_path / "lake").status == 0
    assert found_in(table_of(tmp_path / "lake")) == [
        ({"A": {"a": 5}}, "p.A"), ({"B": {"b": "x"}}, "p.B"), ({"B": {"b": ""}}, "p.B"),
    ]  # fmt: skip


def test_what_has_no_type_is_a_reject(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """With its reason, in the table of rejects; the others are in the table."""
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    values = values_of(case)
    odd = [b"plain", b"\0\0\0\0\x63x", b"", values[0][0] + b"!", b"\0\0\0\0\7\4\6\6"]
    write(disk, [*((one, []) for one in odd), *values])
    refused = exported(kafkalog, disk, tmp_path / "lake")
    assert (refused.status, "Records do not decode" in refused.stderr) == (4, True)
    accepted = exported(kafkalog, disk, tmp_path / "lake", "--accept", f"rejects={len(odd)}")
    assert accepted.status == 0, accepted.stderr
    assert found_in(table_of(tmp_path / "lake")) == expected(case)
    [file] = (tmp_path / "lake").rglob("*.rejects")
    found = pq.ParquetFile(file).read(["value", "reason"]).to_pylist()
    assert [one["value"] for one in found] == odd
    assert [one["reason"] for one in found] == [
        "no schema id", "the schema 99 is unknown", "no schema id",
        "more bytes than the value has", "the file has no message [3, 3]",
    ]  # fmt: skip


def test_only_what_is_read_has_a_type(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """A type of aborted transactions alone is none of a table of committed records."""
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    [order, payment], writer = values_of(case, "AVRO")[:2], (9, 0, -1)
    write_log(
        disk / "events-0",
        batch(0, [record(0, b"k", payment[0])], attributes=0x10, producer=writer),
        batch(1, [ABORT], attributes=0x30, producer=writer),
        batch(2, [record(0, b"k", order[0])]),
    )
    committed = ("--isolation", "read_committed")
    assert exported(kafkalog, disk, tmp_path / "lake", *committed).status == 0
    assert [one["value_decoded"] for one in table_of(tmp_path / "lake")] == [
        {"id": 7, "total": 0.5, "note": None}
    ]
    assert exported(kafkalog, disk, tmp_path / "all").status == 0
    assert [one["value_type"] for one in table_of(tmp_path / "all")] == [
        "pay.Payment",
        "shop.Order",
    ]


def test_keys_have_types_if_all_of_them_do(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """A number can begin like an id."""
    text = avro("K", "x")
    disk = as_topic(tmp_path / "disk", [{"subject": "K", "version": 1, "id": 1, "schema": text}])
    key, value = of_text(1, "k"), of_text(1, "v")
    write_log(disk / "events-0", batch(0, [record(0, key, value), record(1, key, None)]))
    assert exported(kafkalog, disk, tmp_path / "lake").status == 0
    rows = table_of(tmp_path / "lake")
    assert [one["key_decoded"] for one in rows] == [{"x": "k"}] * 2
    assert [one["key_type"] for one in rows] == ["K", "K"]
    write_log(disk / "events-0", batch(2, [record(0, b"\0\0\0\0\0\0\0\7", value)]), name=f"{2:020}")
    assert exported(kafkalog, disk, tmp_path / "other").status == 0
    assert "key_decoded" not in table_of(tmp_path / "other")[0]


def test_types_are_decoded_by_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each by the kernels of Avro, however they alternate."""
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    values = values_of(case, "AVRO")[1:]
    write(disk, values * 50)
    monkeypatch.delattr(AvroDecoder, "decode")
    there = kafkalog_library.dataset(disk, topics=["events"], registry=disk)
    assert found_in(there.to_table().to_pylist()) == expected(case, "AVRO")[1:] * 50


def test_a_dataset_says_what_has_no_type(tmp_path: Path) -> None:
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    write(disk, [*values_of(case, "AVRO"), (b"plain", [])])
    found = kafkalog_library.dataset(disk, topics=["events"], registry=disk)
    with pytest.raises(CorruptDataError, match="A value does not decode: no schema id"):
        found.to_table()


@pytest.mark.parametrize("form", ["AVRO", "JSON", "PROTOBUF"])
def test_a_type_that_comes_later_is_no_null(kafkalog: Kafkalog, tmp_path: Path, form: str) -> None:
    """A subject of the topic decides, if the first records are of it; with a few fields alike."""
    case = CASES["record"]
    rows = rows_of(case, form)
    first, other = rows[0], next(one for one in rows if one["type"] != rows[0]["type"])
    subject = next(one for one in case["versions"] if one["subject"] == first["type"])
    versions = [*case["versions"], subject | {"subject": "events-value"}]
    more = {"type": "object", "title": "Other", "properties": {"id": {"type": "integer"}}}
    versions.append({"subject": "Other", "version": 1, "id": 60, "schema": json.dumps(more),
                     "schemaType": "JSON"})  # fmt: skip
    disk = as_topic(tmp_path / "disk", versions)
    late = b'\0\0\0\0\x3c{"id":1}' if form == "JSON" else b64decode(other["data"])
    write(disk, [(b64decode(first["data"]), [])])
    write(disk, [(late, [])], 1)
    heard: list[Any] = []
    there = kafkalog_library.dataset(
        disk, topics=["events"], registry=disk, on_event=heard.append
    ).to_table(["value_decoded", "value_type"])
    assert without_nulls(there["value_decoded"].to_pylist()) == [first["value"], None]
    assert there["value_type"][0].as_py() == first["type"]
    assert len([one for one in heard if isinstance(one, CorruptDataError)]) == 1
    # An export looks into each segment.
    result = exported(kafkalog, disk, tmp_path / "lake")
    assert result.status == 0, result.stderr
    assert len(table_of(tmp_path / "lake")[0]["value_decoded"]) == 2


def test_a_registry_by_url_gives_the_same_types(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """Objects without a title are called by subjects; a version that no value has counts, too."""
    objects = [
        {"subject": f"events-{name}", "version": 1, "id": number, "schemaType": "JSON",
         "schema": json.dumps({"type": "object", "properties": {name: {"type": "integer"}}})}
        for number, name in enumerate(("Order", "Pay"), 1)
    ]  # fmt: skip
    newer = json.loads(avro("shop.T", "a", "b"))
    newer["fields"][1]["default"] = "none"
    # Of the other subject the schema with the higher id is the older version.
    records = [
        {"subject": "shop.T", "version": 1, "id": 7, "schema": avro("shop.T", "a")},
        {"subject": "copy", "version": 1, "id": 5, "schema": json.dumps(newer)},
        {"subject": "shop.T", "version": 2, "id": 5, "schema": json.dumps(newer)},
    ]
    versions = [*objects, *records]
    disk = as_topic(tmp_path / "disk", versions)
    values = [b'\0\0\0\0\1{"Order":3}', b'\0\0\0\0\2{"Pay":4}', of_text(7, "x")]
    write(disk, [(one, []) for one in values])
    wanted = [
        ({"events_Order": {"Order": 3}}, "events-Order"),
        ({"events_Pay": {"Pay": 4}}, "events-Pay"),
        ({"T": {"a": "x", "b": "none"}}, "shop.T"),
    ]  # fmt: skip
    with registry(versions) as url:
        for number, place in enumerate((disk, url)):
            lake = tmp_path / f"lake{number}"
            done = kafkalog("export", disk, "-t", "events", "-r", place, "--to", lake)
            assert done.status == 0, done.stderr
            assert [
                ({name.replace("-", "_"): one for name, one in value.items()}, kind)
                for value, kind in found_in(table_of(lake))
            ] == wanted


# Fields as columns -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["files", "delta", "iceberg"])
def test_fields_as_columns(kafkalog: Kafkalog, tmp_path: Path, kind: str) -> None:
    """What is called like a column of the table, in any case, gets a `_`; a tombstone has nulls."""
    text = avro("T", "offset", "Key", "offset_", "name")
    newer = avro("T", "offset", "Key", "offset_", "name", "more")
    place = tmp_path / "lake"
    place.mkdir(exist_ok=True)
    disk = as_topic(tmp_path / "disk", [{"subject": "T", "version": 1, "id": 1, "schema": text}])
    write(disk, [(of_text(1, "a", "b", "c", "d"), []), TOMBSTONE])
    assert grow(kafkalog, disk, place, kind, "--flatten").status == 0
    as_topic(disk, [
        {"subject": "T", "version": 1, "id": 1, "schema": text},
        {"subject": "T", "version": 2, "id": 2, "schema": newer.replace(
            '"more", "type": "string"', '"more", "type": "string", "default": "e"')},
    ])  # fmt: skip
    write(disk, [(of_text(2, "f", "g", "h", "i", "j"), [])], 2)
    assert grow(kafkalog, disk, place, kind, "--flatten").status == 0
    rows = shown(place, kind)
    assert "value_decoded" not in rows[0]
    names = ("offset", "offset__", "Key_", "offset_", "name", "more", "value_type")
    assert [[one[name] for name in names] for one in rows] == [
        [0, "a", "b", "c", "d", None, "T"], [1, None, None, None, None, None, None],
        [2, "f", "g", "h", "i", "j", "T"],
    ]  # fmt: skip


@pytest.mark.sampled(3, each_value=True)
@pytest.mark.parametrize("kind", ["files", "delta", "iceberg"])
@pytest.mark.parametrize(
    ("fields", "newer"),
    [
        (["offset"], ["offset", "offset_"]),
        (["offset"], ["offset_"]),
        (["a"], ["A", "a"]),
        (["n"], ["n:long", "n__long:long"]),
    ],
)
def test_fields_that_would_be_other_columns(
    kafkalog: Kafkalog, tmp_path: Path, kind: str, fields: list[str], newer: list[str]
) -> None:
    """A table keeps the rows that it has; none of them gets to the column of another field."""
    (place := tmp_path / "lake").mkdir()
    old, new = avro("T", *fields), avro("T", *(one.partition(":")[0] for one in newer))
    tree = json.loads(new)
    for field, one in zip(tree["fields"], newer, strict=True):
        field |= {"type": "long", "default": 0} if ":" in one else {"default": ""}
    versions = [{"subject": "T", "version": 1, "id": 1, "schema": old}]
    disk = as_topic(tmp_path / "disk", versions)
    write(disk, [(of_text(1, "x"), [])])
    assert grow(kafkalog, disk, place, kind, "--flatten").status == 0
    before = shown(place, kind)
    versions.append({"subject": "T", "version": 2, "id": 2, "schema": json.dumps(tree)})
    as_topic(disk, versions)
    write(disk, [(of_text(1, "y"), [])], 1)
    refused = grow(kafkalog, disk, place, kind, "--flatten")
    assert refused.status == 4, refused.stderr
    assert shown(place, kind) == before


@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_fields_as_columns_of_text(kafkalog: Kafkalog, tmp_path: Path, form: str) -> None:
    """Without the bytes: `--columns` names what else there is."""
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    write(disk, values_of(case, "AVRO")[:1])
    words = ("--flatten", "--file-format", form, "--columns", "offset")
    result = exported(kafkalog, disk, tmp_path / "lake", *words)
    assert result.status == 0, result.stderr
    [file] = (tmp_path / "lake").rglob(f"*.{form}")
    text = file.read_text()
    [row] = [json.loads(text)] if form == "ndjson" else csv.DictReader(io.StringIO(text))
    assert {name: str(one) for name, one in row.items() if one not in ("", None)} == {
        "offset": "0", "id": "7", "total": "0.5", "value_schema_id": "1",
        "value_type": "shop.Order",
    }  # fmt: skip


def test_columns_leave_out_the_bytes(kafkalog: Kafkalog, tmp_path: Path) -> None:
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    write(disk, values_of(case))
    assert exported(kafkalog, disk, tmp_path / "lake", "--columns", "offset,timestamp").status == 0
    [file] = (tmp_path / "lake").rglob("*.parquet")
    names = ["offset", "timestamp", "value_decoded", "value_schema_id", "value_type"]
    assert pq.read_schema(file).names == names
    assert found_in(table_of(tmp_path / "lake")) == expected(case)


def test_several_types_have_no_columns(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """Nothing is written; also a value without fields has none."""
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", [
        *case["versions"], {"subject": "s", "version": 1, "id": 50, "schema": '"string"'}
    ])  # fmt: skip
    write(disk, values_of(case, "AVRO"))
    refused = exported(kafkalog, disk, tmp_path / "lake", "--flatten")
    assert refused.status == 2
    assert "the topic has pay.Payment, shop.Order" in refused.stderr
    write(disk, [(of_text(50, "x"), [])])
    refused = exported(kafkalog, disk, tmp_path / "lake", "--flatten")
    assert (refused.status, "have none" in refused.stderr) == (2, True)
    assert not [*(tmp_path / "lake").rglob("*.parquet")]
