"""Copies with a million batches: the answer is exact, and takes no more memory than of a few."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from kafkalog.node.quorum.quorum import quorum
from tests.builders import batch, record
from tests.kafkalog.test_memory_bounds import MIB, peak_of
from tests.metadata_logs import value_of
from tests.nodes import METADATA
from tests.quorums import elected, write_copy
from tests.sampling import tries_everything

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 1_000_000 if tries_everything() else 200_000
BEHIND, APART = COUNT // 10, COUNT * 7 // 10


def long_log(count: int, epoch: int = 1) -> bytes:
    """Return batches of one record each; no checksum covers their offsets."""
    rest = batch(0, [record(0, None, value_of("NoOpRecord"))], epoch=epoch)[8:]
    first = elected(0, 1, 1, [1, 2, 3], static=False)
    return first + b"".join(offset.to_bytes(8, "big") + rest for offset in range(3, count))


def test_the_answer_is_exact(tmp_path: Path) -> None:
    data = long_log(COUNT)
    for node, end in ((1, COUNT), (2, COUNT - BEHIND), (11, COUNT)):
        size = len(data) - (COUNT - end) * len(batch(0, [record(0, None, value_of("NoOpRecord"))]))
        write_copy(tmp_path, node, [data[:size]], epoch=1)
    paths = [tmp_path / f"n{node}" for node in (1, 2, 11)]
    found = quorum(*paths)
    assert (found.end, found.proven, found.conflicts) == (COUNT, COUNT - BEHIND, ())
    log = paths[2] / METADATA / f"{0:020}.log"
    other = batch(APART, [record(0, None, value_of("NoOpRecord"), time_delta=1)], epoch=1)
    at = data.index(struct.pack(">q", APART) + batch(0, [])[8:9])
    log.write_bytes(data[:at] + other + data[at + len(other) :])
    [conflict] = quorum(*paths, on_event=lambda _: None).conflicts
    assert (conflict.offset, conflict.epoch, len(conflict.paths)) == (APART, 1, 3)


@pytest.mark.thorough("tests/kafkalog/node/quorum/test_long_logs.py::test_the_answer_is_exact")
def test_a_long_log_takes_no_more_memory(tmp_path: Path) -> None:
    peaks = []
    for count in COUNT // 10, COUNT:
        data = long_log(count)
        for node in 1, 2:
            write_copy(tmp_path, node, [data], epoch=1)
        status, peak = peak_of("quorum", tmp_path / "n1", tmp_path / "n2", "-n", "3")
        assert status == 0
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 32 * MIB < len(data)
