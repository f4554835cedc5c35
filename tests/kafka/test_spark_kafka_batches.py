"""Batch cases from the tests of Spark's own Kafka source, restated for our format.

A broker of Kafka writes the topics. `docs/design/spark-kafka-source.md` says which cases hold.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from kafkalog.errors import UsageError
from kafkalog.model import Isolation
from kafkalog.spark.options import parse_options
from tests.kafka.spark_topics import Kafka, Steps, json_of, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping


pytestmark = pytest.mark.kafka

SECOND_MS = 1000


@pytest.fixture(scope="module")
def usual(kafka: Kafka) -> str:
    """A topic of three partitions to which nobody appends: 0 to 9, 10 to 19, and 20."""
    topic = kafka.create(3)
    kafka.fill(topic)
    return topic


@pytest.fixture(scope="module")
def timed(kafka: Kafka) -> tuple[str, list[int]]:
    """Thirty values, ten per second, round robin; with the start time of each ten, and the end."""
    topic = kafka.create(3)
    first = int(time.time()) * SECOND_MS - 5 * SECOND_MS
    times = [first + SECOND_MS * n for n in range(4)]
    for n, at in enumerate(times[:3]):
        for partition in range(3):
            some = [value for value in range(10 * n, 10 * n + 10) if value % 3 == partition]
            kafka.send(topic, some, partition, timestamp=at)
    return topic, times


def test_earliest_to_latest(kafka: Kafka) -> None:
    """Records appended later are in frames loaded later; Spark plans each load once."""
    topic = kafka.create(3)
    kafka.fill(topic)
    options = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    frame = kafka.read(topic, **options)
    assert values_of(frame) == list(range(21))
    kafka.send(topic, range(21, 30), 2)
    assert values_of(frame) == list(range(21))
    assert values_of(kafka.read(topic, **options)) == list(range(30))


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
def test_offsets_are_earliest_to_latest_if_nothing_is_said(kafka: Kafka, usual: str) -> None:
    assert values_of(kafka.read(usual)) == list(range(21))


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
def test_explicit_offsets(kafka: Kafka) -> None:
    """A fixed end stays; a latest end moves for frames that are loaded later."""
    topic = kafka.create(3)
    kafka.fill(topic)
    options = {
        "startingOffsets": json_of(topic, [-2, -2, 0]),
        "endingOffsets": json_of(topic, [-1, -1, 1]),
    }
    assert values_of(kafka.read(topic, **options)) == list(range(21))
    kafka.send(topic, range(31, 40), 2)
    assert values_of(kafka.read(topic, **options)) == list(range(21))
    kafka.send(topic, range(21, 31), 1)
    assert values_of(kafka.read(topic, **options)) == list(range(31))


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
def test_headers_are_null_where_there_are_none(kafka: Kafka) -> None:
    topic = kafka.create(3)
    kafka.send(topic, [1], 0)
    kafka.send(topic, [2], 1, headers=[("a", b"b"), ("c", b"d")])
    kafka.send(topic, [3], 2, headers=[("e", b"f"), ("e", b"g")])
    rows = kafka.read(topic, includeHeaders="true").select("value", "headers").collect()
    found = {int(row["value"]): row["headers"] for row in rows}
    assert {n: some and [tuple(one) for one in some] for n, some in found.items()} == {
        1: None, 2: [("a", b"b"), ("c", b"d")], 3: [("e", b"f"), ("e", b"g")],
    }  # fmt: skip


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"startingOffsetsByTimestamp": [1, 1, 1], "endingOffsetsByTimestamp": [2, 2, 2]},
         range(10, 20)),
        ({"startingOffsetsByTimestamp": [0, 0, 0], "endingOffsets": (-1, -1, 1)},
         [*(n for n in range(30) if n % 3 != 2), 2]),
        ({"startingOffsets": (-2, -2, 0), "endingOffsetsByTimestamp": [2, 2, 2]}, range(20)),
        ({"startingOffsetsByTimestamp": [1, 1, 1]}, range(10, 30)),
        ({"endingOffsetsByTimestamp": [2, 2, 2]}, range(20)),
        ({"startingTimestamp": 1, "endingTimestamp": 2}, range(10, 20)),
        ({"startingTimestamp": 2, "startingOffsetsByTimestamp": [1, 1, 1],
          "startingOffsets": "earliest"}, range(20, 30)),
        ({"startingOffsetsByTimestamp": [1, 1, 1], "startingOffsets": "earliest"}, range(10, 30)),
        ({"endingOffsetsByTimestamp": [1, 1, None]},
         [*range(10), *(n for n in range(10, 30) if n % 3 == 2)]),
    ],
)  # fmt: skip
def test_timestamps_say_where_to_begin_and_end(
    kafka: Kafka, timed: tuple[str, list[int]], options: dict[str, Any], wanted: Any
) -> None:
    """The more specific option wins; a time at the end without a match means the log end."""
    topic, times = timed
    frame = kafka.read(topic, **in_words(topic, times, options))
    assert values_of(frame) == sorted(wanted)


def in_words(topic: str, times: list[int], options: Mapping[str, Any]) -> dict[str, str]:
    """Replace the indexes of times by the times; None is later than all records."""
    told = {}
    for name, value in options.items():
        if isinstance(value, list):
            at = [(1 << 63) - 1 if n is None else times[n] for n in value]
            told[name] = json_of(topic, at)
        elif isinstance(value, tuple):
            told[name] = json_of(topic, list(value))
        else:
            told[name] = str(times[value]) if isinstance(value, int) else value
    return told


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
@pytest.mark.parametrize(
    "options", [{"startingOffsetsByTimestamp": [1, 1, None]}, {"startingTimestamp": 3}]
)
def test_a_time_to_start_at_has_to_match(
    kafka: Kafka, timed: tuple[str, list[int]], options: dict[str, Any]
) -> None:
    topic, times = timed
    with pytest.raises(PySparkException, match="No offset matched from request"):
        kafka.read(topic, **in_words(topic, times, options)).collect()


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
def test_a_data_frame_is_used_twice_in_a_query(kafka: Kafka, usual: str) -> None:
    frame = kafka.read(usual)
    assert values_of(frame.union(frame)) == sorted([*range(21)] * 2)


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
def test_the_earliest_offset_is_that_of_now(kafka: Kafka) -> None:
    """The beginning of the log has been deleted."""
    topic = kafka.create(1)
    kafka.send(topic, range(10), 0)
    options = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    assert values_of(kafka.read(topic, **options)) == list(range(10))
    kafka.delete_before(topic, 0, 10)
    kafka.send(topic, range(10, 20), 0)
    assert values_of(kafka.read(topic, **options)) == list(range(10, 20))


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "cannot start at the latest offsets"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, "cannot start at the latest offsets"),
        ({"startingOffsets": '{"t": "latest"}'}, "cannot start at the latest offsets"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest offsets"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "cannot end at the earliest offsets"),
        ({"subscribePattern": "t.*"}, "Only one of assign, subscribe, subscribePattern"),
        ({"assign": '{"a": [0]}'}, "Only one of assign, subscribe, subscribePattern"),
    ],
)
def test_bad_options_of_batches(kafka: Kafka, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException, match=words):
        kafka.read("t", **options).collect()


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
@pytest.mark.parametrize("name", ["assign", "subscribe", "subscribePattern"])
def test_what_is_chosen_cannot_be_nothing(name: str) -> None:
    """If none of the three options is given, all topics of the path are read."""
    with pytest.raises(UsageError, match=f"The option {name} is empty"):
        parse_options({"path": "logs", name: ""})
    assert parse_options({"path": "logs"}).request.bounds.topics is None


def test_transactions(kafka: Kafka) -> None:
    """Transactions are open, committed, aborted, and committed again; for both isolation levels."""
    topic = kafka.create(1)

    def both() -> list[list[int]]:
        levels = ("read_committed", "read_uncommitted")
        return [values_of(kafka.read(topic, **{"kafka.isolation.level": one})) for one in levels]

    with kafka.transactions() as producer:
        producer.begin_transaction()
        kafka.send(topic, range(1, 6), 0, producer=producer)
        assert both() == [[], [*range(1, 6)]]
        producer.commit_transaction()
        kafka.await_end(topic, 0, 6)
        assert both() == [[*range(1, 6)]] * 2
        producer.begin_transaction()
        kafka.send(topic, range(6, 11), 0, producer=producer)
        producer.abort_transaction()
        kafka.await_end(topic, 0, 12)
        assert both() == [[*range(1, 6)], [*range(1, 11)]]
        producer.begin_transaction()
        kafka.send(topic, range(11, 16), 0, producer=producer)
        producer.commit_transaction()
        kafka.await_end(topic, 0, 18)
        assert both() == [[*range(1, 6), *range(11, 16)], [*range(1, 16)]]


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
@pytest.mark.parametrize(
    ("given", "wanted"),
    [(None, "read_uncommitted"), ("read_uncommitted", "read_uncommitted"),
     ("read_committed", "read_committed")],
)  # fmt: skip
def test_isolation_levels(given: str | None, wanted: str) -> None:
    words = {} if given is None else {"kafka.isolation.level": given}
    assert parse_options({"path": "logs", **words}).request.isolation == Isolation(wanted)
    with pytest.raises(UsageError, match="cannot be 'wrong'"):
        parse_options({"path": "logs", "kafka.isolation.level": "wrong"})


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
def test_there_are_as_many_tasks_as_wanted(kafka: Kafka, usual: str) -> None:
    """Each record is in exactly one of them."""
    frame = kafka.read(usual, minPartitions="6")
    parts = frame.rdd.glom().map(lambda rows: [int(row["value"]) for row in rows]).collect()
    assert len(parts) >= 6
    assert sorted(value for part in parts for value in part) == list(range(21))
    assert max(map(len, parts)) <= 5


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
@pytest.mark.parametrize(
    ("sizes", "wanted", "shares"),
    [
        ([1, 1, 1], 3, [1, 1, 1]),
        ([4], 4, [1, 1, 1, 1]),
        ([4, 20], 4, [4, 6, 7, 7]),
        ([0, 20], 4, [5, 5, 5, 5]),
        ([1, 40], 4, [1, 13, 13, 14]),
        ([10], 3, [3, 3, 4]),
        ([4, 20, 0], 4, [4, 6, 7, 7]),
    ],
)
def test_tasks_have_alike_shares(
    kafka: Kafka, sizes: list[int], wanted: int, shares: list[int]
) -> None:
    """Ranges of offsets are divided as `KafkaOffsetRangeCalculator` divides them."""
    topic = kafka.create(len(sizes))
    for partition, size in enumerate(sizes):
        kafka.send(topic, range(size), partition)
    found = kafka.tasks(topic, minPartitions=str(wanted))
    rows = [row for task in found for row in task]
    assert len(rows) == len(set(rows)) == sum(sizes), "no offset is lost, none is there twice"
    assert sorted(map(len, found)) == shares


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
def test_without_a_least_number_small_partitions_share_a_task(kafka: Kafka, usual: str) -> None:
    assert [len(task) for task in kafka.tasks(usual)] == [21]
    assert len(kafka.tasks(usual, minPartitions="1")) == 1


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
@pytest.mark.parametrize(
    ("sizes", "most", "shares"),
    [([4], 5, [4]), ([4], 1, [1, 1, 1, 1]), ([10], 4, [3, 3, 4]), ([4, 20], 8, [4, 6, 7, 7])],
)
def test_a_task_has_so_many_records_at_most(
    kafka: Kafka, sizes: list[int], most: int, shares: list[int]
) -> None:
    """Ranges are divided as `KafkaOffsetRangeCalculator` divides them, in a stream as well."""
    topic = kafka.create(len(sizes))
    for partition, size in enumerate(sizes):
        kafka.send(topic, range(size), partition)
    limit = {"maxRecordsPerPartition": str(most)}
    found = kafka.tasks(topic, **limit)
    assert sorted(map(len, found)) == shares
    assert len({row for task in found for row in task}) == sum(sizes)
    query = Steps(kafka, subscribe=topic, **limit)
    assert sorted(len(query.read([task])) for task in query.plan()) == shares


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
def test_both_limits_of_tasks_hold(kafka: Kafka, usual: str) -> None:
    found = kafka.tasks(usual, maxRecordsPerPartition="5", minPartitions="8")
    assert len(found) >= 8
    assert max(map(len, found)) <= 5
    assert sum(map(len, found)) == 21


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition"])
@pytest.mark.parametrize("number", ["a", "1.0", "0", "-1"])
def test_limits_of_tasks_are_numbers(option: str, number: str) -> None:
    with pytest.raises(UsageError, match=f"The option {option} is a number from 1 on"):
        parse_options({"path": "logs", option: number})


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": [1, 1, 1], "endingOffsets": [1, 1]}, "must specify all"),
        ({"startingOffsets": [1, 1]}, "must specify all TopicPartitions"),
        ({"startingOffsetsByTimestamp": [0, 0]}, "must specify all TopicPartitions"),
        ({"startingOffsetsByTimestamp": [0, 0, 0, 0]}, "names .*-3, which is not read here"),
        ({"startingOffsets": [1, 1, 1], "endingOffsets": [0, 0, 0]},
         "The start offset 1 is greater than the end offset 0 for"),
        ({"startingOffsets": [3, 3, 1], "endingOffsetsByTimestamp": [1, 1, 1]},
         "The start offset 3 is greater than the end offset 0 for"),
        ({"startingOffsets": [11, 0, 0]}, "has offset 11 of"),
    ],
)  # fmt: skip
def test_edges_that_do_not_fit(
    kafka: Kafka, usual: str, options: dict[str, list[int]], words: str
) -> None:
    told = {name: json_of(usual, numbers) for name, numbers in options.items()}
    with pytest.raises(PySparkException, match=words):
        kafka.read(usual, **told).collect()


def test_what_was_deleted_is_not_read_twice(kafka: Kafka) -> None:
    """With failOnDataLoss=false, a read starts at an offset that is gone."""
    topic = kafka.create(1)
    kafka.send(topic, range(50), 0)
    kafka.delete_before(topic, 0, 30)
    options = {"startingOffsets": json_of(topic, [0])}
    with pytest.raises(PySparkException, match="has offset 0 of"):
        kafka.read(topic, **options).collect()
    frame = kafka.read(topic, failOnDataLoss="false", **options)
    assert values_of(frame) == list(range(30, 50))


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ('{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}', True),
        ('{"topicA": "earliest", "topicB": "latest"}', True),
        ('{"topicA": "earliest", "topicB": {"0": 23, "1": -1}, "topicC": "LATEST"}', True),
        ("earLiEst", True),
        ('{"topicA": "earliest", "topicA": {"0": 23}}', False),
        ('{"topicA": "first"}', False),
        ('{"topicA": [0, 1]}', False),
        ('{"topicA": {"0": "earliest"}}', False),
        ('"earliest"', False),
        ("not json", False),
    ],
)
def test_offsets_in_json(text: str, *, is_right: bool) -> None:
    options = {"path": "logs", "STARTINGOFFSETS": text}
    if not is_right:
        with pytest.raises(UsageError, match="The option startingOffsets cannot be"):
            parse_options(options)
        return
    edge = parse_options(options).edges.start
    assert edge is not None
    words = {"earliest": -2, "latest": -1}
    told = json.loads(text) if text.startswith("{") else {}
    assert dict(edge.topics) == {
        topic: words[one.lower()] for topic, one in told.items() if isinstance(one, str)
    }
    assert (edge.offsets or {}) == {
        (topic, int(number)): offset
        for topic, one in told.items() if isinstance(one, dict)
        for number, offset in one.items()
    }  # fmt: skip
    assert (edge.everywhere == -2) == (not told)


@pytest.mark.thorough("tests/kafka/test_spark_kafka_batches.py::test_earliest_to_latest")
def test_partitions_are_chosen(kafka: Kafka) -> None:
    """By assignment, by names and by a pattern; other topics exist, too."""
    first, second, other = kafka.create(3), kafka.create(2), kafka.create(1)
    for number, topic in enumerate((first, second, other)):
        for partition in range(kafka.partitions[topic]):
            kafka.send(topic, [10 * number + partition], partition)
    assigned = json.dumps({first: [0, 2]})
    assert values_of(kafka.frame(assign=assigned)) == [0, 2]
    assert values_of(kafka.read(f"{first},{second}")) == [0, 1, 2, 10, 11]
    assert values_of(kafka.frame(subscribePattern=f"{first}|{second}")) == [0, 1, 2, 10, 11]
    with pytest.raises(PySparkException, match=f"No partition {other}-1 is here"):
        kafka.frame(assign=json.dumps({other: [1]})).collect()
