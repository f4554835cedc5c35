"""`docs/performance.md` covers the benchmarks that exist."""

from __future__ import annotations

from benchmarks.decoders import MEANINGS
from benchmarks.extremes import extremes
from benchmarks.page import COMMAND, NOTES, merged
from benchmarks.rows import DECODERS_DATASET, REHEARSAL_DATASET, TRENDS, all_rows, datasets
from docgen.pages import ROOT


def test_page_has_every_row() -> None:
    """After adding, renaming or dropping a benchmark, run `make bench` again."""
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert f"`{COMMAND}`" in text
    names = {row.name for row in all_rows()} | {trend.name for trend in TRENDS} | set(MEANINGS)
    assert [name for name in names if f"| {name} |" not in text] == []
    assert [title for title in NOTES if f"## {title}\n" not in text] == []
    for row in all_rows():
        for wanted in row.wanted:
            assert f"| {row.name} | {wanted.text()} |" in text, "run `make bench`"


def test_page_of_extremes_has_every_row() -> None:
    """The page of the full-size run names each log and its commands."""
    text = (ROOT / "docs" / "extremes.md").read_text(encoding="utf-8")
    assert "decompresses to 256 MiB of" in text
    for one in extremes():
        assert text.count(f"| {one.name} |") == len(one.commands)


def test_make_bench_is_the_command() -> None:
    """What the page says is what the Makefile does."""
    assert f"$(BIN)/{COMMAND}\n" in (ROOT / "Makefile").read_text()


def test_rows_are_told_apart() -> None:
    """Each name is unique, its data exists, and its table has a note."""
    rows = all_rows()
    assert len({row.name for row in rows}) == len(rows)
    used = {row.dataset for row in rows} | {DECODERS_DATASET, REHEARSAL_DATASET}
    assert used == set(datasets())
    assert {row.table for row in rows} == set(NOTES)
    names = {row.name for row in rows}
    assert {name for trend in TRENDS for name in (trend.small, trend.large)} <= names


def test_rows_measured_later_replace_those_of_a_page() -> None:
    """A new row replaces the old one, with its bounds; a missing table is inserted in order."""
    head = "| what | wall s |\n| --- | ---: |\n"
    wanted = "## Wanted and measured\n\n| what | wanted | measured |\n| --- | --- | ---: |\n"
    old = f"# P\n\n{wanted}| a | 1 s | 2 |\n| a | 1 MB | 2 |\n\n## Groups\n\n{head}| a | 1 |\n"
    old += f"| b | 2 |\n\n## Keys\n\n{head}| c | 3 |\n"
    new = f"# P\n\n{wanted}| a | 1 MB | 9 |\n| d | 1 s | 9 |\n\n## Groups\n\n{head}| b | 9 |\n\n"
    new += f"## Disk usage\n\nNote.\n\n{head}| d | 9 |\n"
    expected = f"# P\n\n{wanted}| a | 1 s | 2 |\n| a | 1 MB | 9 |\n| d | 1 s | 9 |\n\n## Groups\n\n"
    expected += f"{head}| a | 1 |\n| b | 9 |\n\n## Disk usage\n\nNote.\n\n{head}| d | 9 |\n\n"
    expected += f"## Keys\n\n{head}| c | 3 |\n"
    assert merged(old, new) == expected
    assert merged(expected, new) == expected
