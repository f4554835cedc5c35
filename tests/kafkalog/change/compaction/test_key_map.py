"""The map of keys agrees with a dict, however it grows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kafkalog.change.compaction.key_map import KeyMap, Keys


def keys_of(numbers: list[int]) -> Keys:
    """Return hashes that stand for these keys; 0 is a record without one."""
    low = np.array([number * 0x9E3779B97F4A7C1 & (1 << 62) - 1 for number in numbers], np.int64)
    return Keys.of(low, low ^ np.where(low == 0, 0, 0x55AA))


def filled(found: KeyMap, numbers: list[int], at_once: int) -> KeyMap:
    for start in range(0, len(numbers), at_once):
        found.put(keys_of(numbers[start : start + at_once]))
    found.settle()
    return found


@pytest.mark.parametrize(("expected", "ahead"), [(0, None), (40_000, None), (10**9, 1 << 20)])
@pytest.mark.parametrize("count", [1, 300, 30_000])
def test_it_knows_the_latest_record_of_each_key(expected: int, ahead: int | None, count: int):
    """Whatever number of records was expected."""
    rng = random.Random(f"keys {expected} {count}")
    numbers = [rng.randrange(count + 1) for _ in range(40_000)]
    latest = {number: i for i, number in enumerate(numbers) if number}
    found = filled(KeyMap(expected, ahead), numbers, 5_000)
    assert len(found) == len(latest)
    superseded = [bool(number) and latest[number] > i for i, number in enumerate(numbers)]
    assert found.superseded(0, len(numbers)).tolist() == superseded
    asked = range(1, count + 9)
    assert found.latest(keys_of([*asked])).tolist() == [latest.get(one, -1) for one in asked]


def test_it_takes_memory_ahead_within_its_bounds():
    """As far as the first records let expect that all the others bring new keys too."""
    rows = 1 << 17  # what is inserted at once
    few = filled(KeyMap(10**9), [1 + i % 100 for i in range(3 * rows)], rows)
    numbers = [*range(1, 3 * rows + 1)]
    needed, limited, ahead = (
        filled(one, numbers, rows).size_bytes
        for one in (KeyMap(), KeyMap(10**9, 20_000_000), KeyMap(10**9))
    )
    assert few.size_bytes < needed <= limited <= 20_000_000 + rows
    assert 50_000_000 < ahead < 51_000_000
