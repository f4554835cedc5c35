"""Pieces of the page: text that is never markup, cells with their exact value, styles of charts."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkalog.io.wording import printable, utc_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalog.answers.overview.gathering import Report

T = TypeVar("T")
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP: Final = 1024
_SECONDS: Final = len("2026-11-23T00:00:00")
_TEXT_MAX: Final = 4096  # characters of one text: more is cut, and the page says so


def escaped(text: object) -> str:
    """Return a text as HTML: nothing in it is markup, controls a terminal or turns its order."""
    shown = str(text)
    if len(shown) > _TEXT_MAX:
        shown = f"{shown[:_TEXT_MAX]}… ({len(shown)} characters)"
    return html.escape(printable(shown))


def with_commands(text: str) -> str:
    """Return a text as HTML, with what stands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped(text))


def command_html(command: str) -> str:
    """Return a command line that is not broken within the name of an option."""
    words = re.sub(r"--[a-z-]{1,20}", r"<span>\g<0></span>", escaped(command))
    return f"<code>{words}</code>"


def json_block(name: str, value: object) -> str:
    """Return data for scripts: JSON in an element that runs nothing."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        # A `</script>` in a text would end the element, and `<!--` would change how it is parsed.
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


def unit_of(size_bytes: float) -> tuple[int, str]:
    """Return the largest unit that is not larger than a size: its bytes and its name."""
    factor = 1
    for unit in _UNITS[:-1]:
        if size_bytes < factor * _STEP:
            return factor, unit
        factor *= _STEP
    return factor, _UNITS[-1]


def size_text(size_bytes: float) -> str:
    factor, unit = unit_of(abs(size_bytes))
    value = size_bytes / factor
    return f"{value:.0f} {unit}" if factor == 1 or value >= 100 else f"{value:.1f} {unit}"


def time_text(timestamp_ms: int | None) -> str:
    """Return a time in UTC; one outside the calendar as a number, none as `–`."""
    if timestamp_ms is None or timestamp_ms == -1:  # -1 is Kafka's `NO_TIMESTAMP`
        return "–"
    return utc_text(timestamp_ms)[:_SECONDS].replace("T", " ")


def duration_text(duration_ms: int) -> str:
    units = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000))
    for name, unit_ms in units:
        if duration_ms >= unit_ms:
            number = f"{duration_ms / unit_ms:.3g}"
            return f"{number} {name}{'' if number == '1' else 's'}"
    return f"{duration_ms} ms"


_NO_VALUE: Final = ("", "–")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: HTML, and the value by which it is sorted and compared."""

    shown: str
    value: int | float | str | None = None
    style: str = ""

    def html(self) -> str:
        is_same = self.value is None or escaped(self.value) == self.shown
        order = "" if is_same else f' data-order="{escaped(self.value)}"'
        style = f' class="{self.style}"' if self.style else ""
        return f"<td{order}{style}>{self.shown}</td>"


def text_cell(text: object, style: str = "") -> Cell:
    return Cell(escaped(text), None, style)


def number_cell(number: int | None, form: str = ",") -> Cell:
    """Return a cell of a count; one that is unknown comes before all others."""
    # -2 sorts below -1, which is a value: of timestamps, and of offsets that are not valid.
    return Cell("–", -2, "n") if number is None else Cell(f"{number:{form}}", number, "n")


def id_cell(number: int | None) -> Cell:
    """Return a cell of an offset, a position or an id: what people copy has no separators."""
    return number_cell(number, "d")


def size_cell(size_bytes: int | None) -> Cell:
    if size_bytes is None:
        return Cell("–", -2, "n")
    return Cell(escaped(size_text(size_bytes)), size_bytes, "n")


def time_cell(timestamp_ms: int | None) -> Cell:
    return Cell(escaped(time_text(timestamp_ms)), -2 if timestamp_ms is None else timestamp_ms, "t")


def share_cell(share: float) -> Cell:
    return Cell(
        f'<meter min="0" max="1" value="{share:.4f}"></meter> {share * 100:.1f} %',
        round(share, 6),
        "n",
    )


def badge(word: str) -> Cell:
    return Cell(f'<span class="badge {escaped(word)}">{escaped(word)}</span>')


