"""Logs in an object store: clients of many partitions wait for a few answers of it, not for all."""

from __future__ import annotations

import time
from hashlib import sha256
from typing import TYPE_CHECKING

import confluent_kafka as librdkafka
import pytest

from benchmarks import stores
from benchmarks.stores import BATCHES, PREFIX, log_dir
from kafkalog.errors import UsageError
from kafkalog.io.paths import object_store
from kafkalog.io.paths.requests import requests_counted
from kafkalog.wire.server.catalog import Catalog
from kafkalog.wire.server.model import ServeOptions
from tests.counted_store import counted_store
from tests.kafkalog.wire.server.protocol import SECONDS_MAX, Connected, Heard, serving
from tests.kafkalog.wire.server.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.counted_store import CountedStore

TOPIC, PARTITIONS, SEGMENTS = "topic-0", 40, 2


@pytest.fixture
def store() -> Iterator[CountedStore]:
    """A store with a topic of 40 partitions; each answer takes some time."""
    with counted_store(log_dir(PARTITIONS, SEGMENTS), delay_s=0.01) as store:
        object_store.forget()
        yield store


def consume_all(store: CountedStore, partitions: int, most: float) -> None:
    """Require that a consumer gets all records, and that few bytes are asked for twice."""
    end = SEGMENTS * BATCHES
    with requests_counted() as asked, serving(store.uri(PREFIX)) as running:
        consumer = librdkafka.Consumer({
            "bootstrap.servers": str(running.address), "group.id": "g",
            "auto.offset.reset": "earliest", "enable.partition.eof": False,
        })  # fmt: skip
        consumer.assign([librdkafka.TopicPartition(TOPIC, n, 0) for n in range(partitions)])
        found: dict[int, list[int]] = {n: [] for n in range(partitions)}
        digests = {n: sha256() for n in range(partitions)}
        deadline = time.monotonic() + SECONDS_MAX
        while any(len(offsets) < end for offsets in found.values()):
            assert time.monotonic() < deadline
            for one in consumer.consume(1000, 0.5):
                assert one.error() is None
                found[one.partition()].append(one.offset())
                digests[one.partition()].update(one.key() + one.value())
        consumer.close()
    assert all(offsets == [*range(end)] for offsets in found.values())
    wanted = sha256()
    for _ in range(SEGMENTS):
        for n in range(BATCHES):
            wanted.update(b"key-%02d" % n + b"v" * stores.VALUE_BYTES)
    assert {one.hexdigest() for one in digests.values()} == {wanted.hexdigest()}
    logs = sum(len(data) for name, data in store.objects.items() if name.endswith(".log"))
    others = sum(len(data) for name, data in store.objects.items() if not name.endswith(".log"))
    assert asked.size_bytes <= most * logs + others


def test_a_consumer_gets_all_partitions(store: CountedStore) -> None:
    """All records, once; each byte is asked for once, and many partitions at the same time."""
    store.gather(17, r"\.log$")
    consume_all(store, PARTITIONS, 1.1)
    assert store.at_once_max > 16


def test_a_large_log_is_hardly_fetched_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next response finds what was read ahead of this one."""
    monkeypatch.setattr(stores, "VALUE_BYTES", 150_000)
    with counted_store(log_dir(2, SEGMENTS)) as store:
        object_store.forget()
        consume_all(store, 2, 1.5)


def test_metadata_and_offsets_of_many_partitions(store: CountedStore) -> None:
    """A store is asked about all partitions at the same time."""
    with serving(store.uri(PREFIX)) as running, Wire(running.address) as wire:
        store.gather(17, r"-[1-9]\d?/leader-epoch-checkpoint$")  # the first is read alone
        [topic] = wire.tell("Metadata", 12, topics=None)["topics"]
        assert len(topic["partitions"]) == PARTITIONS
        assert store.at_once_max > 16
        store.gather(17, r"-[1-9]\d?/\d+\.log$")
        partitions = [{"partitionIndex": n, "timestamp": -1} for n in range(PARTITIONS)]
        topics = [{"name": TOPIC, "partitions": partitions}]
        [found] = wire.tell("ListOffsets", 11, replicaId=-1, topics=topics)["topics"]
        assert {one["offset"] for one in found["partitions"]} == {SEGMENTS * BATCHES}
        assert store.at_once_max > 16


def test_a_server_that_needs_more_requests_than_it_may_make_ends(store: CountedStore) -> None:
    with requests_counted() as asked, serving(store.uri(PREFIX)) as running:
        asked.allowed = asked.count + 10
        with Connected(running.address) as client, pytest.raises((OSError, AssertionError)):
            client.ask("Metadata", 1, {"topics": None})
        running.thread.join(SECONDS_MAX)
        assert not running.thread.is_alive()
        assert asked.is_exceeded
        assert asked.count <= asked.allowed


def test_objects_are_not_followed(store: CountedStore) -> None:
    with pytest.raises(UsageError, match="not to objects"):
        Catalog([store.uri(PREFIX)], ServeOptions(follow=True), Heard())
