"""Values of all lake types, at their extremes, are the same for all readers of all tables."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kafkalog.change.lake import ExportRequest, FileFormat, Writing
from kafkalog.log.typed.lake_types import NAME_KEY, struct_type
from kafkalog.tables import TableName
from kafkalog.tables.datasets.arrow_dataset import Dataset
from kafkalog.tables.datasets.model import Tables
from kafkalog.tables.datasets.sql import Database
from tests.kafkalog.change.lake.appending import DELTA, FILES, ICEBERG, REQUEST, add, iceberg
from tests.kafkalog.change.lake.lake_values import (
    LAKE_TYPE,
    ROWS,
    VALUES,
    ByName,
    decodes,
    exported,
    log_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from kafkalog.change.lake import TableFormat

RENAMED: Final = {"a b,c.d": "a_b_c.d", "é;{}()=": "é______", "a b": "a_b_2"}
"""The names that Delta allows for those of the schema."""


def same(found: Iterable[Any]) -> list[str]:
    """Return the values of rows as text, whatever types of Python a reader has for them."""
    return [repr(_same(one)) for one in found]


def _same(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"key", "value"} and len(value) == 2:
            return _same(value["key"]), _same(value["value"])
        return sorted((_same(name), _same(one)) for name, one in value.items())
    if isinstance(value, np.ndarray | list):
        items = [_same(one) for one in value]
        return sorted(items) if items and all(map(_is_entry, items)) else items
    if isinstance(value, tuple):
        return tuple(map(_same, value))
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, np.generic):
        return _same(value.item())
    if isinstance(value, pd.Timestamp):
        value = value.to_pydatetime()
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=UTC).isoformat()
    return value


def _is_entry(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2


def wanted(form: TableFormat) -> list[str]:
    """Return the rows with the names that fields have in tables of a format."""
    return same(_delta_names(VALUES[one]) if form == DELTA and one else one and VALUES[one]
                for one in ROWS)  # fmt: skip


def _delta_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {RENAMED.get(name, name): _delta_names(one) for name, one in value.items()}
    return value


def data_file(place: Path) -> str:
    """Return the only data file of a table."""
    [found] = [str(one) for one in place.rglob("*.parquet") if "_delta_log" not in str(one)]
    return found


def by_pyarrow(file: str) -> list[Any]:
    return list(pq.read_table(file, columns=["value_decoded"])["value_decoded"].to_pylist())


def by_polars(file: str) -> list[Any]:
    frame = pl.read_parquet(file, columns=["value_decoded"])
    return [one["value_decoded"] for one in frame.to_dicts()]


def by_duckdb(file: str) -> list[Any]:
    found = duckdb.read_parquet(file).order('"offset"').select("value_decoded").fetchall()
    return [value for (value,) in found]


def by_pandas(file: str) -> list[Any]:
    """Read with the types of Arrow: pandas' own have no integers where some are null."""
    frame = pd.read_parquet(file, columns=["value_decoded"], dtype_backend="pyarrow")
    return [None if one is pd.NA else one for one in frame["value_decoded"]]


OF_FILES: Final = [by_pyarrow, by_polars, by_duckdb, by_pandas]


def delta_by_deltalake(place: Path) -> list[Any]:
    return list(DeltaTable(place).to_pyarrow_table()["value_decoded"].to_pylist())


def delta_by_polars(place: Path) -> list[Any]:
    return pl.read_delta(str(place))["value_decoded"].to_list()


def iceberg_by_pyiceberg(place: Path) -> list[Any]:
    return list(iceberg(place).scan().to_arrow()["value_decoded"].to_pylist())


def iceberg_by_polars(place: Path) -> list[Any]:
    return pl.scan_iceberg(iceberg(place)).collect()["value_decoded"].to_list()


OF_TABLES: Final[dict[TableFormat, list[Callable[[Path], list[Any]]]]] = {
    FILES: [],
    DELTA: [delta_by_deltalake, delta_by_polars],
    ICEBERG: [iceberg_by_pyiceberg, iceberg_by_polars],
}


