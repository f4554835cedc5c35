"""The libraries of the page: what they make stays within its element."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

from kafkalog.answers.overview import page

if TYPE_CHECKING:
    import pytest


def test_a_script_does_not_end_its_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """The escapes mean the same in strings and regular expressions."""
    made = SimpleNamespace(javascript_bundle=lambda _: "let a = '<script';\n")
    monkeypatch.setitem(sys.modules, "vl_convert", made)
    monkeypatch.setattr(page, "find_spec", lambda _: True)
    assert page.vega.__wrapped__() == "let a = '\\x3Cscript';\n"
