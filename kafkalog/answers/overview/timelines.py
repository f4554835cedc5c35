"""The charts over time: bytes as they were appended, and segments as lanes, in Vega-Lite."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from formats.file_names import INDEXES, LOG, SNAPSHOT
from formats.late_classes import dataclass
from kafkalog.answers.overview.html import (
    CONFIG,
    INK,
    LABEL_WIDTH,
    OTHERS,
    ROW,
    VEGA_LITE,
    colors_of,
    size_text,
    time_axis,
    time_text,
    topics_by_size,
    unit_of,
)
from kafkalog.answers.overview.model import MINUTE_MS
from kafkalog.change.retention.model import Reason
from kafkalog.io.wording import printable
from kafkalog.model import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalog.answers.overview.gathering import Report
    from kafkalog.answers.overview.model import PartitionFacts
    from kafkalog.change.retention.model import Verdict

BARS_MAX: Final = 4000
"""About how many segments are drawn: neighbours are drawn together where there are more."""
DAY_MS: Final = 86_400_000
_DETAIL_MAX: Final = 300
_BLOCKED: Final = "blocked"


@dataclass(frozen=True, slots=True)
class Bar:
    """A segment, or neighbouring segments with the same fate, over time.

    Attributes:
        start_ms, end_ms: timestamp of the first batch, and the largest timestamp.
        fate: what retention does to it.
        count: number of segments.
        base_offset, end_offset: offset of the first record, and after the last.
        size_bytes: size of the logs.
        why: what blocks its deletion.
    """

    start_ms: int
    end_ms: int
    fate: str
    count: int
    base_offset: int
    end_offset: int
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark on a lane: the log start, the high watermark, or findings."""

    time_ms: int
    what: str
    detail: str


def fate_of(verdict: Verdict, now_ms: int) -> str:
    if verdict.is_deleted:
        return "deleted now"
    if verdict.reason == Reason.BLOCKED:
        return _BLOCKED
    if verdict.deletable_timestamp is not None and verdict.deletable_timestamp <= now_ms + DAY_MS:
        return "goes within 24 h"
    return "active" if verdict.is_active else "stays"


def bars_of(partition: PartitionFacts, now_ms: int, count_max: int) -> Iterator[Bar]:
    """Yield the bars of a partition; segments without a usable timestamp have none.

    Args:
        now_ms: the clock; timestamps more than a day later are not usable.
        count_max: about how many bars at most.
    """
    placed = list(_placed(partition, now_ms))
    # Rounded up, so that there are no more bars than `count_max`.
    per_bar = -(-len(placed) // count_max)
    run: list[tuple[int, int, Verdict]] = []
    for one in placed:
        is_other = run and fate_of(run[-1][2], now_ms) != fate_of(one[2], now_ms)
        if run and (is_other or len(run) >= per_bar):
            yield _bar(run, now_ms)
            run = []
        run.append(one)
    if run:
        yield _bar(run, now_ms)


def _placed(partition: PartitionFacts, now_ms: int) -> Iterator[tuple[int, int, Verdict]]:
    if partition.retention is None:
        return
    contents = {one.base_offset: one for one in partition.contents}
    for verdict in partition.retention.verdicts:
        known = contents.get(verdict.segment.base_offset)
        if known is None or known.first_timestamp is None or known.last_timestamp is None:
            continue
        # Without timestamps there is -1; made-up ones in the future would stretch the axis.
        if known.first_timestamp > 0 and known.last_timestamp <= now_ms + DAY_MS:
            yield known.first_timestamp, known.last_timestamp, verdict


def _bar(run: Sequence[tuple[int, int, Verdict]], now_ms: int) -> Bar:
    first, last = run[0][2], run[-1][2]
    fate = fate_of(last, now_ms)
    return Bar(
        start_ms=min(start for start, _, _ in run),
        end_ms=max(end for _, end, _ in run),
        fate=fate,
        count=len(run),
        base_offset=first.segment.base_offset,
        end_offset=last.upper_bound,
        size_bytes=sum(verdict.segment.size_bytes for _, _, verdict in run),
        why=last.detail[:_DETAIL_MAX] if fate == _BLOCKED else "",
    )


def marks_of(
    partition: PartitionFacts, findings: Mapping[str, Sequence[str]], now_ms: int
) -> Iterator[Mark]:
    """Yield log start, high watermark and the findings of a partition, where they lie in time.

    An offset within a segment is placed in proportion, between its first and last timestamp.

    Args:
        findings: path of a file to the references of its findings.
    """
    placed = list(_placed(partition, now_ms))
    if not placed:
        return
    start, mark = partition.listed.log_start_offset, partition.listed.high_watermark
    for offset, what in ((start, "log start"), (mark, "high watermark")):
        if offset is not None:
            time_ms = _time_of(offset, placed)
            if time_ms is not None:
                yield Mark(time_ms, what, str(offset))
    for begin_ms, _, verdict in placed:
        # Findings about an index belong to its segment.
        stem = os.path.splitext(verdict.segment.path)[0]
        found = [
            reference
            for suffix in (LOG, *INDEXES, SNAPSHOT)
            for reference in findings.get(stem + suffix, ())
        ]
        if found:
            yield Mark(begin_ms, "finding", ", ".join(dict.fromkeys(found)))


def _time_of(offset: int, placed: Sequence[tuple[int, int, Verdict]]) -> int | None:
    for begin_ms, end_ms, verdict in placed:
        base = verdict.segment.base_offset
        if base <= offset <= verdict.upper_bound:
            length = max(verdict.upper_bound - base, 1)
            return begin_ms + (end_ms - begin_ms) * (offset - base) // length
    return None


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
    # A day of tolerance, for clocks that are ahead.
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
        # From both ends, always the smaller minute: most of the time is left out for the fewest
        # bytes.
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
        # The legend, which is long on a narrow page, takes nothing of the height.
        "autosize": {"type": "fit-x", "contains": "padding"},
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
           "axis": {"labelLimit": LABEL_WIDTH, "grid": True}}  # fmt: skip
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
