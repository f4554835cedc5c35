"""Colour shows what a word means on a terminal; elsewhere there is no colour."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.builders import batch, copy_tree, flip, record, write_log
from tests.kafkalog_cli.test_hostile_terminal import on_terminal

EXAMPLE = Path("examples/log-dir")


def shown(tmp_path: Path, *lines: list[object], term: str = "xterm") -> str:
    return on_terminal(list(lines), tmp_path, term).decode()


def damaged(tmp_path: Path) -> Path:
    partition = copy_tree(EXAMPLE / "orders-0", tmp_path / "orders-0")
    log = partition / "00000000000000000250.log"
    log.write_bytes(flip(log.read_bytes(), 8 * 5000))
    (partition / "00000000000000000500.index").unlink()
    (partition / "unknown").touch()
    return partition


def test_severities_have_their_colours(tmp_path: Path) -> None:
    """Damage comes first, in red; then indexes; notes come last, faint."""
    text = shown(tmp_path, ["verify", damaged(tmp_path), "--quiet"])
    found = re.findall(r"\x1b\[([0-9;]+)m(damage|index|warning|note) *\x1b\[0m", text)
    assert found == [("1;31", "damage"), ("33", "index"), ("2", "note")]


def test_changes_have_their_colours(tmp_path: Path) -> None:
    """What will be deleted is yellow, as a warning is; what is added has no colour."""
    text = shown(
        tmp_path,
        ["groups", EXAMPLE, "--since", "2026-11-21T06:00:00Z", "--quiet"],
        ["retention", EXAMPLE / "orders-0", "--now", "2026-11-22T00:00:00Z"],
    )
    assert "\x1b[32m" not in text
    assert text.count("\x1b[33mdelete") == 4


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", ["ndjson", "csv", "json"])
def test_data_have_no_colour(tmp_path: Path, form: str) -> None:
    """Formats for programs are the same on a terminal."""
    assert "\x1b" not in shown(tmp_path, ["ls", EXAMPLE, "--format", form])


def test_colours_can_be_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By TERM=dumb, and by NO_COLOR as on https://no-color.org."""
    line: list[object] = ["verify", damaged(tmp_path), "--quiet"]
    assert "\x1b[1;31m" in shown(tmp_path, line)
    assert "\x1b" not in shown(tmp_path, line, term="dumb")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" not in shown(tmp_path, line)


def test_colours_take_no_room(tmp_path: Path) -> None:
    """The columns of the table are at the same places as without."""
    line = ["lookup-offset", EXAMPLE / "orders-0", 260]
    text = shown(tmp_path, line)
    assert "\x1b[1mQUERY" in text
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == shown(tmp_path, line, term="dumb")


def test_a_tombstone_is_not_the_text_null(tmp_path: Path, kafkalog: Any) -> None:
    """Values that could be mistaken for each other are shown differently."""
    values = [None, b"null", b'"null"', b"", b'""', b"x"]
    write_log(
        tmp_path / "t-0",
        batch(0, [record(delta, b"k", value) for delta, value in enumerate(values)]),
    )
    rows = kafkalog("dump-segment", tmp_path / "t-0").stdout.decode().splitlines()[1:]
    cells = [row.split()[-1] for row in rows]
    assert cells == ["null", '"null"', "0x226e756c6c22", '""', "0x2222", "x"]
