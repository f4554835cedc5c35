"""Streaming cases from the tests of Spark's own Kafka source, restated for our format.

Where a case depends on the content of each batch, the tests call the reader as Spark does: offsets
are kept as JSON, and a query that starts again gets a new reader.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kafkalog.errors import KafkaLogError, RefusedError, UsageError
from kafkalog.spark.options import parse_options
from tests.kafka.spark_topics import (
    CHOICES,
    LATE,
    STARTS,
    Steps,
    choice,
    json_of,
    prepared,
    start_of,
    three_sizes,
)

if TYPE_CHECKING:
    from tests.kafka.spark_topics import Kafka

pytestmark = pytest.mark.kafka


@pytest.mark.sampled(12)
@pytest.mark.parametrize("loss", ["true", "false"])
@pytest.mark.parametrize("kind", CHOICES)
@pytest.mark.parametrize("start", STARTS)
def test_where_a_query_starts_and_goes_on(kafka: Kafka, start: str, kind: str, loss: str) -> None:
    """It restarts while nothing is new and when something is; partitions are added."""
    wanted, is_whole = STARTS[start]
    topic, times = prepared(kafka, is_whole=is_whole)
    chosen = choice(kafka, kind, topic)
    query = Steps(kafka, failOnDataLoss=loss, **chosen, **start_of(start, topic, times))
    assert query.all() == sorted(wanted)
    query.start()
    assert query.all() == []
    kafka.send(topic, [30, 31, 32])
    query.start()
    assert query.all() == [30, 31, 32]
    kafka.send(topic, [33, 34])
    assert query.all() == [33, 34]
    if kind != "assign":
        kafka.grow(topic, 10)
    kafka.send(topic, range(40, 50))
    assert query.all() == [*range(40, 50)]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_topics_start_at_their_own_ends(kafka: Kafka) -> None:
    first, second = kafka.create(3), kafka.create(2)
    kafka.send(first, [1, 2, 3], 0)
    kafka.send(second, [11], 0)
    starts = json.dumps({first: "earliest", second: "latest"})
    query = Steps(kafka, subscribe=f"{first},{second}", startingOffsets=starts)
    assert query.all() == [1, 2, 3]
    kafka.send(second, [12], 0)
    kafka.send(first, [4])
    assert query.all() == [4, 12]
    unknown = json.dumps({first: "earliest", second: "latest", "nothing": "earliest"})
    with pytest.raises(UsageError, match="names nothing, which is not read here"):
        Steps(kafka, subscribe=f"{first},{second}", startingOffsets=unknown).step()


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_a_new_topic_of_the_pattern_starts_at_its_first_offset(kafka: Kafka) -> None:
    prefix = kafka.new_name()
    first = kafka.create(1, f"{prefix}-a")
    kafka.send(first, [1], 0)
    starts = json.dumps({first: "earliest"})
    query = Steps(kafka, subscribePattern=f"{prefix}-.*", startingOffsets=starts)
    assert query.all() == [1]
    second = kafka.create(1, f"{prefix}-b")
    kafka.send(second, [2], 0)
    assert query.all() == [2]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
@pytest.mark.parametrize("start", ["timestamps", "timestamp"])
@pytest.mark.parametrize("kind", ["subscribe", "subscribePattern"])
def test_a_time_without_a_match(kafka: Kafka, kind: str, start: str) -> None:
    """It is an error, unless the strategy says that it means the end."""
    topic, times = prepared(kafka)
    options = {**choice(kafka, kind, topic), **start_of(start, topic, times)}
    if start == "timestamps":
        options["startingOffsetsByTimestamp"] = json_of(topic, [times[1]] * 5)
    for strategy in ({}, {"startingoffsetsbytimestampstrategy": "error"}):
        with pytest.raises(UsageError, match="No offset matched from request"):
            Steps(kafka, **options, **strategy).step()
    query = Steps(kafka, **options, startingoffsetsbytimestampstrategy="latest")
    assert query.all() == sorted(LATE)
    assert query.ends() == [3] * 5
    kafka.send(topic, [23, 24, 25], 4, timestamp=times[1])
    assert query.all() == [23, 24, 25]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_a_batch_has_its_share_of_each_partition(kafka: Kafka) -> None:
    """This holds after a restart, too; a trigger that runs once has no limit."""
    topic = three_sizes(kafka)
    query = Steps(kafka, subscribe=topic, maxOffsetsPerTrigger="10")
    assert query.step() == [1, 10, *range(100, 108)]
    assert query.step() == [11, *range(108, 117)]
    query.start()
    assert query.step() == [12, *range(117, 126)]
    assert query.step() == [13, *range(126, 135)]
    once = Steps(kafka, subscribe=topic, maxOffsetsPerTrigger="10")
    assert once.step(once=True) == [1, *range(10, 21), *range(100, 201)]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_a_limit_is_a_long(kafka: Kafka) -> None:
    topic = kafka.create(1)
    kafka.send(topic, range(5), 0)
    query = Steps(
        kafka, subscribe=topic, startingOffsets=json_of(topic, [5]),
        maxOffsetsPerTrigger=str((1 << 63) - 1),
    )  # fmt: skip
    assert query.all() == []
    kafka.send(topic, range(30, 35), 0)
    assert query.all() == [*range(30, 35)]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
@pytest.mark.parametrize("limit", [None, 20])
def test_a_batch_waits_for_enough(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """The first batch never waits, nor does a single trigger; others wait up to the delay."""
    now = [1000.0]
    monkeypatch.setattr("kafkalog.spark.source.time.monotonic", lambda: now[0])
    topic = kafka.create(1)
    kafka.send(topic, range(16), 0)
    most = {} if limit is None else {"maxOffsetsPerTrigger": str(limit)}
    options = {"subscribe": topic, "minOffsetsPerTrigger": "15", "maxTriggerDelay": "5s", **most}
    query = Steps(kafka, **options)
    assert query.step() == [*range(16)]
    kafka.send(topic, range(16, 22), 0)
    assert query.step() == []
    kafka.send(topic, range(22, 40), 0)
    assert query.step() == [*range(16, 40 if limit is None else 36)]
    kafka.send(topic, range(40, 50), 0)
    now[0] += 4.9
    assert query.step() == []
    now[0] += 0.2
    assert query.step() == [*range(40 if limit is None else 36, 50)]
    kafka.send(topic, [50], 0)
    assert query.step() == []
    assert query.step(once=True) == [50]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_bad_options_of_streams(kafka: Kafka) -> None:
    for options, words in (
        ({"endingOffsets": "latest"}, "A stream has no end: endingOffsets"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": 1}}'}, "A stream has no end"),
        ({"endingTimestamp": "1"}, "A stream has no end: endingTimestamp"),
        ({"subscribePattern": "t.*"}, "Only one of"),
        ({"assign": '{"a": [0]}'}, "Only one of"),
        ({"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"}, "higher than"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is a time"),
    ):
        with pytest.raises(UsageError, match=words):
            Steps(kafka, subscribe="t", **options)


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
@pytest.mark.parametrize("value", ["none", "earliest", "someValue"])
@pytest.mark.parametrize(
    "name",
    ["auto.offset.reset", "enable.auto.commit", "interceptor.classes", "key.deserializer",
     "value.deserializer"],
)  # fmt: skip
def test_options_of_consumers_that_make_no_sense(name: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"kafka.{name} is not supported"):
        parse_options({"path": "logs", f"kafka.{name}": value})


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_options_of_clients_do_no_harm() -> None:
    """Options may have any case; none of the clients' options are needed."""
    names = ("kafka.bootstrap.servers", "kafka.group.id", "kafka.ssl.truststore.location",
             "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries",
             "fetchOffset.retryIntervalMs", "groupIdPrefix")  # fmt: skip
    wanted = parse_options({"path": "logs"})
    for name in names:
        assert parse_options({"path": "logs", name.upper(): "1111"}) == wanted
        assert parse_options({"path": "logs", name.lower(): "1111"}) == wanted
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger"):
        found = [parse_options({"path": "logs", one: "1111"}) for one in (name.upper(), name)]
        assert found[0] == found[1]
        assert 1111 in (found[0].rows_per_trigger, found[0].rows_min)


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
@pytest.mark.parametrize(("partitions", "records"), [(3, 15), (5, 10)])
def test_a_topic_that_is_recreated_is_a_loss(kafka: Kafka, partitions: int, records: int) -> None:
    """Between two batches of a query, it comes back with fewer partitions or fewer records."""
    topic = kafka.create(5)
    kafka.send(topic, range(15), 0)
    query = Steps(kafka, subscribe=topic, maxOffsetsPerTrigger="5")
    query.start()
    query.at = query.reader.initialOffset()
    query.reader.prepareForTriggerAvailableNow()
    assert query.step() == [*range(5)]
    kafka.delete(topic)
    kafka.create(partitions, topic)
    kafka.send(topic, range(records), 0)
    with pytest.raises(RefusedError, match="is another topic of that name now"):
        query.step()


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_a_topic_of_a_pattern_that_is_recreated_is_a_loss(kafka: Kafka) -> None:
    """It is deleted and created between two runs of a query."""
    prefix = kafka.new_name()
    good, bad = (kafka.create(1, f"{prefix}-{name}") for name in ("good", "bad"))
    kafka.send(good, [1, 3])
    kafka.send(bad, [2, 4])
    query = Steps(kafka, subscribePattern=f"{prefix}-.*")
    assert query.all() == [1, 2, 3, 4]
    kafka.delete(bad)
    kafka.create(1, bad)
    kafka.send(bad, [6])
    query.start()
    with pytest.raises(RefusedError, match="is another topic of that name now"):
        query.step()


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
@pytest.mark.filterwarnings("ignore:.*is not here any more")
def test_topics_of_a_pattern_come_and_go(kafka: Kafka) -> None:
    """With failOnDataLoss=false; the checkpoint is never empty."""
    prefix = kafka.new_name()
    first = kafka.create(5, f"{prefix}-seems")
    kafka.send(first, [-1])
    options = {"startingOffsets": "latest", "failOnDataLoss": "false"}
    query = Steps(kafka, subscribePattern=f"{prefix}-.*", **options)
    assert query.all() == []
    kafka.send(first, [1, 2, 3])
    assert query.all() == [1, 2, 3]
    kafka.delete(first)
    assert query.all() == []
    assert query.at
    second = kafka.create(5, f"{prefix}-bad")
    kafka.send(second, [4, 5, 6])
    assert query.all() == [4, 5, 6]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
