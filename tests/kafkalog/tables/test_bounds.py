"""Bounds leave unwanted data unread, and never leave out a wanted row."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import Listener, UsageError
from kafkalog.spark.offsets import Edge, Edges, planned
from kafkalog.tables import Bounds, Request, TableName, plan_splits, read_split
from kafkalog.tables.schemas import table_schema
from tests.builders import BASE_TIME, batch, record, write_log
from tests.kafkalog.tables.test_records import as_read, rows_of
from tests.sampling import new_seed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import State

COLUMNS = ("topic", "partition", "offset", "timestamp_ms")
SEED = new_seed()
HOUR_MS = 3_600_000


def within(row: dict[str, Any], bounds: Bounds) -> bool:
    return (
        (bounds.topics is None or row["topic"] in bounds.topics)
        and (bounds.partitions is None or row["partition"] in bounds.partitions)
        and (bounds.from_offset is None or row["offset"] >= bounds.from_offset)
        and (bounds.to_offset is None or row["offset"] < bounds.to_offset)
        and (bounds.from_time is None or row["timestamp_ms"] >= bounds.from_time)
        and (bounds.to_time is None or row["timestamp_ms"] < bounds.to_time)
    )


@pytest.mark.sampled(43)
def test_no_wanted_row_is_left_out(any_state: State) -> None:
    """For any bounds, the rows read include all that a filter over every row selects."""
    chance = random.Random(SEED)
    everything = rows_of(any_state.log_dirs, Request(internal=True), COLUMNS).to_pylist()
    if not everything:
        return
    for _ in range(10):
        first, last = sorted(chance.choice(everything)["offset"] for _ in range(2))
        early, late = sorted(chance.choice(everything)["timestamp_ms"] for _ in range(2))
        bounds = Bounds(
            topics=chance.choice([None, frozenset({chance.choice(everything)["topic"]})]),
            partitions=chance.choice([None, frozenset({0}), frozenset({0, 1})]),
            from_offset=chance.choice([None, first]),
            to_offset=chance.choice([None, last + 1]),
            from_time=chance.choice([None, early]),
            to_time=chance.choice([None, late + 1]),
        )
        request = Request(bounds=bounds, internal=True, split_bytes=chance.choice([4096, 1 << 26]))
        found = rows_of(any_state.log_dirs, request, COLUMNS).to_pylist()
        wanted = [row for row in everything if within(row, bounds)]
        assert [row for row in found if within(row, bounds)] == wanted, (SEED, bounds)


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:records below the log start offset left out")
def test_a_time_to_begin_at_is_that_of_a_consumer_that_seeks(any_state: State) -> None:
    """With rising timestamps, that is the first record at or after the time.

    Transaction markers are found, too: their time comes from the broker's clock, not from the
    records of the corpus. They show as missing offsets.
    """
    chance = random.Random(SEED)
    for partition in any_state.partitions():
        noted = any_state.expected / "records" / f"{partition.name}.ndjson"
        if not noted.exists():
            continue
        rows = [as_read(json.loads(line)) for line in noted.read_text().splitlines()]
        times = [row["timestamp"] for row in rows]
        if not times or times != sorted(times) or times[0] < 0:
            continue
        if rows[-1]["offset"] - rows[0]["offset"] >= len(rows):
            continue
        begin, end = sorted(chance.choice(times) for _ in range(2))
        edges = Edges(Edge("startingTimestamp", time=begin), Edge("endingTimestamp", time=end))
        splits = planned([str(partition)], Request(), edges, Listener())
        schema = table_schema(TableName.RECORDS, ["offset"])
        batches = [batch for split in splits for batch in read_split(split, schema)]
        found = [offset for batch in batches for offset in batch["offset"].to_pylist()]
        wanted = [row["offset"] for row in rows if begin <= row["timestamp"] < end]
        assert found == wanted, (SEED, partition, begin, end)


def a_day(directory: Path, disorder_ms: int = 0) -> Path:
    """Write 2,880 batches 30 s apart, every tenth late by `disorder_ms`, and no index."""
    batches = []
    for number in range(2880):
        time = BASE_TIME + number * 30_000 - (disorder_ms if number % 10 == 9 else 0)
        batches.append(
            batch(number, [record(0, b"k", b"v" * 900)], base_time=time, max_time=time)
        )  # fmt: skip
    write_log(directory, *batches)
    return directory


@pytest.fixture
def one_day(tmp_path: Path, kafkalog: Callable[..., Any]) -> Path:
    partition = a_day(tmp_path / "orders-0", disorder_ms=45_000)
    assert kafkalog("rebuild-index", partition, "--apply", "--yes", "-q").status == 0
    return partition


def test_an_hour_of_a_day_is_a_small_part_of_the_bytes(one_day: Path) -> None:
    """Both time bounds are looked up in the indexes if the disorder of the log is known."""
    size = sum(path.stat().st_size for path in one_day.glob("*.log"))
    begin = BASE_TIME + 7 * HOUR_MS
    bounds = Bounds(from_time=begin, to_time=begin + HOUR_MS, disorder_ms=60_000)
    splits = plan_splits([str(one_day)], Request(bounds=bounds))
    assert sum(split.size_bytes for split in splits) < 0.06 * size
    found = rows_of([one_day], Request(bounds=bounds), COLUMNS)["timestamp_ms"].to_pylist()
    times = [
        BASE_TIME + n * 30_000 - (45_000 if n % 10 == 9 else 0) for n in range(2880)
    ]  # fmt: skip
    assert found == [time for time in times if begin <= time < begin + HOUR_MS]


def test_without_that_all_later_records_are_looked_at(one_day: Path) -> None:
    """Without a known disorder, a record of any age can follow anywhere in the log."""
    size = sum(path.stat().st_size for path in one_day.glob("*.log"))
    begin = BASE_TIME + 7 * HOUR_MS
    bounds = Bounds(from_time=begin, to_time=begin + HOUR_MS)
    splits = plan_splits([str(one_day)], Request(bounds=bounds))
    assert 0.65 * size < sum(split.size_bytes for split in splits) < 0.75 * size


def test_splits_have_at_least_a_byte(one_day: Path) -> None:
    with pytest.raises(UsageError, match="at least one byte"):
        plan_splits([str(one_day)], Request(split_bytes=0))


@pytest.mark.sampled(36)
@pytest.mark.parametrize("table", [one for one in TableName if one != TableName.RECORDS])
def test_other_tables_hold_the_same_however_they_are_split(
    any_state: State, table: TableName
) -> None:
    """Each row appears once, with every column."""
    schema = table_schema(table)
    found = []
    for split_bytes in (4096, 1 << 26):
        rows: list[Any] = []
        request = Request(table, internal=True, split_bytes=split_bytes)
        for split in plan_splits([str(path) for path in any_state.log_dirs], request, Listener()):
            for some in read_split(split, schema, Listener()):
                assert some.schema.equals(schema)
                rows += some.to_pylist()
        found.append(rows)
    assert found[0] == found[1]
