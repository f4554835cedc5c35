"""Durations in words, where people read them."""

from __future__ import annotations

import sys

import pytest

from kafkalog_cli.output.text import duration_text, with_durations

DAY = 86_400_000


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (7 * DAY, "7 days"),
        (31 * DAY, "31 days"),  # not a month and some hours
        (400 * DAY, "400 days"),
        (1, "1 millisecond"),
        (90_000, "1 minute and 30 seconds"),
        (3_600_001, "1 hour and 1 millisecond"),
        (sys.maxsize, f"{sys.maxsize} ms"),
    ],
)
def test_a_duration_is_exact_in_its_largest_units(duration_ms: int, text: str):
    """What Kafka counts in milliseconds is read in days."""
    assert duration_text(duration_ms) == text


def test_only_milliseconds_of_a_text_are_replaced():
    """Offsets, times and names stay as they are."""
    text = "segment 604800000 of retention.ms is more than 604800000 ms old"
    assert with_durations(text) == "segment 604800000 of retention.ms is more than 7 days old"
