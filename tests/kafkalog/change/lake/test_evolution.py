"""Tables whose rows get other columns: old rows stay readable, new ones have all known columns."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, Schema
from pyiceberg.types import StringType

from kafkalog.change.lake import Accepted, ExportRequest, FileFormat, Writing
from kafkalog.change.lake.evolution import Evolution, conformed, schema_from, schema_text
from kafkalog.errors import (
    ChangedSinceError,
    CorruptDataError,
    DestinationExistsError,
    RefusedError,
)
from kafkalog.log.typed import Framing, TypedColumn, TypedForm
from kafkalog.log.typed.remarks import Remark
from tests.builders import batch, record, write_log
from tests.kafkalog.change.lake.appending import (
    DELTA,
    FILES,
    ICEBERG,
    REQUEST,
    Inline,
    add,
    append,
    data_files,
    grow,
    iceberg,
    rows,
    rows_of,
)
from tests.kafkalog.change.lake.exporting import files_of, table_of
from tests.kafkalog.change.lake.test_stopped_appends import Killing
from tests.kafkalog.tables.test_other_disks import make_log
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kafkalog.change.lake import ExportSummary
    from kafkalog.change.lake.model import TableFormat

ALL = [FILES, DELTA, ICEBERG]


def order(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "record", "name": "Order",
        "fields": [field(name, kind) for name, kind in fields],
    }  # fmt: skip


def field(name: str, kind: Any) -> dict[str, Any]:
    """Build a field; readers of older values see null if it is optional."""
    return {"name": name, "type": kind, **({"default": None} if isinstance(kind, list) else {})}


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


LINE = {"type": "record", "name": "Line", "fields": [field("sku", "string")]}
LINE_2 = {**LINE, "fields": [*LINE["fields"], field("count", optional("int"))]}
FIRST = order(
    ("id", "int"), ("note", optional("string")), ("lines", {"type": "array", "items": LINE})
)
SECOND = order(
    ("id", "int"), ("lines", {"type": "array", "items": LINE_2}), ("total", optional("double"))
)
NARROW = order(("id", "int"), ("rate", "float"))
WIDER = order(("id", "long"), ("rate", "double"))
LINE_3 = {**LINE, "fields": [*LINE["fields"], field("count", optional("string"))]}
OTHER = order(
    ("id", "int"),
    ("lines", optional({"type": "array", "items": LINE_3})),
    ("total", optional("string")),
)
TEXT = "string"
NAMED = order(("id", "int"), ("note", optional("string")))
RENAMED = order(("id", "int"), ("remark", optional("string")))
RENAMED["fields"][1]["aliases"] = ["note"]
AMOUNTS = [
    order(("amount", {"type": "bytes", "logicalType": "decimal", "precision": p, "scale": s}))
    for p, s in ((6, 2), (12, 2), (9, 4))
]
BY_ID = [FIRST, SECOND, NARROW, WIDER, OTHER, TEXT, NAMED, RENAMED, *AMOUNTS]


def framed(schema: Any, value: Any) -> bytes:
    """Frame a value as Confluent's serializer writes it."""
    data = io.BytesIO()
    data.write(b"\0" + BY_ID.index(schema).to_bytes(4, "big"))
    fastavro.schemaless_writer(data, schema, value)
    return data.getvalue()


def put(log: Path, first: int, *values: bytes | None) -> None:
    records = [record(i, value=value) for i, value in enumerate(values)]
    write_log(log / "orders-0", batch(first, records), name=f"{first:020}")


def run(
    log: Path, to: Path, form: TableFormat, schema: Any = None,
    columns: Sequence[str] | None = None, rejects: int = 0,
) -> ExportSummary:  # fmt: skip
    """Add what is new, with values decoded by the schema."""
    writers = tuple((n, (json.dumps(one),)) for n, one in enumerate(BY_ID))
    typed = TypedColumn(
        "value", TypedForm.AVRO, json.dumps(schema).encode(), None, Framing.CONFLUENT,
        writers=writers,
    )  # fmt: skip
    asked = ExportRequest(
        (str(log),), REQUEST, None if columns is None else tuple(columns),
        typed=() if schema is None else (typed,),
        table_format=form, append=True,
    )  # fmt: skip
    return add(asked, to, accepted=Accepted(rejects=rejects))[-1]


