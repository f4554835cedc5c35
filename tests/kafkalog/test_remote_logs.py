"""Remote segments are assigned to a log by their leader epochs."""

from __future__ import annotations

import pytest

from kafkalog.files.remote_metadata import RemoteSegment, RemoteSegments, is_within, note


def segment(start: int, end: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return RemoteSegment(start, end, epochs)


LINEAGE = ((0, 0), (2, 50), (5, 100))


@pytest.mark.parametrize(
    ("found", "is_on_it"),
    [
        (segment(0, 49, (0, 0)), True),
        (segment(10, 49, (0, 10)), True),
        (segment(0, 50, (0, 0)), False),  # longer than the epoch
        (segment(40, 60, (0, 40), (2, 50)), True),
        (segment(40, 60, (0, 40), (2, 45)), False),  # the epoch began elsewhere
        (segment(40, 120, (0, 40), (2, 50), (5, 100)), True),
        (segment(40, 120, (0, 40), (5, 100)), False),  # an epoch is missing
        (segment(60, 90, (3, 60)), False),  # an epoch that nobody knows
        (segment(45, 90, (2, 45)), False),  # before its epoch began
        (segment(120, 140, (5, 120)), True),
        (segment(120, 140, (5, 120), (6, 130)), False),  # later than all
        (segment(40, 60, (0, 40), (1, 50), (2, 50)), True),  # an epoch without records
        (segment(40, 60), True),  # nothing is known
    ],
)
def test_lineage_is_judged_as_by_a_broker(found: RemoteSegment, is_on_it: bool) -> None:
    """The rules are those of `RemoteLogManager.isRemoteSegmentWithinLeaderEpochs`."""
    assert is_within(found, LINEAGE) == is_on_it


def test_a_partition_that_was_deleted_has_no_segments() -> None:
    """`RemotePartitionMetadataStore` drops them when the deletion is finished, not earlier."""
    place = {"topicIdPartition": {"name": "orders", "id": "A" * 22, "partition": 3}}
    known = {
        ("A" * 22, 3): RemoteSegments({"B" * 22: segment(0, 9)}),
        ("A" * 22, 4): RemoteSegments({"C" * 22: segment(0, 9)}),
    }
    for state, count in ((0, 2), (1, 2), (2, 1)):
        note(known, {**place, "remotePartitionDeleteState": state})
        assert len(known) == count
    assert ("A" * 22, 4) in known
