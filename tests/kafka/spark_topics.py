"""A broker, its topics, and what Spark reads from them in the format of this project."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kafkalog.spark import KafkaLogDataSource
from kafkalog.spark.source import TailReader
from tests.kafka.test_returned_partitions import NODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.kafka.booted import Brokers

WAIT_S: Final = 60
CHOICES: Final = ("assign", "subscribe", "subscribePattern")
_QUICK: Final = {
    "replica.high.watermark.checkpoint.interval.ms": "20",
    "log.flush.start.offset.checkpoint.interval.ms": "20",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}
"""What a broker notes for others is there at once."""


def json_of(topic: str, numbers: list[int]) -> str:
    """Return offsets or times of all partitions of a topic as JSON."""
    return json.dumps({topic: {str(n): number for n, number in enumerate(numbers)}})


def values_of(frame: DataFrame) -> list[int]:
    return sorted(int(row["value"]) for row in frame.select("value").collect())


@dataclass
class Kafka:
    """A broker, and a session of Spark that knows the format."""

    spark: SparkSession
    log_dir: Path
    bootstrap: str
    partitions: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self._forget()
        self._numbers = count()

    def _forget(self) -> None:
        """Start with a producer that knows no topic yet."""
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})

    @classmethod
    @contextmanager
    def running(cls, brokers: Brokers, spark: SparkSession, home: Path) -> Iterator[Kafka]:
        """Run a new broker within the block."""
        spark.dataSource.register(KafkaLogDataSource)
        file = home / "server.properties"
        file.write_text(NODE.format(log_dir=home / "log"))
        brokers.ask("format", file, "MkU3OEVBNTcwNTJENDM2Qk")
        answer = brokers.ask("boot", str(home), str(file), _QUICK)
        try:
            yield cls(spark, home / "log", answer["addresses"]["PLAINTEXT"])
        finally:
            brokers.ask("shut-down", str(home))

    def create(self, partitions: int, name: str | None = None, **config: str) -> str:
        """Create a topic, and wait for its directories."""
        topic = f"topic{next(self._numbers)}" if name is None else name
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        self.admin.create_topics([new])[topic].result(WAIT_S)
        self.partitions[topic] = partitions
        self._await_directories(topic)
        return topic

    def _await_directories(self, topic: str) -> None:
        names = [f"{topic}-{n}" for n in range(self.partitions[topic])]
        self.await_for(lambda: all(
            (self.log_dir / name / "partition.metadata").exists() for name in names
        ))  # fmt: skip

    def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic, up to a number."""
        wanted = NewPartitions(topic, partitions)
        self.admin.create_partitions([wanted])[topic].result(WAIT_S)
        self.partitions[topic] = partitions
        self._await_directories(topic)
        self._forget()

    def new_name(self) -> str:
        return f"name{next(self._numbers)}"

    def delete(self, topic: str) -> None:
        """Delete a topic: the broker renames its directories, and removes them some time later."""
        self.admin.delete_topics([topic])[topic].result(WAIT_S)
        names = [f"{topic}-{n}" for n in range(self.partitions.pop(topic))]
        self.await_for(lambda: not any((self.log_dir / name).exists() for name in names))
        self._forget()

    def fill(self, topic: str) -> None:
        """Fill a topic with the records that most of the cases use."""
        for partition, values in enumerate((range(10), range(10, 20), range(20, 21))):
            self.send(topic, values, partition)

    def send(
        self,
        topic: str,
        values: Iterable[int | None],
        partition: int | None = None,
        *,
        timestamp: int | None = None,
        headers: Any = None,
        key: str | None = None,
        producer: Producer | None = None,
    ) -> None:
        """Append values, and wait until the broker has noted how far consumers may read."""
        ends: dict[int, int] = {}
        sender = producer or self._producer

        def noted(error: Any, message: Any) -> None:
            assert error is None, error
            ends[message.partition()] = max(ends.get(message.partition(), 0), message.offset() + 1)

        for number, value in enumerate(values):
            place = number % self.partitions[topic] if partition is None else partition
            at = {} if timestamp is None else {"timestamp": timestamp}
            sender.produce(
                topic, None if value is None else str(value), key, partition=place,
                headers=headers, on_delivery=noted, **at,
            )  # fmt: skip
        assert sender.flush(WAIT_S) == 0
        for number, end in ends.items():
            self.await_end(topic, number, end)

    def await_end(self, topic: str, partition: int, end: int) -> None:
        """Wait until the broker has noted a high watermark."""
        self.await_for(
            lambda: self._noted("replication-offset-checkpoint", topic, partition) >= end
        )

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete records, and wait until the broker has noted it."""
        place = TopicPartition(topic, partition, offset)
        self.admin.delete_records([place])[place].result(WAIT_S)
        self.await_for(
            lambda: self._noted("log-start-offset-checkpoint", topic, partition) >= offset
        )

    def _noted(self, name: str, topic: str, partition: int) -> int:
        try:
            lines = (self.log_dir / name).read_text().splitlines()[2:]
        except FileNotFoundError:
            return -1
        wanted = [topic, str(partition)]
        return next((int(line.split()[2]) for line in lines if line.split()[:2] == wanted), -1)

    @staticmethod
    def await_for(is_so: Any) -> None:
        until = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < until
            time.sleep(0.01)

    @contextmanager
    def transactions(self) -> Iterator[Producer]:
        """A transactional producer."""
        name = f"transactions-{os.getpid()}-{next(self._numbers)}"
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, "transactional.id": name, "linger.ms": 0}
        )
        producer.init_transactions(WAIT_S)
        yield producer

    def frame(self, **options: str) -> DataFrame:
        """Read with `spark.read`; the options are those of Spark's own source."""
        reader = self.spark.read.format("kafkalog").options(**options)
        return reader.option("kafka.metadata.max.age.ms", "1").load(str(self.log_dir))

    def read(self, topics: str, **options: str) -> DataFrame:
        """Read some topics with `spark.read`."""
        return self.frame(subscribe=topics, **options)

    def tasks(self, topic: str, **options: str) -> list[list[tuple[int, int]]]:
        """Return partition and offset of each task's rows, read as Spark calls the reader."""
        given = {"path": str(self.log_dir), "subscribe": topic, **options}
        source = KafkaLogDataSource(given)
        reader = source.reader(source.schema())
        return [
            [
                (row["partition"], row["offset"])
                for batch in reader.read(task)
                for row in batch.to_pylist()
            ]
            for task in reader.partitions()
        ]