def readers(to: Path, form: TableFormat) -> dict[str, Any]:
    """Read the table as programs of several makers do, from the table alone."""
    if form == ICEBERG:
        table = iceberg(to)
        return {"pyiceberg": table.scan().to_arrow(), "polars": pl.scan_iceberg(table).collect()}
    if form == DELTA:
        found = DeltaTable(to)
        return {
            "pyarrow": found.to_pyarrow_table(),
            "polars": pl.scan_delta(found).collect(),
            "duckdb": duckdb.from_arrow(found.to_pyarrow_dataset()).to_arrow_table(),
        }
    files = sorted(map(str, to.rglob("*.parquet")))
    schema = pa.unify_schemas([pa.parquet.read_schema(file) for file in files][-1:])
    return {
        "pyarrow": ds.dataset(files, schema=schema).to_table(),
        "duckdb": duckdb.read_parquet(files, union_by_name=True).to_arrow_table(),
    }


def read(to: Path, form: TableFormat, *names: str) -> list[tuple[Any, ...]]:
    """Return the values of these columns by offset, on which all readers must agree."""
    found = {
        program: [tuple(row[name] for name in names) for row in (
            table.sort("offset").to_dicts() if isinstance(table, pl.DataFrame)
            else table.sort_by("offset").to_pylist()
        )]
        for program, table in readers(to, form).items()
    }  # fmt: skip
    [first, *others] = found.values()
    assert others == [first] * len(others), found
    return first


@pytest.fixture(autouse=True)
def _planner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # another is a package of its own


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ALL)
def test_fields_that_come_and_go(tmp_path: Path, form: TableFormat) -> None:
    """A new schema adds fields, also within lists; a field that it lacks is null."""
    log, to = tmp_path / "log", tmp_path / "lake"
    old = {"id": 1, "note": "n", "lines": [{"sku": "a"}, {"sku": "b"}]}
    put(log, 0, framed(FIRST, old), None, framed(FIRST, {"id": 2, "note": None, "lines": []}))
    assert run(log, to, form, FIRST).columns.added == ()
    new = {"id": 3, "lines": [{"sku": "c", "count": 7}], "total": 2.5}
    put(log, 3, framed(SECOND, new), framed(FIRST, {**old, "id": 4}), None)
    done = run(log, to, form, SECOND)
    assert done.rows == 3
    assert set(done.columns.added) == {
        "value_decoded.lines[].count", "value_decoded.total",
    }  # fmt: skip
    assert (done.columns.absent, done.columns.widened) == (("value_decoded.note",), ())
    before = [{"sku": "a", "count": None}, {"sku": "b", "count": None}]
    wanted = [
        {"id": 1, "note": "n", "lines": before, "total": None},
        None,
        {"id": 2, "note": None, "lines": [], "total": None},
        {"id": 3, "note": None, "lines": [{"sku": "c", "count": 7}], "total": 2.5},
        {"id": 4, "note": None, "lines": before, "total": None},
        None,
    ]
    found = [value for (value,) in read(to, form, "value_decoded")]
    assert found == wanted
    put(log, 6, framed(FIRST, old))
    assert run(log, to, form, FIRST).columns.added == ()
    assert read(to, form, "value_decoded")[6:] == [({**old, "lines": before, "total": None},)]
    if form == DELTA:
        assert DeltaTable(to).version() == 2, "columns and rows are one commit"
        assert DeltaTable(to).transaction_version("kafkalog") == 2
    if form == ICEBERG:
        assert len(iceberg(to).snapshots()) == 3
        assert len(iceberg(to).metadata.schemas) == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ALL)
def test_wider_types(tmp_path: Path, form: TableFormat) -> None:
    """Iceberg's columns get wider; others have another column. Integers have one width in all."""
    log, to = tmp_path / "log", tmp_path / "lake"
    put(log, 0, framed(NARROW, {"id": 1, "rate": 0.5}))
    run(log, to, form, NARROW)
    put(log, 1, framed(WIDER, {"id": 1 << 40, "rate": 0.1}))
    if form == ICEBERG:
        assert run(log, to, form, WIDER).columns.widened == ("value_decoded.rate",)
        values = [value for (value,) in read(to, form, "value_decoded")]
        assert values == [{"id": 1, "rate": 0.5}, {"id": 1 << 40, "rate": 0.1}]
    else:
        done = run(log, to, form, WIDER)
        assert done.columns.added == ("value_decoded.rate__double",)
        assert done.remarks == (
            Remark("value_decoded.rate__double", "conflict column",
                   "rate is double in this run, not float"),
        )  # fmt: skip
        values = [value for (value,) in read(to, form, "value_decoded")]
        assert values == [
            {"id": 1, "rate": 0.5, "rate__double": None},
            {"id": 1 << 40, "rate": None, "rate__double": 0.1},
        ]
    put(log, 2, framed(NARROW, {"id": 3, "rate": 0.25}))
    assert run(log, to, form, NARROW).columns.widened == ()
    found = [value for (value,) in read(to, form, "value_decoded")]
    assert [(value["id"], value["rate"]) for value in found][2:] == [(3, 0.25)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ALL)
