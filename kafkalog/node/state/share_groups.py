"""The offsets of share groups, as `__share_group_state` has them.

Follows `ShareCoordinatorShard`, `ShareGroupOffset` and the lag that `GroupCoordinatorService`
computes, of Kafka: a snapshot replaces what is known of a share partition, an update changes
parts of it, and a snapshot without a value removes it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from formats.topic_names import SHARE_GROUP_STATE
from kafkalog.files.payloads.internal_topics import decode
from kafkalog.files.payloads.kinds import PayloadKind
from kafkalog.node.state.coordinators import internal_topic, partition_for
from kafkalog.node.state.latest import latest_logs
from kafkalog.node.state.model import GroupOffset, Moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.errors import KafkaLogError
    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.model import Defect
    from kafkalog.node.targets import Target

_SNAPSHOT: Final = "0"
_UNCHANGED: Final = -1


class _State(NamedTuple):
    """What is known of a share partition; -1 for what is not."""

    start_offset: int
    delivered: int
    leader_epoch: int
    written_ms: int
    record_offset: int
    is_complete: bool = True


class _StateRecords:
    """Takes the rows of a partition of `__share_group_state` in order."""

    def __init__(self) -> None:
        self.states: dict[tuple[str, str, int], _State] = {}
        self.undecoded = 0

    def take(self, rows: Any) -> None:
        for row in rows.to_pylist():
            if not row["is_control"] and row["key"] is not None:
                self._take(row)

    def finish(self) -> None:
        """All rows count at once."""

    def _take(self, row: dict[str, Any]) -> None:
        found = decode(PayloadKind.SHARE_GROUP_STATE, row["key"], row["value"])
        if found.key is None or found.error is not None:
            self.undecoded += 1
            return
        data = found.key["data"]
        key = data["groupId"], data["topicId"], data["partition"]
        if found.value is None:
            self.states.pop(key, None)
            return
        value, before = found.value["data"], self.states.get(key)
        start, epoch = value["startOffset"], value["leaderEpoch"]
        if found.key["type"] != _SNAPSHOT and before is not None:
            start = before.start_offset if start == _UNCHANGED else start
            epoch = before.leader_epoch if epoch == _UNCHANGED else epoch
        delivered = value.get("deliveryCompleteCount", _UNCHANGED)
        self.states[key] = _State(start, delivered, epoch, row["timestamp"], row["offset"])


class ShareOffsets:
    """The offsets of the share groups of a run; the topic is read when the first one is asked for.

    Args:
        targets, at, defects, progress, failed: as for `read_groups`.

    Attributes:
        topic: the replicas of `__share_group_state`.
        missing: its partitions that are not here although offsets that were asked for are in them.
        incomplete: its partitions that could not be read completely.
        undecoded: records that could not be decoded.
        cut: the offsets of its partitions that have records above their high watermarks.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        at: Moment | None,
        defects: Callable[[Defect], object] | None,
        progress: Callable[[int], None] | None,
        failed: Callable[[KafkaLogError], None] | None,
    ) -> None:
        self.topic = internal_topic(SHARE_GROUP_STATE, targets)
        # An offset of `__consumer_offsets` says nothing about this topic.
        moment = None if at is None or at.time_ms is None else at
        self.missing: set[int] = set()
        self.incomplete: list[int] = []
        self.undecoded = 0
        self.cut: list[PartitionOffsets] = []
        self._read = partial(
            latest_logs, self.topic, self.incomplete, moment, defects, progress, failed,
            records=_StateRecords,
        )  # fmt: skip
        self._states: dict[tuple[str, str, int], _State] | None = None

    def of(self, group: str, partitions: Sequence[tuple[str, str, int]]) -> Iterator[GroupOffset]:
        """Yield the offsets of a group in partitions: their topics' ids and names, their numbers.

        Without a state, or before the first fetch, the offset is None.
        """
        for topic_id, topic, number in partitions:
            state = self._known().get((group, topic_id, number))
            where = -1  # unless the metadata say how many partitions there are
            if self.topic.counted == "metadata":
                where = partition_for(f"{group}:{topic_id}:{number}", self.topic.count)
            if state is None and where not in self.topic.replicas:
                self.missing.add(where)
            is_known = state is not None and state.start_offset >= 0
            found = state or _State(-1, -1, -1, -1, -1, where not in self.missing)
            yield GroupOffset(
                group,
                topic,
                number,
                found.start_offset if is_known else None,
                found.leader_epoch,
                "",
                found.written_ms,
                None,
                found.record_offset,
                where,
                is_complete=found.is_complete,
                is_share=True,
                delivered=found.delivered if found.delivered >= 0 else None,
            )

    def _known(self) -> dict[tuple[str, str, int], _State]:
        if self._states is None:
            self._states = {}
            for number, log in self._read():
                self.undecoded += log.records.undecoded
                self.cut += log.cut
                is_complete = number not in self.incomplete
                for key, state in log.records.states.items():
                    self._states[key] = state._replace(is_complete=is_complete)
        return self._states
