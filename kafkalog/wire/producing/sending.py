"""The producer of a run: transactions that hold records and the progress that they make.

Progress is committed as an offset of a consumer group of the run's own: its metadata say how far
each log has come. Kafka makes it durable with the records of a transaction, or not at all.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import RefusedError
from kafkalog.io.documents import Fields, Items, Number, Row, parsed
from kafkalog.wire.producing.cluster import REQUEST_S, asked, configured, failed, patiently
from kafkalog.wire.producing.model import Place, Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError, Message, TopicPartition

    from kafkalog.wire.producing.cluster import Cluster
    from kafkalog.wire.producing.messages import Message as Sent
    from kafkalog.wire.producing.model import Route

PREFIX: Final = "kafkalog-replay-"
"""Transactional ids and groups of runs begin with it."""
_BATCH_SIZE: Final = 1_000_000  # librdkafka's default, as that of a message below
_QUEUED_MAX: Final = 200_000
_QUEUED_KIB_MAX: Final = 1 << 16
_MESSAGE_SIZE_MIN: Final = 1_000_000
_MESSAGE_SIZE_MAX: Final = 1_000_000_000  # the most that librdkafka takes
_STEP_S: Final = 1.0
_LIMITS: Final = ("max.message.bytes", "segment.bytes", "internal.segment.bytes")
"""Configs of a topic that limit its batches."""
_PURGED: Final = ("_PURGE_QUEUE", "_PURGE_INFLIGHT")
"""What becomes of records after another one has failed."""
_POSITION: Final = Fields({"opened": Number(), "at": Items(Row((Number(), Number(), Number())))})


def producer_config(
    cluster: Cluster, topics: Mapping[str, Mapping[str, str]], transactional_id: str | None
) -> dict[str, Any]:
    """Return the properties of the producer; those that the user gave override them."""
    largest = min(
        max([_MESSAGE_SIZE_MIN, *_numbers(topics, "max.message.bytes")]), _MESSAGE_SIZE_MAX
    )
    batches = [size for name in _LIMITS for size in _numbers(topics, name) if size > 0]
    found: dict[str, Any] = {
        "batch.num.messages": 100_000,
        "batch.size": min([_BATCH_SIZE, *batches]),
        "linger.ms": 20,
        "message.max.bytes": largest,
        # As Kafka's own producer, so that keys keep their partitions.
        "partitioner": "murmur2_random",
        "queue.buffering.max.kbytes": max(_QUEUED_KIB_MAX, largest // 512),  # two of the largest
        "queue.buffering.max.messages": _QUEUED_MAX,
        **cluster.config,
        "enable.idempotence": True,  # after the user's own: exactly once rests on it
    }
    if transactional_id is not None:
        found["transactional.id"] = transactional_id
    return found


def _numbers(topics: Mapping[str, Mapping[str, str]], name: str) -> list[int]:
    return [int(one[name]) for one in topics.values() if one.get(name, "").isdigit()]


class Sending:
    """Sends messages and commits progress; use it as a context manager.

    Args:
        run: the identity of the run.
        topic: the topic for whose partition 0 progress is committed.
        transactional: whether transactions are used.

    Attributes:
        position: what was committed last; None if nothing ever was.

    Raises:
        UsageError: librdkafka does not take a property.
        ClusterError: the cluster does not let us.
    """

    def __init__(
        self,
        cluster: Cluster,
        run: str,
        topic: str,
        configs: Mapping[str, Mapping[str, str]],
        *,
        transactional: bool,
    ) -> None:
        from confluent_kafka import Consumer, Producer

        name = PREFIX + run
        self._topic = topic
        self._is_transactional = transactional
        self._failure: tuple[KafkaError, str] | None = None
        self._is_open = False
        with configured():
            consuming = {"group.id": name, "enable.auto.commit": False}
            self._consumer = Consumer({**cluster.config, **consuming})
            config = producer_config(cluster, configs, name if transactional else None)
            self._producer = Producer(config)
        try:
            if transactional:
                with asked("The cluster begins no transactions"):
                    # In short steps: Ctrl-C is only heard between two calls of librdkafka.
                    patiently(lambda: self._producer.init_transactions(_STEP_S))
            self.position = self._committed()
        except BaseException:  # raised again: no `__exit__` closes it, even after Ctrl-C
            self._consumer.close()
            raise

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        from confluent_kafka import KafkaException

        with suppress(KafkaException):  # what ended the block is what matters
            if kind is not None:
                self._producer.purge(in_flight=False)  # what is not sent yet is not waited for
                if self._is_open:
                    self._producer.abort_transaction(REQUEST_S)
            self._consumer.close()
        if kind is SystemError:
            # The client's binding has lost the exception of a callback. Ours end only by Ctrl-C.
            raise KeyboardInterrupt

    def send(
        self,
        route: Route,
        messages: Sequence[Sent],
        *,
        keeps_time: bool,
        told: Callable[[KafkaError | None, Message], None] | None = None,
    ) -> int:
        """Send messages in order; return how many have the timestamp 0, and get 1.

        librdkafka takes 0 for "now".

        Args:
            told: called with the last one when it is delivered.

        Raises:
            ClusterError: one cannot be sent.
        """
        from confluent_kafka import KafkaException

        self._begin()
        topic = route.to_topic
        partition = -1 if route.to_partition is None else route.to_partition
        produce, heard = self._producer.produce, self._heard
        zeros, last, at_offset = 0, len(messages) - 1, -1
        try:
            for number, message in enumerate(messages):
                at_offset, value, key, timestamp, headers = message
                if keeps_time and not timestamp:
                    zeros += 1
                    timestamp = 1
                hears = heard if told is None or number < last else told
                at = timestamp if keeps_time else 0
                try:
                    produce(topic, value, key, partition, hears, None, at, headers)
                except BufferError:  # the queue of librdkafka is full: polling makes room
                    while True:
                        self._producer.poll(0.05)
                        self._require_sound()
                        with suppress(BufferError):
                            produce(topic, value, key, partition, hears, None, at, headers)
                            break
        except KafkaException as error:
            self._producer.poll(_STEP_S)  # the reason may be on its way
            self._require_sound()
            what = f"The record at offset {at_offset} of {route.name} cannot be sent"
            raise failed(what, error.args[0]) from error
        self._producer.poll(0)
        self._require_sound()
        return zeros

    def idle(self, seconds: float) -> None:
        """Wait, and let the producer work."""
        self._producer.poll(seconds)
        self._require_sound()

    def flush(self) -> None:
        while self._producer.flush(_STEP_S):
            self._require_sound()
        self._require_sound()

    def commit(self, position: Position) -> None:
        """Commit what was sent, and a position, as one.

        Raises:
            ClusterError: it is not committed; what was sent is aborted.
        """
        self._begin()
        offsets = [self._place(position)]
        with asked("The transaction cannot be committed"), self._sound():
            if self._is_transactional:
                group = self._consumer.consumer_group_metadata()
                patiently(
                    lambda: self._producer.send_offsets_to_transaction(offsets, group, _STEP_S)
                )
                patiently(lambda: self._producer.commit_transaction(_STEP_S))
                self._is_open = False
            else:
                self.flush()
                patiently(lambda: self._consumer.commit(offsets=offsets, asynchronous=False))
        self.position = position

    def _begin(self) -> None:
        if self._is_transactional and not self._is_open:
            with asked("The cluster begins no transactions"):
                self._producer.begin_transaction()
            self._is_open = True

    def _place(self, position: Position) -> TopicPartition:
        from confluent_kafka import TopicPartition

        at = [[log, *place] for log, place in sorted(position.places.items())]
        text = json.dumps({"opened": position.opened, "at": at}, separators=(",", ":"))
        return TopicPartition(self._topic, 0, position.records, metadata=text)

    def _committed(self) -> Position | None:
        from confluent_kafka import KafkaException, TopicPartition

        def answer() -> TopicPartition:
            [found] = self._consumer.committed([TopicPartition(self._topic, 0)], timeout=REQUEST_S)
            if found.error is not None:
                raise KafkaException(found.error)
            return found

        with asked("The progress in the cluster cannot be read"):
            found = patiently(answer)
        if found.offset < 0:  # nothing was committed for this group
            return None
        try:
            value = parsed(found.metadata or "")
            _POSITION.check(value, "")
        except ValueError as error:
            raise RefusedError(
                f"The progress in the cluster cannot be understood: {error}.",
                hint="Has somebody committed offsets for the group of the run?",
            ) from error
        places = {log: Place(next_offset, records) for log, next_offset, records in value["at"]}
        return Position(found.offset, value["opened"], places)

    def _heard(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.fail(error, message)

    def fail(self, error: KafkaError, message: Message) -> None:
        """Remember the first failure of a delivery, which is the reason for the others."""
        if self._failure is None or self._failure[0].name() in _PURGED:
            self._failure = error, f"{message.topic()}-{message.partition()}"

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """Report the reason of a failed delivery, if there is one, instead of its consequence."""
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException:
            self._producer.poll(_STEP_S)  # the reason may be on its way
            self._require_sound()
            raise

    def _require_sound(self) -> None:
        if self._failure is not None and self._failure[0].name() in _PURGED:
            self._producer.poll(_STEP_S)
        if self._failure is not None:
            error, where = self._failure
            raise failed(f"A record is refused by {where}", error)
