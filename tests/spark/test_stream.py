"""Streams follow growing logs, and deliver every record exactly once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions

from kafkalog.spark import KafkaLogDataSource, StreamMetrics
from kafkalog.spark.options import parse_options
from kafkalog.spark.source import SplitPartition, TailReader
from tests.builders import batch, record
from tests.sampling import tries_everything
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(KafkaLogDataSource)


class Growing:
    """A log directory with two partitions, and a query that copies their records to Parquet."""

    def __init__(self, spark: SparkSession, place: Path, **options: object) -> None:
        self._spark = spark
        self.log_dir = place / "logs"
        self._copy, self._checkpoint = place / "copy", place / "checkpoint"
        self.options = options
        self.written: list[tuple[str, int]] = []
        self._ends = {"orders-0": 0, "orders-1": 0}
        for name in self._ends:
            (self.log_dir / name).mkdir(parents=True)
        (self.log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")

    def append(self, partition: str, count: int, *, segment: int = 0, torn: int = 0) -> None:
        """Append batches of three records as a broker does; cut `torn` bytes off the last one."""
        log = self.log_dir / partition / f"{segment:020}.log"
        data = b""
        for _ in range(count):
            start = self._ends[partition]
            values = [record(n, b"k", f"{partition} {start + n}".encode()) for n in range(3)]
            data += batch(start, values)
            self.written += [(partition, start + n) for n in range(3)]
            self._ends[partition] += 3
        with log.open("ab") as file:
            file.write(data[: len(data) - torn])

    def complete(self, partition: str, torn: int, *, segment: int = 0) -> None:
        """Append the rest of the last batch."""
        log = self.log_dir / partition / f"{segment:020}.log"
        start = self._ends[partition] - 3
        values = [record(n, b"k", f"{partition} {start + n}".encode()) for n in range(3)]
        with log.open("ab") as file:
            file.write(batch(start, values)[-torn:])

    def run(self) -> list[Any]:
        """Copy all present records in a new query; return its progress reports."""
        reader = self._spark.readStream.format("kafkalog")
        for name, value in self.options.items():
            reader = reader.option(name, str(value))
        query = (
            reader.load(str(self.log_dir))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True)
            .start(str(self._copy))
        )
        query.awaitTermination()
        return list(query.recentProgress)

    def copied(self) -> list[tuple[str, int]]:
        rows = self._spark.read.parquet(str(self._copy)).collect()
        for row in rows:
            assert row.value == f"{row.topic}-{row.partition} {row['offset']}".encode()
        return sorted((f"{row.topic}-{row.partition}", row["offset"]) for row in rows)


def test_every_record_once_while_a_log_grows(spark: SparkSession, tmp_path: Path) -> None:
    """Records are appended, torn for a moment, and rolled; each query continues the last one."""
    logs = Growing(spark, tmp_path)
    logs.append("orders-0", 20)
    logs.append("orders-1", 5)
    if tries_everything():
        logs.run()
        assert logs.copied() == sorted(logs.written)
    logs.append("orders-0", 4, torn=10)
    logs.run()
    assert logs.copied() == sorted(set(logs.written) - {("orders-0", n) for n in (69, 70, 71)})
    logs.complete("orders-0", 10)
    logs.append("orders-0", 7, segment=72)
    logs.run()
    logs.run()
    assert logs.copied() == sorted(logs.written)


@pytest.mark.thorough("tests/spark/test_stream.py::test_every_record_once_while_a_log_grows")
def test_a_batch_covers_about_as_many_bytes_as_wanted(spark: SparkSession, tmp_path: Path) -> None:
    """The log has an index; the last batch ends where the logs ended when the query began."""
    logs = Growing(spark, tmp_path, maxBytesPerTrigger=20_000)
    for segment in range(6):
        logs.append("orders-0", 100, segment=segment * 300)
    size = sum(path.stat().st_size for path in logs.log_dir.glob("*/*.log"))
    progress = logs.run()
    assert logs.copied() == sorted(logs.written)
    numbers = [one["numInputRows"] for one in progress if one["numInputRows"]]
    assert sum(numbers) == 1800
    assert len(numbers) >= size // 40_000
    [first], [last] = progress[0]["sources"], progress[-1]["sources"]
    latest, reached = json.loads(first["latestOffset"]), json.loads(first["endOffset"])
    assert latest["orders-0"][0] == 1800 > reached["orders-0"][0]  # the difference is the lag
    assert json.loads(last["endOffset"])["orders-0"][0] == 1800


def test_progress_and_metrics_say_what_a_batch_has_done(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rows, lag and observed values, in StreamingQueryProgress and in a file for Prometheus."""
    logs = Growing(spark, tmp_path)
    logs.append("orders-0", 30)
    file = tmp_path / "streams.prom"
    metrics = StreamMetrics(str(file))
    spark.streams.addListener(metrics)
    try:
        rows = (
            spark.readStream.format("kafkalog")
            .option("maxOffsetsPerTrigger", 50)
            .load(str(logs.log_dir))
            .observe("log", functions.count("*").alias("records"),
                     functions.sum(functions.length("value")).alias("bytes"))
        )  # fmt: skip
        query = (
            rows.writeStream.format("noop")
            .queryName("copy")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        until(lambda: values_of(file).get(("active", "copy", "")) == 0)
    finally:
        spark.streams.removeListener(metrics)
    batches = [one for one in query.recentProgress if one["numInputRows"]]
    assert [one["numInputRows"] for one in batches] == [50, 40]
    first = batches[0]["sources"][0]
    latest, reached = json.loads(first["latestOffset"]), json.loads(first["endOffset"])
    assert latest["orders-0"][0] - reached["orders-0"][0] == 40
    sizes = [len(f"orders-0 {n}") for n in range(90)]
    observed = [one["observedMetrics"]["log"].asDict() for one in batches]
    assert observed == [
        {"records": 50, "bytes": sum(sizes[:50])}, {"records": 40, "bytes": sum(sizes[50:])},
    ]  # fmt: skip
    found = values_of(file)
    assert found["batch", "copy", ""] == 1
    assert found["rows", "copy", ""] == 90
    assert found["lag_offsets", "copy", "orders0"] == 0
    assert found["observed", "copy", "records"] == 40
    assert found["observed", "copy", "bytes"] == sum(sizes[50:])


def values_of(file: Path) -> dict[tuple[str, str, str], float]:
    """Return the metrics by name, query, and partition or observed value."""
    families = text_string_to_metric_families(file.read_text())
    return {
        (
            one.name.removeprefix("kafkalog_stream_"), one.labels["query"],
            one.labels.get("metric")
            or one.labels.get("topic", "") + one.labels.get("partition", ""),
        ): one.value
        for family in families for one in family.samples
    }  # fmt: skip


@pytest.mark.thorough("tests/spark/test_stream.py::test_every_record_once_while_a_log_grows")
def test_small_segments_are_read_together(spark: SparkSession, tmp_path: Path) -> None:
    """A task costs more than a small segment: streams have as few tasks as tables."""
    logs = Growing(spark, tmp_path)
    for segment in range(60):
        logs.append("orders-0", 1, segment=segment * 3)
    asked = parse_options({"path": str(logs.log_dir)})
    reader = TailReader(asked, None)
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert [len(task.splits) for task in tasks if isinstance(task, SplitPartition)] == [60]
    logs.run()
    assert logs.copied() == sorted(logs.written)


def test_records_that_were_deleted_unread_are_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """The user can say that the remaining records are enough."""
    logs = Growing(spark, tmp_path)
    logs.append("orders-0", 3)
    logs.run()
    logs.append("orders-0", 3)
    logs.append("orders-0", 3, segment=18)
    (logs.log_dir / "orders-0" / f"{0:020}.log").unlink()
    with pytest.raises(StreamingQueryException, match="starts at offset 18, and 9 was to be"):
        logs.run()
    logs.options["failOnDataLoss"] = "false"
    logs.run()
    assert logs.copied() == [("orders-0", n) for n in (*range(9), *range(18, 27))]


@pytest.mark.thorough("tests/spark/test_stream.py::test_every_record_once_while_a_log_grows")
def test_a_stream_can_begin_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    logs = Growing(spark, tmp_path, startingOffsets="latest")
    logs.append("orders-0", 3)
    logs.run()
    logs.append("orders-0", 2)
    logs.run()
    assert logs.copied() == [("orders-0", n) for n in range(9, 15)]


@pytest.mark.thorough("tests/spark/test_stream.py::test_every_record_once_while_a_log_grows")
def test_a_stream_has_no_end(spark: SparkSession, tmp_path: Path) -> None:
    """Records after the end would be passed over for ever, so an end is refused."""
    logs = Growing(spark, tmp_path, endingTimestamp=1_700_000_000_000)
    logs.append("orders-0", 1)
    with pytest.raises(StreamingQueryException, match="A stream has no end"):
        logs.run()


@pytest.mark.thorough("tests/spark/test_stream.py::test_every_record_once_while_a_log_grows")
def test_only_what_is_in_order_can_be_followed(spark: SparkSession, tmp_path: Path) -> None:
    logs = Growing(spark, tmp_path, table="segments")
    logs.append("orders-0", 1)
    with pytest.raises(
        StreamingQueryException, match="cannot be streamed; only records and batches can"
    ):
        logs.run()
