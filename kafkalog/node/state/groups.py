"""Groups and their committed offsets, as `__consumer_offsets` has them at a moment.

Follows `GroupMetadataManager` and `OffsetMetadataManager` of Kafka, and the `currentState` of
its groups. Offsets are never expired here: a coordinator would, and `expires_at` says when.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from formats.late_classes import dataclass
from formats.topic_names import CONSUMER_OFFSETS
from kafkalog.errors import DataError, KafkaLogError, NotFoundError
from kafkalog.files.payloads.internal_topics import decode
from kafkalog.files.payloads.kinds import PayloadKind
from kafkalog.log.events import reporting
from kafkalog.log.living import listed_now, listing_again
from kafkalog.model import Isolation
from kafkalog.node.choice import live_partitions
from kafkalog.node.identity import topic_id_of
from kafkalog.node.lookup import lookup_timestamp
from kafkalog.node.state.coordinators import internal_topic
from kafkalog.node.state.latest import (
    Latest,
    LatestLog,
    LatestRecords,
    PlainRecords,
    last_of_keys,
    latest_logs,
    latest_records,
)
from kafkalog.node.state.model import (
    Group,
    GroupOffset,
    Groups,
    Member,
    Moment,
    OffsetLag,
    moment_of,
)
from kafkalog.node.state.offset_rows import GroupOffsets, OffsetRecords
from kafkalog.node.state.share_groups import ShareOffsets
from kafkalog.node.targets import best_replica, open_targets, partitions_of, unlisted
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.errors import OnEvent
    from kafkalog.files.log_dir import PartitionDir, Target
    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.io.times import Time
    from kafkalog.model import Defect
    from kafkalog.node.state.coordinators import InternalTopic

# Record types, which are the versions of keys: 0 and 1 are offsets, 2 a classic group.
_OFFSETS: Final = {"0", "1"}
_CLASSIC: Final = "2"
_LEGACY_OFFSET_KEY: Final = b"\0\0"
_OFFSET_KEY: Final = b"\0\1"


class _Kind(NamedTuple):
    """Record types of a kind of group that the new protocol has, and its number of `STABLE`."""

    name: str
    group: str
    member: str
    target: str
    current: str
    stable: int


_SHARE: Final = _Kind("share", "11", "10", "12", "14", 0)
_KINDS: Final = (
    _Kind("consumer", "3", "5", "6", "8", 0),
    _SHARE,
    _Kind("streams", "17", "19", "20", "22", 1),
)
_FIRST_EPOCH: Final = {"epoch": 1}
"""Of a share group that never had a member: an administrator set its offsets."""
_STREAMS_TOPOLOGY: Final = "23"
_SHARE_PARTITIONS: Final = "15"


def groups(
    *paths: str | os.PathLike[str],
    at: Time | Moment | None = None,
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Groups:
    """Return groups with their members and offsets, as `__consumer_offsets` has them.

    Args:
        paths: the log directories of all brokers: each coordinates a part of the groups.
        at: as of a time, of the text `P@OFFSET`, or of a `Moment`.
        on_event: is passed each defect, what ended the reading of a log, and what was read; without
            it the first error or grave defect is raised.
        progress: whether to draw a bar.

    Raises:
        NotFoundError: no partition of `__consumer_offsets` is there.
        CorruptDataError, UnreadableError: the log of a coordinator is damaged.
    """
    targets = open_targets(paths)
    with reporting(on_event, progress=progress) as report:
        return read_groups(
            targets, at=moment_of(at), defects=report.hear, progress=report.advance,
            failed=report.hear,
        )  # fmt: skip


def read_groups(
    targets: Sequence[Target],
    *,
    at: Moment | None = None,
    defects: Callable[[Defect], object] | None = None,
    progress: Callable[[int], None] | None = None,
    failed: Callable[[KafkaLogError], None] | None = None,
) -> Groups:
    """Read the groups, from the best replica of each partition.

    Args:
        targets: log directories and partitions; all others are passed over.
        at: as of this moment; None for the high watermark.
        defects: called with each defect; reading goes on.
        progress: called with numbers of bytes as they are read.
        failed: called with what ended the reading of one coordinator's log, whose partition is then
            incomplete; without it the error is raised.

    Raises:
        NotFoundError: no partition of `__consumer_offsets` is there.
        KafkaLogError: a file cannot be read.

    Cost:
        Keys and values of the live offsets in memory, and objects for all other records.
    """
    topic = internal_topic(CONSUMER_OFFSETS, targets)
    if not (topic.replicas or topic.unlisted):
        raise NotFoundError(
            "There is no partition of __consumer_offsets here.",
            path=targets[0].path if targets else None,
            hint="Give the log directories of all brokers: each has a part of it.",
        )
    found = Groups({}, topic, ShareOffsets(targets, at, defects, progress, failed))
    names = _TopicNames(topic, targets)
    read = (topic, found.incomplete, at, defects, progress, failed, latest_records)
    for number, log in latest_logs(*read):
        found.cut += log.cut
        partition = _PartitionState(number, log, names, found.shares)
        for group in partition.groups():
            found.groups[group.name] = group
        found.undecoded += partition.undecoded
    found.cut += found.shares.cut
    return found


class EndOffsets:
    """The offsets of partitions, from the best replica of each; read when asked for.

    No log says when its records were appended: its end at an earlier time is the offset of the
    first record with a later timestamp.

    Attributes:
        at_ms: the time of the ends; None for now.
        errors: why the offsets of some partitions, which are here, are not known.
    """

    def __init__(self, targets: Sequence[Target], at_ms: int | None = None) -> None:
        self.at_ms = at_ms
        self._replicas: defaultdict[tuple[str, int | None], list[PartitionDir]] = defaultdict(list)
        for partition in live_partitions(targets):
            self._replicas[partition.topic, partition.partition].append(partition)
        self._unlisted = unlisted(targets)
        self._known: dict[tuple[str, int], PartitionOffsets | None] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self.errors: list[KafkaLogError] = []

    @property
    def cut(self) -> list[PartitionOffsets]:
        """Those asked for so far that have records above their high watermarks."""
        return [one for one in self._known.values() if one and one.high_watermark.above]

    def of(self, topic: str, partition: int) -> int | None:
        """Return the high watermark; None if the partition is not here or cannot be read."""
        self._offsets(topic, partition)
        return self._ends.get((topic, partition))

    def lag(self, commit: GroupOffset) -> OffsetLag:
        """Return a committed offset with the end of its partition, and whether it is outside."""
        found, offset = self._offsets(commit.topic, commit.partition), commit.offset
        end = self._ends.get((commit.topic, commit.partition))
        if found is None or offset is None or commit.is_share:  # a share partition moves on
            return OffsetLag(commit, end)
        outside = None
        if offset > found.end.known:
            outside = f"above the log end {found.end.value}: the next fetch is out of range"
        elif offset < found.start.known:
            outside = f"below the log start {found.start.value}: the next fetch is out of range"
        return OffsetLag(commit, end, outside)

    def _offsets(self, topic: str, partition: int) -> PartitionOffsets | None:
        key = topic, partition
        if key not in self._known:
            self._known[key] = None
            replicas, error = self._replicas.get(key), self._unlisted.get(key)
            if replicas:
                try:
                    found, end = _offsets_of(best_replica(replicas), self.at_ms)
                    self._known[key], self._ends[key] = found, end
                except DataError as why:
                    error = why
            if error is not None and self._known[key] is None:
                self.errors.append(error)
        return self._known[key]


@listing_again
def _offsets_of(partition: PartitionDir, at_ms: int | None) -> tuple[PartitionOffsets, int]:
    """Return the offsets of a log, and its end: now the high watermark."""
    log = UnifiedLog(show(listed_now(partition)).partition)
    found = log.offsets.of_partition(Isolation.READ_UNCOMMITTED)
    later = None if at_ms is None else lookup_timestamp(log, at_ms + 1).offset
    return found, found.high_watermark.known if later is None else later


class _TopicNames:
    """The names of topics by their ids: of the metadata, else of the partitions that are here."""

    def __init__(self, topic: InternalTopic, targets: Sequence[Target]) -> None:
        self._known = topic.topic_names
        self._targets = targets

    def of(self, topic_id: str) -> str:
        """Return the name, or the id if no name is known."""
        return self._known.get(topic_id) or self._here.get(topic_id, topic_id)

    @cached_property
    def _here(self) -> dict[str, str]:
        here = [one for one in partitions_of(self._targets) if one.is_served]
        ids = ((topic_id_of(one), one.topic) for one in here)
        return {topic_id: topic for topic_id, topic in ids if topic_id is not None}


class _PartitionState:
    """The groups of one partition of `__consumer_offsets`."""

    def __init__(
        self,
        number: int,
        log: LatestLog[LatestRecords | PlainRecords],
        names: _TopicNames,
        shares: ShareOffsets,
    ) -> None:
        self._number = number
        self._shares = shares
        self._names = names
        self._log = log
        self._newer = {_current_key(key) for key in log.newer}
        self.undecoded = 0

    def groups(self) -> Iterator[Group]:
        """Yield the groups by name."""
        by_group: defaultdict[str, _Records] = defaultdict(_Records)
        records = self._columns()
        others: Iterable[tuple[bytes, Latest]]
        if records is None:
            others, seen = self._objects()
        else:
            by_group.update((name, _Records()) for name in records.groups)
            others, seen = map(_key_and_latest, records.others), records.seen
        for key, latest in others:
            self._add(by_group, key, latest, None)
        for producer_id, written in self._log.records.pending.items():
            for key, latest in written.items():
                self._add(by_group, key, latest, producer_id)
        for key in self._newer - seen:
            self._add(by_group, key, None, None)
        for name in sorted(by_group):
            some = by_group[name]
            some.offsets += self._shares.of(name, list(some.share_partitions()))
            group = some.group(name, self._number, records, self._names)
            if group is not None:
                yield group

    def _columns(self) -> OffsetRecords | None:
        """Return the offsets that count; None if all records that count are objects."""
        latest = self._log.records
        if isinstance(latest, PlainRecords):
            return None
        rows, is_complete = _with_current_keys(latest.rows()), self._log.is_complete
        return OffsetRecords(rows, self._number, self._newer, is_complete=is_complete)

    def _objects(self) -> tuple[Iterable[tuple[bytes, Latest]], set[bytes]]:
        """Return current keys with their latest records, and those of `newer` that have one."""
        by_offset = sorted(self._log.records.latest(), key=lambda pair: pair[1].offset)
        current = {_current_key(key): latest for key, latest in by_offset}
        return [
            (key, latest) for key, latest in current.items()
            if latest.value is not None or key in self._newer
        ], self._newer & current.keys()  # fmt: skip

    def _add(
        self,
        by_group: defaultdict[str, _Records],
        raw_key: bytes,
        latest: Latest | None,
        producer_id: int | None,
    ) -> None:
        decoded = decode(PayloadKind.OFFSETS, raw_key, latest.value if latest else None)
        if decoded.key is None:
            self.undecoded += 1
            return
        kind, data = decoded.key["type"], decoded.key["data"]
        group = by_group[data["group"] if "group" in data else data["groupId"]]
        value = None if decoded.value is None else decoded.value["data"]
        if decoded.error is not None:
            group.undecoded += 1
        elif kind not in _OFFSETS:
            if value is not None:
                group.records.setdefault(kind, []).append((data, value))
        elif latest is None or value is not None or raw_key in self._newer:
            group.offsets.append(self._offset(data, value, raw_key, latest, producer_id))

    def _offset(
        self,
        key: dict[str, Any],
        value: dict[str, Any] | None,
        raw_key: bytes,
        latest: Latest | None,
        producer_id: int | None,
    ) -> GroupOffset:
        value = value or {}
        expires = value.get("expireTimestamp", -1)
        return GroupOffset(
            key["group"],
            key["topic"],
            key["partition"],
            value.get("offset"),
            value.get("leaderEpoch", -1),
            value.get("metadata", ""),
            value.get("commitTimestamp", -1),
            None if expires < 0 else expires,
            -1 if latest is None else latest.offset,
            self._number,
            producer_id,
            raw_key not in self._newer,
            self._log.is_complete,
        )


def _key_and_latest(place: tuple[Any, int]) -> tuple[bytes, Latest]:
    batch, row = place
    key, *latest = (batch[name][row].as_py() for name in ("key", "offset", "timestamp", "value"))
    return key, Latest(*latest)


def _current_key(key: bytes) -> bytes:
    """Return a key of version 0 as that of version 1, which means the same."""
    return _OFFSET_KEY + key[2:] if key[:2] == _LEGACY_OFFSET_KEY else key


def _with_current_keys(rows: Any) -> Any:
    """Return one row per current key."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # A coordinator of 0.8 wrote keys of version 0; a later commit has another key.
    is_legacy = pc.equal(pc.binary_slice(rows["key"], 0, 2), pa.scalar(_LEGACY_OFFSET_KEY))
    if not pc.any(is_legacy).as_py():
        return rows
    keys = pa.array(map(_current_key, rows["key"].to_pylist()), pa.binary())
    return last_of_keys(rows.set_column(0, "key", keys).sort_by("offset"))


