"""What the records of `__remote_log_metadata` say of a partition's segments in remote storage.

Follows `RemotePartitionMetadataStore`, `RemoteLogMetadataCache`, `RemoteLogLeaderEpochState`,
`RemoteLogSegmentState` and `RemoteLogManager.isRemoteSegmentWithinLeaderEpochs` of Kafka.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)
"""The states of a remote segment: `RemoteLogSegmentState`."""

_PARTITION_DELETED: Final = 2
"""`RemotePartitionDeleteState.DELETE_PARTITION_FINISHED`."""

UNKNOWN: Final = -1

Place = tuple[str, int]
"""A topic id and the number of a partition."""

Epochs = tuple[tuple[int, int], ...]
"""Leader epochs in order, each with its start offset."""


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """What is known of a remote segment.

    Attributes:
        start_offset, end_offset: of its first and of its last record.
        epochs: the leader epochs of its records; none if they are not known.
        size_bytes: the length of its log.
        state: its last state.
        changed_ms: when it came into that state; unknown without metadata.
        max_timestamp: the largest of its records.
    """

    start_offset: int
    end_offset: int
    epochs: Epochs
    size_bytes: int = UNKNOWN
    state: int = COPY_FINISHED
    changed_ms: int = UNKNOWN
    max_timestamp: int = UNKNOWN


@dataclass(slots=True)
class _OfEpoch:
    """The segments that have records of a leader epoch: `RemoteLogLeaderEpochState`.

    Attributes:
        referenced: the ids of those that readers use, by their first offset in the epoch.
        others: the ids of those that are not uploaded, are being deleted, or were uploaded again.
        highest_offset: the last offset of the epoch that was ever uploaded.
    """

    referenced: dict[int, str] = field(default_factory=dict)
    others: dict[str, None] = field(default_factory=dict)
    highest_offset: int | None = None

    def uploaded(self, segment_id: str, start: int, end: int) -> None:
        """Take a segment that readers use from now on.

        One that begins later and does not end later is superseded. One with the same start that
        does end later is forgotten, as Kafka forgets it.
        """
        while self.referenced and self.highest_offset is not None and self.highest_offset <= end:
            last = max(self.referenced)
            if last < start:
                break
            self.others[self.referenced.pop(last)] = None
        self.referenced[start] = segment_id
        self.others.pop(segment_id, None)
        if self.highest_offset is None or end > self.highest_offset:
            self.highest_offset = end


class RemoteSegments(dict[str, RemoteSegment]):
    """The remote segments of a partition by their ids, as its records came."""

    def __init__(self, segments: dict[str, RemoteSegment] | None = None) -> None:
        super().__init__()
        self._of_epoch: dict[int, _OfEpoch] = {}
        for segment_id, segment in (segments or {}).items():
            self.add(segment_id, segment)

    def add(self, segment_id: str, segment: RemoteSegment) -> None:
        """Take a segment in any state; one that is known already keeps a later state."""
        if segment_id in self and self[segment_id].state > segment.state:
            return
        if segment_id not in self:
            self[segment_id] = replace(segment, state=COPY_STARTED)
            for epoch, _ in segment.epochs:
                self._of_epoch.setdefault(epoch, _OfEpoch()).others[segment_id] = None
        for state in range(COPY_FINISHED, segment.state + 1):
            self.change(segment_id, state, segment.changed_ms)
        self[segment_id] = segment

    def change(self, segment_id: str, state: int, changed_ms: int) -> None:
        """Take a new state of a segment that is known; one that cannot follow is dropped."""
        segment = self.get(segment_id)
        if segment is None or not _may_follow(segment.state, state):
            return
        self[segment_id] = replace(segment, state=state, changed_ms=changed_ms)
        following = [*(start - 1 for _, start in segment.epochs[1:]), segment.end_offset]
        for (epoch, start), end in zip(segment.epochs, following, strict=False):
            listed = self._of_epoch.setdefault(epoch, _OfEpoch())
            if state == COPY_FINISHED:
                listed.uploaded(segment_id, start, end)
            elif state == DELETE_STARTED:
                if listed.referenced.get(start) == segment_id:
                    del listed.referenced[start]
                listed.others[segment_id] = None
            elif state == DELETE_FINISHED:
                listed.others.pop(segment_id, None)

    def of_epoch(self, epoch: int) -> list[str]:
        """Return the ids of the segments of a leader epoch in the order in which brokers go."""
        found = self._of_epoch.get(epoch, _OfEpoch())
        ids = [segment_id for _, segment_id in sorted(found.referenced.items())]
        if found.others:
            ids = sorted([*ids, *found.others], key=lambda one: self[one].start_offset)
        return ids

    def highest_offset(self, lineage: Epochs, log_end_offset: int) -> int:
        """Return the last offset of a log that is in remote storage, -1 if none is.

        Source: `RemoteLogManager.findHighestRemoteOffset`.
        """
        end = log_end_offset
        for epoch, start in reversed(lineage):
            found = self._of_epoch.get(epoch)
            if found is not None and found.highest_offset is not None:
                return min(found.highest_offset, end - 1)
            end = start
        return -1


def _may_follow(state: int, following: int) -> bool:
    """Return whether brokers take a change of state: `RemoteLogSegmentState.isValidTransition`."""
    allowed = {
        COPY_STARTED: (COPY_FINISHED, DELETE_STARTED),
        COPY_FINISHED: (COPY_FINISHED, DELETE_STARTED),
        DELETE_STARTED: (DELETE_STARTED, DELETE_FINISHED),
    }
    return following in allowed.get(state, ())


Known = dict[Place, RemoteSegments]
"""The segments of each partition."""


def note(known: Known, fields: dict[str, Any]) -> None:
    """Take a record about a segment, or about the deletion of a whole partition."""
    if "remotePartitionDeleteState" in fields:
        of = fields["topicIdPartition"]
        if fields["remotePartitionDeleteState"] == _PARTITION_DELETED:
            known.pop((of["id"], of["partition"]), None)
        return
    if "remoteLogSegmentId" not in fields:
        return
    partition = fields["remoteLogSegmentId"]["topicIdPartition"]
    segment_id = fields["remoteLogSegmentId"]["id"]
    segments = known.setdefault((partition["id"], partition["partition"]), RemoteSegments())
    state, changed_ms = fields["remoteLogSegmentState"], fields["eventTimestampMs"]
    if "startOffset" in fields:
        epochs = ((one["leaderEpoch"], one["offset"]) for one in fields["segmentLeaderEpochs"])
        segment = RemoteSegment(
            fields["startOffset"], fields["endOffset"], tuple(sorted(epochs)),
            fields["segmentSizeInBytes"], state, changed_ms, fields["maxTimestampMs"],
        )  # fmt: skip
        segments.add(segment_id, segment)
    else:
        segments.change(segment_id, state, changed_ms)


def is_within(segment: RemoteSegment, lineage: Epochs) -> bool:
    """Return whether the leader epochs of a segment are those of a log, at the same offsets.

    Its first and its last epoch may be cut short. What is not known counts as the same.
    """
    of_segment, of_log = dict(with_records(segment.epochs)), dict(with_records(lineage))
    if not of_segment or not of_log:
        return True
    last = max(of_segment)
    first_of_log = min(of_log)
    considered = [epoch for epoch in sorted(of_segment) if epoch >= first_of_log]
    if not considered or last > max(of_log):
        return False
    for epoch in considered:
        if epoch not in of_log:
            return False
        starts = of_segment[epoch]
        if epoch == considered[0] and epoch > first_of_log and starts < of_log[epoch]:
            return False
        following = min((one for one in of_log if one > epoch), default=None)
        if epoch == last:
            if following is not None and segment.end_offset >= of_log[following]:
                return False
        else:
            next_here = min(one for one in of_segment if one > epoch)
            if (following, of_log.get(following or 0)) != (next_here, of_segment[next_here]):
                return False
    return True


def with_records(epochs: Epochs) -> Iterator[tuple[int, int]]:
    """Leave out the epochs that end where they begin: `buildFilteredLeaderEpochMap`."""
    for number, (epoch, start) in enumerate(epochs):
        if number + 1 == len(epochs) or epochs[number + 1][1] != start:
            yield epoch, start


def cut_from_start(lineage: Epochs, offset: int) -> Epochs:
    """Return the leader epochs of a log that begins later: `truncateFromStart`."""
    before = [epoch for epoch, start in lineage if start <= offset]
    after = tuple(one for one in lineage if one[1] > offset)
    return ((before[-1], offset), *after) if before else after
