"""A log whose batches overlap: each remaining batch is compared with the one it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.change.audit.against_original import compare
from kafkalog.change.audit.log_walk import Bounds, Reason
from kafkalog.change.audit.proof import proved_keys
from kafkalog.node.unified_log import UnifiedLog
from tests.builders import BASE_TIME, batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

_DELETE_HORIZON = 64


def test_batches_that_overlap_are_told_apart_by_their_base_offsets(tmp_path: Path) -> None:
    """Both judges agree that a log that only lacks an expired tombstone lost nothing."""
    tombstone = batch(0, [record(0, b"b", None)], attributes=_DELETE_HORIZON)
    reaching = batch(1, [record(n, b"k%d" % n, b"v") for n in range(2)], last_delta=2)
    others = [batch(3, [record(n, b"l%d" % n, b"v") for n in range(3)]), batch(6, [record(0)])]
    bounds = Bounds(0, 1, BASE_TIME + 10_000)

    def log(name: str, *batches: bytes) -> UnifiedLog:
        return UnifiedLog(str(write_log(tmp_path / name / "t-0", *batches).parent))

    original = log("original", tombstone, reaching, *others)
    after = log("after", reaching, *others)
    assert list(compare(after, original, bounds)) == []
    assert proved_keys(after, original, bounds) is not None
    lacking = log("lacking", *others)
    assert proved_keys(lacking, original, bounds) is None
    found = [(one.reason, one.offset) for one in compare(lacking, original, bounds)]
    assert found == [(Reason.RECORD_LOST, 1), (Reason.RECORD_LOST, 2)]
