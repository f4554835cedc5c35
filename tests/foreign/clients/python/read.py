"""Read everything with a Python client: `read.py CLIENT BOOTSTRAP ISOLATIONS`, topics on stdin.

Each record is a line of JSON, with keys and values in base64.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from typing import Any

PATIENCE_SECONDS = 60
TYPES = ("CreateTime", "LogAppendTime")


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def write(**row: Any) -> None:
    sys.stdout.write(json.dumps(row) + "\n")


def write_record(isolation: str, record: Any, kind: str) -> None:
    """Write a record as kafka-python and aiokafka represent it."""
    write(
        isolation=isolation, topic=record.topic, partition=record.partition, offset=record.offset,
        timestamp=record.timestamp, type=kind, key=text(record.key), value=text(record.value),
        headers=[(name, text(data)) for name, data in record.headers],
    )  # fmt: skip


class Deadline:
    """Ends a client that makes no more progress."""

    def __init__(self) -> None:
        self._end = time.monotonic() + PATIENCE_SECONDS

    def check(self, what: object) -> None:
        if time.monotonic() > self._end:
            raise TimeoutError(f"not read to the end: {what}")


def librdkafka(bootstrap: str, isolation: str, topics: list[str]) -> None:
    """Read with confluent-kafka, which reports the end of a partition itself."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": isolation,
        "enable.auto.commit": False, "enable.partition.eof": True, "auto.offset.reset": "error",
        "check.crcs": True, "fetch.wait.max.ms": 20,
    })  # fmt: skip
    known = consumer.list_topics(timeout=PATIENCE_SECONDS).topics
    left = {(topic, number) for topic in topics for number in known[topic].partitions}
    consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in left])
    deadline = Deadline()
    while left:
        deadline.check(left)
        for message in consumer.consume(1000, timeout=0.2):
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                left.discard((message.topic(), message.partition()))
                continue
            if error is not None:
                raise RuntimeError(f"{message.topic()}-{message.partition()}: {error}")
            kind, ms = message.timestamp()
            write(
                isolation=isolation, topic=message.topic(), partition=message.partition(),
                offset=message.offset(), timestamp=ms if kind else -1,
                type=("NoTimestampType", *TYPES)[kind], key=text(message.key()),
                value=text(message.value()),
                headers=[(name, text(data)) for name, data in message.headers() or ()],
                epoch=-1 if message.leader_epoch() is None else message.leader_epoch(),
            )  # fmt: skip
    consumer.close()


def kafka_python(bootstrap: str, isolation: str, topics: list[str]) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False,
        auto_offset_reset="none", fetch_max_wait_ms=20, max_poll_records=5000,
    )  # fmt: skip
    partitions = [
        TopicPartition(topic, number)
        for topic in topics
        for number in consumer.partitions_for_topic(topic)
    ]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    ends = consumer.end_offsets(partitions)
    deadline = Deadline()
    while any(consumer.position(one) < ends[one] for one in partitions):
        deadline.check(ends)
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                write_record(isolation, record, TYPES[record.timestamp_type])
    consumer.close()


def aiokafka(bootstrap: str, isolation: str, topics: list[str]) -> None:
    asyncio.run(_aiokafka(bootstrap, isolation, topics))


async def _aiokafka(bootstrap: str, isolation: str, topics: list[str]) -> None:
    import aiokafka

    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False,
        auto_offset_reset="none", fetch_max_wait_ms=20,
    )  # fmt: skip
    await consumer.start()
    try:
        known = await consumer._client.fetch_all_metadata()
        partitions = [
            aiokafka.TopicPartition(topic, number)
            for topic in topics
            for number in known.partitions_for_topic(topic)
        ]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        deadline = Deadline()
        left = [one for one in partitions if ends[one]]
        while left:
            deadline.check(left)
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    write_record(isolation, record, TYPES[record.timestamp_type])
            left = [one for one in left if await consumer.position(one) < ends[one]]
    finally:
        await consumer.stop()


CLIENTS = {"librdkafka": librdkafka, "kafka-python": kafka_python, "aiokafka": aiokafka}


def main() -> None:
    name, bootstrap, isolations = sys.argv[1:4]
    topics = sys.stdin.read().split()
    for isolation in isolations.split(","):
        CLIENTS[name](bootstrap, isolation, topics)


main()
