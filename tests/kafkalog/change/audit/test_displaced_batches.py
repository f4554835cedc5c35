"""A log with a batch out of place: no audit calls it correctly compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.change.audit.log_walk import Bounds
from kafkalog.change.audit.proof import proved_keys
from kafkalog.change.audit.run import audit_partition
from kafkalog.errors import CorruptDataError
from kafkalog.files.log_dir import open_partition
from kafkalog.node.unified_log import UnifiedLog
from tests.builders import BASE_TIME, batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.audit.run import Audit

_SOUND = [batch(n, [record(0, b"k%d" % n)]) for n in range(4)]
_BOUNDS = Bounds(0, 4, BASE_TIME + 10_000)


def _audit(path: Path, original: Path) -> Audit:
    partitions = open_partition(str(path)), open_partition(str(original))
    return audit_partition(*partitions, now_ms=BASE_TIME, cleaner_offset=_BOUNDS.cleaner_offset)


@pytest.mark.parametrize(
    ("base_offset", "last_delta", "reference"),
    [
        (1 << 40, 0, "batch-offset-displaced"),
        (1, 1, "batch-offset-not-increasing"),
        (-1, 0, "batch-offset-displaced"),
    ],
    ids=["above", "overlapping", "below"],
)
def test_a_batch_out_of_place(
    tmp_path: Path, base_offset: int, last_delta: int, reference: str
) -> None:
    """Both judges see it, whether the log or its original has it; a sound log is proved."""
    displaced = batch(base_offset, [record(0, b"k1")], last_delta=last_delta)
    sound = write_log(tmp_path / "sound" / "t-0", *_SOUND).parent
    hurt = write_log(tmp_path / "hurt" / "t-0", _SOUND[0], displaced, *_SOUND[2:]).parent
    assert _audit(sound, sound).findings == ()
    assert proved_keys(UnifiedLog(str(sound)), None, _BOUNDS) == len(_SOUND)
    assert proved_keys(UnifiedLog(str(hurt)), None, _BOUNDS) is None
    for log, original in ((hurt, sound), (sound, hurt), (hurt, hurt)):
        with pytest.raises(CorruptDataError) as caught:
            _audit(log, original)
        assert caught.value.reference == reference
