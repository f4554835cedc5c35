"""Missing offsets between segments, when a broker cleans the log during planning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.check import segments
from kafkalog.check.segments import missing_offsets
from kafkalog.errors import Events
from kafkalog.tables import Request, TableName, plan_splits
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kafkalog.files.log_dir import PartitionDir, Segment
    from kafkalog.model import Defect


def write_three_segments(root: Path) -> Path:
    """Write the offsets 0, 1 and 5, which leaves a gap from 2 on."""
    for base in (0, 1, 5):
        write_log(root, batch(base, [record()]), name=f"{base:020d}")
    return root


@pytest.mark.parametrize("gone", [0, 1])
def test_a_deleted_segment_is_listed_again(
    gone: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Findings are those of the new listing: none if the gap went with the segment."""
    root = write_three_segments(tmp_path / "t-0")
    seen: list[int] = []
    heard = Events()

    def judge(partition: PartitionDir, listed: Sequence[Segment]) -> Iterator[Defect]:
        seen.append(len(listed))
        for segment in range(gone + 1):
            (root / f"{segment:020d}.log").unlink(missing_ok=True)
        return missing_offsets(partition, listed)

    monkeypatch.setattr(segments, "missing_offsets", judge)
    plan_splits([str(root)], Request(TableName.RECORDS), heard)
    assert seen == [3, 2][: 2 - gone]
    assert [one.offset for one in heard.defects] == [2][gone:]


def test_nothing_is_missing_in_a_deleted_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The topic was deleted between planning and the check for gaps."""
    root = write_three_segments(tmp_path / "t-0")

    def judge(partition: PartitionDir, listed: Sequence[Segment]) -> Iterator[Defect]:
        for path in root.iterdir():
            path.unlink()
        root.rmdir()
        return missing_offsets(partition, listed)

    monkeypatch.setattr(segments, "missing_offsets", judge)
    heard = Events()
    plan_splits([str(root)], Request(TableName.RECORDS), heard)
    assert not root.exists()
    assert not heard.defects
