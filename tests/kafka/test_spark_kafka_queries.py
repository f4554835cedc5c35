"""Queries of Spark over growing topics: cases from the tests of its own Kafka source, restated.

The other streaming cases, which call the reader as Spark does, are in `test_spark_kafka_streams`.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as f

from tests.kafka.spark_topics import (
    CHOICES,
    STARTS,
    Query,
    choice,
    json_of,
    prepared,
    start_of,
    stream,
    three_sizes,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.spark_topics import Kafka

pytestmark = pytest.mark.kafka


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", CHOICES)
def test_a_query_of_spark_starts_and_goes_on(kafka: Kafka, tmp_path: Path, kind: str) -> None:
    """The streaming case again in Spark, from specific offsets."""
    topic, times = prepared(kafka)
    chosen = choice(kafka, kind, topic)
    query = Query(kafka, tmp_path, **chosen, **start_of("offsets", topic, times))
    wanted = STARTS["offsets"][0]
    query.run()
    assert query.values() == sorted(wanted)
    if kind != "assign":
        kafka.grow(topic, 10)
    kafka.send(topic, range(40, 50))
    query.run()
    assert query.values() == sorted([*wanted, *range(40, 50)])


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_queries.py::test_a_query_of_spark_starts_and_goes_on"
)
def test_a_trigger_for_once_has_no_limit_in_spark(kafka: Kafka, tmp_path: Path) -> None:
    topic = three_sizes(kafka)
    query = Query(kafka, tmp_path, subscribe=topic, maxOffsetsPerTrigger="10")
    query.run(once=True)
    assert query.values() == [1, *range(10, 21), *range(100, 201)]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_queries.py::test_a_query_of_spark_starts_and_goes_on"
)
def test_columns_are_as_they_are_appended(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create(1)
    before = time.time()
    kafka.send(topic, [1], 0, headers=[("a", b"b"), ("c", b"d")])
    Query(kafka, tmp_path, subscribe=topic, includeHeaders="true").run()
    [row] = kafka.spark.read.parquet(str(tmp_path / "table")).collect()
    assert (row["key"], row["value"], row["topic"], row["partition"]) == (None, b"1", topic, 0)
    assert (row["offset"], row["timestampType"]) == (0, 0)
    assert row["timestamp"].timestamp() >= before - 0.001
    assert [tuple(one) for one in row["headers"]] == [("a", b"b"), ("c", b"d")]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_queries.py::test_a_query_of_spark_starts_and_goes_on"
)
def test_keys_and_values_can_be_null(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create(1)
    with kafka.transactions() as producer:
        producer.begin_transaction()
        kafka.send(topic, [None] * 5, 0, producer=producer)
        for number in range(5):
            kafka.send(topic, [None], 0, key=str(number), producer=producer)
        kafka.send(topic, range(5), 0, producer=producer)
        producer.commit_transaction()
        kafka.await_end(topic, 0, 16)
    isolation = {"kafka.isolation.level": "read_committed"}
    Query(kafka, tmp_path, subscribe=topic, **isolation).run()
    rows = kafka.spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    numbers = [str(n).encode() for n in range(5)]
    assert [(row["key"], row["value"]) for row in rows] == [
        *[(None, None)] * 5, *((one, None) for one in numbers), *((None, one) for one in numbers)
    ]  # fmt: skip


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_queries.py::test_a_query_of_spark_starts_and_goes_on"
)
def test_available_now_has_batches_of_the_limit(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create(5)
    kafka.send(topic, range(15), 0)
    query = Query(kafka, tmp_path, subscribe=topic, maxOffsetsPerTrigger="5")
    progress = query.run().recentProgress
    assert [one["numInputRows"] for one in progress if one["numInputRows"]] == [5, 5, 5]
    assert query.values() == [*range(15)]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_queries.py::test_a_query_of_spark_starts_and_goes_on"
)
@pytest.mark.filterwarnings("ignore:.*starts at offset")
def test_what_was_deleted_is_not_read_twice(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create(1)
    kafka.send(topic, range(50), 0)
    kafka.delete_before(topic, 0, 30)
    start = {"subscribe": topic, "startingOffsets": json_of(topic, [0])}
    query = Query(kafka, tmp_path, failOnDataLoss="false", **start)
    query.run()
    assert query.values() == [*range(30, 50)]
    with pytest.raises(StreamingQueryException, match="has offset 0 of"):
        Query(kafka, tmp_path / "other", **start).run()


def test_a_failed_batch_is_tried_again(kafka: Kafka, tmp_path: Path) -> None:
    """The retry is the same even if partitions were added meanwhile; a new plan would have them."""
    topic = kafka.create(1)
    kafka.send(topic, range(1, 8), 0)
    query = Query(kafka, tmp_path, subscribe=topic)
    failing = query.frame.select(
        f.when(f.col("value") == b"7", f.raise_error("error for 7")).otherwise(f.col("value"))
    )
    for partitions in (3, None):
        with pytest.raises(StreamingQueryException, match="error for 7"):
            query.run(failing.toDF("value"))
        if partitions is not None:
            kafka.grow(topic, partitions)


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_queries.py::test_a_query_of_spark_starts_and_goes_on"
)
def test_rows_are_counted_and_the_lag_is_told(kafka: Kafka, tmp_path: Path) -> None:
    """`latestOffset` of the progress has the lag; a Python source cannot have its own metrics."""
    topic = kafka.create(2)
    kafka.send(topic, range(1, 6), 0)
    kafka.send(topic, range(6, 11), 1)
    query = Query(kafka, tmp_path, subscribe=topic, maxOffsetsPerTrigger="4")
    progress = [one for one in query.run().recentProgress if one["numInputRows"]]
    assert sum(one["numInputRows"] for one in progress) == 10
    behind = []
    for one in progress:
        latest, end = (
            json.loads(one["sources"][0][name]) for name in ("latestOffset", "endOffset")
        )
        behind.append(sum(latest[key][0] - end[key][0] for key in end))
    assert behind == [6, 2, 0]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_queries.py::test_a_query_of_spark_starts_and_goes_on"
)
def test_a_stream_is_joined_with_itself(kafka: Kafka, tmp_path: Path) -> None:
    """Each side has its own offsets in the checkpoint, and they are equal."""
    topic = kafka.create(2)
    kafka.send(topic, [1, 2, 6, 3])
    query = Query(kafka, tmp_path, subscribe=topic)
    number = f.col("value").cast("string").cast("int")
    values = query.frame.select(number.alias("value"), (number % 5).alias("key"))
    query.run(values.join(values.withColumnRenamed("value", "other"), "key"))
    rows = kafka.spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted((row["key"], row["value"], row["other"]) for row in rows) == [
        (1, 1, 1), (1, 1, 6), (1, 6, 1), (1, 6, 6), (2, 2, 2), (3, 3, 3)
    ]  # fmt: skip
    [logged] = (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")
    offsets = [line for line in logged.read_text().splitlines() if line.startswith(f'{{"{topic}-')]
    assert len(offsets) == 2
    assert len(set(offsets)) == 1


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_queries.py::test_a_query_of_spark_starts_and_goes_on"
)
def test_timestamps_make_watermarks(kafka: Kafka) -> None:
    topic = kafka.create(1)
    now = time.time()
    kafka.send(topic, [1], 0)
    counted = (
        stream(kafka, subscribe=topic)
        .withWatermark("timestamp", "10 seconds")
        .groupBy(f.window("timestamp", "5 seconds").alias("window"))
        .count()
        .select(f.col("window.start").alias("window"), "count")
    )
    name = f"watermark_{topic}"
    query = (
        counted.writeStream.format("memory")
        .outputMode("complete").queryName(name).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    [row] = kafka.spark.table(name).collect()
    assert row["count"] == 1
    assert row["window"].timestamp() >= now - 5


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_queries.py::test_a_query_of_spark_starts_and_goes_on"
)
def test_continuous_processing_is_refused(kafka: Kafka, tmp_path: Path) -> None:
    """Spark refuses it: Python data sources only know micro-batches."""
    topic = kafka.create(1)
    with pytest.raises((PySparkException, StreamingQueryException), match=r"(?i)continuous"):
        Query(kafka, tmp_path, subscribe=topic).run(continuous="1 second")
