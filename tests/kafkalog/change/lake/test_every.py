"""`export --append --every`: round after round, despite busy tables, until Ctrl-C."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.kafkalog.change.lake.appending import DELTA, ICEBERG, TABLE, grow, rows, rows_of
from tests.kafkalog.tables.test_other_disks import make_log
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.change.lake.model import TableFormat
    from tests.conftest import Result

    Kafkalog = Callable[..., Result]


def between_rounds(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> list[float]:
    """Replace each sleep by one of these calls, then by Ctrl-C; return the requested times."""
    left, slept = list(steps), []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    module = importlib.import_module("kafkalog_cli.commands.export")
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    return slept


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
def test_rounds(
    tmp_path: Path, kafkalog: Kafkalog, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """Each has a line; a round is deferred while the table or its catalog is locked."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    commit = SqlCatalog.commit_table
    held: list[int] = []

    def hold() -> None:
        grow(partition, 120, 1)
        if form == DELTA:
            held.append(os.open(to, os.O_RDONLY))
            fcntl.flock(held[0], fcntl.LOCK_EX)
        else:
            monkeypatch.setattr(SqlCatalog, "commit_table", refuse)

    def refuse(*_: Any) -> None:
        raise ConnectionError("database is locked")

    def release() -> None:
        monkeypatch.setattr(SqlCatalog, "commit_table", commit)
        for one in held:
            os.close(one)

    slept = between_rounds(monkeypatch, hold, release, lambda: grow(partition, 123, 1))
    words = (
        ("--to", to)
        if form == DELTA
        else ("--to", TABLE, "--as", "iceberg", "--set", f"warehouse={to}")
    )
    result = kafkalog("export", tmp_path / "log", *words, "--append", "--as", form,
                      "--every", "10m", "--format", "ndjson")  # fmt: skip
    assert result.status == 0, result.stderr
    told = [json.loads(line) for line in result.stdout.splitlines()]
    done = [one for one in told if one["type"] == "export_summary"]
    assert [one["commit"] for one in done] == [0, 1, 2]
    assert [one["rows"] for one in done] == [120, 3, 3]
    assert result.stderr.count("The next round tries again.") == 1
    assert len(slept) == 4
    assert all(590 < one <= 600 for one in slept)
    assert rows_of(to, form) == rows(0, 126)


def test_an_error_of_a_round_is_the_end(
    tmp_path: Path, kafkalog: Kafkalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends with the status of a gap, or of a table that is busy from the beginning."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    words = ("export", tmp_path / "log", "--to", to, "--append", "--every", "10m")

    def lose() -> None:
        grow(partition, 150, 1)
        for path in partition.glob("*.log"):
            if path.name < f"{150:020}":
                path.unlink()

    between_rounds(monkeypatch, lose)
    result = kafkalog(*words)
    assert result.status == 4
    assert "starts at offset 150" in result.stderr
    lock = os.open(to, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    refused = kafkalog(*words, "--accept", "gaps")
    os.close(lock)
    assert refused.status == 4
    assert "Another run is writing it." in refused.stderr
    between_rounds(monkeypatch)
    assert kafkalog(*words, "--accept", "gaps").status == 0, "the gap is accepted"


def test_ctrl_c(tmp_path: Path) -> None:
    """It ends the process at once and silently, whether it is already waiting or not."""
    make_log(tmp_path / "log")
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkalog_cli", "export", tmp_path / "log", "--to",
         tmp_path / "lake", "--append", "--every", "1h", "--format", "ndjson"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        lines = []
        while not lines or json.loads(lines[-1])["type"] != "export_summary":
            lines.append(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=HANG_S)
    assert (process.returncode in (0, 130), errors) == (True, "")
    assert rows_of(tmp_path / "lake") == rows(0, 120)
