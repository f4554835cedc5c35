"""The data source `kafkalog` in Spark: the library's tables, in SQL, with filters."""

from __future__ import annotations

import hashlib
import json
import os
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from kafkalog.spark import KafkaLogDataSource
from kafkalog.tables import Request, TableName
from kafkalog.tables.schemas import table_schema
from tests.builders import flip
from tests.conftest import state
from tests.kafkalog.tables.test_bounds import a_day
from tests.kafkalog.tables.test_records import COLUMNS, as_noted, as_read, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

BASE_TIME = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # that of tests.builders


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(KafkaLogDataSource)


def load(spark: SparkSession, *paths: Path, **options: object) -> DataFrame:
    reader = spark.read.format("kafkalog")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    if len(paths) == 1:
        return reader.load(str(paths[0]))
    return reader.option("paths", json.dumps([str(path) for path in paths])).load()


def sums(rows: list[dict[str, Any]]) -> list[str]:
    """Return a sorted list of row hashes, so that the order of tasks does not matter."""
    return sorted(hashlib.sha256(repr(sorted(row.items())).encode()).hexdigest() for row in rows)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["codecs", "txn", "crash-1-torn", "jbod-live"])
def test_records_are_what_a_consumer_read(spark: SparkSession, corpus_dir: Path, name: str) -> None:
    """Every field is compared, read through Spark."""
    one = state(corpus_dir, "kafka-4.3", name)
    wanted = []
    for partition in one.partitions():
        noted = one.expected / "records" / f"{partition.name}.ndjson"
        if noted.exists():
            lines = [as_read(json.loads(line)) for line in noted.read_text().splitlines()]
            wanted += [{"log": partition.name, **line} for line in lines]
    columns = ",".join((*COLUMNS, "topic", "partition"))
    frame = load(spark, *one.log_dirs, columns=columns, splitBytes=65536, internal="true")
    rows = frame.toArrow().to_pylist()
    read = {row["log"] for row in wanted}
    found = [
        {"log": log, **as_noted(row)}
        for row in rows
        if (log := f"{row['topic']}-{row['partition']}") in read
    ]
    assert sums(found) == sums(wanted)


@pytest.mark.parametrize("table", list(TableName))
def test_tables_are_those_of_the_library(
    spark: SparkSession, corpus_dir: Path, table: TableName
) -> None:
    """All columns of each table; missing headers are null, as in Spark's own Kafka source."""
    one = state(corpus_dir, "kafka-4.3", "crash-1-torn")
    names = table_schema(table).names if table != TableName.RECORDS else None
    wanted = rows_of(one.log_dirs, Request(table, internal=True), names)
    found = load(spark, *one.log_dirs, table=table, internal="true").toArrow()
    assert found.schema.names == wanted.schema.names
    zoned = wanted.to_pylist()
    if table == TableName.RECORDS:
        zoned = [{**row, "headers": row["headers"] or None} for row in zoned]
    assert sums(found.to_pylist()) == sums(zoned)
    assert zoned or table in (TableName.PRODUCERS, TableName.TRANSACTIONS)


def test_its_columns_are_those_of_sparks_own_kafka_source(
    spark: SparkSession, corpus_dir: Path
) -> None:
    """A query written for one runs on the other."""
    one = state(corpus_dir, "kafka-4.3", "codecs")
    schema = load(spark, *one.log_dirs).schema
    assert [(field.name, field.dataType.simpleString()) for field in schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]


def test_sql_knows_the_format(spark: SparkSession, corpus_dir: Path) -> None:
    """It can be a view with options."""
    one = state(corpus_dir, "kafka-4.3", "codecs")
    spark.sql(
        "create or replace temp view batches using kafkalog "
        f"options (path '{one.log_dirs[0]}', table 'batches')"
    )
    counted = spark.sql("select sum(records) from batches where not is_control").collect()[0][0]
    noted = sorted((one.expected / "records").glob("*.ndjson"))
    outside = [path for path in noted if path.name.startswith("__")]
    texts = [path.read_text() for path in noted if path not in outside]
    assert counted == sum(len(text.splitlines()) for text in texts)


def test_it_is_found_without_registration(spark: SparkSession, corpus_dir: Path) -> None:
    """Spark looks for packages with such names where it is installed."""
    one = state(corpus_dir, "kafka-4.3", "codecs")
    fresh = spark.newSession()
    frame = fresh.read.format("kafkalog").option("columns", "offset").load(str(one.root))
    assert frame.count() == load(spark, one.root, columns="offset").count() > 0


def test_a_schema_of_the_users_chooses_columns(spark: SparkSession, corpus_dir: Path) -> None:
    one = state(corpus_dir, "kafka-4.3", "codecs")
    reader = spark.read.format("kafkalog")
    found = reader.schema(
        "offset long, topic string, headers array<struct<key:string,value:binary>>"
    ).load(str(one.log_dirs[0]))
    assert found.columns == ["offset", "topic", "headers"]
    assert sums(found.toArrow().to_pylist()) == sums(
        load(spark, *one.log_dirs).select(*found.columns).toArrow().to_pylist()
    )
    assert found.count() == load(spark, *one.log_dirs).count()
    wrong = reader.schema("offset string").load(str(one.log_dirs[0]))
    with pytest.raises(PySparkException, match="is of type bigint, not string"):
        wrong.collect()


