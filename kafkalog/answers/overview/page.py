"""The page of a report: one HTML document that opens without a network.

Vega, Vega-Lite and Vega-Embed come with `vl-convert-python`, DataTables with `itables`.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalog.answers.overview.charts import charts_of
from kafkalog.answers.overview.content_tables import (
    codec_table,
    group_table,
    hot_key_table,
    lag_table,
    open_table,
    profile_table,
    transactional_id_table,
)
from kafkalog.answers.overview.html import (
    chart,
    command_html,
    escaped,
    json_block,
    paragraph,
    section,
    size_text,
    time_text,
)
from kafkalog.answers.overview.tables import (
    assumption_table,
    cleaning_table,
    disk_table,
    findings_table,
    gap_table,
    log_dir_table,
    meaning_table,
    next_start_table,
    over_table,
    partition_table,
    retention_table,
    topic_table,
)
from kafkalog.errors import UnsupportedError
from kafkalog.io.jit.fast_path import require_address_space
from kafkalog.io.wording import counted
from kafkalog.model import Severity
from kafkalog.node.recovery.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalog.answers.overview.gathering import Report


# Below 1.9 GiB, the JavaScript engine of vl_convert ended in SIGABRT, or could not be loaded.
_ADDRESS_SPACE_MIN: Final = 2048 << 20

# The bundle keeps its exports to itself otherwise.
_GLOBALS: Final = "window.vegaEmbed = vegaEmbed;"


def require_libraries() -> None:
    """Check that the libraries are there, and have room.

    Raises:
        UnsupportedError: one is missing.
        OutOfMemoryError: the address space of this process is too small for them.
    """
    for name in ("vl_convert", "itables"):
        if find_spec(name) is None:
            raise _missing(name)
    require_address_space("A report", _ADDRESS_SPACE_MIN)


def _missing(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"Reports need {name.replace('vl_convert', 'vl-convert-python')}, which is not installed.",
        hint="pip install 'kafkalog[data]'",
    )


@cache
def vega() -> str:
    """Return a script that defines `vegaEmbed`."""
    if find_spec("vl_convert") is None:
        raise _missing("vl_convert")
    import vl_convert

    return _contained(vl_convert.javascript_bundle(_GLOBALS))


@cache
def datatables() -> str:
    """Return a module that defines `DataTable`."""
    found = find_spec("itables")  # the module itself imports more than is needed here
    if found is None or not found.submodule_search_locations:
        raise _missing("itables")
    place = Path(found.submodule_search_locations[0], "html", "dt_bundle.js")
    # One inline module cannot import another: the class has to become a global.
    module, exports, rest = place.read_text(encoding="utf-8").rpartition("export{")
    names, _, licence = rest.partition("}")
    [table] = [one.split(" as ")[0] for one in names.split(",") if one.endswith(" as default")]
    assert exports, "it is a module"
    return _contained(f"{module}window.DataTable={table}{licence}")


def _contained(script: str) -> str:
    """Return a script that does not end its element early: the escapes that HTML recommends.

    They mean the same in strings and regular expressions, the only places where these occur.
    """
    for word in ("<!--", "<script", "</script"):
        script = script.replace(word, f"\\x3C{word[1:]}")
    return script


def licences() -> str:
    text = files("kafkalog.answers.overview").joinpath("licences.txt").read_text(encoding="utf-8")
    return f"<details><summary>Licences</summary><pre>{escaped(text)}</pre></details>"


_GAPS_MAX: Final = 5
"""At most this many gaps are named at the top; if there are more, they have a section."""

_POLICY: Final = (
    # Scripts only by their hash: text of a log never runs, even if it were markup by some mistake.
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; script-src {hashes}"
)


def page_of(report: Report) -> str:
    """Return the page.

    Raises:
        UnsupportedError: a library that draws it is missing.
    """
    charts = charts_of(report)
    every = _sections(report, charts)
    sections = [one for one in every if any(one[2])]
    empty = [heading for _, heading, parts in every if not any(parts)]
    style, start = (_resource(name) for name in ("page.css", "page.js"))
    scripts = [vega(), datatables(), start]
    hashes = " ".join(_hash(script) for script in scripts)
    title = "Kafka log report: " + ", ".join(report.paths)
    links = "".join(f'<a href="#{name}">{escaped(heading)}</a>' for name, heading, _ in sections)
    body = "\n".join(section(name, heading, *parts) for name, heading, parts in sections)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(hashes=hashes)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="kafkalog {escaped(version("kafkalog"))}">
<title>{escaped(title)}</title>
<style>
{style}</style>
</head>
<body>
<header>
{_heading(report, {name for name, _, _ in sections})}
</header>
<nav aria-label="Sections">{links}</nav>
<main>
{body}
</main>
<footer>
{paragraph(f"Left out, with nothing to show: {', '.join(empty)}.") if empty else ""}
{paragraph(f"kafkalog {version('kafkalog')}. All times are UTC, all sizes in bytes of 1024.")}
{licences()}
</footer>
{json_block("charts", charts)}
<script>{scripts[0]}</script>
<script type="module">{scripts[1]}</script>
<script type="module">{scripts[2]}</script>
</body>
</html>
"""


