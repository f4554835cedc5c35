"""The rate limiter keeps its rate to the byte, by a clock of the test."""

from __future__ import annotations

import pytest

from kafkalog.io.paths.reading import RateLimiter


class Clock:
    """Time passes only when code sleeps or works."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@pytest.mark.parametrize("rate", [1, 1000, 50 << 20])
@pytest.mark.parametrize("size", [1, 4096, 2 << 20])
def test_many_reads_take_as_long_as_the_rate_says(rate: int, size: int):
    """The size of each read does not matter."""
    clock = Clock()
    pace = RateLimiter(rate, clock, clock.sleep)
    for _ in range(100):
        pace.spend(size)
    assert clock.now - 1000 == pytest.approx(100 * size / rate, rel=0.01)


def test_slow_work_is_not_held_back_further():
    """Work that is slower than the rate never waits."""
    clock = Clock()
    pace = RateLimiter(1000, clock, clock.sleep)
    for _ in range(10):
        clock.now += 0.5
        pace.spend(100)
    assert clock.now == pytest.approx(1005)


def test_a_pause_saves_up_little():
    """Even after an idle hour, at most the bytes of a tenth of a second are free."""
    clock = Clock()
    pace = RateLimiter(1000, clock, clock.sleep)
    clock.now += 3600
    pace.spend(100)
    assert clock.now == pytest.approx(4600)
    pace.spend(1000)
    assert clock.now == pytest.approx(4601)
