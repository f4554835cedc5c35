"""JSON functions of DuckDB on keys, values and headers: bytes answer as text does, or refuse."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import UsageError
from kafkalog.tables.datasets.model import Tables
from kafkalog.tables.datasets.sql import Database
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

VALUE = '{"item": "tëa", "inner": {"deep": [1, 2]}, "cents": 250}'.encode()
KEY = b'{"id": 7}'
HEADERS = [(b"source", b"web"), (b"note", None), (b"source", b"app")]
ANSWERS: dict[str, Any] = {
    "value->>'item'": "tëa",
    "value->'item'": '"tëa"',
    "value->'inner'->'deep'->>1": "2",
    "value->>'$.inner.deep[0]'": "1",
    "r.value->>['item', 'cents']": ["tëa", "250"],
    "json_extract_string(value, '$.item')": "tëa",
    "json_value(value, '$.cents')": "250",
    "json_type(value)": "OBJECT",
    "json_keys(value)": ["item", "inner", "cents"],
    "json_array_length(value, '$.inner.deep')": 2,
    "json_contains(value, '{\"cents\": 250}')": True,
    "json_structure(key)": '{"id":"UBIGINT"}',
    'from_json(key, \'{"id": "INTEGER"}\')': {"id": 7},
    "json_valid(value)": True,
    "json_valid(headers[1].value)": False,
    "key->>'id'": "7",
    "CAST(value AS JSON)->>'item'": "tëa",
    "value::json->'inner'->>'deep'": "[1,2]",
    "TRY_CAST(headers[1].value AS JSON)": None,
    "json_object('k', key)": '{"k":"{\\"id\\": 7}"}',
    "json(key)": '{"id":7}',
    "headers->>'source'": "web",
    "headers->>'note'": None,
    "headers->0->>'value'": "web",
    "to_json(headers)->>'$[2].value'": "app",
    "list_transform([value], lambda v: v->>'item')": ["tëa"],
    "(SELECT v->>'item' FROM (SELECT value AS v FROM records WHERE value->>'cents' = 250))": "tëa",
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("logs") / "orders-0"
    write_log(log, batch(0, [record(0, KEY, VALUE, headers=HEADERS)]))
    return log


def answer(log: Path, query: str) -> tuple[list[str], list[Any]]:
    """Return the columns and the rows of the last statement."""
    with Database(Tables((str(log),))) as database:
        for statement in database.statements(query):
            found = database.run(statement)
            rows = list(found.rows)
    return list(found.names), rows


@pytest.mark.parametrize("column", [r"\1", r"\1_bytes"], ids=["text", "bytes"])
def test_bytes_are_read_as_text(log: Path, column: str) -> None:
    """All in one query, so that no rewriting gets into the way of another."""
    asked = (re.sub(r"(?<!\]\.)(?<!['\w])(key|value)\b(?!')", column, one) for one in ANSWERS)
    columns = ", ".join(f'{one} AS "{number}"' for number, one in enumerate(asked))
    _, [row] = answer(log, f"SELECT {columns} FROM records r")  # noqa: S608 # no input
    found = dict(zip(ANSWERS, row, strict=True))
    assert found == ANSWERS


def test_columns_keep_the_names_that_duckdb_gives_them(log: Path) -> None:
    names, _ = answer(log, "SELECT value->>'item', json_valid(key) FROM records")
    assert names == ["(\"value\" ->> 'item')", 'json_valid("key")']


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE kept AS SELECT value_bytes->>'item' AS item FROM records",
        "SELECT j.key FROM records r, json_each(r.value_bytes) j",
        "SELECT j.key FROM records r, json_tree(r.value_bytes) j",
    ],
)
def test_where_bytes_cannot_become_text_it_says_so(log: Path, query: str) -> None:
    """What the message advises works."""
    with pytest.raises(UsageError) as raised:
        answer(log, query)
    assert raised.value.hint == "Write key and value, or decode(value_bytes)."
    decoded = query.replace("r.value_bytes", "decode(r.value_bytes)").replace(
        "SELECT value_bytes", "SELECT decode(value_bytes)"
    )
    assert answer(log, decoded)[1]
    assert answer(log, query.replace("value_bytes", "value"))[1]


def test_what_is_no_json_ends_the_query(tmp_path: Path) -> None:
    """Loudly, with what gives NULL instead; invalid UTF-8 is no JSON."""
    for value in (b"plain", b'"\xff"'):
        log = tmp_path / f"orders-{value[0]}"
        write_log(log, batch(0, [record(0, b"a", value)]))
        with pytest.raises(UsageError, match="Malformed JSON") as raised:
            answer(log, "SELECT value->>'item' FROM records")
        assert "TRY_CAST(… AS JSON)" in (raised.value.hint or "")
        query = "SELECT TRY_CAST(value AS JSON)->>'item', json_valid(value) FROM records"
        assert answer(log, query)[1] == [(None, False)]
