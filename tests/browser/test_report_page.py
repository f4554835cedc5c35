"""The page of `report` in a real browser: its numbers, its behavior, and hostile names.

Debian's Chromium opens the file, as a user would.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.answers.overview import report
from tests.browser import browser as chromium
from tests.builders import batch, copy_tree, record, write_log
from tests.sampling import tries_everything

if TYPE_CHECKING:
    from collections.abc import Iterator


NOW_MS = 1_795_300_000_000
MARKUP = "<img src=x onerror=window.owned=1>"
SCRIPT = "</script><script>window.owned=1</script>"
NAMES = (
    f"{MARKUP.replace('/', '')}-0",
    "'\"&amp;<b>-1",
    "right\u202eleft-2",
    "{{7*7}}-3",
    "long" * 50 + "-4",
)
PAIRS = {"light": (1280, False), "dark": (1280, True), "phone": (390, True)}
# A4 on its side without its margins of 12 mm, in CSS pixels and in points.
PRINTED_WIDTH = 1031
MARGIN = 34.0
POINTS = 0.75
AXE = "axe-core@4.14.1"


@pytest.fixture(scope="module")
def log_dir(corpus_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Groups and transactions, torn logs, compacted topics, and hostile names and keys."""
    place = tmp_path_factory.mktemp("report") / "logs"
    states = corpus_dir / "kafka-4.3"
    copy_tree(states / "internal-topics", place)
    for name in ("torn-a-0", "torn-c-0", "torn-h-0"):
        copy_tree(states / "crash-1-torn" / name, place / name)
    copy_tree(states / "compact-0-before" / "compact-live-0", place / "compact-live-0")
    keys = [SCRIPT.encode(), MARKUP.encode(), b"\xff\x00", "\u202ekey".encode()]
    records = [record(i, keys[i % len(keys)], b"v") for i in range(40)]
    for name in NAMES:
        write_log(place / name, batch(0, records))
    (place / os.fsdecode(b"not\xffutf8-5")).mkdir()
    write_log(place / os.fsdecode(b"not\xffutf8-5"), batch(0, records))
    return place