@pytest.mark.filterwarnings("ignore:.*The partition is not here")
def test_a_topic_is_deleted_while_a_batch_is_read(kafka: Kafka) -> None:
    """It is deleted after the plan; with failOnDataLoss=false that is no error."""
    for loss in ("false", "true"):
        topic = kafka.create(1)
        kafka.send(topic, range(10), 0)
        query = Steps(kafka, subscribe=topic, failOnDataLoss=loss)
        tasks = query.plan()
        kafka.delete(topic)
        if loss == "false":
            assert query.read(tasks) == []
        else:
            with pytest.raises(KafkaLogError):
                query.read(tasks)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions_by_three_offsets(kafka: Kafka, isolation: str) -> None:
    """Some batches have no records; others have markers first, last and in the middle."""
    topic = kafka.create(1)
    options = {"kafka.isolation.level": isolation, "maxOffsetsPerTrigger": "3"}
    query = Steps(kafka, subscribe=topic, **options)
    is_committed = isolation == "read_committed"
    assert query.step() == []

    def transaction(values: range, *, aborts: bool = False) -> None:
        producer.begin_transaction()
        kafka.send(topic, values, 0, producer=producer)
        producer.abort_transaction() if aborts else producer.commit_transaction()
        kafka.await_end(topic, 0, values.stop + 1)

    with kafka.transactions() as producer:
        producer.begin_transaction()
        kafka.send(topic, range(5), 0, producer=producer)
        assert query.step() == ([] if is_committed else [0, 1, 2])
        producer.commit_transaction()
        kafka.await_end(topic, 0, 6)
        if is_committed:
            assert query.step() == [0, 1, 2]
        assert query.step() == [3, 4]
        transaction(range(6, 11), aborts=True)
        assert query.step() == ([] if is_committed else [6, 7, 8])
        assert query.step() == ([] if is_committed else [9, 10])
        transaction(range(12, 17))
        assert query.step() == [12, 13, 14]
        assert query.step() == [15, 16]
        for values in (range(18, 19), range(20, 21), range(22, 24)):
            transaction(values)
        assert query.step() == [18, 20]
        assert query.step() == [22, 23]
        assert query.step() == []
        assert query.ends() == [25]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_what_comes_after_the_plan_is_of_the_next_batch(kafka: Kafka) -> None:
    topic = kafka.create(1)
    query = Steps(kafka, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    tasks = []
    with kafka.transactions() as producer:
        for values in (range(4), range(4, 8)):
            producer.begin_transaction()
            kafka.send(topic, values, 0, producer=producer)
            producer.commit_transaction()
            if values.start:
                kafka.await_end(topic, 0, 10)
                assert query.read(tasks) == [0, 1, 2, 3]
            else:
                kafka.await_end(topic, 0, 5)
                tasks = query.plan()
    assert query.step() == [4, 5, 6, 7]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_a_stream_has_as_many_tasks_as_wanted(kafka: Kafka) -> None:
    topic = kafka.create(3)
    kafka.fill(topic)
    query = Steps(kafka, subscribe=topic, minPartitions="6")
    tasks = query.plan()
    assert len(tasks) >= 6
    assert query.read(tasks) == [*range(21)]


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_an_impossible_timestamp_is_null(kafka: Kafka) -> None:
    """Spark's own source fails on it; `timestamp_ms` has the stored number."""
    topic = kafka.create(1, **{"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    stored = 1712345678123456789
    kafka.send(topic, [1], 0, timestamp=stored)
    columns = "value,timestamp,timestamp_ms"
    [row] = kafka.read(topic, columns=columns).collect()
    assert (row["value"], row["timestamp"], row["timestamp_ms"]) == (b"1", None, stored)


@pytest.mark.thorough(
    "tests/kafka/test_spark_kafka_streams.py::test_where_a_query_starts_and_goes_on"
)
def test_two_topics_in_one_query(kafka: Kafka) -> None:
    """Each source has its own limit, and keeps its place when it has nothing new."""
    small, large = kafka.create(1), kafka.create(1)
    kafka.send(small, range(10), 0)
    kafka.send(large, range(100, 200), 0)
    queries = [Steps(kafka, subscribe=one, maxOffsetsPerTrigger="5") for one in (small, large)]
    found = [[query.step() for query in queries] for _ in range(3)]
    for query in queries:
        query.start()
    found += [[query.step() for query in queries] for _ in range(2)]
    assert found == [
        [[*range(5)], [*range(100, 105)]], [[*range(5, 10)], [*range(105, 110)]],
        [[], [*range(110, 115)]], [[], [*range(115, 120)]], [[], [*range(120, 125)]],
    ]  # fmt: skip