def test_other_types(tmp_path: Path, form: TableFormat) -> None:
    """They get conflict columns, also below lists; later runs use these, and say so."""
    log, to = tmp_path / "log", tmp_path / "lake"
    runs: list[tuple[dict[str, Any], Any, list[str]]] = [
        (SECOND, {"id": 1, "lines": [{"sku": "a", "count": 2}], "total": 1.5}, []),
        (OTHER, {"id": 2, "lines": [{"sku": "b", "count": "x"}], "total": "2.5"},
         ["lines[].count__string", "total__string"]),
        (SECOND, {"id": 3, "lines": [], "total": 3.5}, []),
        (OTHER, {"id": 4, "lines": [], "total": "4.5"},
         ["lines[].count__string", "total__string"]),
    ]  # fmt: skip
    for number, (schema, value, conflicts) in enumerate(runs):
        put(log, number, framed(schema, value))
        done = run(log, to, form, schema)
        paths = [one.path for one in done.remarks if one.type == "conflict column"]
        assert paths == [f"value_decoded.{one}" for one in conflicts]
        assert done.columns.added == (tuple(paths) if number == 1 else ())
    found = [value for (value,) in read(to, form, "value_decoded")]
    assert found == [
        {"id": 1, "lines": [{"sku": "a", "count": 2, "count__string": None}], "total": 1.5,
         "total__string": None},
        {"id": 2, "lines": [{"sku": "b", "count": None, "count__string": "x"}], "total": None,
         "total__string": "2.5"},
        {"id": 3, "lines": [], "total": 3.5, "total__string": None},
        {"id": 4, "lines": [], "total": None, "total__string": "4.5"},
    ]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ALL)
def test_decimals_of_other_sizes(tmp_path: Path, form: TableFormat) -> None:
    """More digits are another type; of another scale, the table has those that are exactly its."""
    log, to = tmp_path / "log", tmp_path / "lake"
    put(log, 0, framed(AMOUNTS[0], {"amount": Decimal("1.25")}))
    run(log, to, form, AMOUNTS[0])
    put(log, 1, framed(AMOUNTS[1], {"amount": Decimal("12345678.25")}))
    run(log, to, form, AMOUNTS[1])
    put(log, 2, framed(AMOUNTS[2], {"amount": Decimal("2.5000")}))
    put(log, 3, framed(AMOUNTS[2], {"amount": Decimal("2.5001")}))
    with pytest.raises(RefusedError, match=r"value at 3: amount: 2.5001 is no decimal"):
        run(log, to, form, AMOUNTS[2])
    run(log, to, form, AMOUNTS[2], rejects=1)
    found = [value for (value,) in read(to, form, "value_decoded")]
    if form == ICEBERG:
        assert found == [{"amount": Decimal(one)} for one in ("1.25", "12345678.25", "2.50")]
    else:
        assert [(one["amount"], one["amount__decimal_12_2"]) for one in found] == [
            (Decimal("1.25"), None), (None, Decimal("12345678.25")), (Decimal("2.50"), None),
        ]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ALL)
def test_text_and_json(tmp_path: Path, form: TableFormat) -> None:
    """Both are strings; the table knows which is which, also within lists."""
    log, to = tmp_path / "log", tmp_path / "lake"
    schemas: list[dict[str, Any]] = [
        {"n": {"type": "string"}, "l": {"type": "array", "items": {}}},
        {"n": {}, "l": {"type": "array", "items": {"type": "string"}}},
    ]  # fmt: skip
    values: list[dict[str, Any]] = [{"n": "a", "l": [1]}, {"n": {"b": 1}, "l": ["c"]}]
    for number in (0, 1, 0, 1):
        put(log, sum(1 for _ in (log / "orders-0").glob("*.log")) if log.exists() else 0,
            json.dumps(values[number]).encode())  # fmt: skip
        tree = json.dumps({"type": "object", "properties": schemas[number]}).encode()
        typed = TypedColumn("value", TypedForm.JSON, tree)
        add(ExportRequest((str(log),), REQUEST, typed=(typed,), table_format=form, append=True), to)
    nothing = dict.fromkeys(["n", "l", "n__json", "l__list"])
    wanted = [
        {**nothing, "n": "a", "l": ["1"]}, {**nothing, "n__json": '{"b":1}', "l__list": ["c"]},
    ]  # fmt: skip
    assert [value for (value,) in read(to, form, "value_decoded")] == wanted * 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ALL)
