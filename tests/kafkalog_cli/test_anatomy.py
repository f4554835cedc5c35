"""`anatomy`: its table, its objects, its page and its status."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len

from docgen import output
from kafkalog_cli.output import anatomy
from tests import builders

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = "examples/log-dir/orders-0"
DAMAGED = "examples/damaged/orders-0/00000000000000000250.log"
MARKUP = b'</td><script>alert("x")</script>'
HOSTILE = MARKUP + b"\x1b[31m\xe2\x80\xae"


def test_objects_are_those_documented(kafkalog: Any) -> None:
    """NDJSON has fields and structures, CSV only fields."""
    result = kafkalog("anatomy", f"{ORDERS}@471", "--limit", 2, "--format", "ndjson")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.status == 0
    assert [output.mistakes(row) for row in rows] == [[]] * len(rows)
    assert {row["type"] for row in rows} == {"anatomy_field", "anatomy_structure"}
    [delta] = [row for row in rows if row["name"] == "batch.records[1].offset_delta"]
    assert (delta["level"], delta["value"], delta["meaning"]) == (
        1, 1, "offset 470 + 1 = 471, sequence 471",
    )  # fmt: skip
    lines = kafkalog("anatomy", f"{ORDERS}@471", "--format", "csv").stdout.decode().splitlines()
    assert lines[0] == "type,path,level,position,size_bytes,name,value,meaning,details,damage"


@pytest.mark.parametrize("columns", [80, 200])
def test_lines_fit_the_terminal(
    columns: int, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes and meanings are side by side, and at 80 columns the terminal breaks no line."""
    monkeypatch.setattr(anatomy, "terminal_width", lambda: columns)
    monkeypatch.setenv("COLUMNS", str(columns))
    text = kafkalog("anatomy", f"{ORDERS}@471", "--limit", 2).stdout.decode()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= columns
    assert "groups of 7 bits" in " ".join(plain.split())


@pytest.mark.parametrize(
    ("what", "status"),
    [
        (DAMAGED, 8),
        (f"{ORDERS}/00000000000000000000.log", 0),
        (f"{ORDERS}/00000000000000000000.index", 0),
        ("examples/nowhere", 2),
        (ORDERS, 0),
        ("examples/damaged/orders-0", 8),
        ("examples/log-dir", 2),
    ],
)
def test_damage_is_a_status(what: str, status: int, kafkalog: Any) -> None:
    """The status is 8 if damage is shown; errors have their own."""
    assert kafkalog("anatomy", what, "--limit", 40).status == status


def test_preallocated_space_is_no_damage(tmp_path: Path, kafkalog: Any) -> None:
    """Zeros at the end are marked, and are only a note."""
    path = builders.write_log(tmp_path / "t-0", builders.batch(0, [builders.record()]), bytes(99))
    result = kafkalog("anatomy", path)
    assert result.status == 0
    assert "! zero-tail" in result.stdout.decode()


def test_hostile_bytes_are_data(tmp_path: Path, kafkalog: Any) -> None:
    """On the page and on the terminal; the page loads nothing and runs nothing."""
    path = builders.write_log(
        tmp_path / "<b>-0", builders.batch(0, [builders.record(0, MARKUP, HOSTILE)])
    )
    page = tmp_path / "page.html"
    assert kafkalog("anatomy", path, "--to", page).status == 0
    text = page.read_text()
    assert "<script" not in text
    assert "\x1b" not in text
    assert "<b>-0" not in text
    assert "&lt;script&gt;" in text
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=", text)
    shown = kafkalog("anatomy", path).stdout
    assert b"\x1b" not in shown
    assert "\u202e" not in shown.decode()
    assert kafkalog("anatomy", path, "--to", page).status == 4


def test_fields_on_the_page_are_those_of_the_objects(tmp_path: Path, kafkalog: Any) -> None:
    """There is one row per field and per structure."""
    page = tmp_path / "page.html"
    assert kafkalog("anatomy", DAMAGED, "--to", page).status == 8
    rows = kafkalog("anatomy", DAMAGED, "--format", "ndjson").stdout.splitlines()
    assert page.read_text().count("<tr class=") == len(rows)


def test_wide_characters_do_not_break_lines(
    tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Characters of two columns are cut and padded by columns, not by characters."""
    monkeypatch.setattr(anatomy, "terminal_width", lambda: 80)
    value = "\u6f22\u5b57".encode() * 30
    path = builders.write_log(tmp_path / "t-0", builders.batch(0, [builders.record(0, value)]))
    lines = kafkalog("anatomy", path).stdout.decode().splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert any("\u6f22" in line for line in lines)


def test_an_offset_in_a_batch_that_cannot_be_decoded(tmp_path: Path, kafkalog: Any) -> None:
    """Its bytes are shown, as they are for its position, instead of an error."""
    lz4 = builders.batch(5, payload=b"no lz4 data", count=3, last_delta=2, attributes=3)
    sound = builders.batch(0, [builders.record()])
    path = builders.write_log(tmp_path / "t-0", sound, lz4)
    found = kafkalog("anatomy", f"{path.parent}@6", "--format", "ndjson")
    assert found.status == 8
    rows = kafkalog("anatomy", f"{path}@{len(sound)}", "--format", "ndjson")
    assert found.stdout == rows.stdout
    assert b"decompression-failed" in found.stdout
