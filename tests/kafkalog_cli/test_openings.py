"""A run opens its PATHs once: a second listing would show another moment."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.files import log_dir as log_dirs
from tests.checkout import ROOT
from tests.command_lines import LINES

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.files.log_dir import LogDirTop, PartitionDir
    from kafkalog.files.parents import Parent

EXAMPLE = ROOT / "examples" / "log-dir"
ONCE = (
    "ls", "dump-ndjson", "lookup-offset", "verify", "find", "groups", "transactions", "metadata",
    "report", "profile", "retention", "simulate-roll", "audit-compaction", "anatomy",
    "salvage-plan", "replay", "du", "groups-of",
)  # fmt: skip
AGAIN = {
    "count": 2,  # a wrong path is an error before a query is asked for
    "du-forecast": 2,  # files are counted first, for as long as that takes
    "rebuild-index": 3,  # first, which log directories there are; again behind the lock
    "recover": 3,  # likewise
    "compact": 4,  # likewise; and what is around each partition, while it is checked
    "export-append": 2,  # to find the end, then the splits
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*ONCE, *AGAIN])
def test_a_path_is_opened_once(
    name: str, tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or as often as there is a reason for."""
    copy = shutil.copytree(EXAMPLE, tmp_path / "log-dir")
    words = [
        word.format(dir=copy, broker=copy, to=tmp_path / "to", backup=tmp_path / "backup")
        for word in LINES[name]
    ]
    opened: Counter[str] = Counter()
    real = log_dirs._directory

    def counting(path: str) -> LogDirTop | PartitionDir | Parent:
        opened[path] += 1
        return real(path)

    monkeypatch.setattr(log_dirs, "_directory", counting)
    result = kafkalog(*words)
    assert result.status in (0, 1), result.stderr
    places = {one for one in words if one.startswith(str(copy))}
    assert {opened[one] for one in places} == {AGAIN.get(name, 1)}
