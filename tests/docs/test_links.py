"""Every relative link of every page leads to a file, and to a heading there if it names one."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.checkout import ROOT

if TYPE_CHECKING:
    from pathlib import Path

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FOLDERS = ("docs", "examples", "tests", "benchmarks", "delivery")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(one for name in FOLDERS for one in (ROOT / name).rglob("*.md"))]
)


def links(page: Path) -> list[str]:
    """Return the targets of the links of a page, without those to other sites."""
    found = LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    return [target for target in found if "://" not in target]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    found: Counter[str] = Counter()
    names = set()
    for heading in HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """A page that was moved, or a heading in other words, would leave a link without an end."""
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_there_are_links() -> None:
    """A pattern that finds nothing would pass the test above."""
    found = [link for page in PAGES for link in links(page)]
    assert len(found) > 100
    assert sum("#" in link for link in found) > 5
