"""The libraries of the page: the script is made once, cached, and made again if damaged."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from kafkalog.overview import page

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = "let a = '<script';\n"
CONTAINED = "let a = '\\x3Cscript';\n"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Replace the function that makes the script; return the list of its calls."""
    asked: list[str] = []

    def bundle(text: str) -> str:
        asked.append(text)
        return SCRIPT

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "vl_convert", SimpleNamespace(javascript_bundle=bundle))
    monkeypatch.setattr(page, "find_spec", lambda _: True)
    return asked


def test_the_script_is_made_once(made: list[str]) -> None:
    """Making it takes longer than the report of a small log directory."""
    assert [page.vega.__wrapped__() for _ in range(3)] == [CONTAINED] * 3
    assert len(made) == 1


@pytest.mark.parametrize("damage", ["cut", "changed", "emptied"])
def test_a_damaged_script_is_made_again(made: list[str], tmp_path: Path, damage: str) -> None:
    """A page without its charts would not report it."""
    page.vega.__wrapped__()
    [kept] = (tmp_path / "kafkalog").iterdir()
    data = bytearray(kept.read_bytes())
    data[-1] ^= 1
    kept.write_bytes({"cut": data[:-3], "changed": data, "emptied": b""}[damage])
    assert [page.vega.__wrapped__() for _ in range(2)] == [CONTAINED] * 2
    assert len(made) == 2


def test_without_a_cache_it_is_made_each_time(
    made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may have no home directory."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    assert [page.vega.__wrapped__() for _ in range(2)] == [CONTAINED] * 2
    assert len(made) == 2
