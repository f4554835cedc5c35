"""`kafkalog` itself, killed at random moments: the old log or the new one, whole."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.crash.commands import COMMANDS, PARTITION
from tests.crash.served import NOW_MS, copy_and_start
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLS = 12 if tries_everything() else 2
TRIALS_MAX = 80
CONFIG = ("--config", "index.interval.bytes=200", "--config", "segment.index.bytes=65536")
IN_PLACE = ("--apply", "--yes")
NOW = ("--now", str(NOW_MS))
RETAINED = ("--log-start-offset", "45", "--high-watermark", "end")
LINES = {
    "recover-unclean-crc_active_mid": ("recover", *NOW, *CONFIG, "--allow-loss"),
    "rebuild-index": ("rebuild-index", *NOW, *CONFIG),
    "compact-transactions-in-three-groups": (
        "compact", "--now", "1700003600000", "--high-watermark", "end", "--first-dirty-offset", "0",
        "--config", "cleanup.policy=compact", "--config", "segment.bytes=300",
        "--config", "delete.retention.ms=50000",
    ),
    "retention": ("retention", "--now", "1700000000000", *RETAINED),
    "undo-of-retention": ("undo",),
    "resurrect-into": ("resurrect", "--into", "{root}/log", "--as-of-metadata", "{root}/meta"),
}  # fmt: skip
"""The command of the harness that does the same, to its words."""


def start(name: str, root: Path) -> subprocess.Popen[bytes]:
    """Start the command as a process."""
    command, *words = LINES[name]
    target = {"undo": root / "backup", "resurrect": root / "a"}.get(
        command, root / "log" / PARTITION
    )
    words = [word.format(root=root) for word in words]
    words += IN_PLACE
    line = [sys.executable, "-m", "kafkalog_cli", command, str(target), *words]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_a_change(process: subprocess.Popen[bytes], log_dir: Path) -> None:
    """Wait until the command has begun to change a directory, or has ended."""
    before = times(log_dir)
    while process.poll() is None and times(log_dir) == before:
        time.sleep(0.0002)


def times(log_dir: Path) -> list[int]:
    found = (log_dir, log_dir / PARTITION)
    return [path.stat().st_mtime_ns for path in found if path.exists()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LINES)
def test_a_killed_command_leaves_a_whole_log(
    name: str, corpus_dir: Path, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """SIGKILL comes after the first change to a directory, which is late in the run."""
    seed = new_seed()
    rng = random.Random(seed)
    command = next(one for one in COMMANDS if one.name == name)
    whole = tmp_path / "whole"
    first = copy_and_start(command.fresh(corpus_dir, whole / "fresh"), whole / "scratch" / "log")
    log_dir = command.ready(corpus_dir, whole)
    old = copy_and_start(log_dir, whole / "scratch" / "log")
    process = start(name, whole)
    wait_for_a_change(process, log_dir)
    began = time.monotonic()
    assert process.wait() == 0
    seconds = time.monotonic() - began
    new = copy_and_start(log_dir, whole / "scratch" / "log")
    found: Counter[str] = Counter()
    for number in count():
        if number >= KILLS and found["killed"]:
            break
        assert number < TRIALS_MAX, "none is fast enough to kill it"
        root = tmp_path / str(number)
        log_dir = command.ready(corpus_dir, root)
        process = start(name, root)
        wait_for_a_change(process, log_dir)
        try:
            process.wait(seconds * rng.random())
            seconds /= 2  # it had ended already
        except subprocess.TimeoutExpired:
            process.kill()
            found["killed"] += 1
        process.wait()
        got = copy_and_start(log_dir, root / "scratch" / "log")
        assert command.accepts(got, [first, old, new]), f"seed {seed}, kill {number}"
        found["new" if got == new else "old"] += 1
    tell(f"kafkalog {name} killed, seed {seed}: {dict(found)}")
