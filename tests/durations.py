"""How long tests take: shown after each run, and kept in a table by which runs are balanced."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pytest

TABLE = Path(__file__).with_name("durations.json")
TO_VARIABLE = "KAFKALOG_DURATIONS"
"""A file to write the table to, in place of `make durations`."""

LEAST_S = 0.2
"""Below it a test does not matter to the balance, and would only fill the table."""


def kept() -> dict[str, float]:
    """Return the seconds of the tests in the table, by their ids."""
    table: dict[str, float] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def of_reports(reports: Iterable[pytest.TestReport]) -> dict[str, float]:
    """Add up the seconds of setting up, calling and tearing down each test."""
    seconds: dict[str, float] = defaultdict(float)
    for one in reports:
        seconds[one.nodeid] += one.duration
    return seconds


def by_folder(seconds: Mapping[str, float]) -> list[str]:
    """Return a line for each folder of tests, the longest first."""
    folders: dict[str, list[float]] = defaultdict(list)
    for name, one in seconds.items():
        folders["/".join(name.partition("::")[0].split("/")[:-1][:3])].append(one)
    total = sum(seconds.values()) or 1
    rows = sorted(((sum(each), len(each), name) for name, each in folders.items()), reverse=True)
    return [f"{took:8.1f} s  {took / total:5.1%}  {count:5d}  {name}" for took, count, name in rows]


def write_table(seconds: Mapping[str, float]) -> None:
    """Write the table to the file that KAFKALOG_DURATIONS names, if it names one."""
    path = os.environ.get(TO_VARIABLE)
    if path:
        table = {name: round(one, 1) for name, one in sorted(seconds.items()) if one >= LEAST_S}
        Path(path).write_text(json.dumps(table, indent=0) + "\n", encoding="utf-8")