@dataclass(frozen=True, slots=True)
class Table:
    """A table that a reader can sort and filter.

    Attributes:
        caption: what its rows are.
        columns: titles, each with what it means.
        order: column to sort by at first, and the direction; None for the order given.
    """

    name: str
    caption: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Cell]]
    order: tuple[int, str] | None = None

    def html(self) -> str:
        if not self.rows:
            return ""
        # As the commands do, without the columns that no row has a value for.
        used = [
            i
            for i in range(len(self.columns))
            if any(row[i].shown not in _NO_VALUE for row in self.rows)
        ]
        titles = "".join(
            f'<th scope="col" title="{escaped(meaning)}">{escaped(title)}</th>'
            for title, meaning in (self.columns[i] for i in used)
        )
        order = ""
        if self.order is not None and self.order[0] in used:
            order = f' data-sort="{used.index(self.order[0])},{self.order[1]}"'
        rows = "\n".join(f"<tr>{''.join(row[i].html() for i in used)}</tr>" for row in self.rows)
        return (
            f'<h3 id="{self.name}-title">{escaped(self.caption)}</h3>\n<div class="scroll">'
            f'<table id="{self.name}" aria-labelledby="{self.name}-title"{order}>'
            f"<thead><tr>{titles}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>"
        )


def table_of(
    name: str,
    caption: str,
    items: Iterable[T],
    *columns: tuple[str, str, Callable[[T], Cell]],
    order: tuple[int, str] | None = None,
) -> Table:
    """Return a table with a row per item; columns have a title, what it means, and the cells."""
    titles = [(title, meaning) for title, meaning, _ in columns]
    rows = [[cell(one) for _, _, cell in columns] for one in items]
    return Table(name, caption, titles, rows, order)


def section(name: str, title: str, *parts: str) -> str:
    inner = "\n".join(part for part in parts if part)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{escaped(title)}</h2>\n{inner}\n</section>'
    )


def paragraph(text: str) -> str:
    return f"<p>{escaped(text)}</p>"


def chart(name: str, label: str) -> str:
    """Return the place of a chart, with a text for those who do not see it."""
    return f'<figure class="chart" id="{name}-chart" aria-label="{escaped(label)}"></figure>'


VEGA: Final = "https://vega.github.io/schema/vega/v6.json"
VEGA_LITE: Final = "https://vega.github.io/schema/vega-lite/v6.json"
INK: Final = "currentColor"
"""Of the page: light or dark."""
TOPIC_COLORS: Final = ("#3d6a9e", "#b35a08", "#3f8437", "#9a5f8a", "#875f48", "#c63f3e", "#28807b",
                       "#b8527a", "#66605e")  # fmt: skip
OTHERS: Final = "#767c86"
_DAY_MS: Final = 86_400_000
_LABELS: Final = (
    (720_000, "%H:%M:%S"),  # with twelve ticks, minutes alone would repeat
    (_DAY_MS, "%H:%M"),
    (10 * _DAY_MS, "%b %-d, %H:%M"),
    (400 * _DAY_MS, "%b %-d"),
)
"""The longest span for which times are labelled like this."""
ROW: Final = 22
"""Height of a row, in pixels."""
LABEL_WIDTH: Final = {"expr": "min(260, width / 3)"}
"""What names take of a chart's width at most."""
CONFIG: Final[dict[str, Any]] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "axis": {"labelColor": INK, "titleColor": INK, "gridColor": INK, "gridOpacity": 0.15,
             "domainColor": INK, "domainOpacity": 0.4, "tickColor": INK, "tickOpacity": 0.4,
             "titleFontWeight": "normal"},
    "legend": {"labelColor": INK, "titleColor": INK, "orient": "top",
               "columns": {"expr": "max(1, floor(width / 190))"}},
    "view": {"stroke": None},
}  # fmt: skip


def colors_of(topics: Iterable[str]) -> dict[str, str]:
    """Return a color for each topic, by size: those after the first few share one."""
    return {
        topic: TOPIC_COLORS[number] if number < len(TOPIC_COLORS) else OTHERS
        for number, topic in enumerate(topics)
    }


def topics_by_size(report: Report) -> list[str]:
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