@dataclass(slots=True)
class _Records:
    """The latest records of one group, by record type."""

    records: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = field(default_factory=dict)
    offsets: list[GroupOffset] = field(default_factory=list)
    undecoded: int = 0

    def share_partitions(self) -> Iterator[tuple[str, str, int]]:
        """Yield id and name of the topic, and the number, of what a share group has begun."""
        for _, value in self.records.get(_SHARE_PARTITIONS, [])[-1:]:
            for one in value["initializedTopics"]:
                for number in one["partitions"]:
                    yield one["topicId"], one["topicName"], number

    def group(
        self, name: str, coordinator: int, records: OffsetRecords | None, names: _TopicNames
    ) -> Group | None:
        """Return the group; None if all of its records are gone."""
        offsets = GroupOffsets(name, records, self.offsets)
        kind = next((kind for kind in _KINDS if kind.group in self.records), None)
        if kind is None and _SHARE_PARTITIONS in self.records:
            kind = _SHARE
        if kind is not None:
            state, epoch, protocol, members = self._modern(kind, names)
            shown = kind.name
        elif _CLASSIC in self.records:
            state, epoch, protocol, members = self._classic()
            shown = "classic"
        elif len(offsets) or self.undecoded:
            state, epoch, protocol, members, shown = "Empty", -1, None, (), "classic"
        else:
            return None
        protocol_type = "" if kind is None else shown
        if kind is None and _CLASSIC in self.records:
            protocol_type = self.records[_CLASSIC][-1][1]["protocolType"]
        return Group(
            name, shown, state, epoch, protocol, coordinator, members, offsets, self.undecoded,
            protocol_type,
        )  # fmt: skip

    def _classic(self) -> tuple[str, int, str | None, tuple[Member, ...]]:
        _, value = self.records[_CLASSIC][-1]
        members = tuple(
            Member(
                one["memberId"],
                one.get("groupInstanceId"),
                one["clientId"],
                one["clientHost"],
                None,
                _assigned(one["assignment"]),
            )
            for one in sorted(value["members"], key=lambda one: str(one["memberId"]))
        )
        return "Stable" if members else "Empty", value["generation"], value["protocol"], members

    def _has_valid_topology(self, group: dict[str, Any]) -> bool:
        """Return whether a streams group's latest topology is the one that was validated."""
        topologies = self.records.get(_STREAMS_TOPOLOGY, [])
        validated = group.get("validatedTopologyEpoch", -1)
        return bool(topologies) and topologies[-1][1]["epoch"] == validated

    def _modern(
        self, kind: _Kind, names: _TopicNames
    ) -> tuple[str, int, str | None, tuple[Member, ...]]:
        _, value = self.records.get(kind.group, [({}, _FIRST_EPOCH)])[-1]
        current = {key["memberId"]: value for key, value in self.records.get(kind.current, [])}
        members = tuple(
            Member(
                key["memberId"],
                one.get("instanceId"),
                one["clientId"],
                one["clientHost"],
                current.get(key["memberId"], {}).get("memberEpoch"),
                _assigned(current.get(key["memberId"]), names),
            )
            for key, one in sorted(
                self.records.get(kind.member, []), key=lambda pair: str(pair[0]["memberId"])
            )
        )
        epoch = value["epoch"]
        targets = self.records.get(kind.target, [])
        target = targets[0][1]["assignmentEpoch"] if targets else 0
        if not members:
            state = "Empty"
        elif kind.name == "share":
            state = "Stable"
        elif kind.name == "streams" and not self._has_valid_topology(value):
            state = "NotReady"
        elif epoch > target:
            state = "Assigning"
        elif any(
            not _is_reconciled(current.get(one.member_id), target, kind.stable) for one in members
        ):
            state = "Reconciling"
        else:
            state = "Stable"
        return state, epoch, None, members


def _assigned(of: Any, names: _TopicNames | None = None) -> tuple[str, ...]:
    """Return the partitions or tasks in an assignment; none of one that is not decoded."""
    if not isinstance(of, dict):
        return ()
    if "activeTasks" in of:
        tasks = [(one["subtopologyId"], one["partitions"]) for one in of["activeTasks"]]
        return tuple(f"{name}_{number}" for name, numbers in sorted(tasks) for number in numbers)
    topics = [
        (one["topic"] if names is None else names.of(one["topicId"]), one["partitions"])
        for one in of["assignedPartitions"]
    ]
    return tuple(f"{name}-{number}" for name, numbers in sorted(topics) for number in numbers)


def _is_reconciled(current: dict[str, Any] | None, target_epoch: int, stable: int) -> bool:
    """Return whether a member has reached the target assignment."""
    return (
        current is not None
        and current["state"] == stable
        and current["memberEpoch"] == target_epoch
    )
