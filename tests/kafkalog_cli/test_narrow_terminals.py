"""Tables on terminals narrower than they are: cells fold, nothing is cut off."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafkalog_cli.render import writer

COMMANDS = [
    ("dump-segment", "orders-0", "--limit", "3"),
    ("dump-segment", "__consumer_offsets-1"),
    ("dump-segment", "orders-0/00000000000000000250.snapshot"),
    ("dump-segment", "orders-0/00000000000000000000.log", "--limit", "3"),
    ("lookup-offset", "orders-0", "260"),
    ("ls", "--segments", "payments-0"),
    ("ls", "--files", "customers-0"),
]


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_character_is_lost(
    command: tuple[str, ...], columns: int, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each character of the wide table is in the narrow one, as often, in lines that fit."""
    monkeypatch.chdir("examples/log-dir")
    wide = kafkalog(*command).stdout.decode()
    monkeypatch.setattr(writer, "terminal_width", lambda: columns)
    monkeypatch.setenv("COLUMNS", str(columns))
    narrow = kafkalog(*command).stdout.decode()
    assert max(map(len, narrow.splitlines())) <= columns
    assert sorted(letters(narrow)) == sorted(letters(wide))


def letters(text: str) -> str:
    return re.sub(r"\s", "", text)
