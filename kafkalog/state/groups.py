"""Groups and their committed offsets, as `__consumer_offsets` has them at a moment.

Follows `GroupMetadataManager` and `OffsetMetadataManager` of Kafka 4.3, and the `currentState` of
its groups. Offsets are never expired here: a coordinator would, and `expires_at` says when.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.batches.selection import Selection
from kafkalog.columns.scan import scan
from kafkalog.model import Defect, Isolation, Severity
from kafkalog.payloads.internal_topics import PayloadKind, decode
from kafkalog.state.coordinators import CONSUMER_OFFSETS, best_replica, internal_topic
from kafkalog.state.latest import COLUMNS, Latest, LatestRecords
from kafkalog.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.log_dir import FileEntry, LogDirListing, PartitionDir

_OFFSETS: Final = {"0", "1"}
_CLASSIC: Final = "2"
_STABLE_MEMBER: Final = 0


class _Kind(NamedTuple):
    """Record types of a kind of group that the new protocol has."""

    name: str
    group: str
    member: str
    target: str
    current: str


_KINDS: Final = (
    _Kind("consumer", "3", "5", "6", "8"),
    _Kind("share", "11", "10", "12", "14"),
    _Kind("streams", "17", "19", "20", "22"),
)
_STREAMS_TOPOLOGY: Final = "23"


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A committed offset of a group.

    Attributes:
        group, topic, partition: whose.
        offset: the next one to read; None if newer commits have replaced it and compaction may
            have removed it.
        leader_epoch: of the last record that was consumed, -1 if not known.
        metadata: what the client added.
        committed_ms: when, by the group coordinator's clock.
        expires_ms: when it expires, for the few clients that said so.
        record_offset: of its record in `coordinator`.
        coordinator: the partition of `__consumer_offsets`.
        producer_id: of the open transaction it belongs to; None if it counts.
        is_exact: whether compaction cannot have removed an older commit that counted then.
        is_complete: whether all of the partition's log could be read.
    """

    group: str
    topic: str
    partition: int
    offset: int | None
    leader_epoch: int
    metadata: str
    committed_ms: int
    expires_ms: int | None
    record_offset: int
    coordinator: int
    producer_id: int | None = None
    is_exact: bool = True
    is_complete: bool = True

    @property
    def is_pending(self) -> bool:
        """Whether it belongs to an open transaction."""
        return self.producer_id is not None


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group; `instance_id` and `epoch` are None where its group has none."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """A group, with its members and offsets.

    Attributes:
        name: its id.
        kind: `classic`, `consumer`, `share` or `streams`.
        state: as an admin client is told; `Stable` of a classic group may be rebalancing.
        epoch: group epoch, or generation of a classic group; -1 of one that only has offsets.
        protocol: assignor or protocol of a classic group, None elsewhere.
        coordinator: the partition of `__consumer_offsets` that it belongs to.
        members: by member id.
        offsets: by topic and partition, those of open transactions last.
        undecoded: how many of its records could not be decoded.
    """

    name: str
    kind: str
    state: str
    epoch: int
    protocol: str | None
    coordinator: int
    members: tuple[Member, ...]
    offsets: tuple[GroupOffset, ...]
    undecoded: int


@dataclass(slots=True)
class Groups:
    """What all partitions of `__consumer_offsets` hold.

    Attributes:
        groups: by name.
        count: of the topic's partitions.
        missing: partitions of which no replica was given.
        incomplete: partitions whose log could not be read completely.
        undecoded: records whose key names no group that can be read.
    """

    groups: dict[str, Group]
    count: int
    missing: list[int]
    incomplete: list[int] = field(default_factory=list)
    undecoded: int = 0


def read_groups(
    targets: Sequence[LogDirListing | PartitionDir | FileEntry],
    *,
    at_ms: int | None = None,
    defects: Callable[[Defect], object] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Groups:
    """Read the groups, from the best replica of each partition.

    Args:
        targets: log directories and partitions; all others are passed over.
        at_ms: as of this time: what was appended before the first batch with a later timestamp.
        defects: called with each defect; reading goes on.
        progress: called with numbers of bytes as they are read.

    Raises:
        UnsupportedError: pyarrow is missing.
        KafkaLogError: a file cannot be read.

    Cost:
        A row per live key in memory.
    """
    topic = internal_topic(CONSUMER_OFFSETS, targets)
    found = Groups({}, topic.count, topic.missing)
    for number, replicas in sorted(topic.replicas.items()):
        partition = _PartitionState(number, best_replica(replicas), at_ms, defects, progress)
        for group in partition.groups():
            found.groups[group.name] = group
        if not partition.is_complete:
            found.incomplete.append(number)
        found.undecoded += partition.undecoded
    return found


class _PartitionState:
    """The groups of one partition of `__consumer_offsets`."""

    def __init__(
        self,
        number: int,
        replica: PartitionDir,
        at_ms: int | None,
        defects: Callable[[Defect], object] | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._number = number
        self._replica = replica
        self._defects = defects
        self._progress = progress
        self._log = UnifiedLog(replica.path)
        self.is_complete = True
        self.undecoded = 0
        self._records = LatestRecords()
        end = self._log.high_watermark
        if at_ms is not None:
            end = min(end, self._first_later_than(at_ms, end))
        for rows in self._scan(COLUMNS, Selection(to_offset=end, isolation=Isolation.LOG)):
            self._records.take(rows)
        self._newer = self._keys_cleaned_after(end)

    def groups(self) -> Iterator[Group]:
        """Yield the groups by name."""
        by_group: defaultdict[str, _Records] = defaultdict(_Records)
        for key, latest in self._records.applied.items():
            self._add(by_group, key, latest, None)
        for producer_id, written in self._records.pending.items():
            for key, latest in written.items():
                self._add(by_group, key, latest, producer_id)
        for key in self._newer - self._records.applied.keys():
            self._add(by_group, key, None, None)
        for name in sorted(by_group):
            group = by_group[name].group(name, self._number)
            if group is not None:
                yield group

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
            self.is_complete,
        )

    def _scan(self, columns: Iterable[str], selection: Selection, **kind: bool) -> Iterator[Any]:
        yield from scan(
            self._log.partition,
            columns=list(columns),
            selection=selection,
            defects=self._note,
            progress=self._progress,
            **kind,
        )

    def _note(self, defect: Defect) -> None:
        if defect.severity in (Severity.DAMAGE, Severity.WARNING):
            self.is_complete = False
        if self._defects is not None:
            self._defects(defect)

    def _first_later_than(self, at_ms: int, end: int) -> int:
        """Return the base offset of the first batch with a later timestamp, else the end."""
        import pyarrow.compute as pc

        wanted = Selection(to_offset=end, isolation=Isolation.LOG)
        for rows in self._scan(("base_offset", "max_timestamp"), wanted, batches=True):
            later = pc.index(pc.greater(rows["max_timestamp"], at_ms), value=True).as_py()
            if later >= 0:
                return int(rows["base_offset"][later].as_py())
        return end

    def _keys_cleaned_after(self, end: int) -> set[bytes]:
        """Return the keys of the compacted part from an offset on: older records may be gone."""
        cleaned = self._log.checkpoint("cleaner-offset-checkpoint") or 0
        if cleaned <= end:
            return set()
        wanted = Selection(from_offset=end, to_offset=cleaned, isolation=Isolation.LOG)
        keys: set[bytes] = set()
        for rows in self._scan(("key", "is_control"), wanted):
            keys.update(rows.filter(rows["is_control"].is_valid())["key"].unique().to_pylist())
        return keys - {None}  # type: ignore[arg-type] # of records without a key


@dataclass(slots=True)
class _Records:
    """The latest records of one group, by record type."""

    records: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = field(default_factory=dict)
    offsets: list[GroupOffset] = field(default_factory=list)
    undecoded: int = 0

    def group(self, name: str, coordinator: int) -> Group | None:
        """Return the group; None if all of its records are gone."""
        offsets = tuple(
            sorted(self.offsets, key=lambda one: (one.is_pending, one.topic, one.partition))
        )
        kind = next((kind for kind in _KINDS if kind.group in self.records), None)
        if kind is not None:
            state, epoch, protocol, members = self._modern(kind)
            shown = kind.name
        elif _CLASSIC in self.records:
            state, epoch, protocol, members = self._classic()
            shown = "classic"
        elif offsets or self.undecoded:
            state, epoch, protocol, members, shown = "Empty", -1, None, (), "classic"
        else:
            return None
        return Group(
            name, shown, state, epoch, protocol, coordinator, members, offsets, self.undecoded
        )

    def _classic(self) -> tuple[str, int, str | None, tuple[Member, ...]]:
        [(_, value)] = self.records[_CLASSIC]
        members = tuple(
            Member(
                one["memberId"],
                one.get("groupInstanceId"),
                one["clientId"],
                one["clientHost"],
                None,
            )
            for one in sorted(value["members"], key=lambda one: str(one["memberId"]))
        )
        return "Stable" if members else "Empty", value["generation"], value["protocol"], members

    def _modern(self, kind: _Kind) -> tuple[str, int, str | None, tuple[Member, ...]]:
        [(_, value)] = self.records[kind.group]
        current = {key["memberId"]: value for key, value in self.records.get(kind.current, [])}
        members = tuple(
            Member(
                key["memberId"],
                one.get("instanceId"),
                one["clientId"],
                one["clientHost"],
                current.get(key["memberId"], {}).get("memberEpoch"),
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
        elif kind.name == "streams" and _STREAMS_TOPOLOGY not in self.records:
            state = "NotReady"
        elif epoch > target:
            state = "Assigning"
        elif any(not _is_reconciled(current.get(one.member_id), target) for one in members):
            state = "Reconciling"
        else:
            state = "Stable"
        return state, epoch, None, members


def _is_reconciled(current: dict[str, Any] | None, target_epoch: int) -> bool:
    """Return whether a member has reached the target assignment."""
    return (
        current is not None
        and current["state"] == _STABLE_MEMBER
        and current["memberEpoch"] == target_epoch
    )
