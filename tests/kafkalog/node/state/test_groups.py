"""The library's `groups`: damage, and a share group that has had no member."""

from __future__ import annotations

import base64
import struct
from typing import TYPE_CHECKING

import pytest

import kafkalog
from kafkalog.errors import CorruptDataError
from kafkalog.model import Defect
from tests.builders import batch, flip, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.errors import Event


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
    events: list[Event] = []
    group = kafkalog.groups(damaged, on_event=events.append).groups["g"]
    assert {(0, 10), (2, 30)} <= {(one.partition, one.offset) for one in group.offsets}
    defects = [event for event in events if isinstance(event, Defect)]
    assert [defect.position for defect in defects] == [len(commit(0, 0, 10))]
    assert {event.kind for event in events} == {"defect", "progress"}


def test_the_first_defect_is_raised_without_a_listener(damaged: Path) -> None:
    """Groups that lack commits never look complete."""
    with pytest.raises(CorruptDataError):
        kafkalog.groups(damaged)


def test_offsets_alone_make_a_share_group(tmp_path: Path) -> None:
    """A broker of 4.4 wrote this when an administrator set the offsets of a new share group.

    Its coordinator says Share, Empty and epoch 1, and has no other record of the group.
    """
    value = base64.b64decode("AAABAipSCdZ7c02uje0qnB/BilUHb3JkZXJzAgAAAAAAAQA=")
    key = b"\0\x0f\0\6shared"
    write_log(tmp_path / "__consumer_offsets-0", batch(0, [record(0, key, value)]))
    group = kafkalog.groups(tmp_path).groups["shared"]
    assert (group.kind, group.state, group.group_epoch) == ("share", "Empty", 1)
