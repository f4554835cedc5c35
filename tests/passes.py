"""Tests that passed in a group of `make test-all`: if it is stopped, the next run goes on there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

VARIABLE = "KAFKALOG_PASSES"
"""The file to which a run adds the ids of its tests that passed."""


def of_earlier_runs(path: Path) -> Path:
    """Return the copy of the file that all processes of a run read, while one adds to the file."""
    return path.with_suffix(".before")


def begin(path: Path, of: str) -> dict[str, str]:
    """Return the variable for a run on these sources; passes on others are removed."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if not text.startswith(f"{of}\n"):
        text = f"{of}\n"
        path.write_text(text, encoding="utf-8")
    of_earlier_runs(path).write_text(text, encoding="utf-8")
    return {VARIABLE: str(path)}


def count(path: Path) -> int:
    """Return how many tests passed on the sources of the file."""
    return len(path.read_text(encoding="utf-8").splitlines()) - 1


def missing(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests that have not passed, and those that have."""
    path = os.environ.get(VARIABLE)
    if not path:
        return list(items), []
    passed = set(of_earlier_runs(Path(path)).read_text(encoding="utf-8").splitlines())
    return (
        [one for one in items if one.nodeid not in passed],
        [one for one in items if one.nodeid in passed],
    )


class Passes:
    """A plugin of the process that hears of all tests: adds those that passed to the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test when its setup, its call and its teardown have passed."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)
        elif report.when == "teardown" and report.nodeid not in self.failed:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")
