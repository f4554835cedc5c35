"""Missing offsets between segments, when a broker cleans the log during planning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.check.segments import missing_offsets
from kafkalog.tables import Request, TableName, plan_splits
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.model import Defect
    from kafkalog.tables.planning import Target


def write_three_segments(root: Path) -> Path:
    """Write the offsets 0, 1 and 5, which leaves a gap from 2 on."""
    for base in (0, 1, 5):
        write_log(root, batch(base, [record()]), name=f"{base:020d}")
    return root


@pytest.mark.parametrize("gone", [0, 1])
def test_a_deleted_segment_is_listed_again(gone: int, tmp_path: Path):
    """Findings are those of the new listing: none if the gap went with the segment."""
    root = write_three_segments(tmp_path / "t-0")
    seen: list[Target] = []
    found: list[Defect] = []

    def judge(target: Target) -> None:
        seen.append(target)
        for segment in range(gone + 1):
            (root / f"{segment:020d}.log").unlink(missing_ok=True)
        found.extend(missing_offsets(target.partition, target.segments))

    plan_splits([str(root)], Request(TableName.RECORDS), gaps=judge)
    assert [len(target.segments) for target in seen] == [3, 2 - gone]
    assert [one.offset for one in found] == [2][gone:]


def test_nothing_is_missing_in_a_deleted_log(tmp_path: Path):
    """The topic was deleted between planning and the check for gaps."""
    root = write_three_segments(tmp_path / "t-0")

    def judge(target: Target) -> None:
        for path in root.iterdir():
            path.unlink()
        root.rmdir()
        assert list(missing_offsets(target.partition, target.segments)) == []

    plan_splits([str(root)], Request(TableName.RECORDS), gaps=judge)
    assert not root.exists()