def test_another_type_of_the_whole_column(tmp_path: Path, form: TableFormat) -> None:
    """A column next to it has the values; other columns stay as they are."""
    log, to = tmp_path / "log", tmp_path / "lake"
    put(log, 0, framed(FIRST, {"id": 1, "note": None, "lines": []}))
    run(log, to, form, FIRST)
    for offset in (1, 2):
        put(log, offset, framed(TEXT, f"x{offset}"))
        done = run(log, to, form, TEXT)
        assert done.columns.absent == ("value_decoded",)
        assert [one.path for one in done.remarks] == ["value_decoded__string"]
    put(log, 3, framed(FIRST, {"id": 4, "note": None, "lines": []}))
    assert run(log, to, form, FIRST).columns.absent == ("value_decoded__string",)
    found = read(to, form, "value_decoded", "value_decoded__string")
    assert [(one and one["id"], text) for one, text in found] == [
        (1, None), (None, "x1"), (None, "x2"), (4, None),
    ]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", ALL)
def test_a_field_that_is_renamed(tmp_path: Path, form: TableFormat) -> None:
    """By an alias: files and Delta keep the old name, Iceberg has the new one for all rows."""
    log, to = tmp_path / "log", tmp_path / "lake"
    put(log, 0, framed(NAMED, {"id": 1, "note": "a"}))
    run(log, to, form, NAMED)
    put(log, 1, framed(NAMED, {"id": 2, "note": "b"}), framed(RENAMED, {"id": 3, "remark": "c"}))
    done = run(log, to, form, RENAMED)
    assert done.columns.added == ()
    kind, name = ("renamed", "remark") if form == ICEBERG else ("the old name", "note")
    assert done.remarks == (Remark("value_decoded.note", kind, "its name is remark now"),)
    put(log, 3, framed(RENAMED, {"id": 4, "remark": "d"}))
    assert not run(log, to, form, RENAMED).columns.absent
    found = [value for (value,) in read(to, form, "value_decoded")]
    assert [{*value} for value in found] == [{"id", name}] * 4
    assert [value[name] for value in found] == ["a", "b", "c", "d"]


