"""Tables on terminals that are too narrow: cells fold, nothing is cut off."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafkalog_cli.output import writer

COMMANDS = [
    ("dump-segment", "orders-0", "--limit", "3"),
    ("dump-segment", "__consumer_offsets-1"),
    ("dump-segment", "orders-0/00000000000000000250.snapshot"),
    ("dump-segment", "orders-0/00000000000000000000.log", "--limit", "3"),
    ("lookup-offset", "orders-0", "260"),
    ("ls", "--segments", "payments-0"),
    ("ls", "--files", "customers-0"),
]
NOW = ("--now", "2024-01-01T00:12:30Z")
MAINTENANCE = [
    ("compact", ".", "--all", *NOW),
    ("compact", "orders-0", "--config", "cleanup.policy=compact", *NOW),
    ("simulate-retention", "orders-0", "--config", "retention.ms=240000", *NOW),
    ("apply-retention", "orders-0", "--config", "retention.bytes=30000", *NOW),
    ("simulate-roll", "orders-0", "--config", "segment.ms=300000"),
    ("recover", ".", "--from", "start"),
    ("rebuild-index", "orders-0"),
    ("verify", "--compaction", "customers-0", "--cleaner-offset", "60"),
]


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_character_is_lost(
    command: tuple[str, ...], columns: int, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each character of the wide table is in the narrow one as often, and all lines fit."""
    monkeypatch.chdir("examples/log-dir")
    wide = kafkalog(*command).stdout.decode()
    monkeypatch.setattr(writer, "terminal_width", lambda: columns)
    monkeypatch.setenv("COLUMNS", str(columns))
    narrow = kafkalog(*command).stdout.decode()
    assert max(map(len, narrow.splitlines())) <= columns
    assert sorted(letters(narrow)) == sorted(letters(wide))


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize("command", MAINTENANCE, ids=" ".join)
def test_maintenance_fits(
    command: tuple[str, ...], columns: int, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headings, rows and totals are not cut off, and at 80 columns each number stays whole."""
    monkeypatch.chdir("examples/log-dir")
    wide = kafkalog(*command).stdout.decode()
    monkeypatch.setattr(writer, "terminal_width", lambda: columns)
    monkeypatch.setenv("COLUMNS", str(columns))
    narrow = kafkalog(*command).stdout.decode()
    assert max(map(len, narrow.splitlines())) <= columns
    assert sorted(letters(narrow)) == sorted(letters(wide))
    if columns == 80:
        assert set(re.findall(r"[\w.:]*\d", wide)) == set(re.findall(r"[\w.:]*\d", narrow))


def letters(text: str) -> str:
    return re.sub(r"\s", "", text)
