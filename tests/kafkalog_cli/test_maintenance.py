"""What the commands that change a log have in common: consent, locks, refusals, going on, undo."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import KafkaLogError
from kafkalog.storage import Changes
from kafkalog_cli import confirmation
from tests.docs.console import ROOT
from tests.kafka.broker_data import fingerprint
from tests.kafkalog.runs.test_undo import everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.storage import Step
    from tests.conftest import Result

    Run = Callable[..., Result]

COMMANDS = {
    "apply-retention": ("--config", "retention.ms=240000", "--now", "2024-01-01T00:12:30Z"),
    "compact": ("--all", "--config", "cleanup.policy=compact", "--now", "2024-01-01T01:00:00Z"),
    "rebuild-index": ("--config", "index.interval.bytes=100"),
    "recover": ("--from", "start"),
}
IN_PLACE = ("--in-place", "--yes")
every_command = pytest.mark.parametrize("command", COMMANDS)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """The examples', twice the orders; the mark of a clean shutdown is there."""
    target = tmp_path / "log-dir"
    shutil.copytree(ROOT / "examples" / "log-dir", target)
    shutil.copytree(target / "orders-0", target / "orders-1")
    for checkpoint in target.glob("*-offset-checkpoint"):
        _, count, *lines = checkpoint.read_text().splitlines()
        more = [line.replace("orders 0", "orders 1") for line in lines if "orders 0" in line]
        text = "\n".join(["0", str(int(count) + len(more)), *lines, *more])
        checkpoint.write_text(f"{text}\n")
    return target


def state(log_dir: Path) -> dict[str, Any]:
    """All of it but the lock; checkpoints without regard to the order of their entries."""
    found = everything(log_dir)
    found.pop(".lock", None)
    found.pop(".kafka_cleanshutdown", None)  # once it is gone it does not come back
    for name in [name for name in found if name.endswith("-offset-checkpoint")]:
        found[name] = (*found[name][:-1], sorted(found[name][-1].splitlines()))
    return found


@every_command
def test_undo_brings_everything_back(
    command: str, log_dir: Path, tmp_path: Path, kafkalog: Run
) -> None:
    """Bytes, owners, permissions and times of every file, and the entries in checkpoints."""
    before = state(log_dir)
    backup = tmp_path / "backup"
    words = (command, log_dir, *COMMANDS[command], *IN_PLACE, "--backup", backup)
    assert kafkalog(*words).status in (0, 1)
    after = state(log_dir)
    if command != "recover":
        assert after != before
    again = kafkalog(*words)
    assert "was done by an earlier run" in " ".join(again.stderr.split()) or command == "recover"
    assert state(log_dir) == after
    assert kafkalog("undo", backup, *IN_PLACE).status == 0
    if command == "compact":  # a checkpoint that was not there is left without an entry
        assert state(log_dir).keys() == before.keys()
    assert state(log_dir) == before
