"""Exports by Spark and by threads write the same files; Spark reads them as one table."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import kafkalog.spark
from kafkalog.change.lake import Writing
from kafkalog.change.lake.model import FileFormat
from kafkalog.errors import RefusedError
from kafkalog.model import Isolation
from kafkalog.spark.engine import SparkEngine
from kafkalog.tables import Contents, Request, TableName
from tests.builders import batch, record, write_log
from tests.kafkalog.change.lake.appending import DELTA, FILES, ICEBERG
from tests.kafkalog.change.lake.exporting import export, files_of
from tests.kafkalog.change.lake.test_rejects import add, bad, good, grow, in_rejects, in_table

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.lake import TableFormat

STATES = ("codecs", "txn-v0", "crash-1-torn", "compact-1-first-pass", "jbod-live")
COMMITTED = Request(isolation=Isolation.READ_COMMITTED, split_bytes=1 << 16)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", STATES)
def test_both_engines_write_the_same_bytes(
    spark: Any, corpus_dir: Path, tmp_path: Path, name: str
) -> None:
    """All files are compared, including the manifest."""
    root = corpus_dir / "kafka-4.3" / name
    is_log_dir = (root / "meta.properties").exists()
    source = [root] if is_log_dir else sorted(path for path in root.iterdir() if path.is_dir())
    export(source, tmp_path / "local", COMMITTED)
    done = kafkalog.spark.export(spark, *source, to=tmp_path / "spark", request=COMMITTED).apply()
    assert done.rows == spark.read.parquet(str(tmp_path / "spark")).count()
    files = files_of(tmp_path / "local")
    assert files == files_of(tmp_path / "spark")
    assert len(files) > 2


def test_both_engines_write_what_matches(spark: Any, corpus_dir: Path, tmp_path: Path) -> None:
    """The workers select, too, and count what does not decode for the condition."""
    source = [corpus_dir / "kafka-4.3" / "crash-1-torn"]
    where, contents = "offset % 3 == 0 || value.n > 1", Contents(key_regex=b"[0-4]$")
    request = replace(COMMITTED, where=where, contents=contents)
    every, local, cluster = (tmp_path / name for name in ("every", "local", "spark"))
    export(source, every, COMMITTED)
    export(source, local, request)
    export(source, cluster, request, engine=SparkEngine(spark, 2))
    assert files_of(local) == files_of(cluster)
    found, whole = (pq.ParquetDataset(one).read(["key", "offset"]).to_pylist()
                    for one in (local, every))  # fmt: skip
    keyed = [row for row in whole if re.search(b"[0-4]$", row["key"] or b"")]
    assert found == [row for row in keyed if row["offset"] % 3 == 0] != []
    assert '"without_answer": 0' not in (local / "_kafkalog" / "manifest.json").read_text()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("table", [TableName.BATCHES, TableName.SEGMENTS, TableName.DEFECTS])
def test_both_engines_write_the_same_tables(
    spark: Any, corpus_dir: Path, tmp_path: Path, table: TableName
) -> None:
    """Also for NDJSON."""
    source = [corpus_dir / "kafka-4.3" / "crash-1-torn"]
    for form in (FileFormat.PARQUET, FileFormat.NDJSON):
        options = {"request": Request(table), "writing": Writing(form)}
        export(source, tmp_path / form / "local", **options)
        export(source, tmp_path / form / "spark", engine=SparkEngine(spark, 2), **options)
        assert files_of(tmp_path / form / "local") == files_of(tmp_path / form / "spark")


@pytest.mark.parametrize("form", [FILES, DELTA, ICEBERG])
def test_rejects_go_to_their_table(spark: Any, tmp_path: Path, form: TableFormat) -> None:
    """Also in Spark's tasks: 10 of 30 records; too many rejects leave the tables unchanged."""
    log, to = tmp_path / "a-0", tmp_path / "lake"
    engine = SparkEngine(spark, 2)
    grow(log, 0, 30)
    with pytest.raises(RefusedError, match="More than 9 records do not decode"):
        add(log, to, form, 9, engine)
    add(log, to, form, 10, engine)
    assert (in_table(to, form), in_rejects(to, form)) == (good(30), bad(30))
    grow(log, 30, 36)
    with pytest.raises(RefusedError, match="a-0: the value at 31: Expecting"):
        add(log, to, form, 0, engine)
    assert (in_table(to, form), in_rejects(to, form)) == (good(30), bad(30))
    add(log, to, form, 2, engine)
    assert (in_table(to, form), in_rejects(to, form)) == (good(36), bad(36))


def test_spark_reads_the_directory_as_one_table(spark: Any, tmp_path: Path) -> None:
    """Topics that look like numbers become numbers unless Spark is told otherwise."""
    for name in ("a.b-0", "a.b-3", "007-0"):
        write_log(tmp_path / "logs" / name, batch(0, [record(i, b"k", b"v") for i in range(5)]))
    export(sorted((tmp_path / "logs").iterdir()), tmp_path / "lake")
    found = spark.read.parquet(str(tmp_path / "lake"))
    rows = sorted((row["topic"], row["partition"], row["offset"]) for row in found.collect())
    wanted = [("a.b", 0), ("a.b", 3), ("007", 0)]
    assert rows == sorted((*place, offset) for place in wanted for offset in range(5))
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    try:
        alone = spark.read.parquet(str(tmp_path / "lake" / "topic=007")).select("partition")
        assert alone.dtypes == [("partition", "string")]
    finally:
        spark.conf.unset("spark.sql.sources.partitionColumnTypeInference.enabled")
