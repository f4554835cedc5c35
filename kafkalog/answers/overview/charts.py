"""The charts, as specifications of Vega and Vega-Lite: JSON, without any code of ours."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from formats.file_names import DirectoryState
from kafkalog.answers.overview.html import (
    CONFIG,
    LABEL_WIDTH,
    ROW,
    TOPIC_COLORS,
    VEGA,
    VEGA_LITE,
    size_text,
    topics_by_size,
    unit_of,
)
from kafkalog.answers.overview.timelines import BARS_MAX, growth_chart, lanes_of
from kafkalog.io.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.answers.overview.gathering import Report
    from kafkalog.answers.overview.model import PartitionFacts

_CODEC_TOPICS: Final = 20


def charts_of(report: Report) -> dict[str, dict[str, Any]]:
    """Return the charts by the name of their place; those without data are left out."""
    found = {
        "sizes": _sizes(report),
        "lanes": lanes_of(report),
        "growth": growth_chart(report),
        "codecs": _codecs(report),
    }
    return {name: one for name, one in found.items() if one is not None}


def _sizes(report: Report) -> dict[str, Any] | None:
    if not report.size_bytes or len(report.partitions) < 2:
        return None
    nodes = list(_nodes(report))
    return {
        "$schema": VEGA,
        "height": 420,
        "padding": 0,
        "autosize": "none",
        # Vega has no `"width": "container"`: that is only for Vega-Lite.
        "signals": [{
            "name": "width",
            "init": "containerSize()[0]",
            "on": [{"events": {"source": "window", "type": "resize"},
                    "update": "containerSize()[0]"}],
        }],
        "scales": [{"name": "topic", "type": "ordinal",
                    "domain": list(range(len(TOPIC_COLORS))),
                    "range": list(TOPIC_COLORS)}],
        "data": [
            {"name": "tree", "values": nodes, "transform": [
                {"type": "stratify", "key": "id", "parentKey": "up"},
                {"type": "treemap", "field": "size",
                 "sort": {"field": "value", "order": "descending"}, "method": "squarify",
                 "ratio": 1.6, "round": True, "paddingInner": 1, "paddingTop": 0,
                 "size": [{"signal": "width"}, {"signal": "height"}]},
            ]},
            {"name": "leaves", "source": "tree", "transform": [
                {"type": "filter", "expr": "!datum.children"},
                {"type": "lookup", "from": "tree", "key": "id", "fields": ["up"],
                 "as": ["partition"]},
            ]},
            {"name": "partitions", "source": "tree",
             "transform": [{"type": "filter", "expr": "datum.depth == 2"}]},
            {"name": "topics", "source": "tree",
             "transform": [{"type": "filter", "expr": "datum.depth == 1"}]},
        ],
        "marks": [_leaves(report.size_bytes), _frames("partitions", 1), _frames("topics", 2.5),
                  *_labels("topics", 13, 600, 15, 44), *_labels("partitions", 11, 400, 30, 34)],
        "config": CONFIG,
    }  # fmt: skip


def _box(**more: Any) -> dict[str, Any]:
    sides = {"x": "x0", "x2": "x1", "y": "y0", "y2": "y1"}
    return {"update": {**{side: {"field": name} for side, name in sides.items()}, **more}}


def _leaves(total: int) -> dict[str, Any]:
    factor, unit = unit_of(total)
    tooltip = (
        "{'': datum.partition.full + ', ' + datum.name, "
        f"'size': format(datum.size / {factor}, '.4~g') + ' {unit}', "
        f"'share': format(datum.size / {total}, '.1%')}}"
    )
    return {
        "type": "rect",
        "from": {"data": "leaves"},
        "encode": _box(
            fill={"scale": "topic", "field": "color"},
            stroke={"value": "white"},
            strokeWidth={"value": 0.4},
            tooltip={"signal": tooltip},
        ),
    }


def _frames(data: str, width: float) -> dict[str, Any]:
    return {
        "type": "rect",
        "interactive": False,
        "from": {"data": data},
        "encode": _box(stroke={"value": "white"}, strokeWidth={"value": width}),
    }


def _labels(data: str, size: int, weight: int, down: int, room: int) -> list[dict[str, Any]]:
    """Return names with an edge in the color of what they stand on, where there is room."""
    is_shown = f"datum.x1 - datum.x0 > 46 && datum.y1 - datum.y0 > {room - 14}"
    place = {
        "x": {"signal": "datum.x0 + 5"},
        "y": {"signal": f"datum.y0 + {down}"},
        "text": {"signal": f"{is_shown} ? datum.name : ''"},
        "limit": {"signal": "max(1, datum.x1 - datum.x0 - 10)"},
        "font": {"value": "system-ui, sans-serif"},
        "fontSize": {"value": size},
        "fontWeight": {"value": weight},
    }
    edge = {"stroke": {"scale": "topic", "field": "color"}, "strokeWidth": {"value": 4}}
    return [
        {
            "type": "text",
            "interactive": False,
            "from": {"data": data},
            "encode": {"update": {**place, **paint}},
        }
        for paint in (edge, {"fill": {"value": "white"}})
    ]


def _nodes(report: Report) -> Iterator[dict[str, Any]]:
    """Yield the nodes of the treemap: the largest segments by themselves, the rest together."""
    # Topics beyond the colors reuse them: a treemap has no legend, and each topic its own frame.
    colors = {topic: i % len(TOPIC_COLORS) for i, topic in enumerate(topics_by_size(report))}
    # Each partition gets its part of what a browser draws smoothly.
    own = max(BARS_MAX // max(len(report.partitions), 1), 1)
    numbers = count(1)
    topics: dict[str, int] = {}
    yield {"id": 0}
    for one in report.partitions:
        topic = one.listed.topic
        if topic not in topics:
            topics[topic] = next(numbers)
            yield {"id": topics[topic], "up": 0, "name": printable(topic), "color": colors[topic]}
        partition = next(numbers)
        name = "" if one.listed.partition is None else f"{one.listed.partition}"
        state = "" if one.listed.state == DirectoryState.LIVE else f" ({one.listed.state})"
        yield {"id": partition, "up": topics[topic], "name": name + state,
               "full": printable(one.name) + state, "color": colors[topic]}  # fmt: skip
        segments = sorted(one.used.items(), key=lambda item: -item[1])
        parts = [(_segment_name(base), size) for base, size in segments[:own]]
        if rest := segments[own:]:
            parts.append((f"{len(rest)} smaller segments", sum(size for _, size in rest)))
        for what, size in parts:
            yield {"id": next(numbers), "up": partition, "size": size, "name": what,
                   "color": colors[topic]}  # fmt: skip


def _segment_name(base_offset: int | None) -> str:
    return "other files" if base_offset is None else f"segment {base_offset}"


def codecs_of(partitions: Iterable[PartitionFacts]) -> dict[str, tuple[int, int]]:
    batches: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for one in partitions:
        for segment in one.contents:
            for codec, counts in segment.codecs.items():
                batches[codec] += counts.batches
                sizes[codec] += counts.size_bytes
    return {codec: (batches[codec], sizes[codec]) for codec in sorted(sizes)}


def _codecs(report: Report) -> dict[str, Any] | None:
    values: list[tuple[str, str, int]] = []
    sizes = []
    for topic in topics_by_size(report)[:_CODEC_TOPICS]:
        found = codecs_of(one for one in report.partitions if one.listed.topic == topic)
        sizes.append(sum(size for _, size in found.values()))
        for codec, (_, size) in found.items():
            values.append((printable(topic), codec, size))
    if not values:
        return None
    factor, unit = unit_of(max(sizes))
    rows = [
        {"topic": topic, "codec": codec, "shown": size / factor, "size": size_text(size)}
        for topic, codec, size in values
    ]
    return {
        "$schema": VEGA_LITE,
        "width": "container",
        "height": ROW * len({topic for topic, _, _ in values}),
        "data": {"values": rows},
        "mark": "bar",
        "encoding": {
            "y": {"field": "topic", "type": "nominal", "sort": None, "title": None,
                  "axis": {"labelLimit": LABEL_WIDTH}},
            "x": {"field": "shown", "type": "quantitative", "title": f"{unit} of batches",
                  "stack": True},
            "color": {"field": "codec", "type": "nominal", "title": "codec",
                      "scale": {"range": list(TOPIC_COLORS)}},
            "tooltip": [{"field": "topic"}, {"field": "codec"}, {"field": "size"}],
        },
        "config": CONFIG,
    }  # fmt: skip
