"""Columns whose types the schemas in messages decide, of hostile messages too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import kafkalog
from kafkalog.errors import CorruptDataError, UsageError
from kafkalog.log.typed import connect
from tests.builders import batch, record, write_log
from tests.sampling import drawn_for

if TYPE_CHECKING:
    from pathlib import Path


def message(payload: Any, **kinds: str) -> bytes:
    fields = [{"type": kind, "optional": True, "field": name} for name, kind in kinds.items()]
    schema = {"type": "struct", "optional": False, "fields": fields}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def log_of(place: Path, *values: bytes | None, times: list[int] | None = None) -> Path:
    rows = [
        record(i, b"k", value, time_delta=(times or [*range(len(values))])[i])
        for i, value in enumerate(values)
    ]
    write_log(place / "t-0", batch(0, rows))
    return place


def column(log: Path, **more: Any) -> Any:
    records = kafkalog.dataset(log, connect=("value",), **more)
    return records.to_table(columns=["value_decoded"]).column("value_decoded")


def test_the_schema_that_came_last_is_the_newest(tmp_path: Path) -> None:
    """By the time of the first record of each, wherever it stands."""
    one, other = message({"a": 1}, a="int32"), message({"a": "x"}, a="string")
    found = column(log_of(tmp_path / "1", one, other, one))
    assert found.to_pylist() == [
        {"a": None, "a__long": 1}, {"a": "x", "a__long": None}, {"a": None, "a__long": 1},
    ]  # fmt: skip
    found = column(log_of(tmp_path / "2", one, other, one, times=[7, 5, 9]))
    assert found.to_pylist() == [
        {"a": 1, "a__string": None}, {"a": None, "a__string": "x"}, {"a": 1, "a__string": None},
    ]  # fmt: skip


def test_a_message_without_a_schema_decides_no_type(tmp_path: Path) -> None:
    """Connect has written deletions so; what has data but no schema has no place."""
    good = [message({"a": i}, a="int32") for i in range(3)]
    nothing = b'{"schema": null, "payload": null}'
    found = column(log_of(tmp_path / "1", *good, nothing))
    assert found.to_pylist() == [{"a": 0}, {"a": 1}, {"a": 2}, None]
    log = log_of(tmp_path / "2", *good, b'{"schema":null,"payload":{"a":9}}', nothing)
    with pytest.raises(CorruptDataError, match="it has no schema, and others have"):
        column(log)


def test_many_schemas_at_once(tmp_path: Path) -> None:
    """More than are looked for among many values at once, in any order."""
    values = [message({f"f{i % 50}": i, "all": i}, **{f"f{i % 50}": "int64", "all": "int64"})
              for i in range(200)]  # fmt: skip
    drawn_for("orders of schemas").shuffle(values)
    rows = column(log_of(tmp_path, *values)).to_pylist()
    assert len(rows[0]) == 51
    assert sorted(one["all"] for one in rows) == [*range(200)]
    assert all(one[f"f{one['all'] % 50}"] == one["all"] for one in rows)


def test_what_is_beyond_the_bound_does_not_decode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "SCHEMAS_MAX", 3)
    values = [message({f"f{i}": i, "all": i}, **{f"f{i}": "int64", "all": "int64"})
              for i in range(5)]  # fmt: skip
    log = log_of(tmp_path, *values)
    with pytest.raises(CorruptDataError, match="its schema is not among the 3 at most"):
        column(log)
    said: list[Any] = []
    rows = column(log, on_event=said.append).to_pylist()
    assert [one and one["all"] for one in rows] == [0, 1, 2, None, None]
    assert said


def test_what_is_no_schema_decides_nothing(tmp_path: Path) -> None:
    """However new it is."""
    bad = [b'{"schema":{"type":"int99"},"payload":1}', b"{}", b"x", b"", b'{"schema":{"type":']
    log = log_of(tmp_path, *bad[:2], message({"a": 1}, a="int8"), *bad[2:], None)
    rows = column(log, on_event=lambda _: None)
    assert rows.type == pa.struct([("a", pa.int64())])
    assert [row for row, one in enumerate(rows.to_pylist()) if one] == [2]


def test_schemas_of_a_megabyte_each(tmp_path: Path) -> None:
    """Each message has another one: those of 4 MiB are kept, and reading ends soon."""
    doc = "d" * (1 << 20)
    fields = '[{"type":"int8","field":"a"}]'
    values = [
        f'{{"schema":{{"type":"struct","doc":"{i}{doc}","fields":{fields}}},"payload":{{"a":{i}}}}}'
        for i in range(6)
    ]
    rows = column(log_of(tmp_path, *(one.encode() for one in values)), on_event=lambda _: None)
    assert rows.to_pylist() == [*({"a": i} for i in range(3)), *[None] * 3]


def test_nulls_alone_decide_nothing(tmp_path: Path) -> None:
    log = log_of(tmp_path, None, None)
    with pytest.raises(UsageError, match="No value is JSON with a schema and a payload"):
        kafkalog.dataset(log, connect=("value",))


def test_keys_and_values_are_what_it_can_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'values' is neither key nor value"):
        kafkalog.dataset(log_of(tmp_path, b"x"), connect=("values",))


def test_the_library_exports_them(tmp_path: Path) -> None:
    log = log_of(tmp_path / "log", message({"a": 1}, a="int8"))
    kafkalog.export(log, to=tmp_path / "lake", connect=("value",)).apply()
    [file] = (tmp_path / "lake").rglob("*.parquet")
    import pyarrow.parquet as pq

    assert pq.read_table(file).column("value_decoded").to_pylist() == [{"a": 1}]
