"""Profiles count what real consumers read, however the work is divided."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kafkalog.io.engine import LocalEngine
from kafkalog.tables import Bounds, Request
from kafkalog.tables.profiles.model import KEY_SIZE_MAX, bytes_of, text_of
from kafkalog.tables.profiles.part import BUCKETS_MAX, Histogram
from kafkalog.tables.profiles.run import profile_logs
from tests.builders import batch, flip, record, write_log
from tests.conftest import OF_KAFKA_4, state

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.tables.profiles.model import Profile


HOUR_MS = 3_600_000


def profiles_of(*paths: Path, split_bytes: int = 1 << 26, **options: Any) -> list[Profile]:
    request = Request(
        split_bytes=split_bytes, internal=True, bounds=options.pop("bounds", Bounds())
    )
    return profile_logs(LocalEngine(2), [str(path) for path in paths], request, **options)


def size_of(noted: Any) -> int:
    """Return the size of a key or value as the corpus notes it."""
    if noted is None:
        return 0
    return int(noted["len"]) if isinstance(noted, dict) else len(noted) // 2


def identity(noted: Any) -> str:
    return json.dumps(noted)


@pytest.mark.sampled(19)
@pytest.mark.parametrize(("release", "name"), OF_KAFKA_4, ids=lambda word: word)
def test_counts_are_those_of_what_consumers_read(corpus_dir: Path, release: str, name: str) -> None:
    """Records, sizes, nulls, offsets, times and keys, with the work in many small pieces."""
    one = state(corpus_dir, release, name)
    for partition in one.partitions():
        noted = one.expected / "records" / f"{partition.name}.ndjson"
        if not noted.exists():
            continue
        rows = [json.loads(line) for line in noted.read_text().splitlines()]
        (found,) = profiles_of(partition, split_bytes=20_000)
        keys = Counter(identity(row["key"]) for row in rows if row["key"] is not None)
        times = [row["timestamp"] for row in rows if row["timestamp"] >= 0]
        assert found.records == len(rows)
        assert found.key_size_bytes == sum(size_of(row["key"]) for row in rows)
        assert found.value_size_bytes == sum(size_of(row["value"]) for row in rows)
        assert found.header_size_bytes == sum(
            len(key.encode()) + size_of(value) for row in rows for key, value in row["headers"]
        )
        assert found.null_keys == sum(row["key"] is None for row in rows)
        assert found.tombstones == sum(
            row["value"] is None and row["key"] is not None for row in rows
        )
        assert found.first_offset == (rows[0]["offset"] if rows else None)
        assert found.last_offset == (rows[-1]["offset"] if rows else None)
        assert found.min_timestamp == min(times, default=None)
        assert found.max_timestamp == max(times, default=None)
        assert found.keys_at_least <= len(keys) <= found.keys_at_most
        for hot in found.hot_keys:
            assert hot.at_least <= keys[identity(hot.key.hex())] <= hot.at_most
        hours = Counter(time // HOUR_MS * HOUR_MS for time in times)
        assert {one.start_timestamp: one.records for one in found.histogram} == hours


def test_batches_are_those_of_kafkas_tool(corpus_dir: Path) -> None:
    """The logs use each codec."""
    one = state(corpus_dir, "kafka-4.3", "codecs")
    for partition in one.partitions():
        if not partition.name.startswith("codec-"):
            continue
        lines = [
            line
            for path in (one.expected / "dump" / partition.name).glob("*.log.shallow.txt")
            for line in path.read_text().splitlines()
            if line.startswith("baseOffset:")
        ]
        (found,) = profiles_of(partition)
        sizes = [int(line.split(" size: ")[1].split()[0]) for line in lines]
        counts = [int(line.split(" count: ")[1].split()[0]) for line in lines]
        codecs = Counter(line.split(" compresscodec: ")[1].split()[0] for line in lines)
        producers = {line.split(" producerId: ")[1].split()[0] for line in lines} - {"-1"}
        assert found.batches == len(lines)
        assert {codec.codec: codec.batches for codec in found.codecs} == codecs
        assert sum(codec.size_bytes for codec in found.codecs) == sum(sizes)
        assert sum(codec.data_bytes for codec in found.codecs) == found.data_bytes
        assert (found.max_batch_bytes, found.max_batch_records) == (max(sizes), max(counts))
        assert found.producers == len(producers)
        assert found.idempotent_batches == sum(" baseSequence: -1 " not in one for one in lines)


def test_many_keys_are_estimated_and_hot_ones_found(tmp_path: Path) -> None:
    """The bounds hold for 60,000 keys, two of which have a tenth of the records."""
    batches = []
    offset = 0
    for number in range(600):
        keys = [f"key-{number * 100 + one}".encode() for one in range(100)]
        keys += [b"hot"] * 20 + [b""] * 10
        batches.append(batch(offset, [record(n, key) for n, key in enumerate(keys)]))
        offset += len(keys)
    write_log(tmp_path / "orders-0", *batches)
    (found,) = profiles_of(tmp_path / "orders-0", hot_keys=2)
    assert found.keys_at_least <= 60_002 <= found.keys_at_most
    assert found.keys_at_most - found.keys_at_least < 0.05 * 60_002
    assert [one.key for one in found.hot_keys] == [b"hot", b""]
    assert found.hot_keys[0].at_least <= 12_000 <= found.hot_keys[0].at_most
    assert found.hot_keys[1].at_least <= 6_000 <= found.hot_keys[1].at_most


@pytest.mark.parametrize("size", [0, 1, KEY_SIZE_MAX - 1, KEY_SIZE_MAX])
def test_sketches_get_short_keys_as_they_are(size: int) -> None:
    """Nothing of them is cut off, so they need no checksum."""
    key = bytes(number % 251 for number in range(size))
    assert text_of(key)[1:].encode("latin-1") == key
    assert bytes_of(text_of(key)) == key


def test_sketches_tell_long_keys_apart_that_begin_alike() -> None:
    """They get a checksum of the whole key before the bytes that are shown."""
    shown = b"k" * KEY_SIZE_MAX
    texts = {text_of(shown + end) for end in (b"a", b"b", b"ab")}
    assert len(texts) == 3
    assert {bytes_of(text) for text in texts} == {shown}


def test_times_before_1970_are_times(tmp_path: Path) -> None:
    """Brokers accept them; only -1 means that a record has none."""
    times = [-(1 << 63), -90_000, -60_000, -59_999, -1, 0, 30_000]
    records = [record(n, b"k", time_delta=time + 1000) for n, time in enumerate(times[1:])]
    write_log(
        tmp_path / "orders-0",
        batch(0, [record(0, b"k")], base_time=times[0], max_time=times[0]),
        batch(1, records, base_time=-1000, max_time=30_000),
    )
    (found,) = profiles_of(tmp_path / "orders-0", bucket_ms=60_000)
    assert (found.records, found.min_timestamp, found.max_timestamp) == (7, -(1 << 63), 30_000)
    assert sum(one.records for one in found.histogram) == 6
    width = found.bucket_ms
    wanted = Counter(time // width * width for time in times if time != -1)
    assert {one.start_timestamp: one.records for one in found.histogram} == wanted


def test_partitions_of_a_topic_come_together(tmp_path: Path) -> None:
    """A key in both is one key; damage is counted."""
    for number, extra in enumerate((b"b", b"c")):
        good = batch(0, [record(0, b"a"), record(1, extra)])
        write_log(tmp_path / f"orders-{number}", good, flip(batch(2, [record(0, b"z")]), 500))
    first, second, topic = profiles_of(tmp_path / "orders-0", tmp_path / "orders-1")
    assert (first.partition, second.partition, topic.partition) == (0, 1, None)
    assert (first.keys, second.keys, topic.keys) == (2, 2, 3)
    assert (topic.copies, topic.records, topic.batches, topic.defects) == (2, 4, 4, 2)


def test_a_histogram_is_bounded() -> None:
    """Times may be of any age; merging its parts in any order gives the same."""
    times = [n * n * 60_000 for n in range(3 * BUCKETS_MAX)]
    whole, first, second = Histogram(60_000), Histogram(60_000), Histogram(60_000)
    ones = pa.array([1] * len(times), pa.int64())
    whole.add(pa.array(times, pa.int64()), ones)
    half = len(times) // 4
    first.add(pa.array(times[:half], pa.int64()), ones[:half])
    second.add(pa.array(times[half:], pa.int64()), ones[half:])
    first.merge(second)
    assert first.bucket_ms == whole.bucket_ms > 60_000
    assert first.buckets == whole.buckets
    assert len(whole.buckets) <= BUCKETS_MAX
    assert sum(records for records, _ in whole.buckets.values()) == len(times)


def test_an_empty_partition_has_a_profile(tmp_path: Path) -> None:
    write_log(tmp_path / "orders-0")
    (one,) = profiles_of(tmp_path / "orders-0")
    assert (one.topic, one.partition, one.records, one.keys) == ("orders", 0, 0, 0)
    assert (one.first_offset, [*one.codecs], [*one.histogram]) == (None, [], [])