class Steps:
    """The micro-batches of a query, one after the other."""

    def __init__(self, kafka: Kafka, **options: str) -> None:
        self._options = {"path": str(kafka.log_dir), **options}
        self.at: dict[str, Any] | None = None
        self.start()

    def start(self) -> None:
        """Start the query, or start it again from its checkpoint."""
        source = KafkaLogDataSource(self._options)
        reader = source.streamReader(source.schema())
        assert isinstance(reader, TailReader)
        self.reader = reader

    def plan(self, *, once: bool = False) -> list[Any]:
        """Plan a batch and return its tasks."""
        if self.at is None:
            self.at = self.reader.initialOffset()
        limit = ReadAllAvailable() if once else self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(self.at, limit)
        tasks = [*self.reader.partitions(self.at, end)]
        self.at = json.loads(json.dumps(end))
        return tasks

    def read(self, tasks: list[Any]) -> list[int]:
        batches = (batch for task in tasks for batch in self.reader.read(task))
        return sorted(int(row["value"]) for batch in batches for row in batch.to_pylist())

    def step(self, *, once: bool = False) -> list[int]:
        """Return the values of the next batch."""
        return self.read(self.plan(once=once))

    def all(self) -> list[int]:
        """Return the values of all batches until nothing is new."""
        found: list[int] = []
        before: Any = self
        while before != self.at:
            before = self.at
            found += self.step()
        return sorted(found)

    def ends(self) -> list[int]:
        """Return the next offsets."""
        assert self.at is not None
        return [self.at[key][0] for key in sorted(self.at)]