def test_iceberg_renames_at_any_depth(tmp_path: Path) -> None:
    """In lists, maps and what is renamed itself; what another field is called stays as it was."""

    def tree(names: dict[str, str]) -> Any:
        def named(old: str, kind: Any) -> dict[str, Any]:
            new = names.get(old, old)
            return {**field(new, kind), **({"aliases": [old]} if new != old else {})}

        item = {"type": "record", "name": "Item", "fields": [named("sku", "string")]}
        return order(("lines", {"type": "array", "items": item})) | {"fields": [
            named("lines", {"type": "array", "items": item}),
            named("by", {"type": "map", "values": "Item"}),
            named("a", optional("int")), field("b", optional("int")),
        ]}  # fmt: skip

    before = tree({})
    after = tree({"lines": "items", "sku": "code", "a": "c"})
    taken = tree({"lines": "items", "sku": "code", "a": "c"})
    taken["fields"][2:] = [field("B", optional("int")) | {"aliases": ["c"]}]
    log, to = tmp_path / "log", tmp_path / "lake"
    schemas = [before, after, taken]
    names = [("lines", "sku", "a"), ("items", "code", "c"), ("items", "code", "B")]
    BY_ID.extend(schemas)
    for offset, (schema, (lines, sku, a)) in enumerate(zip(schemas, names, strict=True)):
        value = {lines: [{sku: "x"}], "by": {"k": {sku: "y"}}, a: offset}
        put(log, offset, framed(schema, value | ({"b": 7} if offset < 2 else {})))
        done = run(log, to, ICEBERG, schema)
    assert [one.type for one in done.remarks] == ["the old name"]
    table = iceberg(to).scan().to_arrow().sort_by("offset")  # others read maps as dicts
    assert table.column("value_decoded").to_pylist() == [
        {"items": [{"code": "x"}], "by": [("k", {"code": "y"})], "c": n, "b": b}
        for n, b in enumerate((7, 7, None))
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ALL)
def test_other_columns(tmp_path: Path, form: TableFormat) -> None:
    """With `--columns`, an added column is null before, and one left out is null from then on."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    names = ("offset", "value", "timestamp", "leader_epoch", "key")
    run(tmp_path / "log", to, form, columns=names)
    grow(partition, 120, 1)
    names = ("offset", "value", "leader_epoch", "producer_id")
    done = run(tmp_path / "log", to, form, columns=names)
    assert (done.columns.added, set(done.columns.absent)) == (
        ("producer_id",), {"timestamp", "key"},
    )  # fmt: skip
    found = read(to, form, "offset", "value", "producer_id", "key")
    assert found == [
        *((n, b"%d" % n, None, b"k%d" % (n % 3)) for n in range(120)),
        *((n, b"%d" % n, -1, None) for n in range(120, 123)),
    ]
    grow(partition, 123, 1)
    assert run(tmp_path / "log", to, form, columns=names).columns.added == ()
    assert read(to, form, "offset", "producer_id")[-1] == (125, -1)
    if form == ICEBERG:
        with pytest.raises(DestinationExistsError, match="offset identifies the rows"):
            run(tmp_path / "log", to, form, columns=("value", "leader_epoch"))


def test_text_keeps_its_columns(tmp_path: Path) -> None:
    """Lines of CSV do not name their columns."""
    make_log(tmp_path / "log")
    for columns in (("offset",), ("offset", "value")):
        asked = ExportRequest(
            (str(tmp_path / "log"),), REQUEST, columns, Writing(FileFormat.CSV), append=True
        )
        if columns == ("offset",):
            add(asked, tmp_path / "lake")
        else:
            with pytest.raises(DestinationExistsError, match="other columns"):
                add(asked, tmp_path / "lake")


def test_a_delta_table_that_others_have_changed(tmp_path: Path) -> None:
    """Their columns stay, and are null in our rows; a conflicting type is refused."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    names = ("offset", "value")
    run(tmp_path / "log", to, DELTA, columns=names)
    more = pa.schema([("note", pa.string()), ("key", pa.int32())])
    DeltaTable(to).alter.add_columns(Schema.from_arrow(more).fields)
    DeltaTable(to).alter.set_column_metadata("value", {"comment": "of the producer"})
    grow(partition, 120, 1)
    run(tmp_path / "log", to, DELTA, columns=(*names, "producer_id"))
    assert read(to, DELTA, "offset", "note", "producer_id")[-1] == (122, None, -1)
    [value] = [one for one in DeltaTable(to).schema().fields if one.name == "value"]
    assert value.metadata == {"comment": "of the producer"}
    grow(partition, 123, 1)
    before = files_of(to)
    with pytest.raises(DestinationExistsError, match="key has the type int32 in the table, and"):
        run(tmp_path / "log", to, DELTA, columns=(*names, "key"))
    assert files_of(to) == before


def test_columns_of_an_iceberg_table_that_change_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files use column numbers that the table now gives to other columns."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    names = ("offset", "value", "leader_epoch")
    run(tmp_path / "log", to, ICEBERG, columns=names)
    grow(partition, 120, 1)

    def change() -> None:
        with iceberg(to).update_schema() as update:
            update.add_column("note", StringType())

    running = Inline.run

    def run_and_change(inline: Inline, *arguments: Any) -> Any:
        yield from running(inline, *arguments)
        change()

    monkeypatch.setattr(Inline, "run", run_and_change)
    before = data_files(to)
    with pytest.raises(ChangedSinceError, match="columns of the table were changed meanwhile"):
        run(tmp_path / "log", to, ICEBERG, columns=(*names, "producer_id"))
    assert data_files(to) == before
    monkeypatch.undo()
    run(tmp_path / "log", to, ICEBERG, columns=(*names, "producer_id"))
    found = iceberg(to).scan().to_arrow().sort_by("offset").to_pylist()
    assert [(one["note"], one["producer_id"]) for one in found[-4:]] == [
        (None, None), *[(None, -1)] * 3,
    ]  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of what was stopped
