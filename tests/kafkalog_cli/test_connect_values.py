"""What commands make of messages of Kafka Connect, whose schemas are in the messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from kafkalog_cli.main import run
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

NUMBER = {"type": "int32", "optional": True}
PRICE = {
    "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
    "parameters": {"scale": "2", "connect.decimal.precision": "10"}, "optional": True,
}  # fmt: skip
DAY = {"type": "int32", "name": "io.debezium.time.Date", "version": 1, "optional": True}
TEXT = {"type": "string", "optional": True}
CONNECT = ["--value-format", "connect"]


def struct(**fields: Any) -> dict[str, Any]:
    rows = [{**one, "field": name} for name, one in fields.items()]
    return {"type": "struct", "fields": rows, "optional": True}


ROW_1 = struct(id=NUMBER, price=PRICE)
ROW_2 = struct(id=NUMBER, price=PRICE, day=DAY)
ENVELOPE_1 = struct(before=ROW_1, after=ROW_1, op=TEXT)
ENVELOPE_2 = struct(before=ROW_2, after=ROW_2, op=TEXT)
KEY = struct(id=NUMBER)
ONE = {"id": 1, "price": "AMg="}  # 200 cents
TWO = {"id": 2, "price": "/zg=", "day": 20000}  # minus 200


def message(schema: Any, payload: Any) -> bytes:
    """Serialize as JsonConverter does."""
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


VALUES = [
    message(ENVELOPE_1, {"before": None, "after": ONE, "op": "c"}),
    message(ENVELOPE_2, {"before": ONE, "after": TWO, "op": "u"}),
    message(ENVELOPE_2, {"before": TWO, "after": None, "op": "d"}),
    None,
]
BAD = b'{"payload":{"id":7}}'
FIRST = {"id": 1, "price": "2.00", "day": None}
SECOND = {"id": 2, "price": "-2.00", "day": "2024-10-04"}


def log_of(place: Path, *values: bytes | None, first: int = 0) -> Path:
    partition = place / "orders-0"
    rows = [
        record(i, message(KEY, {"id": i}), value, time_delta=1000 * (first + i))
        for i, value in enumerate(values)
    ]
    write_log(partition, batch(first, rows), name=f"{first:020}")
    return partition


def printed(capfd: pytest.CaptureFixture[str]) -> list[Any]:
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def rows_in(lake: Path) -> list[Any]:
    table = ds.dataset(lake, partitioning="hive").to_table()
    return [json.loads(json.dumps(one, default=str)) for one in table.to_pylist()]


def test_dump_and_find_decode_each_by_its_schema(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = log_of(tmp_path, *VALUES)
    both = ["--key-format", "connect", *CONNECT, "-o", "ndjson"]
    assert run(["dump-segment", str(log), *both]) == 0
    rows = printed(capfd)
    assert [one["key_decoded"] for one in rows] == [{"id": i} for i in range(4)]
    assert [one["value_decoded"] for one in rows] == [
        {"before": None, "after": {"id": 1, "price": "2.00"}, "op": "c"},
        {"before": FIRST, "after": SECOND, "op": "u"},
        {"before": SECOND, "after": None, "op": "d"},
        None,
    ]
    assert (
        run(["find", str(log), "--where", "value.after.price < 0", *CONNECT, "-o", "ndjson"]) == 0
    )
    assert [one["offset"] for one in printed(capfd)] == [1]


def test_what_does_not_decode_is_bytes_and_found(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = log_of(tmp_path, *VALUES, BAD)
    assert run(["dump-segment", str(log), *CONNECT]) == 8
    shown = capfd.readouterr()
    assert '{"payload":{"id":7}}' in shown.out
    assert "1 value not decoded as connect: shown as bytes" in shown.err
    assert run(["find", str(log), "--undecodable", *CONNECT, "-o", "ndjson"]) == 0
    [row] = printed(capfd)
    assert row["offset"] == 4
    assert row["reason"] == "it is not `schema` and `payload`, as Kafka Connect writes it"


def test_a_table_has_the_fields_of_all_schemas(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log, lake = log_of(tmp_path, *VALUES, BAD), tmp_path / "lake"
    asked = ["export", str(log), "--to", str(lake), "--columns", "offset", *CONNECT]
    assert run(asked) == 4
    assert "it is not `schema` and `payload`" in capfd.readouterr().err
    assert run([*asked, "--accept", "rejects=1"]) == 0
    assert [one["value_decoded"] for one in rows_in(lake)] == [
        {"before": None, "after": FIRST, "op": "c"},
        {"before": FIRST, "after": SECOND, "op": "u"},
        {"before": SECOND, "after": None, "op": "d"},
        None,
    ]


def test_fields_may_be_columns(tmp_path: Path) -> None:
    log, lake = log_of(tmp_path, *VALUES), tmp_path / "lake"
    asked = ["export", str(log), "--to", str(lake), "--columns", "offset", "--flatten", *CONNECT]
    assert run([*asked, "--key-format", "connect"]) == 0
    first = rows_in(lake)[0]
    assert {name: first[name] for name in ("op", "after", "key_decoded")} == {
        "op": "c", "after": FIRST, "key_decoded": {"id": 0},
    }  # fmt: skip


@pytest.mark.parametrize("form", ["files", "delta"])
def test_a_table_that_grows_gets_fields(tmp_path: Path, form: str) -> None:
    """Also a run with nulls alone, and one with the old schema alone."""
    lake = tmp_path / "lake"
    asked = ["export", str(tmp_path / "orders-0"), "--to", str(lake), "--append", "--as", form,
             "--columns", "offset", *CONNECT]  # fmt: skip
    for first, values in ((0, VALUES[:1]), (1, VALUES[1:2]), (2, [None]), (3, VALUES[:1])):
        log_of(tmp_path, *values, first=first)
        assert run(asked) == 0
    if form == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(lake).to_pyarrow_table()
    else:
        table = ds.dataset([*map(str, lake.rglob("*.parquet"))]).to_table()
    rows = sorted(table.to_pylist(), key=lambda one: one["offset"])
    assert [one["value_decoded"] and one["value_decoded"]["op"] for one in rows] == [
        "c", "u", None, "c",
    ]  # fmt: skip
    if form == "delta":
        assert str(rows[1]["value_decoded"]["after"]["day"]) == "2024-10-04"
        assert rows[3]["value_decoded"]["after"]["day"] is None


def test_sql_has_the_fields(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = log_of(tmp_path, *VALUES)
    query = "select key.id as key, value.after.day as day from records where value.op = 'u'"
    asked = ["sql", str(log), "-c", query, "--key-format", "connect", *CONNECT, "-o", "ndjson"]
    assert run(asked) == 0
    assert printed(capfd) == [{"key": 1, "day": "2024-10-04"}]


def test_nothing_with_a_schema_is_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = log_of(tmp_path, BAD, None)
    assert run(["export", str(log), "--to", str(tmp_path / "lake"), *CONNECT]) == 2
    assert "No value is JSON with a schema and a payload" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--value-schema", "x.json"], "Leave out --value-schema"),
        (["--value-format", "connect@confluent"], "Leave out @confluent"),
    ],
)
def test_no_other_schema_is_taken(
    tmp_path: Path, more: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    log = log_of(tmp_path, *VALUES)
    assert run(["dump-segment", str(log), *CONNECT, *more]) == 2
    assert said in " ".join(capfd.readouterr().err.split())


def test_a_registry_is_for_keys_then(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "1.avsc").write_text('"int"')
    log = write_log(tmp_path / "orders-0", batch(0, [record(0, b"\0\0\0\0\1\x0e", VALUES[0])]))
    asked = ["dump-segment", str(log), "-r", str(tmp_path / "schemas"), *CONNECT, "-o", "ndjson"]
    assert run(asked) == 0
    [row] = printed(capfd)
    assert (row["key_decoded"], row["value_decoded"]["op"]) == (7, "c")