@pytest.fixture(scope="module")
def page_file(log_dir: Path) -> Path:
    facts = report(log_dir, records=True, now=NOW_MS, on_event=lambda _: None)
    path = log_dir.parent / "page.html"
    path.write_text(facts.to_html(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    if chromium.program() is None:
        assert not os.environ.get("CI"), "CI has Debian's chromium"
        pytest.skip("needs Debian's chromium")
    profile = tmp_path_factory.mktemp("chromium")
    with chromium.running(profile) as running:
        yield running
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture(scope="module")
def page(browser: chromium.Browser, page_file: Path) -> chromium.Page:
    return browser.page().open(page_file)


def cells(page: chromium.Page, table: str) -> list[dict[str, Any]]:
    """Return every row of a table by its column titles: the exact values, filtered or not."""
    found = page.value(f"""(() => {{
        const table = new DataTable('#{table}');
        const titles = table.columns().titles().toArray();
        return table.rows().nodes().toArray().map((row) => Object.fromEntries(
          [...row.cells].map((cell, i) => [titles[i], cell.dataset.order ?? cell.textContent])));
    }})()""")
    rows: list[dict[str, Any]] = found
    return rows


def shown(page: chromium.Page, table: str, column: int = 0) -> list[str]:
    """Return the cells of a column as the page shows them."""
    found: list[str] = page.value(
        f"[...document.querySelectorAll('#{table} tbody tr')]"
        f".map((row) => row.cells[{column}].textContent)"
    )
    return found


def number(value: int | None) -> str:
    return "-2" if value is None else str(value)


def rows(kafkalog: Any, *words: object) -> list[dict[str, Any]]:
    result = kafkalog(*words, "--format", "ndjson")
    return [json.loads(line) for line in result.stdout.splitlines()]


def of_type(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [row for row in found if row["type"] == name]


def test_it_opens_without_a_network_and_without_a_complaint(page: chromium.Page) -> None:
    """The page loads nothing but itself, no library warns, and each chart is drawn."""
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in page.requests if url.startswith("file:")]) == 1
    charts = page.value("[...document.querySelectorAll('.chart')].map((c) => "
                        "[c.id, c.querySelectorAll('svg path, svg text').length])")  # fmt: skip
    assert [name for name, _ in charts] == ["sizes-chart", "growth-chart", "lanes-chart",
                                            "codecs-chart"]  # fmt: skip
    assert all(marks > 5 for _, marks in charts), charts


def test_sizes_and_offsets_are_those_of_ls(
    page: chromium.Page, log_dir: Path, kafkalog: Any
) -> None:
    expected = {
        Path(row["path"]).name: (row["state"], str(row["size_bytes"]), str(row["segments"]),
                      number(row["log_start_offset"]), number(row["high_watermark"]),
                      number(row["log_end_offset"]))
        for row in of_type(rows(kafkalog, "ls", log_dir), "partition")
    }  # fmt: skip
    found = {
        row["Partition"]: (row["State"], row["Size"], row["Segments"], row["Log start"],
                           row["High watermark"], row["Log end"])
        for row in cells(page, "partition-table")
    }  # fmt: skip
    odd = {name for name in expected if "utf8" in name or "right" in name}
    assert len(found) == len(expected) > 40
    assert {name: found[name] for name in expected.keys() - odd} == {
        name: expected[name] for name in expected.keys() - odd
    }
    assert sorted(found[name] for name in found.keys() - expected.keys() | odd & found.keys()) == (
        sorted(expected[name] for name in odd)
    )


def test_findings_and_next_starts_are_those_of_verify(
    page: chromium.Page, log_dir: Path, kafkalog: Any
) -> None:
    given = rows(kafkalog, "verify", log_dir)
    expected = sorted(
        (row["severity"], row["reference"], number(row["offset"]), number(row["position"]))
        for row in of_type(given, "defect")
    )
    found = sorted(
        (row["Severity"].split()[1], row["Finding"], row["Offset"], row["Position"])
        for row in cells(page, "findings-table")
    )
    assert found == expected
    starts = sorted(
        (row["verdict"], number(row["truncate_to"]), str(row["lost_records"]),
         str(row["lost_bytes"]))
        for row in of_type(given, "next_start")
    )  # fmt: skip
    assert starts == sorted(
        (
            row["Outcome"].split()[1],
            row.get("Truncates to", number(None)),
            row["Records lost"],
            row["Bytes lost"],
        )
        for row in cells(page, "next-start-table")
    )
    assert len(expected) > 10
    assert len(starts) > 3


def test_groups_and_transactions_are_those_of_the_commands(
    page: chromium.Page, log_dir: Path, kafkalog: Any
) -> None:
    given = rows(kafkalog, "groups", log_dir)
    assert {row["Group"]: (row["Type"], row["State"], row["Lag"], row["Offsets"])
            for row in cells(page, "group-table")} == {
        row["group_id"]: (row["group_type"], row["state"], number(row["lag"]), str(row["offsets"]))
        for row in of_type(given, "group")
    }  # fmt: skip
    assert sorted((row["Group"], row["Topic"], row["Partition"], row["Offset"], row["End"],
                   row["Lag"], row["Committed"]) for row in cells(page, "lag-table")) == sorted(
        (row["group_id"], row["topic"], str(row["partition"]), number(row["offset"]),
         number(row["log_end_offset"]), number(row["lag"]), str(row["commit_timestamp"]))
        for row in of_type(given, "group_offset")
    )  # fmt: skip
    given = rows(kafkalog, "transactions", log_dir)
    assert sorted((row["Partition"], row["First offset"], row["Producer"], row["Epoch"])
                  for row in cells(page, "open-table")) == sorted(
        (f"{row['topic']}-{row['partition']}", str(row["first_offset"]), str(row["producer_id"]),
         str(row["producer_epoch"]))
        for row in of_type(given, "open_transaction")
    )  # fmt: skip
    assert len(cells(page, "transactional-id-table")) == len(of_type(given, "transactional_id"))


def test_records_are_those_of_profile(page: chromium.Page, log_dir: Path, kafkalog: Any) -> None:
    given = rows(kafkalog, "profile", log_dir)
    profiles = of_type(given, "profile")
    several = {row["topic"] for row in profiles if row["partition"] is None}
    topics = [row for row in profiles if row["partition"] is None or row["topic"] not in several]
    assert sorted((row["Records"], row["Tombstones"], row["Null keys"], row["Keys"])
                  for row in cells(page, "profile-table")) == sorted(
        (str(row["records"]), str(row["tombstones"]), str(row["null_keys"]), str(row["keys"]))
        for row in topics
    )  # fmt: skip
    assert topics


def test_what_retention_frees_is_that_of_simulate_retention(
    page: chromium.Page, log_dir: Path, kafkalog: Any
) -> None:
    given = rows(kafkalog, "retention", log_dir, "--now", str(NOW_MS))
    freed = {
        Path(row["path"]).name: str(row["freed_bytes"])
        for row in of_type(given, "retention_partition")
    }
    found = {row["Partition"]: row["Frees"] for row in cells(page, "retention-table")}
    common = freed.keys() & found.keys()
    assert len(common) > 40
    assert {name: found[name] for name in common} == {name: freed[name] for name in common}


def test_hostile_names_and_keys_are_text(page: chromium.Page) -> None:
    """None of them becomes an element or runs; each is shown as text."""
    assert page.value("window.owned === undefined")
    assert page.value("document.querySelectorAll('img, iframe, object, embed, base').length") == 0
    assert page.value("document.querySelectorAll('[onerror], [onload], [onclick]').length") == 0
    assert page.value("document.scripts.length") == 4
    text = page.value("document.body.textContent")
    assert "<img src=x onerror=window.owned=1>-0" in text
    keys = [row["Key"] for row in cells(page, "hot-key-table")]
    assert SCRIPT in keys
    assert "0xff00" in keys
    assert "right\\u202eleft" in text, "what turns the order of letters is escaped"
    assert "\u202e" not in text
    assert "not\\xffutf8" in text


def test_scripts_of_others_do_not_run(browser: chromium.Browser, page_file: Path) -> None:
    """Even if a name came through as markup, the browser would not run its script."""
    page = browser.page().open(page_file)
    page.value("""(() => {
        const script = document.createElement('script');
        script.textContent = 'window.owned = 1';
        document.body.append(script);
        document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.owned=1">');
    })()""")
    page.value("new Promise((done) => setTimeout(done, 100))")
    assert page.value("window.owned === undefined")
    assert any("Content Security Policy" in one for one in page.complaints)


def test_tables_sort_by_keyboard_and_filter(page: chromium.Page) -> None:
    page.value("document.querySelector('#partition-table th [tabindex]').focus()")
    page.press("Enter")
    page.value("new Promise((done) => setTimeout(done, 50))")
    ascending = shown(page, "partition-table")
    assert page.value("document.activeElement.closest('th').getAttribute('aria-sort')") == (
        "ascending"
    )
    page.press("Enter")
    page.value("new Promise((done) => setTimeout(done, 50))")
    assert shown(page, "partition-table") != ascending
    page.press("Tab", "Tab", "Enter")
    page.value("new Promise((done) => setTimeout(done, 50))")
    by_size = [row["Size"] for row in cells(page, "partition-table")]
    assert [int(size) for size in by_size] in (
        sorted(map(int, by_size)), sorted(map(int, by_size), reverse=True)
    )  # fmt: skip
    page.value("document.querySelector('#partition-table_wrapper input[type=search]').focus()")
    page.press(*"torn-c")
    page.value("new Promise((done) => setTimeout(done, 400))")
    assert shown(page, "partition-table") == ["torn-c-0"]


@pytest.mark.parametrize("name", PAIRS if tries_everything() else ["light", "phone"])
def test_it_fits_the_window_in_light_and_dark(
    browser: chromium.Browser, page_file: Path, name: str, tmp_path: Path
) -> None:
    """On a phone, nothing scrolls sideways, tables neither; colors follow the browser's setting."""
    width, dark = PAIRS[name]
    page = browser.page().open(page_file, width=width, dark=dark)
    assert page.value("document.documentElement.scrollWidth") <= width
    if width < 640:
        assert page.value("[...document.querySelectorAll('.scroll')].filter("
                          "(one) => one.scrollWidth > one.clientWidth).length") == 0  # fmt: skip
    red = page.value("parseInt(getComputedStyle(document.body).backgroundColor.slice(4))")
    assert (red < 60) if dark else (red > 240)
    assert page.screenshot(tmp_path / f"{name}.png").stat().st_size > 20_000


def test_it_prints_light_and_whole(browser: chromium.Browser, page_file: Path) -> None:
    """Even from a dark screen; tables that the screen shows in parts are printed whole."""
    page = browser.page().open(page_file, width=PRINTED_WIDTH, dark=True)
    page.media(dark=True, media="print")
    red = page.value("parseInt(getComputedStyle(document.body).backgroundColor.slice(4))")
    assert red > 240
    assert len(shown(page, "partition-table")) == 25
    page.value("window.dispatchEvent(new Event('beforeprint'))")
    assert len(shown(page, "partition-table")) == len(cells(page, "partition-table")) > 40
    widest = page.value("Math.max(...[...document.querySelectorAll('table')].map("
                        "(one) => one.getBoundingClientRect().right))")  # fmt: skip
    assert widest <= PRINTED_WIDTH, "a table is cut"
    # From the top of each heading to the end of the first row, drawing or text below it.
    needed = page.value("""
        Object.fromEntries([...document.querySelectorAll('h2, h3')].map((one) => {
            const next = one.nextElementSibling;
            const below = next.tagName === 'H3' ? next.nextElementSibling : next;
            const end = (below.querySelector('tbody tr') ?? below).getBoundingClientRect().bottom;
            return [one.textContent, end - one.getBoundingClientRect().top];
        }))""")
    tops = {
        title.decode(): float(top)
        for title, top in re.findall(
            rb"/Title \((.*?)\)\n/Dest \[\d+ 0 R /XYZ [\d.]+ ([\d.]+) 0\]", page.pdf()
        )
    }
    assert needed.keys() <= tops.keys()
    # The outline points at the letters, which begin some points below the top of their line.
    torn = [name for name, height in needed.items() if tops[name] - height * POINTS < MARGIN - 4]
    assert torn == [], "a heading stands at the end of a page, what it is about on the next"


def test_the_top_says_what_was_not_read(
    browser: chromium.Browser, log_dir: Path, tmp_path: Path
) -> None:
    """Neither the depth of the checks nor what could not be read needs a look further down."""
    one = log_dir / "torn-a-0"
    facts = report(one, one / "no-such-file", level="quick", now=NOW_MS, on_event=lambda _: None)
    path = tmp_path / "page.html"
    path.write_text(facts.to_html(), encoding="utf-8")
    page = browser.page().open(path)
    said = page.value("document.querySelector('header .extent.odd').innerText")
    assert "at level quick" in said
    assert "checksums not read" in said
    assert "no-such-file" in said
    assert "__consumer_offsets" in said
    command = page.value("document.querySelector('header .next code').textContent")
    assert command == cells(page, "findings-table")[0]["Next step"]


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The checks of accessibility that axe-core makes; it is not kept here for its licence."""
    if shutil.which("npm") is None:
        assert not os.environ.get("CI"), "CI has npm"
        pytest.skip("needs npm")
    place = tmp_path_factory.mktemp("axe")
    subprocess.run(["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund",
                    "--prefix", place, AXE], check=True, timeout=120)  # fmt: skip
    return (place / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["report", "anatomy"])
def test_axe_has_no_complaint(
    browser: chromium.Browser, page_file: Path, log_dir: Path, axe: str, kafkalog: Any, name: str
) -> None:
    """A page can be read without good eyes, and worked without a mouse: wide, dark and narrow."""
    path = page_file
    page = browser.page()
    if name == "anatomy":
        path = page_file.with_name("anatomy.html")
        kafkalog("anatomy", f"{log_dir / 'torn-a-0'}@0", "--to", path)
        page.navigate(path)
    else:
        page.open(path)
        # Rows are alike: three of each table are quicker to check than all.
        page.value("document.querySelectorAll('table').forEach("
                   "(one) => new DataTable(one).page.len(3).draw())")  # fmt: skip
    page.call("Runtime.evaluate", expression=axe)
    for width, dark in ((1280, False), (390, True)):
        page.resize(width, 900)
        page.media(dark=dark)
        found = page.value(
            "axe.run({resultTypes: ['violations']}).then((one) => one.violations.map("
            "(each) => [each.impact, each.id, each.nodes[0].html]))"
        )
        assert found == [], (width, dark)


def test_growth_is_that_of_du(page: chromium.Page, log_dir: Path, kafkalog: Any) -> None:
    given = rows(kafkalog, "du", log_dir, "--forecast", "--now", str(NOW_MS))
    expected = {
        row["topic"]: str(row["hourly_growth_bytes"])
        for row in given
        if row.get("by") == "topic" and row["hourly_growth_bytes"] is not None
    }
    found = {row["Topic"]: row["Growth per hour"] for row in cells(page, "topic-table")}
    common = expected.keys() & found.keys()
    assert len(common) > 20
    assert {name: found[name] for name in common} == {name: expected[name] for name in common}
    assert any(int(found[name]) > 0 for name in common)
