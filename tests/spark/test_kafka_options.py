"""The options of Spark's own Kafka source, with its tests (`KafkaRelationSuite`) over files.

As in Spark's tests, a topic has three partitions with the values 0 to 9, 10 to 19, and 20.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from kafkalog.errors import CorruptDataError, UsageError
from kafkalog.spark import KafkaLogDataSource
from kafkalog.spark.options import parse_options
from kafkalog.spark.source import TableReader, TailReader
from tests.builders import batch, flip, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EARLIEST, LATEST = -2, -1


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(KafkaLogDataSource)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the topic with one record per second, and another topic."""
    place = tmp_path_factory.mktemp("kafka-options")
    for number, values in enumerate((range(10), range(10, 20), range(20, 21))):
        some = [
            batch(at, [record(0, b"k", str(value).encode())], base_time=1000 * value,
                  max_time=1000 * value)
            for at, value in enumerate(values)
        ]  # fmt: skip
        write_log(place / f"topic-{number}", *some)
    write_log(place / "other-0", batch(0, [record(0, b"k", b"100")]))
    return place


def of_all(**numbers: int) -> str:
    return json.dumps({"topic": {name[1:]: number for name, number in numbers.items()}})


def values(logs: Path, **options: str) -> list[int]:
    """Read the values through the reader that Spark's tasks call."""
    asked = parse_options({"path": str(logs), **options})
    reader = KafkaLogDataSource({"path": str(logs), **options})
    batch_reader = reader.reader(reader.schema())
    assert isinstance(batch_reader, TableReader)
    assert asked.columns is None
    return sorted(
        int(row["value"])
        for task in batch_reader.partitions()
        for one in batch_reader.read(task)
        for row in one.to_pylist()
    )


TOPIC = {"subscribe": "topic"}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, range(21)),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, range(21)),
        ({"startingOffsets": of_all(p0=-2, p1=-2, p2=-2),
          "endingOffsets": of_all(p0=-1, p1=-1, p2=1)}, range(21)),
        ({"startingOffsets": of_all(p0=4, p1=10, p2=-2),
          "endingOffsets": of_all(p0=6, p1=-1, p2=0)}, range(4, 6)),
        ({"startingOffsetsByTimestamp": of_all(p0=8000, p1=18500, p2=0)}, [8, 9, 19, 20]),
        ({"endingOffsetsByTimestamp": of_all(p0=2000, p1=11500, p2=99000)}, [0, 1, 10, 11, 20]),
        ({"startingOffsetsByTimestamp": of_all(p0=8000, p1=19000, p2=99000),
          "startingOffsetsByTimestampStrategy": "latest"}, [8, 9, 19]),
        # The more special option comes first.
        ({"startingOffsetsByTimestamp": of_all(p0=8000, p1=19000, p2=0),
          "startingOffsets": "earliest"}, [8, 9, 19, 20]),
        ({"startingTimestamp": "18000", "startingOffsets": "earliest",
          "startingOffsetsByTimestampStrategy": "latest"}, [18, 19, 20]),
    ],
)  # fmt: skip
def test_a_batch_reads_between_the_edges(
    logs: Path, options: dict[str, str], wanted: list[int]
) -> None:
    assert values(logs, **TOPIC, **options) == list(wanted)


def test_topics_and_partitions_are_chosen_as_for_kafka(logs: Path) -> None:
    assert values(logs, subscribePattern="to.*") == list(range(21))
    assert values(logs, subscribePattern="topi|o.*") == [100]
    assert values(logs, assign='{"topic": [0, 2], "other": [0]}') == [*range(10), 20, 100]
    assert values(
        logs, assign='{"topic": [1]}', startingOffsets='{"topic": {"1": 8}}'
    ) == [18, 19]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "A batch cannot start at the latest offsets"),
        ({"startingOffsets": of_all(p0=-1, p1=0, p2=0)}, "cannot start at the latest offsets"),
        ({"endingOffsets": "earliest"}, "A batch cannot end at the earliest offsets"),
        ({"endingOffsets": of_all(p0=-2, p1=0, p2=0)}, "cannot end at the earliest offsets"),
        ({"startingOffsets": of_all(p0=0)}, "must specify all TopicPartitions; topic-1 is missing"),
        ({"startingOffsets": "{"}, "The option startingOffsets cannot be"),
        ({"startingOffsets": '{"topic": {"0": "x"}}'}, "The option startingOffsets cannot be"),
        ({"startingOffsets": of_all(p0=11, p1=0, p2=0)}, "has offset 11 of topic-0"),
        ({"startingOffsetsByTimestamp": of_all(p0=99000, p1=0, p2=0)},
         "No offset matched from request of topic-partition topic-0 and timestamp 99000"),
        ({"subscribePattern": "t.*"}, "Only one of assign, subscribe, subscribePattern"),
    ],
)  # fmt: skip
def test_wrong_edges_are_refused(
    spark: SparkSession, logs: Path, options: dict[str, str], words: str
) -> None:
    reader = spark.read.format("kafkalog").options(**TOPIC, **options)
    with pytest.raises((AnalysisException, PySparkException), match=words):
        reader.load(str(logs)).collect()


def test_a_partition_that_is_assigned_has_to_be_there(logs: Path) -> None:
    with pytest.raises(Exception, match="No partition topic-7 is here"):
        values(logs, assign='{"topic": [0, 7]}')


