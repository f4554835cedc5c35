"""The lanes: segments of each partition over time, as a specification of Vega-Lite."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from kafkalog.model import Severity
from kafkalog.overview.chart_style import CONFIG, INK, ROW, VEGA_LITE, time_axis
from kafkalog.overview.contents import MINUTE_MS
from kafkalog.overview.growth import window_of
from kafkalog.overview.html import unit_of
from kafkalog.overview.segments import BARS_MAX, bars_of, marks_of
from kafkalog.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.overview.facts import Report

_FATES: Final = {
    "deleted now": "#d62728",
    "goes within 24 h": "#f58518",
    "blocked": "#9467bd",
    "stays": "#4c78a8",
    "active": "#54a24b",
}
_MARKS: Final = {
    "log start": "triangle-right",
    "high watermark": "triangle-left",
    "finding": "cross",
}
_LANES_MAX: Final = 30
_SHORTEST: Final = 0.002
"""What a bar takes at least of the width, to be seen."""
_TIME: Final = "'%Y-%m-%d %H:%M:%S'"


def lanes_of(report: Report) -> dict[str, Any] | None:
    """Return the lanes, with marks on them; None if no segment has a usable time."""
    window = window_of(report)
    values = [] if window is None else list(_values(report))
    if window is None or not values:
        return None
    begin_ms, end_ms = window[0] * MINUTE_MS, (window[1] + 1) * MINUTE_MS
    shortest_ms = (end_ms - begin_ms) * _SHORTEST
    factor, unit = unit_of(max(one.get("s", 0) for one in values))
    names = [{"i": i, "partition": printable(one.name)} for i, one in enumerate(report.partitions)]
    row = {"field": "partition", "type": "nominal", "title": None,
           "sort": {"field": "i", "op": "min"},
           "axis": {"labelLimit": 260, "grid": True}}  # fmt: skip
    time = time_axis(begin_ms, end_ms)
    tooltip = [{"field": name} for name in ("partition", "what", "offsets", "size", "time", "why")]
    fates, marks = list(_FATES), list(_MARKS)
    fate = {"field": "fate", "type": "nominal", "title": "segment",
            "scale": {"domain": fates, "range": [_FATES[name] for name in fates]}}  # fmt: skip
    return {
        "$schema": VEGA_LITE,
        "width": "container",
        "height": ROW * min(len({one["i"] for one in values}), _LANES_MAX),
        "params": [{
            "name": "find",
            "value": "",
            "bind": {"input": "search", "name": "Partitions with ", "placeholder": "any name"},
        }],
        "data": {"values": values},
        "transform": [
            {"filter": f"datum.a <= {end_ms} && datum.b >= {begin_ms}"},
            {"lookup": "i", "from": {"data": {"values": names}, "key": "i",
                                     "fields": ["partition"]}},
            {"filter": "find == '' || indexof(lower(datum.partition), lower(find)) >= 0"},
            {"window": [{"op": "dense_rank", "as": "row"}], "sort": [{"field": "i"}]},
            {"filter": f"datum.row <= {_LANES_MAX}"},
            {"calculate": f"max(datum.a, {begin_ms})", "as": "from"},
            {"calculate": f"max(min(datum.b, {end_ms}), datum.from + {shortest_ms})", "as": "to"},
            {"calculate": f"utcFormat(datum.a, {_TIME}) + (datum.a == datum.b ? '' : "
                          f"' to ' + utcFormat(datum.b, {_TIME}))", "as": "time"},
        ],
        "layer": [
            {"transform": [
                {"filter": "isValid(datum.f)"},
                {"calculate": f"{fates}[datum.f]", "as": "fate"},
                {"calculate": "datum.c > 1 ? datum.c + ' segments' : 'segment ' + datum.n",
                 "as": "what"},
                {"calculate": "datum.n + ' to ' + datum.o", "as": "offsets"},
                {"calculate": f"format(datum.s / {factor}, '.4~g') + ' {unit}'", "as": "size"},
             ],
             "mark": {"type": "bar", "height": 14},
             "encoding": {"x": {"field": "from", **time}, "x2": {"field": "to"}, "y": row,
                          "color": fate,
                          "fillOpacity": {"field": "g", "type": "ordinal", "legend": None,
                                          "scale": {"domain": [0, 1], "range": [1, 0.6]}},
                          "tooltip": tooltip}},
            {"transform": [{"filter": "isValid(datum.m)"},
                           {"calculate": f"{marks}[datum.m]", "as": "what"},
                           {"calculate": "datum.n", "as": "offsets"}],
             "mark": {"type": "point", "filled": True, "size": 90, "fill": INK, "opacity": 1},
             "encoding": {"x": {"field": "from", **time}, "y": row, "tooltip": tooltip,
                          "shape": {"field": "what", "type": "nominal", "title": "mark",
                                    "scale": {"domain": marks,
                                              "range": list(_MARKS.values())}}}},
        ],
        "config": CONFIG,
    }  # fmt: skip


def _values(report: Report) -> Iterator[dict[str, Any]]:
    """Yield bars and marks with short names: there are thousands of them.

    Of both: `i` the partition, `a` and `b` the time. Of a bar: `f` its fate, `g` alternates between
    neighbours, `c` the number of segments, `n` and `o` the offsets, `s` the size, `why`. Of a mark:
    `m` its kind and `n` what it marks.
    """
    own = max(BARS_MAX // max(len(report.partitions), 1), 2)
    fates, marks = list(_FATES), list(_MARKS)
    findings: defaultdict[str, list[str]] = defaultdict(list)
    for one in report.findings:
        if one.defect.severity != Severity.NOTE:
            findings[one.defect.path].append(one.defect.reference)
    for number, partition in enumerate(report.partitions):
        for at, bar in enumerate(bars_of(partition, report.made_ms, own)):
            why = {"why": bar.why} if bar.why else {}
            several = {"c": bar.count} if bar.count > 1 else {}
            yield {"i": number, "a": bar.start_ms, "b": bar.end_ms, "f": fates.index(bar.fate),
                   "g": at % 2, "n": bar.base_offset, "o": bar.end_offset, "s": bar.size_bytes,
                   **several, **why}  # fmt: skip
        for mark in marks_of(partition, findings, report.made_ms):
            yield {"i": number, "a": mark.time_ms, "b": mark.time_ms, "m": marks.index(mark.what),
                   "n": mark.detail}  # fmt: skip
