"""Words and durations stand for times: relative to the present, in a time zone."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from kafkalog.errors import UsageError
from kafkalog.io.times import duration_ms, parse_time

NOW = "2026-03-29T12:00:00Z"
"""The day on which clocks go forward in Berlin."""


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", "2026-03-29T14:00:00+02:00"),
        ("today", "2026-03-29T00:00:00+01:00"),
        ("yesterday", "2026-03-28T00:00:00+01:00"),
        ("-1h30m", "2026-03-29T12:30:00+02:00"),
        ("+7d", "2026-04-05T14:00:00+02:00"),
    ],
)
def test_a_word_is_a_time(text: str, meant: str) -> None:
    """Days begin in the zone that is asked for, also where they have no 24 hours."""
    assert parse_time(text, NOW, ZoneInfo("Europe/Berlin")) == parse_time(meant)


@pytest.mark.parametrize("text", ["-1h30", "1h", "-h", "tomorrow", "-99999999999999999w", ""])
def test_what_is_no_time_is_an_error(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(UsageError):
        parse_time(text, NOW)


def test_durations_add_up() -> None:
    """As systemd writes them."""
    assert duration_ms("1h30m") == 5_400_000
    with pytest.raises(UsageError):
        duration_ms("1h-30m")
