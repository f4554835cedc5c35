"""Spark reads the files of exported tables with the same types and values as other readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.kafkalog.change.lake.lake_values import (
    LAKE_TYPE,
    ROWS,
    VALUES,
    ByName,
    decodes,
    exported,
    log_of,
)
from tests.kafkalog.change.lake.test_lake_types import OF_TABLES, data_file, same, wanted

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.lake import TableFormat

TYPES = (
    "flag:boolean,whole:bigint,unsigned:decimal(20,0),float:float,double:double,"
    "price:decimal(12,2),digits:decimal(38,38),duration:decimal(21,9),large:string,text:string,"
    "data:binary,day:date,at:timestamp,local:timestamp_ntz,any:string,"
    "empty:struct<_present:boolean>,point:struct<x:bigint,at:timestamp>,"
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", OF_TABLES)
def test_spark_reads_the_files(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """All types at their extremes, nested."""
    typed = decodes(monkeypatch, value=ByName(LAKE_TYPE, VALUES))
    exported(log_of(tmp_path, ROWS), tmp_path / "lake", typed, form)
    frame = spark.read.parquet(data_file(tmp_path / "lake")).orderBy("offset")
    kind = frame.schema["value_decoded"].dataType.simpleString()
    assert kind.startswith(f"struct<{TYPES}")
    found = frame.select("value_decoded").toArrow()["value_decoded"].to_pylist()
    assert same(found) == wanted(form)
