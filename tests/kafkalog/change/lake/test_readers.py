"""An export is one table for DuckDB and pyarrow, even if topics look like numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pyarrow.parquet as pq
import pytest

from kafkalog.model import Replicas
from kafkalog.tables import Request, TableName
from tests.builders import batch, record, write_log
from tests.kafkalog.change.lake.exporting import export, table_of

if TYPE_CHECKING:
    from pathlib import Path

PLACES = [("007", 0), ("a.b", 0), ("a.b", 3), ("x_y-z", 12)]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for topic, partition in PLACES:
        records = [record(i, b"k", b"v") for i in range(5)]
        write_log(tmp_path / "logs" / f"{topic}-{partition}", batch(0, records))
    export(sorted((tmp_path / "logs").iterdir()), tmp_path / "lake")
    return tmp_path / "lake"


def wanted() -> list[tuple[str, int, int]]:
    return sorted((*place, offset) for place in PLACES for offset in range(5))


def test_pyarrow_reads_one_table(lake: Path) -> None:
    """It reads it as a data set, and with the shortest possible call."""
    table = table_of(lake)
    found = zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")),
                strict=True)  # fmt: skip
    assert sorted(found) == wanted()
    short = pq.read_table(lake)
    assert sorted(set(short["topic"].to_pylist())) == sorted({topic for topic, _ in PLACES})
    assert len(short) == len(wanted())


def test_duckdb_reads_one_table(lake: Path) -> None:
    """It keeps the type of the topic, where it would guess a number."""
    files = f"{lake}/**/*.parquet"
    query = f"SELECT topic, partition, \"offset\" FROM '{files}'"  # noqa: S608
    assert sorted(duckdb.sql(query).fetchall()) == wanted()
    alone = f"{lake}/topic=007/**/*.parquet"
    options = "hive_types={'topic': VARCHAR}"
    table = f"read_parquet('{alone}', hive_partitioning=true, {options})"
    query = f"SELECT DISTINCT topic FROM {table}"  # noqa: S608
    assert duckdb.sql(query).fetchall() == [("007",)]


def test_copies_of_a_partition_have_files_of_their_own(tmp_path: Path) -> None:
    """With all replicas, the column log_dir tells the copies apart."""
    for broker in (1, 2):
        records = [record(i) for i in range(broker)]
        write_log(tmp_path / f"broker{broker}" / "a-0", batch(0, records))
    sources = [tmp_path / "broker1" / "a-0", tmp_path / "broker2" / "a-0"]
    request = Request(TableName.RECORDS, replicas=Replicas.ALL)
    export(sources, tmp_path / "to", request, columns=["offset", "log_dir"])
    found = table_of(tmp_path / "to").to_pylist()
    rows = sorted((row["log_dir"], row["offset"]) for row in found)
    assert rows == [(str(tmp_path / "broker1"), 0)] + [
        (str(tmp_path / "broker2"), offset) for offset in (0, 1)
    ]
