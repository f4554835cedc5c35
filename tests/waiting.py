"""Waiting for conditions, however loaded the machine is."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog.node import claims

if TYPE_CHECKING:
    from collections.abc import Callable

HANG_S = 600.0
"""Ends a test that would wait forever. What tests wait for takes seconds on a quiet machine."""


def until_settled(top: Path) -> None:
    """Wait until no file in a directory looks as if it changed after a plan that is made now."""
    newest_ns = max(path.lstat().st_ctime_ns for path in (top, *top.rglob("*")))
    slack_ns = 2 * claims._CLOCK_SLACK_MS * 10**6
    until(lambda: time.time_ns() > newest_ns + slack_ns)


def until(
    is_so: Callable[[], object],
    failed: Callable[[], object] = lambda: None,
    pause_s: float = 0.01,
) -> None:
    """Wait for a condition.

    Args:
        is_so: the condition.
        failed: returns why the condition can no longer come true, or nothing.
        pause_s: how long to sleep between two looks.
    """
    over = time.monotonic() + HANG_S
    while not is_so():
        assert not (why := failed()), why
        assert time.monotonic() < over, "it never comes true"
        time.sleep(pause_s)


def cpu_seconds(pid: int) -> float:
    """Return for how long a process has worked, however long it had to wait for a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