class Query:
    """A query of Spark that ends when it has read what exists, and can be continued."""

    def __init__(self, kafka: Kafka, place: Path, **options: str) -> None:
        self._spark, self._place = kafka.spark, place
        self.frame: DataFrame = stream(kafka, **options)

    def run(self, frame: DataFrame | None = None, **trigger: Any) -> StreamingQuery:
        """Read what exists, and write it to a table."""
        writer = (self.frame if frame is None else frame).writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._place / "checkpoint"))
        query = writer.trigger(**(trigger or {"availableNow": True})).start(
            str(self._place / "table")
        )
        query.awaitTermination()
        return query

    def values(self) -> list[int]:
        """Return the values in the table."""
        table = self._spark.read.parquet(str(self._place / "table"))
        return sorted(int(row["value"]) for row in table.select("value").collect())


def stream(kafka: Kafka, **options: str) -> DataFrame:
    """Read with `spark.readStream`; the options are those of Spark's own source."""
    reader = kafka.spark.readStream.format("kafkalog").options(**options)
    return reader.option("kafka.metadata.max.age.ms", "1").load(str(kafka.log_dir))


def choice(kafka: Kafka, kind: str, topic: str) -> dict[str, str]:
    """Return the option that chooses a topic."""
    if kind == "assign":
        return {kind: json.dumps({topic: [*range(kafka.partitions[topic])]})}
    return {kind: topic if kind == "subscribe" else f"{topic}.*"}


BEFORE = ((-20, -21, -22), (-10, -11, -12), (0, 1, 2), (10, 11, 12), (20, 21, 22))
"""What is in five partitions before a query starts."""
LATE_FROM = (1, 1, 2, 2, 3)
"""How many of these are of the first of two times."""


def prepared(kafka: Kafka, *, is_whole: bool = False) -> tuple[str, list[int]]:
    """Make a topic, and return it with two times.

    `is_whole` adds records of the second time where they are missing, so that every partition has
    some.
    """
    topic = kafka.create(5)
    first = int(time.time()) * 1000 - 5000
    times = [first, first + 1000]
    for partition, (values, late) in enumerate(zip(BEFORE, LATE_FROM, strict=True)):
        kafka.send(topic, values[:late], partition, timestamp=first)
        kafka.send(topic, values[late:], partition, timestamp=times[1])
    if is_whole:
        kafka.send(topic, [23, 24], 4, timestamp=times[1])
    return topic, times


EVERYTHING = [value for some in BEFORE for value in some]
LATE = [-21, -22, -11, -12, 2, 12]
STARTS: dict[str, tuple[list[int], bool]] = {
    "latest": ([], False),
    "earliest": (EVERYTHING, False),
    "offsets": ([-20, -21, -22, 0, 1, 2, 11, 12, 22], False),
    "timestamps": ([*LATE, 20, 21, 22], False),
    "timestamp": ([*LATE, 23, 24], True),
}
"""What a query reads first, and whether all partitions have something of the second time."""


def start_of(kind: str, topic: str, times: list[int]) -> dict[str, str]:
    """Return the option that says where a query begins."""
    if kind == "offsets":
        return {"startingOffsets": json_of(topic, [-2, -1, 0, 1, 2])}
    if kind == "timestamps":
        return {"startingOffsetsByTimestamp": json_of(topic, [times[1]] * 4 + [times[0]])}
    if kind == "timestamp":
        return {"startingTimestamp": str(times[1])}
    return {"startingOffsets": kind}


def three_sizes(kafka: Kafka) -> str:
    topic = kafka.create(3)
    kafka.send(topic, range(100, 201), 0)
    kafka.send(topic, range(10, 21), 1)
    kafka.send(topic, [1], 2)
    return topic
