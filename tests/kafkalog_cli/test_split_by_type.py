"""`export --split-by-type`: each type of a topic's values is a table, and each record is in one.

The bytes are of Confluent's serializers, and the values what went into them, as in
`test_record_types.py`; the tables are read by DuckDB, deltalake and pyiceberg.
"""

from __future__ import annotations

import io
import json
from base64 import b64decode
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError

import kafkalog as kafkalog_library
from kafkalog.tables import Bounds, Request
from tests.builders import batch, record, write_log
from tests.http_servers import registry
from tests.kafkalog.log.typed.test_serialized import as_topic
from tests.kafkalog_cli.test_record_types import (
    ABORT,
    CASES,
    TOMBSTONE,
    avro,
    of_text,
    rows_of,
    table_of,
    values_of,
    without_nulls,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result

    Kafkalog = Callable[..., Result]

KINDS = ["files", "delta", "iceberg"]
OF_RECORDS = {
    "topic", "partition", "offset", "timestamp", "timestamp_ms", "timestampType", "key", "value",
    "headers", "producer_id", "producer_epoch", "sequence", "transactional", "leader_epoch",
    "base_offset", "segment_base_offset", "compression", "value_schema_id", "value_type", "type",
}  # fmt: skip
"""What tables have besides the fields of a type."""


def split(
    kafkalog: Kafkalog, disk: Path, place: Path, kind: str, *words: object, topic: str = "events"
) -> Result:
    place.mkdir(exist_ok=True)
    to, more = (place, ()) if kind != "iceberg" else ("c.db", ("--set", f"warehouse={place}"))
    return kafkalog(
        "export", disk, "-t", topic, "-r", disk, "--to", to, "--as", kind, "--split-by-type",
        "-o", "ndjson", *more, *words,
    )  # fmt: skip


def tables_in(place: Path, kind: str, topic: str = "events") -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table of a topic by offset, as its own reader has them."""
    if kind == "files":
        return {
            unquote(one.name.removeprefix("type=")): table_of(one)
            if [*one.rglob("*.parquet")]
            else []
            for one in place.glob(f"topic={topic}/type=*")
        }
    found = {}
    if kind == "delta":
        for one in place.glob(f"{topic}.*"):
            if deltalake.DeltaTable.is_deltatable(str(one)):
                name = unquote(one.name.removeprefix(f"{topic}."))
                found[name] = pa.table(deltalake.DeltaTable(str(one)).to_pyarrow_table())
    else:
        catalog = load_catalog("c", type="sql", uri=f"sqlite:///{place}/catalog.db")
        try:
            names = [one[-1] for one in catalog.list_tables(("db", topic))]
        except NoSuchNamespaceError:
            names = []
        for name in names:
            table = catalog.load_table(("db", topic, name))
            if not name.endswith("_rejects") and table.current_snapshot() is not None:
                found[name] = table.scan().to_arrow()
    return {name: list(one.sort_by("offset").to_pylist()) for name, one in found.items()}


def wanted_of(rows: list[Any], base: int = 0) -> dict[str, list[tuple[int, Any]]]:
    """Return offset and value of the records of each type; None stands for a tombstone."""
    found: dict[str, list[tuple[int, Any]]] = {}
    for offset, row in enumerate(rows, base):
        name = "null" if row is None else row["type"].rpartition(".")[2]
        value = {} if row is None else without_nulls(row["value"])
        found.setdefault(name, []).append((offset, value))
    return found


def shown(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[tuple[int, Any]]]:
    """Return offset and the fields of the type of each row, for tables that have rows."""
    return {
        name: [
            (row["offset"], without_nulls({k: v for k, v in row.items() if k not in OF_RECORDS}))
            for row in rows
        ]
        for name, rows in tables.items()
        if rows
    }


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [*CASES])
def test_each_type_is_a_table(kafkalog: Kafkalog, tmp_path: Path, kind: str, name: str) -> None:
    """Of Avro, JSON Schema and Protobuf; nothing is in two tables, and nothing is left out."""
    case = CASES[name]
    disk = as_topic(tmp_path / "disk", case["versions"])
    write(disk, [TOMBSTONE, *values_of(case), TOMBSTONE])
    append = ("--append",) if kind == "iceberg" else ()
    result = split(kafkalog, disk, tmp_path / "lake", kind, *append)
    assert result.status == 0, result.stderr
    wanted = wanted_of([None, *rows_of(case), None])
    tables = tables_in(tmp_path / "lake", kind)
    assert shown(tables) == wanted
    assert {row["value_type"] for row in tables["Order"]} == {"shop.Order"}
    summary = json.loads(result.stdout.splitlines()[-1])
    assert summary["tables"] == {f"events.{one}": len(rows) for one, rows in wanted.items()}
    again = split(kafkalog, disk, tmp_path / "lake", kind, *append)
    assert (again.status, json.loads(again.stdout.splitlines()[-1])["was_complete"]) == (0, True)
    assert tables_in(tmp_path / "lake", kind) == tables


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_versions_are_resolved_as_by_fastavro(
    kafkalog: Kafkalog, tmp_path: Path, kind: str
) -> None:
    """To the newest version, whose fields are the columns."""
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    write(disk, values_of(case, "AVRO"))
    result = split(kafkalog, disk, tmp_path / "lake", kind, "--append")
    assert result.status == 0, result.stderr
    trees = {
        one["id"]: fastavro.parse_schema(json.loads(one["schema"]))
        for one in case["versions"] if one["schemaType"] == "AVRO"
    }  # fmt: skip
    newest = {"Order": trees[3], "Payment": trees[2]}
    for name, rows in tables_in(tmp_path / "lake", kind).items():
        for row in rows:
            writer = trees[int.from_bytes(row["value"][1:5], "big")]
            value = fastavro.schemaless_reader(io.BytesIO(row["value"][5:]), writer, newest[name])
            assert isinstance(value, dict)
            assert {one: row[one] for one in value} == value
    assert {*tables_in(tmp_path / "lake", kind)} >= {"Order", "Payment"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_type_is_a_new_table(kafkalog: Kafkalog, tmp_path: Path, kind: str) -> None:
    """After each run each table has what the log has of its type, once."""
    case, place = CASES["record"], tmp_path / "lake"
    disk = as_topic(tmp_path / "disk", case["versions"])
    every: list[Any] = []
    runs = [rows_of(case, "AVRO")[:1], [None], rows_of(case, "AVRO", "JSON"), rows_of(case)]
    for rows in runs:
        write(disk, [TOMBSTONE if one is None else (b64decode(one["data"]), []) for one in rows],
              len(every))  # fmt: skip
        every += rows
        result = split(kafkalog, disk, place, kind, "--append")
        assert result.status == 0, result.stderr
        assert shown(tables_in(place, kind)) == wanted_of(every)
    assert json.loads(result.stdout.splitlines()[-1])["commit"] == len(runs) - 1
    idle = split(kafkalog, disk, place, kind, "--append")
    assert json.loads(idle.stdout.splitlines()[-1])["was_complete"] is True


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_rejects_count_together(kafkalog: Kafkalog, tmp_path: Path, kind: str) -> None:
    """Those of a type are next to its table, others next to `null`; too many leave nothing."""
    case, place = CASES["record"], tmp_path / "lake"
    disk = as_topic(tmp_path / "disk", case["versions"])
    values = values_of(case, "AVRO")
    broken: list[Any] = [
        (values[0][0] + b"!", []),
        (b"plain", []),
        (values[1][0] + b"!", []),
        (b"", []),
    ]
    write(disk, [*values, *broken, TOMBSTONE])
    refused = split(kafkalog, disk, place, kind, "--append", "--accept", "rejects=3")
    assert (refused.status, "More than 3 records" in refused.stderr) == (4, True)
    assert not any(tables_in(place, kind).values())
    assert kind == "iceberg" or not [*place.iterdir()]
    result = split(kafkalog, disk, place, kind, "--append", "--accept", "rejects=4")
    assert result.status == 0, result.stderr
    rows = rows_of(case, "AVRO")
    assert shown(tables_in(place, kind)) == wanted_of(
        [*rows, *[None] * 5]
    ) | {"null": [(9, {})]}  # fmt: skip
    if kind == "iceberg":
        catalog = load_catalog("c", type="sql", uri=f"sqlite:///{place}/catalog.db")
        found = {
            name: catalog.load_table(("db", "events", f"{name}_rejects")).scan().to_arrow()
            for name in ("Order", "Payment", "null")
        }
    else:
        below = "topic=events/type={}" if kind == "files" else "events.{}"
        found = {}
        for name in ("Order", "Payment", "null"):
            [file] = place.glob(f"{below.format(name)}/_rejects/**/*.rejects")
            found[name] = pq.ParquetFile(file).read()
    offsets = {name: one.column("offset").to_pylist() for name, one in found.items()}
    assert offsets == {"Order": [5], "Payment": [7], "null": [6, 8]}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_begins_after_the_rejects_of_earlier_runs(
    kafkalog: Kafkalog, tmp_path: Path, kind: str
) -> None:
    """A schema that was registered later decodes no record that is a reject already."""
    case, place = CASES["record"], tmp_path / "lake"
    order, payment = values_of(case, "AVRO")[:2]
    disk = as_topic(tmp_path / "disk", case["versions"][:1])
    write(disk, [order, payment])
    first = split(kafkalog, disk, place, kind, "--append", "--accept", "rejects=1")
    assert first.status == 0, first.stderr
    as_topic(disk, case["versions"][:2])
    write(disk, [payment, order], 2)
    second = split(kafkalog, disk, place, kind, "--append")
    assert second.status == 0, second.stderr
    offsets = {
        name: [row["offset"] for row in rows] for name, rows in tables_in(place, kind).items()
    }
    assert offsets == {"Order": [0, 3], "Payment": [2], "null": []}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_branches_and_messages_are_types(kafkalog: Kafkalog, tmp_path: Path, kind: str) -> None:
    """A branch of a union, also next to the record alone; values without fields have a column."""
    a, b = avro("n.A", "x", "offset"), avro("n.B", "y")
    union = json.dumps(["null", json.loads(a), json.loads(b), "string"])
    text = 'syntax = "proto3"; package p; message M { int64 a = 1; } message null { string b = 1; }'
    disk = as_topic(tmp_path / "disk", [
        {"subject": "events-value", "version": 1, "id": 1, "schema": union},
        {"subject": "n.A", "version": 1, "id": 2, "schema": a},
        {"subject": "p", "version": 1, "id": 7, "schema": text, "schemaType": "PROTOBUF"},
    ])  # fmt: skip
    data = [
        b"\0\0\0\0\1\2\2p\2o", b"\0\0\0\0\1\4\2q", b"\0\0\0\0\1\0", b"\0\0\0\0\1\6\2r",
        of_text(2, "s", "t"), b"\0\0\0\0\7\0\x08\5", b"\0\0\0\0\7\2\2\n\1x",
    ]  # fmt: skip
    write(disk, [*((one, []) for one in data), TOMBSTONE])
    result = split(kafkalog, disk, tmp_path / "lake", kind, "--append")
    assert result.status == 0, result.stderr
    assert shown(tables_in(tmp_path / "lake", kind)) == {
        "A": [(0, {"x": "p", "offset_": "o"}), (4, {"x": "s", "offset_": "t"})],
        "B": [(1, {"y": "q"})],
        "string": [(3, {"value_decoded": "r"})],
        "M": [(5, {"a": 5})],
        "null_": [(6, {"b": "x"})],
        "null": [(2, {}), (7, {})],
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_types_of_topics_by_transactions_keys_columns_and_conditions(
    kafkalog: Kafkalog, tmp_path: Path, kind: str
) -> None:
    """Of each topic by itself: records of aborted transactions, and of other keys, are in none."""
    texts = {1: avro("K", "k"), 2: avro("n.A", "x"), 3: avro("n.B", "y"), 4: avro("n.C", "z")}
    disk = as_topic(tmp_path / "disk", [
        {"subject": json.loads(text)["name"], "version": 1, "id": number, "schema": text}
        for number, text in texts.items()
    ])  # fmt: skip
    writer = (9, 0, -1)
    key = of_text(1, "k")
    write_log(
        disk / "events-0",
        batch(0, [record(0, key, of_text(4, "no"))], attributes=0x10, producer=writer),
        batch(1, [ABORT], attributes=0x30, producer=writer),
        # A compacted log has gaps.
        batch(5, [record(n, key, of_text(2 + n % 2, str(n))) for n in range(4)]),
        batch(9, [record(0, key, None)]),
    )
    write_log(disk / "pays-0", batch(0, [record(n, key, of_text(2, str(n))) for n in range(8)]))
    result = split(
        kafkalog, disk, tmp_path / "lake", kind, "--append", "-t", "pays", "--isolation",
        "read_committed", "--columns", "offset", "--where", "offset >= 6",
    )  # fmt: skip
    assert result.status == 0, result.stderr
    more = {"topic", "partition", "type", "key_schema_id", "key_type", "value_schema_id",
            "value_type", "leader_epoch"}  # fmt: skip
    found = {
        topic: {
            name: [{k: v for k, v in row.items() if k not in more} for row in rows]
            for name, rows in tables_in(tmp_path / "lake", kind, topic).items()
            if rows
        }
        for topic in ("events", "pays")
    }
    keys = {"key_decoded": {"k": "k"}}
    assert found == {
        "events": {
            "A": [{"offset": 7, **keys, "x": "2"}],
            "B": [{"offset": 6, **keys, "y": "1"}, {"offset": 8, **keys, "y": "3"}],
            "null": [{"offset": 9, **keys}],
        },
        "pays": {"A": [{"offset": n, **keys, "x": str(n)} for n in (6, 7)]},
    }
    assert "C" not in tables_in(tmp_path / "lake", kind)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_records_that_are_gone_are_in_no_table(
    kafkalog: Kafkalog, tmp_path: Path, kind: str
) -> None:
    """Nothing is committed without agreement; then each table goes on after them."""
    case, place = CASES["record"], tmp_path / "lake"
    disk = as_topic(tmp_path / "disk", case["versions"])
    order, payment = values_of(case, "AVRO")[:2]
    write(disk, [order, TOMBSTONE])
    assert split(kafkalog, disk, place, kind, "--append").status == 0
    (disk / "events-0" / f"{0:020}.log").unlink()
    write(disk, [payment, order, TOMBSTONE], 5)
    refused = split(kafkalog, disk, place, kind, "--append")
    assert (refused.status, "Records are gone" in refused.stderr) == (4, True)
    assert {name: len(rows) for name, rows in tables_in(place, kind).items()} == {
        "Order": 1, "null": 1,
    }  # fmt: skip
    result = split(kafkalog, disk, place, kind, "--append", "--accept", "gaps")
    assert result.status == 0, result.stderr
    [gap] = [one for one in map(json.loads, result.stdout.splitlines()) if "reason" in one]
    assert (gap["first_offset"], gap["last_offset"]) == (2, 4)
    assert shown(tables_in(place, kind)) == {
        "Order": [(0, {"id": 7, "total": 0.5}), (6, {"id": 7, "total": 0.5})],
        "Payment": [(5, rows_of(case, "AVRO")[1]["value"])],
        "null": [(1, {}), (7, {})],
    }


def test_the_library_splits(tmp_path: Path) -> None:
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    write(disk, [*values_of(case), TOMBSTONE])
    plan = kafkalog_library.export(
        disk, to=tmp_path / "lake", registry=disk, split_by_type=True,
        request=Request(bounds=Bounds(topics=("events",))),
    )  # fmt: skip
    assert {one.file.partition("/partition")[0] for one in plan} == {
        f"topic=events/type={name}" for name in wanted_of([*rows_of(case), None])
    }
    done = plan.apply()
    assert sum(done.tables.values()) == done.rows == len(rows_of(case)) + 1
    assert {one.file for one in done.parts} == {
        str(one.relative_to(tmp_path / "lake")) for one in (tmp_path / "lake").rglob("*.parquet")
    }
    assert shown(tables_in(tmp_path / "lake", "files")) == wanted_of([*rows_of(case), None])


def test_a_registry_by_url(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """It is asked for the schemas that occur, also in the run in which a type is new."""
    case, disk, lake = CASES["record"], tmp_path / "disk", tmp_path / "lake"
    words = ("--to", lake, "--split-by-type", "--append", "--as", "delta")
    with registry(case["versions"]) as url:
        every: list[Any] = []
        for rows in (rows_of(case, "AVRO")[:1], rows_of(case)):
            write(disk, [(b64decode(one["data"]), []) for one in rows], len(every))
            every += rows
            done = kafkalog("export", disk, "-r", url, *words)
            assert done.status == 0, done.stderr
            found = shown(tables_in(lake, "delta"))
            assert found == wanted_of(every)


def test_titles_are_escaped_in_paths(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """A title of a JSON Schema can be any text."""
    tree = {"title": "../../Way out/é", "type": "object", "properties": {"a": {"type": "integer"}}}
    disk = as_topic(tmp_path / "disk", [
        {"subject": "t", "version": 1, "id": 1, "schema": json.dumps(tree), "schemaType": "JSON"}
    ])  # fmt: skip
    write(disk, [(b'\0\0\0\0\1{"a":1}', [])])
    for kind, name in (("files", "/Way out/é"), ("delta", "_Way_out_é"), ("iceberg", "_Way_out_é")):
        place = tmp_path / kind
        result = split(kafkalog, disk, place, kind, "--append")
        assert result.status == 0, result.stderr
        assert shown(tables_in(place, kind)) == {name: [(0, {"a": 1})]}
    assert {one.name for one in tmp_path.iterdir()} == {"disk", *KINDS}


def test_what_cannot_be_split_is_refused(kafkalog: Kafkalog, tmp_path: Path) -> None:
    """Without schemas, where all types have one table, and the other way round."""
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    write(disk, values_of(case))
    words = ("export", disk, "-t", "events", "--to")
    for more in ((), ("--value-format", "json")):
        plain = kafkalog(*words, tmp_path / "lake", "--split-by-type", *more)
        assert (plain.status, "Add --registry PLACE" in plain.stderr) == (2, True)
    whole, apart = tmp_path / "whole", tmp_path / "apart"
    assert kafkalog(*words, whole, "-r", disk).status == 0
    refused = split(kafkalog, disk, whole, "files")
    assert (refused.status, "is a table of all types" in refused.stderr) == (4, True)
    assert split(kafkalog, disk, apart, "files").status == 0
    assert kafkalog(*words, apart, "-r", disk).status == 4
    unknown = kafkalog("export", disk, "-r", disk, "--to", tmp_path / "n", "--split-by-type")
    assert (unknown.status, "--topic NAME" in unknown.stderr) == (2, True)


def test_a_dry_run_names_the_files_of_all_tables(kafkalog: Kafkalog, tmp_path: Path) -> None:
    case = CASES["record"]
    disk = as_topic(tmp_path / "disk", case["versions"])
    write(disk, [*values_of(case, "AVRO"), TOMBSTONE])
    place = tmp_path / "lake"
    planned = split(kafkalog, disk, place, "files", "--dry-run")
    files = [json.loads(line)["file"] for line in planned.stdout.splitlines()[:-1]]
    assert not [*place.iterdir()]
    assert split(kafkalog, disk, place, "files").status == 0
    assert sorted(files) == sorted(str(one.relative_to(place)) for one in place.rglob("*.parquet"))


@pytest.mark.parametrize("kind", ["files", "delta"])
def test_a_topic_that_is_refused_after_another_one(
    kafkalog: Kafkalog, tmp_path: Path, kind: str
) -> None:
    """The status is 8, since tables of the first are there; nothing is there if it is the first."""
    text = avro("n.A", "x")
    disk = as_topic(tmp_path / "disk", [
        {"subject": "n.A", "version": 1, "id": 2, "schema": text},
    ])  # fmt: skip
    good = [record(0, b"k", of_text(2, "a"))]
    bad = [*good, record(1, b"k", b"\0\0\0\0\7x")]
    write_log(disk / "events-0", batch(0, good))
    write_log(disk / "pays-0", batch(0, bad))
    both = ("-t", "pays", "--append")
    refused = split(kafkalog, disk, tmp_path / "lake", kind, *both)
    assert refused.status == 8
    assert "The tables of events are committed; then: Records do not decode" in refused.stderr
    assert [*tables_in(tmp_path / "lake", kind)["A"]] != []
    assert not any(tables_in(tmp_path / "lake", kind, "pays").values())
    accepted = split(kafkalog, disk, tmp_path / "lake", kind, *both, "--accept", "rejects=1")
    assert accepted.status == 0, accepted.stderr
    write_log(disk / "events-0", batch(0, bad))
    write_log(disk / "pays-0", batch(0, good))
    assert split(kafkalog, disk, tmp_path / "other", kind, *both).status == 4
    assert not [*(tmp_path / "other").iterdir()]
