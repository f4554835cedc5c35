"""Spark before 4.2 lacks a suitable Python data source, and before 4.1 rows by partition."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from kafkalog import spark as library
from kafkalog.errors import UnsupportedError
from kafkalog.spark import KafkaLogDataSource, read_frame, settings
from kafkalog.spark.engine import by_id
from kafkalog.spark.settings import require_connect
from tests.conftest import state
from tests.sampling import sampled

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import Result

QUERIES = (
    "select topic, partition, offset, timestamp, headers from records order by 1, 2, 3",
    "select topic, count(*) n, max(offset) latest from records group by topic order by topic",
    "select topic, base_offset, compression from batches order by topic, partition, base_offset",
)
COMMANDS: tuple[tuple[str, ...], ...] = (
    *(("sql", "-c", query) for query in QUERIES),
    ("verify",),
    ("profile",),
)


class OlderFrame:
    """A data frame without `repartitionById`."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def repartition(self, count: int, *columns: Any) -> Any:
        return self._frame.repartition(count, *columns)


@pytest.mark.thorough(
    "tests/spark/test_older_sparks.py::test_a_frame_has_what_the_data_source_gives"
)
@pytest.mark.parametrize("count", [1, 2, 7, 300])
def test_rows_are_spread_by_their_number(spark: SparkSession, count: int) -> None:
    """They are spread by a hash that Spark also has."""
    numbers = spark.range(2 * count).select(f.col("id").cast("int").alias("id"))
    older: Any = OlderFrame(numbers)
    spread = by_id(older, count, numbers.id).select("id", f.spark_partition_id().alias("place"))
    assert sorted((row.id, row.place) for row in spread.collect()) == [
        (number, number % count) for number in range(2 * count)
    ]


def test_a_frame_has_what_the_data_source_gives(spark: SparkSession, corpus_dir: Path) -> None:
    """With the same options, rows and columns are the same."""
    one = state(corpus_dir, "kafka-4.3", "codecs")
    spark.dataSource.register(KafkaLogDataSource)
    asked = (
        {"subscribe": "codec-gzip,codec-lz4", "minPartitions": "3"},
        {"table": "batches"},
        {"columns": "topic,offset,headers", "decode": "text"},
    )
    for options in sampled(asked, 2):
        frame = read_frame(spark, str(one.root), **options)
        wanted = spark.read.format("kafkalog").options(**options).load(str(one.root))
        assert frame.dtypes == wanted.dtypes
        rows = [sorted(map(repr, some.collect())) for some in (frame, wanted)]
        assert rows[0] == rows[1] != []


@pytest.mark.thorough(
    "tests/spark/test_older_sparks.py::test_a_frame_has_what_the_data_source_gives"
)
def test_queries_need_no_data_source(
    spark: SparkSession, corpus_dir: Path, monkeypatch: pytest.MonkeyPatch, kafkalog: Any
) -> None:
    one = state(corpus_dir, "kafka-4.3", "codecs")
    words = ("--spark", spark.sparkContext.master, "--format", "ndjson", one.root)
    wanted = [kafkalog("sql", "-c", query, *words) for query in QUERIES]
    monkeypatch.setattr("kafkalog.spark.queries.has_data_sources", lambda: False)
    found = [kafkalog("sql", "-c", query, *words) for query in QUERIES]
    assert [(one.status, one.stdout) for one in found] == [
        (one.status, one.stdout) for one in wanted
    ]
    assert all(one.stdout and one.status == 0 for one in found)


@pytest.mark.thorough(
    "tests/spark/test_older_sparks.py::test_a_frame_has_what_the_data_source_gives"
)
def test_what_is_not_offered_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "has_data_sources", lambda: False)
    with pytest.raises(
        UnsupportedError, match=r"The data source needs Spark 4\.2; this is"
    ) as said:
        library.KafkaLogDataSource  # noqa: B018 # looking it up is the test
    assert "read_frame" in str(said.value.hint)
    with pytest.raises(UnsupportedError, match=r"Spark Connect \(sc://\) needs Spark 4\.2"):
        require_connect()


@pytest.mark.thorough(
    "tests/spark/test_older_sparks.py::test_a_frame_has_what_the_data_source_gives"
)
@pytest.mark.parametrize("version", ["3.5.9", "4.0.5"])
def test_commands_on_an_older_spark(
    corpus_dir: Path, tmp_path: Path, version: str, kafkalog: Callable[..., Result]
) -> None:
    """They print the same as without Spark, and `export` writes the same files."""
    place = tmp_path / "spark"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--target", place, f"pyspark=={version}"],
        check=True,
    )
    one = state(corpus_dir, "kafka-4.3", "codecs")
    path = os.pathsep.join((str(place), os.getcwd()))
    older = {**os.environ, "PYTHONPATH": path, "SPARK_HOME": str(place / "pyspark")}

    def run(*words: object, **options: Any) -> bytes:
        line = [sys.executable, "-m", "kafkalog_cli", *map(str, words)]
        done = subprocess.run(line, env=older, capture_output=True, check=False, **options)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    for words in COMMANDS:
        line = (*words, one.root, "--format", "ndjson")
        found = run(*line, "--spark", "local[2]")
        assert found == kafkalog(*line).stdout, (words, found[:500])
    exported = [tmp_path / "by-spark", tmp_path / "here"]
    run("export", one.root, "--to", exported[0], "--spark", "local[2]")
    assert kafkalog("export", one.root, "--to", exported[1]).status == 0
    files = [
        {path.relative_to(root): path.read_bytes() for path in root.glob("topic=*/**/*.parquet")}
        for root in exported
    ]
    assert files[0] == files[1] != {}