def test_filters_of_queries_leave_files_unread(
    spark: SparkSession, tmp_path: Path, kafkalog: Any
) -> None:
    """With failfast, damage outside of the wanted part is not met."""
    partition = a_day(tmp_path / "logs" / "orders-0")
    (tmp_path / "logs" / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    assert kafkalog("rebuild-index", partition, "--apply", "--yes", "-q").status == 0
    log = next(partition.glob("*.log"))
    data = log.read_bytes()
    size = len(data) // 2880
    log.write_bytes(flip(data, 8 * (size * 2000 + 500)))
    options = {"mode": "failfast", "splitBytes": "64k", "view": "as-is"}
    with pytest.raises(PySparkException, match="does not match its checksum"):
        load(spark, tmp_path / "logs", **options).collect()
    options |= {"filterPushdown": "true", "maxTimestampDisorderMs": "1000"}
    frame = load(spark, tmp_path / "logs", **options)
    begin = BASE_TIME + timedelta(hours=3)
    hour = frame.where((frame.timestamp >= begin) & (frame.timestamp < begin + timedelta(hours=1)))
    assert sorted(row.offset for row in hour.select("offset").collect()) == [*range(360, 480)]
    few = frame.where(
        (frame["offset"] > 2500) & (frame["offset"] <= 2510) & (frame.topic == "orders")
    )
    assert sorted(row.offset for row in few.select("offset").collect()) == [*range(2501, 2511)]
    assert frame.where(frame.topic.isin("payments")).count() == 0
    assert frame.where(frame.partition == 1).count() == 0
    with pytest.raises(PySparkException, match="does not match its checksum"):
        frame.where(frame["offset"] > 1500).collect()


def test_a_path_that_is_not_there_is_named(spark: SparkSession) -> None:
    """The path is absolute, from the driver's view: over Spark Connect that is another process."""
    with pytest.raises(PySparkException, match=re.escape(os.path.abspath("no/such/place"))):
        spark.read.format("kafkalog").load("no/such/place").collect()


def test_replicas_count_once_or_each(spark: SparkSession, tmp_path: Path) -> None:
    """Of two brokers' replicas the longer log is read, or both with `replicas` set to all."""
    from tests.builders import batch, record, write_log

    for broker, count in (("a", 10), ("b", 7)):
        batches = [batch(n, [record(0, b"k", b"v")]) for n in range(count)]
        write_log(tmp_path / broker / "orders-0", *batches)
        (tmp_path / broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    both = (tmp_path / "b", tmp_path / "a")
    assert load(spark, *both).count() == 10
    assert load(spark, *both, replicas="all").count() == 17
    assert load(spark, *both, table="batches").count() == 17


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_directory", [False, True])
def test_what_is_deleted_after_the_plan_ends_the_query(
    spark: SparkSession, tmp_path: Path, *, is_directory: bool
) -> None:
    """As with Spark's own Kafka source, failOnDataLoss decides whether the rest is returned."""
    from tests.builders import batch, record, write_log

    partition = tmp_path / "orders-0"
    for base in (0, 10):
        write_log(partition, *(batch(base + n, [record(0, b"k", b"v")]) for n in range(10)),
                  name=f"{base:020}")  # fmt: skip
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    frames = [load(spark, tmp_path, failOnDataLoss=value) for value in ("true", "false")]
    for frame in frames:
        tasks = frame._jdf.queryExecution().toRdd().getNumPartitions()  # type: ignore[operator]
        assert tasks > 0
    if is_directory:
        partition.rename(tmp_path / f"orders-0.{'0' * 32}-delete")
    else:
        (partition / f"{0:020}.log").unlink()
    words = "The partition is not here" if is_directory else "Its log starts at offset 10 now"
    with pytest.raises(PySparkException, match=words):
        frames[0].collect()
    left = [] if is_directory else [*range(10, 20)]
    assert sorted(row["offset"] for row in frames[1].collect()) == left


def test_a_lost_segment_ends_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """If its rows are wanted, and unless failOnDataLoss allows to return the rest."""
    from tests.builders import batch, record, write_log

    for base in (0, 20):
        write_log(tmp_path / "orders-0", batch(base, [record(0), record(1)]), name=f"{base:020}")
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    with pytest.raises(PySparkException, match="Offsets 2 to 19 are missing"):
        load(spark, tmp_path).collect()
    frame = load(spark, tmp_path, failOnDataLoss="false")
    assert sorted(row["offset"] for row in frame.collect()) == [0, 1, 20, 21]
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 20\n")
    assert load(spark, tmp_path).count() == 4


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"colums": "offset"}, "There is no option 'colums'"),
        ({"columns": "offset,value2"}, "has no column 'value2'"),
        ({"table": "recods"}, "The option table cannot be 'recods'"),
        ({"splitBytes": "many"}, "The option splitBytes is a number"),
        ({"internal": "yes"}, "The option internal is true or false"),
        ({"subscribe": "orders,payments"}, "No partition of the topic payments is here"),
        ({"startingOffsets": "latest"}, "A batch cannot start at the latest offsets"),
    ],
)
def test_wrong_options_are_told(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], words: str
) -> None:
    (tmp_path / "orders-0").mkdir()
    with pytest.raises((AnalysisException, PySparkException), match=words):
        load(spark, tmp_path, **options).collect()
