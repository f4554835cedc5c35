"""What the charts have in common: colors, fonts, sizes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.overview.facts import Report

VEGA: Final = "https://vega.github.io/schema/vega/v6.json"
VEGA_LITE: Final = "https://vega.github.io/schema/vega-lite/v6.json"
INK: Final = "currentColor"
"""Of the page: light or dark."""
TOPIC_COLORS: Final = ("#3d6a9e", "#c4650c", "#3f8437", "#9a5f8a", "#875f48", "#c63f3e", "#2f8a85",
                       "#b8527a", "#66605e")  # fmt: skip
OTHERS: Final = "#767c86"
_DAY_MS: Final = 86_400_000
_LABELS: Final = (
    (_DAY_MS, "%H:%M"),
    (10 * _DAY_MS, "%b %-d, %H:%M"),
    (400 * _DAY_MS, "%b %-d"),
)
"""The longest span for which times are labelled like this."""
ROW: Final = 22
"""Height of a row, in pixels."""
CONFIG: Final[dict[str, Any]] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "axis": {"labelColor": INK, "titleColor": INK, "gridColor": INK, "gridOpacity": 0.15,
             "domainColor": INK, "domainOpacity": 0.4, "tickColor": INK, "tickOpacity": 0.4,
             "titleFontWeight": "normal"},
    "legend": {"labelColor": INK, "titleColor": INK, "orient": "top"},
    "view": {"stroke": None},
}  # fmt: skip


def colors_of(topics: Iterable[str]) -> dict[str, str]:
    """Return a color for each topic, by size: those after the first few share one."""
    return {
        topic: TOPIC_COLORS[number] if number < len(TOPIC_COLORS) else OTHERS
        for number, topic in enumerate(topics)
    }


def topics_by_size(report: Report) -> list[str]:
    """Return the topics, largest first."""
    sizes: Counter[str] = Counter()
    for one in report.partitions:
        sizes[one.listed.topic] += one.listed.size_bytes
    return [topic for topic, _ in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))]


def time_axis(begin_ms: int, end_ms: int) -> dict[str, Any]:
    """Return the axis of a time: its labels are as long as its span needs."""
    span = end_ms - begin_ms
    labels = next((labels for longest, labels in _LABELS if span <= longest), "%b %Y")
    return {
        "type": "temporal",
        "scale": {"type": "utc"},
        "title": None,
        "axis": {"format": labels, "tickCount": 12},
    }