@pytest.mark.parametrize("form", ALL)
def test_a_run_with_new_columns_that_stops_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """The next one, again with other columns, ends with each row once, and all columns."""
    killing = Killing(monkeypatch)
    step = 1 if tries_everything() else 29
    at = drawn_for(f"columns {form}").randrange(step)
    is_stopped = True
    while is_stopped:
        log, to = tmp_path / f"log{at}", tmp_path / f"lake{at}"
        partition = make_log(log)
        names = ("offset", "value", "leader_epoch")
        run(log, to, form, columns=names)
        grow(partition, 120, 2)
        columns = (*names, "producer_id")
        is_stopped = killing.stops(at, run, log, to, form, columns=columns)
        run(log, to, form, columns=(*names, "sequence"))
        assert rows_of(to, form) == rows(0, 126)
        done = run(log, to, form, columns=names)
        assert (done.was_complete, done.columns.absent) == (True, ())
        at += step


def test_rows_of_other_types() -> None:
    """The rows may be a slice of a batch; a column whose type cannot be converted is named."""
    old = pa.schema([
        pa.field("n", pa.int64(), nullable=False),
        ("v", pa.struct([
            ("a", pa.int64()), ("gone", pa.string()), ("f", pa.float64()),
            ("l", pa.list_(pa.struct([("x", pa.int32())]))),
            ("m", pa.map_(pa.string(), pa.struct([("q", pa.int32())]))),
            ("d", pa.decimal128(9, 2)),
        ])),
    ])  # fmt: skip
    new = pa.schema([
        pa.field("n", pa.int64(), nullable=False),
        ("v", pa.struct([
            ("a", pa.int32()), ("f", pa.float32()),
            ("l", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.string())]))),
            ("m", pa.map_(pa.string(), pa.struct([("q", pa.int32()), ("r", pa.bool_())]))),
            ("d", pa.decimal128(7, 2)),
        ])),
        pa.field("p", pa.int64(), nullable=False),
    ])  # fmt: skip
    found = [
        {"n": 1, "v": {"a": 4, "f": 0.5, "l": [{"x": 1, "y": "z"}, None], "d": None,
                       "m": [("k", {"q": 1, "r": True})]}, "p": 3},
        {"n": 2, "v": None, "p": 4},
        {"n": 3, "v": {"a": None, "f": None, "l": None, "m": None, "d": None}, "p": 5},
        {"n": 4, "v": {"a": 5, "f": None, "l": [], "m": [("z", None)], "d": None}, "p": 5},
    ]  # fmt: skip
    evolution = Evolution(old, new, "lake", widens=False)
    assert evolution.changes.added == ("v.l[].y", "v.m{}.r", "p")
    assert evolution.changes.absent == ("v.gone",)
    assert evolution.schema.field("p").nullable
    assert schema_from(schema_text(evolution.schema), "x") == evolution.schema
    made = pa.RecordBatch.from_pylist(found, new)
    wanted = [{**one, "v": one["v"] and {**one["v"], "gone": None}} for one in found]
    for start in range(4):
        converted = conformed(made.slice(start), evolution.schema)
        converted.validate(full=True)
        assert converted.schema == evolution.schema
        assert converted.to_pylist() == wanted[start:]
    with pytest.raises(DestinationExistsError, match=r"v.a has the type int32 .* and int64 now"):
        Evolution(new, old, "lake", widens=False)
    wider = Evolution(new, old, "lake", widens=True)
    assert wider.changes.widened == ("v.a", "v.f", "v.d")
    for kinds in (
        (pa.int64(), pa.float64()), (pa.string(), pa.binary()), (pa.list_(pa.int32()), pa.int32()),
    ):  # fmt: skip
        for one, other in (kinds, kinds[::-1]):
            with pytest.raises(DestinationExistsError, match="The column c has the type"):
                Evolution(pa.schema([("c", one)]), pa.schema([("c", other)]), "x", widens=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", ["", "AAAA", "%", "/////w==", "e30="])
def test_columns_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    """Nothing is guessed from an edited commit."""
    make_log(tmp_path / "log")
    to = tmp_path / "lake"
    append(tmp_path / "log", to=to)
    place = to / "_kafkalog/commits/00000000.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "schema": text}))
    with pytest.raises(CorruptDataError, match="columns of the table cannot be read"):
        append(tmp_path / "log", to=to)
    assert len(table_of(to)) == 120