def _seen_by(look: Callable[[Path], list[Any]], rows: list[str]) -> list[str]:
    """Return rows as a reader shows them, whose own defect changes some.

    apache/iceberg-python#3833: lists and maps of structs that are null in the file are empty.
    """
    if look is iceberg_by_pyiceberg:
        for name in ("points", "by_name", "in_map"):
            rows = [one.replace(f"('{name}', None)", f"('{name}', [])") for one in rows]
    return rows


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return log_of(tmp_path, ROWS)


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")
@pytest.mark.parametrize("form", OF_TABLES)
def test_all_readers_agree(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """Each type, at its extremes, in a struct: as a table, and as the files of it."""
    typed = decodes(monkeypatch, value=ByName(LAKE_TYPE, VALUES))
    assert exported(log, tmp_path / "lake", typed, form).rows == len(ROWS)
    file = data_file(tmp_path / "lake")
    for read in OF_FILES:
        assert same(read(file)) == wanted(form), read.__name__
    for look in OF_TABLES[form]:
        assert same(look(tmp_path / "lake")) == _seen_by(look, wanted(form)), look.__name__


@pytest.mark.parametrize("form", OF_TABLES)
def test_columns_of_other_types_than_structs(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """A key can be a list, and a value a map, with the same values inside."""
    keys = {name: [value, None] for name, value in VALUES.items()}
    values = {name: {"k": value} for name, value in VALUES.items()}
    typed = decodes(
        monkeypatch,
        key=ByName(pa.list_(LAKE_TYPE), keys),
        value=ByName(pa.map_(pa.string(), LAKE_TYPE), values),
    )
    exported(log, tmp_path / "lake", typed, form)
    found = pq.read_table(data_file(tmp_path / "lake"), columns=["key_decoded", "value_decoded"])
    rename = _delta_names if form == DELTA else lambda value: value
    rows = [one and rename(VALUES[one]) for one in ROWS]
    assert same(found["key_decoded"].to_pylist()) == same(one and [one, None] for one in rows)
    assert same(found["value_decoded"].to_pylist()) == same(one and [("k", one)] for one in rows)


def test_arrow_files_and_the_dataset_have_the_same(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow IPC, the dataset, and SQL on it; types are equal, too."""
    typed = decodes(monkeypatch, value=ByName(LAKE_TYPE, VALUES))
    exported(log, tmp_path / "lake", typed, FILES, Writing(FileFormat.ARROW))
    [file] = (tmp_path / "lake").rglob("*.arrow")
    with pa.ipc.open_file(file) as opened:
        column = opened.read_all()["value_decoded"]
    assert column.type == LAKE_TYPE
    assert same(column.to_pylist()) == wanted(FILES)
    read = Dataset(Tables((str(log),), typed=typed), TableName.RECORDS)
    assert read.schema.field("value_decoded").type == LAKE_TYPE
    assert same(read.to_table(["value_decoded"])["value_decoded"].to_pylist()) == wanted(FILES)
    with Database(read.tables, shown={"value": "value_decoded"}) as database:
        [query] = database.statements("SELECT value FROM records ORDER BY offset")
        assert same(value for (value,) in database.run(query).rows) == wanted(FILES)


@pytest.mark.parametrize("form", OF_TABLES)
def test_given_names_are_kept(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """Where a column cannot have the name of the schema, the metadata of its field has it."""
    typed = decodes(monkeypatch, value=ByName(LAKE_TYPE, VALUES))
    exported(log, tmp_path / "lake", typed, form)
    kind = pq.read_schema(data_file(tmp_path / "lake")).field("value_decoded").type
    given = {
        one.name: one.metadata[NAME_KEY].decode()
        for one in [*kind, *kind.field("in_map").type.item_type]
        if NAME_KEY in (one.metadata or {})
    }
    of_delta = {other: name for name, other in RENAMED.items()} if form == DELTA else {}
    assert given == {"Case_2": "Case", **of_delta}


def case(*names: str) -> tuple[Any, dict[str, Any]]:
    """Return a struct of texts with these names, and a value in which each has its own."""
    kind = struct_type([(name, pa.string()) for name in names])
    return kind, dict(zip((one.name for one in kind), names, strict=True))


GROWTHS: Final = [
    [("a b",), ("a b", "a_b"), ("a_b", "a b"), ("a_b",), ("a b", "a,b", "a_b")],
    [("a",), ("A", "a"), ("a", "A"), ("A",), ("A", "a", "aa", "AA")],
    [("a b",), ("a_b",), ("a", "A"), ("a", "A_2")],
    [("é=", "x"), ("x", "X", "é;"), ("X", "é;", "é=")],
]


@pytest.mark.sampled(4, each_value=True)
@pytest.mark.parametrize("names", GROWTHS)
@pytest.mark.parametrize("form", OF_TABLES)
def test_a_name_keeps_its_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat, names: list[tuple[str, ...]]
) -> None:
    """However later schemas order their names, each has the field that it got first, in lists too.

    The value of a field is the name that the schema gives it.
    """
    rows: list[bytes] = []
    for number, some in enumerate(names):
        kind, value = case(*some)
        rows.append(b"%d" % number)
        decoder = ByName(pa.list_(kind), {row: [value] for row in rows})
        log = log_of(tmp_path, rows)
        typed = decodes(monkeypatch, value=decoder)
        asked = ExportRequest((str(log),), REQUEST, typed=typed, table_format=form, append=True)
        add(asked, tmp_path / "lake")
    found = _table(tmp_path / "lake", form).sort_by("offset")["value_decoded"]
    fields = found.type.value_type
    assert len({one.name.casefold() for one in fields}) == len(list(fields))
    given: dict[str, str] = {}
    for [row], some in zip(found.to_pylist(), names, strict=True):
        there = {name: value for name, value in row.items() if value is not None}
        assert sorted(there.values()) == sorted(some)
        for name, value in there.items():
            assert given.setdefault(value, name) == name
    assert len(set(given.values())) == len(given)
    if form == DELTA:
        assert not set("".join(given.values())) & set(" ,;{}()\n\t=")


def _table(place: Path, form: TableFormat) -> Any:
    if form == ICEBERG:
        return iceberg(place).scan().to_arrow()
    if form == DELTA:
        return DeltaTable(place).to_pyarrow_table()
    files = [pq.read_table(one, partitioning=None) for one in place.rglob("*.parquet")]
    return pa.concat_tables(files, promote_options="permissive")
