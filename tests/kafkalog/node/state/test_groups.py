"""What the library's `groups` does about damage."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

import kafkalog
from kafkalog.errors import CorruptDataError
from tests.builders import batch, flip, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.model import Defect


def commit(at: int, partition: int, offset: int) -> bytes:
    """Encode the offset that group g commits for a partition of topic t."""
    key = struct.pack(">hh1sh1si", 1, 1, b"g", 1, b"t", partition)
    return batch(at, [record(0, key, struct.pack(">hqhq", 0, offset, 0, 0))])


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A log of three commits, the second of which fails its checksum."""
    second = flip(commit(1, 1, 20), 8 * 30)
    write_log(tmp_path / "__consumer_offsets-0", commit(0, 0, 10), second, commit(2, 2, 30))
    return tmp_path


def test_defects_are_passed_on(damaged: Path) -> None:
    """The caller decides about them; the sound commits count."""
    defects: list[Defect] = []
    group = kafkalog.groups(damaged, on_defect=defects.append).groups["g"]
    assert {(0, 10), (2, 30)} <= {(one.partition, one.offset) for one in group.offsets}
    assert [defect.position for defect in defects] == [len(commit(0, 0, 10))]


def test_the_first_defect_is_raised_without_a_listener(damaged: Path) -> None:
    """Groups that lack commits never look complete."""
    with pytest.raises(CorruptDataError):
        kafkalog.groups(damaged)