def test_columns_and_tasks(spark: SparkSession, logs: Path) -> None:
    """The columns have the names and types of Spark's own source, and headers can be left out."""
    reader = spark.read.format("kafkalog").options(**TOPIC)
    kinds = {one.name: one.dataType.simpleString() for one in reader.load(str(logs)).schema}
    assert kinds == {
        "key": "binary", "value": "binary", "topic": "string", "partition": "int",
        "offset": "bigint", "timestamp": "timestamp", "timestampType": "int",
        "headers": "array<struct<key:string,value:binary>>",
    }  # fmt: skip
    without = reader.option("includeHeaders", "false").load(str(logs))
    assert without.columns == [name for name in kinds if name != "headers"]
    source = KafkaLogDataSource({"path": str(logs), **TOPIC, "minPartitions": "3"})
    assert len(source.reader(source.schema()).partitions()) == 3


def tasks(place: Path, **options: str) -> list[list[tuple[int, int]]]:
    """Return partition and offset of each task's rows, through the reader that Spark calls."""
    source = KafkaLogDataSource({"path": str(place), **options})
    reader = source.reader(source.schema())
    assert isinstance(reader, TableReader)
    return [
        [(row["partition"], row["offset"]) for one in reader.read(task) for row in one.to_pylist()]
        for task in reader.partitions()
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_task_has_so_many_records_at_most(
    tmp_path: Path, kafkalog: Any, *, is_indexed: bool
) -> None:
    """A partition gets as many tasks as by Spark's own source, or up to twice as many where an
    index says where to cut; no row is lost or there twice.
    """
    counts = (100, 1, 7)
    for number, count in enumerate(counts):
        some = (batch(n, [record(0, b"k", b"x" * 500)]) for n in range(count))
        write_log(tmp_path / f"topic-{number}", *some)
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    if is_indexed:
        assert kafkalog("rebuild-index", tmp_path, "--apply", "--yes", "-q").status == 0
    rows = [(number, n) for number, count in enumerate(counts) for n in range(count)]
    for most in (9, 40, 100):
        found = tasks(tmp_path, maxRecordsPerPartition=str(most))
        assert sorted(row for task in found for row in task) == rows
        assert max(map(len, found)) <= most
        wanted = -(-100 // most)  # as `KafkaOffsetRangeCalculator` divides
        assert wanted <= sum(task[0][0] == 0 for task in found) <= 2 * wanted
    both = tasks(tmp_path, maxRecordsPerPartition="40", minPartitions="12")
    assert len(both) >= 12
    assert sorted(row for task in both for row in task) == rows
    assert (
        max(len(one) for one in tasks(tmp_path, maxRecordsPerPartition="40", minPartitions="2"))
        <= 40
    )


def test_a_number_of_records_is_from_one_on() -> None:
    with pytest.raises(UsageError, match="maxRecordsPerPartition is a number from 1 on, not '0'"):
        parse_options({"path": "logs", "maxRecordsPerPartition": "0"})


def stream(logs: Path, **options: str) -> TailReader:
    source = KafkaLogDataSource({"path": str(logs), **TOPIC, **options})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, TailReader)
    return reader


def offsets(position: dict[str, Any]) -> list[int]:
    return [position[key][0] for key in sorted(position)]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [0, 0, 0]),
        ({"startingOffsets": "latest"}, [10, 10, 1]),
        ({"startingOffsets": of_all(p0=4, p1=-1, p2=-2)}, [4, 10, 0]),
        ({"startingOffsetsByTimestamp": of_all(p0=3500, p1=0, p2=20000)}, [4, 0, 0]),
    ],
)
def test_a_stream_starts_where_it_is_told(
    logs: Path, options: dict[str, str], wanted: list[int]
) -> None:
    assert offsets(stream(logs, **options).initialOffset()) == wanted


def test_a_stream_takes_so_many_offsets_at_a_time(logs: Path) -> None:
    """Each partition gets its share, as with `maxOffsetsPerTrigger` in `KafkaMicroBatchSource`."""
    reader = stream(logs, maxOffsetsPerTrigger="10")
    start = reader.initialOffset()
    found = []
    for _ in range(4):
        start = reader.latestOffset(start, reader.getDefaultReadLimit())
        found.append(offsets(start))
    assert found == [[4, 4, 1], [9, 9, 1], [10, 10, 1], [10, 10, 1]]


def test_damage_ends_a_stream_as_other_losses_do(tmp_path: Path) -> None:
    """What a batch passes over never comes: the next one begins after it."""
    first, second = (batch(at, [record(0, b"k", b"v")]) for at in range(2))
    write_log(tmp_path / "topic-0", first, flip(second, 8 * len(second) - 8))

    def rows(**options: str) -> int:
        reader = stream(tmp_path, **options)
        tasks = reader.partitions(reader.initialOffset(), {"topic-0": [2, -1]})
        return sum(one.num_rows for task in tasks for one in reader.read(task))

    with pytest.raises(CorruptDataError, match="does not match its checksum"):
        rows()
    assert rows(failOnDataLoss="false") == rows(mode="permissive") == 1


def test_a_stream_has_no_ending_offsets(logs: Path) -> None:
    with pytest.raises(Exception, match="A stream has no end: endingOffsets"):
        stream(logs, endingOffsets="latest")
