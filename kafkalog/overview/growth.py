"""Bytes over time: how much was appended when, and the chart of it in Vega-Lite."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from kafkalog.overview.chart_style import (
    CONFIG,
    OTHERS,
    VEGA_LITE,
    colors_of,
    time_axis,
    topics_by_size,
)
from kafkalog.overview.contents import MINUTE_MS
from kafkalog.overview.html import size_text, time_text, unit_of
from kafkalog.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalog.overview.facts import Report

_BUCKETS_MAX: Final = 240
_STEPS: Final = (1, 10, 60, 360, 1440, 10080, 43200)
"""Lengths of an interval of the growth chart, in minutes."""
_STEP_NAMES: Final = ("minute", "10 minutes", "hour", "6 hours", "day", "week", "30 days")
_MINUTES_PER_DAY: Final = 1440
_OUTSIDE: Final = 0.03
"""Share of the bytes that may lie outside the time that is drawn."""
_WORTH_IT: Final = 0.5
"""They do so only where what is drawn is at most this share of the whole time."""


def growth_of(report: Report) -> dict[str, Counter[int]]:
    """Return the bytes that were appended by minute since 1970, of each topic."""
    found: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for one in report.partitions:
        for segment in one.contents:
            found[one.listed.topic].update(segment.minutes)
    return found


def window_of(report: Report) -> tuple[int, int] | None:
    """Return the minutes between which nearly all bytes were appended; None without any.

    What is far before or after them is left out: old compacted records, made-up timestamps.
    """
    latest = report.made_ms // MINUTE_MS + _MINUTES_PER_DAY
    sums: Counter[int] = Counter()
    for growth in growth_of(report).values():
        sums.update({minute: size for minute, size in growth.items() if 0 < minute <= latest})
    if not sums:
        return None
    minutes = sorted(sums)
    spare = sums.total() * _OUTSIDE
    first, last = 0, len(minutes) - 1
    while first < last:
        size, is_first = min((sums[minutes[first]], True), (sums[minutes[last]], False))
        if size > spare:
            break
        spare -= size
        first, last = (first + 1, last) if is_first else (first, last - 1)
    whole = minutes[-1] - minutes[0]
    if minutes[last] - minutes[first] > whole * _WORTH_IT:
        return minutes[0], minutes[-1]
    return minutes[first], minutes[last]


def growth_chart(report: Report) -> dict[str, Any] | None:
    """Return bytes by time, the largest topics on top of each other."""
    window = window_of(report)
    if window is None:
        return None
    growth = growth_of(report)
    span = window[1] - window[0] + 1
    number = next((i for i, step in enumerate(_STEPS) if span / step <= _BUCKETS_MAX), -1)
    step, named = _STEPS[number], _STEP_NAMES[number]
    order = [topic for topic in topics_by_size(report) if topic in growth]
    colors = colors_of(order)
    sums: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for topic, by_minute in growth.items():
        shown = topic if colors[topic] != OTHERS else "other topics"
        for minute, size in by_minute.items():
            if window[0] <= minute <= window[1]:
                sums[minute // step * step][shown] += size
    names = [topic for topic in order if colors[topic] != OTHERS]
    names += ["other topics"] * (len(order) > len(names))
    factor, unit = unit_of(max(by_topic.total() for by_topic in sums.values()))
    return {
        "$schema": VEGA_LITE,
        "width": "container",
        "height": 200,
        "autosize": {"type": "fit", "contains": "padding"},
        "data": {"values": list(_stacked(sums, names, step, factor))},
        "mark": {"type": "rect", "stroke": None},
        "encoding": {
            "x": {"field": "a", **time_axis(window[0] * MINUTE_MS, window[1] * MINUTE_MS)},
            "x2": {"field": "b"},
            "y": {"field": "y0", "type": "quantitative", "title": f"{unit} per {named}"},
            "y2": {"field": "y1"},
            "color": {"field": "topic", "type": "nominal", "title": None, "scale": {
                "domain": [printable(name) for name in names],
                "range": [colors.get(name, OTHERS) for name in names],
            }},
            "tooltip": [{"field": "topic"}, {"field": "from"}, {"field": "size"}],
        },
        "config": CONFIG,
    }  # fmt: skip


def _stacked(
    sums: Mapping[int, Counter[str]], names: Sequence[str], step: int, factor: int
) -> Iterator[dict[str, Any]]:
    for minute, by_topic in sorted(sums.items()):
        below = 0
        for name in names:
            if size := by_topic[name]:
                yield {
                    "a": minute * MINUTE_MS, "b": (minute + step) * MINUTE_MS,
                    "topic": printable(name), "y0": below / factor, "y1": (below + size) / factor,
                    "from": time_text(minute * MINUTE_MS), "size": size_text(size),
                }  # fmt: skip
                below += size