def _hash(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _resource(name: str) -> str:
    return files("kafkalog.answers.overview").joinpath(name).read_text(encoding="utf-8")


def _heading(report: Report, sections: Collection[str]) -> str:
    nodes = {
        f"node {one.meta.node_id}, cluster {one.meta.cluster_id}"
        for one in report.log_dirs
        if one.meta is not None
    }
    places = "".join(f"<li><code>{escaped(path)}</code></li>" for path in report.paths)
    what = "; ".join([f"looked at {time_text(report.made_ms)} UTC", *sorted(nodes)])
    return (
        f"<h1>Kafka log report</h1>\n<p>{escaped(what)}</p>\n"
        f'<ul class="paths">{places}</ul>\n{_tiles(report, sections)}\n'
        f"{_next_step(report)}\n{_extent(report)}"
    )


def _next_step(report: Report) -> str:
    if not report.findings or report.worst == Severity.NOTE:
        return ""
    first = report.findings[0]
    return (
        f'<p class="next">Next step for the most severe finding, {escaped(first.defect.reference)}:'
        f" {command_html(first.command)}</p>"
    )


def _extent(report: Report) -> str:
    """Return how much was read, and what was not."""
    checked, gaps = report.checked, report.gaps
    words = (
        f"Checked at level {report.level}: {counted(checked.files, 'file')}, "
        f"{counted(checked.batches, 'batch')}, {size_text(checked.checked_bytes)}."
    )
    unread = [escaped(checked.looked.unread)] if checked.looked.unread else []
    unread += [f"{escaped(one.about)}: {escaped(one.why)}" for one in gaps[:_GAPS_MAX]]
    if len(gaps) > _GAPS_MAX:
        unread.append(f'<a href="#gaps">{len(gaps) - _GAPS_MAX} more</a>')
    items = "".join(f"<li>{one}</li>" for one in unread)
    style = "" if report.is_whole else " odd"
    return (
        f'<div class="extent{style}"><p>{escaped(words)}'
        f"{' Not everything was read:' if items else ' Everything was read.'}</p>"
        f"{f'<ul>{items}</ul>' if items else ''}</div>"
    )


def _tiles(report: Report, sections: Collection[str]) -> str:
    partitions = report.partitions
    topics = {one.listed.topic for one in partitions}
    defects = report.checked.defects
    worst = report.worst
    lost = sum(one.lost_records + one.hidden_records for one in report.next_starts)
    refused = sum(one.verdict == Verdict.REFUSE for one in report.next_starts)
    acting = sum(one.verdict != Verdict.NOTHING for one in report.next_starts)
    freed = sum(one.retention.freed_bytes for one in partitions if one.retention)
    lags = [one.lag for one in report.groups if one.lag is not None]
    hanging = sum(one.hanging is not None for one in report.open_transactions)
    dirty = sum(
        one.cleaning.cleanable.cleanable_bytes
        for one in partitions
        if one.cleaning and one.cleaning.cleanable
    )
    start = "loads everything" if not acting else f"acts on {counted(acting, 'directory')}"
    start += f"; {refused} refused" if refused else ""
    count = f"{counted(len(topics), 'topic')}, {counted(len(partitions), 'partition')}"
    alarm = "bad" if worst == Severity.DAMAGE else "odd" if defects.total() else ""
    grave = defects.total() - defects[Severity.NOTE]
    opened = counted(len(report.open_transactions), "open transaction")
    tiles = (
        ("findings", f"{grave:,}", f"findings: {report.verdict}", alarm if grave else ""),
        ("next-start", f"{lost:,}", f"records lost or hidden at the next start, which {start}",
         "bad" if lost or refused else ""),
        ("sizes", size_text(report.size_bytes), count, ""),
        ("retention", size_text(freed), "retention deletes at its next check", ""),
        ("groups", f"{max(lags):,}" if lags else "–",
         f"largest lag of {counted(len(report.groups), 'group')}", ""),
        ("transactions", str(hanging), f"hanging of {opened}", "bad" if hanging else ""),
        ("compaction", size_text(dirty), "dirty, in compacted topics", ""),
    )  # fmt: skip
    return '<div class="tiles">' + "".join(
        f'<a class="tile {style}" href="#{name}"><strong>{escaped(number)}</strong> '
        f"<span>{escaped(words)}</span></a>"
        for name, number, words, style in tiles if name in sections
    ) + "</div>"  # fmt: skip


def _sections(report: Report, drawn: Collection[str]) -> list[tuple[str, str, tuple[str, ...]]]:
    def place(name: str, label: str, explanation: str = "") -> str:
        return chart(name, label) + explanation if name in drawn else ""

    found = [
        ("findings", "Findings", (
            findings_table(report).html() or paragraph("No findings."),
            meaning_table(report).html())),
        ("next-start", "Next start", (
            next_start_table(report).html() or paragraph("The next start loads everything."),
            assumption_table(report).html())),
        ("sizes", "Sizes", (
            place("sizes", "Treemap of topics, partitions and segments by size"),
            topic_table(report).html(), partition_table(report).html(),
            log_dir_table(report).html())),
        ("growth", "Growth", (
            place("growth", "Bytes appended over time, by topic"), disk_table(report).html())),
        ("time", "Segments over time", (
            place("lanes", "Segments of each partition over time, with log start, high watermark "
                           "and findings", paragraph(
                "A bar is a segment, from the timestamp of its first batch to the largest. "
                "Log start and high watermark stand in proportion to their offset.")),)),
        ("retention", "Retention", (retention_table(report).html(), over_table(report).html())),
        ("groups", "Groups", (group_table(report).html(), lag_table(report).html())),
        ("transactions", "Transactions", (
            open_table(report).html(), transactional_id_table(report).html())),
        ("compaction", "Compaction", (cleaning_table(report).html(),)),
        ("content", "Codecs and batches", (
            place("codecs", "Bytes of each codec, by topic"), codec_table(report).html())),
    ]  # fmt: skip
    if report.profiles:
        found.append(
            ("records", "Records and keys",
             (profile_table(report).html(), hot_key_table(report).html()))
        )  # fmt: skip
    if len(report.gaps) > _GAPS_MAX:
        found.append(("gaps", "Not answered", (gap_table(report).html(),)))
    return found
