"""Screens of commands at 80 and 120 columns, over names and data that are hard to show.

`screens/80.txt` and `screens/120.txt` hold what they look like; a test that fails writes what it
got next to them, as `80.new`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog_cli.output import finding_table, table
from kafkalog_cli.output.text import cell_width
from tests.builders import batch, copy_tree, flip, record, write_log

if TYPE_CHECKING:
    from collections.abc import Callable

SCREENS = Path(__file__).parent / "screens"
EXAMPLE = Path("examples/log-dir").absolute()
START_MS = 1_704_067_200_000
NOW = ("--now", "2024-01-08T00:10:00Z")
LONG = "n" * 237
EVIL = "\x1b[31mred\x1b[0m\u202egpj.exe\u2066\r\x07"
JSON = ('{"user":"日本語の名前","text":"' + "x" * 3000 + '"}').encode()

COMMANDS: list[tuple[str, ...]] = [
    ("ls", "example"),
    ("ls", "example/orders-0", "--segments"),
    ("verify", "damaged"),
    ("recover", "damaged"),
    ("retention", "example", "-t", "orders", *NOW),
    ("ls", "hostile"),
    ("ls", "hostile", "--segments"),
    ("ls", f"hostile/{LONG}-0", "--files"),
    ("dump-segment", "hostile/plain-0"),
    ("dump-segment", "hostile/plain-0", "--batches"),
    ("dump-segment", "hostile/wide-0"),
    ("dump-segment", "example/__consumer_offsets-1"),
    ("find", "hostile", "--key", "key"),
    ("find", "hostile", "--key", "key", "--history"),
    ("lookup-offset", "hostile/plain-0", "0", "99"),
    ("verify", "hostile"),
    ("recover", "hostile", "--scan", "start"),
    ("simulate-retention", f"hostile/{LONG}-0", *NOW),
    ("groups", "example"),
    ("transactions", "example"),
    ("du", "hostile", *NOW),
    ("diff", "hostile", "other"),
    ("metadata", "example"),
    ("profile", "hostile"),
]
MAINTENANCE: list[tuple[str, ...]] = [
    ("compact", ".", "--all", *NOW),
    ("retention", "orders-0", "--config", "retention.bytes=30000", *NOW),
    ("simulate-roll", "orders-0", "--config", "segment.ms=300000"),
    ("rebuild-index", "orders-0"),
    ("verify", "--compaction", "customers-0", "--cleaner-offset", "60"),
]


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write log directories with long, wide and hostile names, keys, values and headers."""
    values = [JSON, b"{}", None, EVIL.encode(), b"\xff" * 300, "表".encode() * 99]
    headers = [(b"source", b"web"), (EVIL.encode(), EVIL.encode()), (b"n", None)]
    rows = [
        record(
            i, [b"key", EVIL.encode()][i % 2], value, headers=headers[: i % 4], time_delta=1000 * i
        )
        for i, value in enumerate(values)
    ]
    whole = batch(0, rows, base_time=START_MS, max_time=START_MS + 5000, producer=(4_000, 12, 0))
    odd = batch(
        6, [record(0, b"key", b"odd")], base_time=START_MS // 1000, max_time=START_MS // 1000
    )
    for name in ("plain-0", "wide-0", f"{LONG}-0", "red\x1b[31m\u202e-0"):
        write_log(tmp_path / "hostile" / name, whole, *([odd] if name == "plain-0" else []))
    wide = [record(i, "鍵".encode() * 20, "値".encode() * (30 + i)) for i in range(3)]
    write_log(tmp_path / "hostile" / "wide-0", batch(0, wide, base_time=START_MS))
    write_log(tmp_path / "other" / "plain-0", whole)
    torn = tmp_path / "hostile" / f"{LONG}-0" / f"{0:020}.log"
    torn.write_bytes(whole + flip(odd, 8 * 70))
    copy_tree(EXAMPLE, tmp_path / "example")
    copy_tree(EXAMPLE.with_name("damaged"), tmp_path / "damaged")
    for folder, _, names in os.walk(tmp_path):
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            os.utime(path, (START_MS // 1000, START_MS // 1000))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def show(kafkalog: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return what a command prints on a terminal of some columns."""

    def lines(command: tuple[str, ...], columns: int) -> str:
        for module in (table, finding_table):
            monkeypatch.setattr(module, "terminal_width", lambda: columns)
        monkeypatch.setattr(table, "_PATIENCE_S", float("inf"))
        shown = kafkalog(*command)
        assert shown.status in (0, 1, 8), shown.stderr
        return shown.stdout.decode()

    return lines


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.usefixtures("hostile")
def test_screens(show: Callable[..., str], columns: int) -> None:
    """Each screen is as it was looked at, and as wide as the terminal, but for commands to copy."""
    text = ""
    for command in COMMANDS:
        line = " ".join(command).replace(LONG, "LONG")
        shown = show(command, columns)
        lines = [one for one in shown.splitlines() if not one.startswith(("next  ", "why   "))]
        assert max(map(cell_width, lines)) <= columns, (line, shown)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2066]", shown), line
        text += f"$ kafkalog {line}\n{shown}\n"
    golden = SCREENS / f"{columns}.txt"
    if text != golden.read_text("utf-8"):
        golden.with_suffix(".new").write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("command", MAINTENANCE, ids=" ".join)
def test_maintenance_fits(
    command: tuple[str, ...],
    columns: int,
    show: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Headings, rows and totals are no wider than the terminal."""
    monkeypatch.chdir(EXAMPLE)
    shown = show(command, columns)
    assert shown
    assert max(map(cell_width, shown.splitlines())) <= columns, shown
