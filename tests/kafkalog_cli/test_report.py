"""`report`: what it writes, what it prints, and what it refuses."""

from __future__ import annotations

import builtins
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.answers.overview import page
from tests.checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXAMPLES = ROOT / "examples"
NOW = "2026-11-22T00:00:00Z"


@pytest.fixture(autouse=True, scope="module")
def _bundles() -> None:
    """Build the bundles once, as that takes a second."""
    page.vega()
    page.datatables()


def test_it_writes_a_page_and_says_what_is_on_it(
    kafkalog: Callable[..., Any], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    result = kafkalog("report", EXAMPLES / "log-dir", "--to", page, "--now", NOW, "--format",
                      "ndjson")  # fmt: skip
    assert result.status == 0, result.stderr
    [row] = [json.loads(line) for line in result.stdout.splitlines()]
    assert (row["path"], row["size_bytes"]) == (str(page), page.stat().st_size)
    assert (row["topics"], row["partitions"], row["groups"]) == (6, 7, 1)
    assert row["defects"]["damage"] == 0
    listed = kafkalog("ls", EXAMPLES / "log-dir", "--format", "ndjson").stdout.splitlines()
    sizes = [one["size_bytes"] for one in map(json.loads, listed) if one["type"] == "partition"]
    assert row["log_bytes"] == sum(sizes)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    for licence in ("University of Washington Interactive Data Lab", "SpryMedia", "Mike Bostock"):
        assert licence in text


def test_findings_give_status_1_only_on_request(
    kafkalog: Callable[..., Any], tmp_path: Path
) -> None:
    """A page that is written is what was asked for."""
    page = tmp_path / "page.html"
    result = kafkalog("report", EXAMPLES / "damaged", "--to", page)
    assert result.status == 0
    assert "kafkalog salvage" in page.read_text(encoding="utf-8")
    assert b"damage" in result.stdout
    again = ("report", EXAMPLES / "damaged", "--to", page, "--replace", "--fail-on", "damage")
    assert kafkalog(*again).status == 1


def test_a_page_is_replaced_only_on_request(kafkalog: Callable[..., Any], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    result = kafkalog("report", EXAMPLES / "log-dir", "--to", page)
    assert result.status == 4
    assert page.read_text() == "mine"
    assert kafkalog("report", EXAMPLES / "log-dir", "--to", page, "--replace").status == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_missing_path_costs_only_itself(kafkalog: Callable[..., Any], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert kafkalog("report", tmp_path / "none", "--to", page).status == 2
    assert not page.exists()
    result = kafkalog("report", EXAMPLES / "log-dir", tmp_path / "none", "--to", page)
    assert result.status == 8
    assert "orders-0" in page.read_text(encoding="utf-8")


def test_a_file_is_refused(kafkalog: Callable[..., Any], tmp_path: Path) -> None:
    log = next((EXAMPLES / "log-dir" / "orders-0").glob("*.log"))
    result = kafkalog("report", log, "--to", tmp_path / "page.html")
    assert result.status == 2
    assert "not a partition or log directory" in result.stderr
    assert not list(tmp_path.iterdir())


def test_an_empty_directory_gives_a_page_that_says_so(
    kafkalog: Callable[..., Any], tmp_path: Path
) -> None:
    log_dir = tmp_path / "logs"
    shutil.copytree(EXAMPLES / "log-dir", log_dir)
    for path in log_dir.glob("*-*/"):
        if path.is_dir():
            shutil.rmtree(path)
    result = kafkalog("report", log_dir, "--to", tmp_path / "page.html")
    assert result.status == 0, result.stderr
    assert "0 topics, 0 partitions" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_without_the_libraries_it_says_what_to_install(
    kafkalog: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any log is read."""
    find = page.find_spec
    monkeypatch.setattr(page, "find_spec", lambda name: None if name == "vl_convert"
                        else find(name))  # fmt: skip
    monkeypatch.setattr(builtins, "open", None)
    result = kafkalog("report", EXAMPLES / "log-dir", "--to", tmp_path / "page.html")
    assert result.status == 5
    assert "pip install 'kafkalog[data]'" in result.stderr
    assert not list(tmp_path.iterdir())
