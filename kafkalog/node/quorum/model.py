"""A quorum as its disks show it: voters, and the copies of the cluster's metadata on nodes.

Follows `QuorumStateData`, `VoterSet` and `KRaftControlRecordStateMachine` of Kafka.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from formats.late_classes import dataclass
from kafkalog.model import computed_once
from kafkalog.node.quorum.lineage import Lineage, Position, Standing
from kafkalog.node.quorum.log import KRAFT_VERSION, LEADER_CHANGE, VOTERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafkalog.files.log_dir import FileEntry, PartitionDir
    from kafkalog.model import Defect
    from kafkalog.node.quorum.log import Contents, Control

NOBODY: Final = -1
"""Id of a node in `quorum-state` that is not there."""


class Voter(NamedTuple):
    """A voter of the quorum.

    Attributes:
        node_id: its id.
        directory_id: of its metadata log; None for a static voter.
        listeners: name, host and port of each.
    """

    node_id: int
    directory_id: str | None
    listeners: tuple[tuple[str, str, int], ...] = ()

    @property
    def name(self) -> str:
        """Its id, with that of its directory if it is known."""
        return str(self.node_id) if self.directory_id is None else f"{self[0]}@{self[1]}"


class VoterSet(NamedTuple):
    """The voters of a quorum.

    Attributes:
        voters: by node id.
        source: where they come from: an offset, a snapshot, `quorum-state`, or properties.
        offset: of the record in the log; None if it is not in the log.
    """

    voters: tuple[Voter, ...] = ()
    source: str | None = None
    offset: int | None = None

    @property
    def majority(self) -> int:
        """How many of them elect a leader."""
        return len(self.voters) // 2 + 1

    def has(self, replica: Replica) -> bool:
        """Return whether a copy is that of a voter."""
        return any(replica.is_of(one) for one in self.voters)


class QuorumState(NamedTuple):
    """What a node remembers of elections, in `quorum-state`.

    Attributes:
        leader_id: the leader of the epoch, -1 if it knew none.
        leader_epoch: the latest epoch that it has seen.
        voted_id, voted_directory_id: whom it voted for in that epoch; -1 and None if for nobody.
        voters: node ids of static voters, as it knew them.
    """

    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: str | None
    voters: tuple[int, ...]

    @classmethod
    def of(cls, fields: dict[str, Any]) -> QuorumState:
        """Return what the file's fields say."""
        voters = tuple(one["voterId"] for one in fields.get("currentVoters") or ())
        voted = fields["votedId"]
        directory = fields.get("votedDirectoryId") if voted != NOBODY else None
        return cls(fields["leaderId"], fields["leaderEpoch"], voted, directory, voters)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of the metadata in the directory of a log.

    Attributes:
        entry: its file.
        contents: what was read of it.
        standing: what it is to that log.
    """

    entry: FileEntry
    contents: Contents
    standing: Standing

    @property
    def name(self) -> str:
        """The name of its file."""
        return self.entry.name.name

    @property
    def position(self) -> Position:
        """The epoch of the last offset in it, and the offset after that."""
        return Position.of(self.entry)

    @property
    def is_sound(self) -> bool:
        """Whether all of it could be read, up to its footer."""
        return not self.contents.defects


class Role(StrEnum):
    """What a node is in its quorum."""

    VOTER = "voter"
    OBSERVER = "observer"
    LOST = "lost"
    """A voter whose directory was not given."""


@dataclass(frozen=True)
class Replica:
    """A node's copy of the cluster's metadata.

    Attributes:
        partition: its directory.
        cluster_id, node_id, directory_id: in `meta.properties`; None if that does not say.
        log: what was read of its log.
        snapshots: by the end of what they hold.
        state: what is in `quorum-state`; None if it is missing or malformed.
        defects: what is wrong with its small files.
        is_running: whether a broker runs on it.
    """

    _in_repr = ("partition.path", "node_id")

    partition: PartitionDir
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    log: Contents
    snapshots: tuple[Snapshot, ...] = ()
    state: QuorumState | None = None
    defects: tuple[Defect, ...] = ()
    is_running: bool = False

    @property
    def path(self) -> str:
        """Where it is."""
        return self.partition.path

    def is_of(self, voter: Voter) -> bool:
        """Return whether it is the copy of a voter: of its node, and in its directory."""
        is_there = voter.directory_id in (None, self.directory_id)
        return self.node_id == voter.node_id and is_there

    @property
    def lineage(self) -> Lineage:
        """The epochs of its log, without damaged batches."""
        return self.log.lineage

    @computed_once
    def newest(self) -> Snapshot | None:
        """The snapshot that a start loads: of the latest epoch, then of the largest end."""
        return max(self.snapshots, key=lambda one: one.position, default=None)

    @property
    def superseding(self) -> Snapshot | None:
        """The snapshot that takes the place of the log when the node starts; None without one."""
        found = self.newest
        return found if found is not None and found.standing == Standing.BEYOND else None

    @property
    def starts(self) -> bool:
        """Whether a start can read the snapshot that it loads."""
        return self.newest is None or self.newest.is_sound

    @computed_once
    def started(self) -> Position:
        """How far it goes once the node has started: a start cuts the log at the first damage."""
        if self.superseding is not None:
            return self.superseding.position
        return self.lineage.up_to(self.lineage.whole_end).position

    @computed_once
    def reach(self) -> Position:
        """How far sound batches and sound snapshots go, whatever damage is between them."""
        beyond = (one for one in self.snapshots if one.standing == Standing.BEYOND)
        sound = (one.position for one in beyond if one.is_sound)
        return max([self.lineage.position, *sound])

    @property
    def is_empty(self) -> bool:
        """Whether it holds neither batches nor a snapshot of any."""
        return not self.reach.end

    @computed_once
    def voters(self) -> VoterSet:
        """The voters as the node would see them when it starts."""
        return voters_of(self.log, self.newest, self.state)

    @property
    def foreign(self) -> tuple[Snapshot, ...]:
        """The snapshots of a history that its log has given up."""
        return tuple(one for one in self.snapshots if one.standing == Standing.FOREIGN)

    @property
    def is_damaged(self) -> bool:
        """Whether something is wrong inside of the log or of a snapshot."""
        return bool(self.log.defects) or any(not one.is_sound for one in self.snapshots)

    @property
    def damage(self) -> tuple[Defect, ...]:
        """What is wrong with its files, by log, snapshots and small files."""
        of_snapshots = (one for snapshot in self.snapshots for one in snapshot.contents.defects)
        return (*self.log.defects, *of_snapshots, *self.defects)


def voters_of(log: Contents, snapshot: Snapshot | None, state: QuorumState | None) -> VoterSet:
    """Return the voters by a snapshot and the log after it, or else those of a static quorum."""
    record = log.last(VOTERS)
    end = 0 if snapshot is None else snapshot.position.end
    stated = None if snapshot is None else snapshot.contents.last(VOTERS)
    if snapshot is not None and stated is not None and (record is None or record.offset < end):
        return VoterSet(voters_in(stated).voters, snapshot.name)
    if record is not None:
        return voters_in(record)
    leader = log.last(LEADER_CHANGE)
    if leader is not None and (named := leader.fields.get("voters")):
        voters = static_voters(one["voterId"] for one in named)
        return VoterSet(voters, f"offset {leader.offset}", leader.offset)
    if state is not None and state.voters:
        return VoterSet(static_voters(state.voters), "quorum-state")
    return VoterSet()


def voters_in(record: Control) -> VoterSet:
    """Return the voters that a record of a log states."""
    voters = (
        Voter(
            one["voterId"],
            one["voterDirectoryId"],
            tuple((at["name"], at["host"], at["port"]) for at in one["endpoints"]),
        )
        for one in record.fields.get("voters", ())
    )
    return VoterSet(tuple(sorted(voters)), f"offset {record.offset}", record.offset)


def static_voters(ids: Iterable[int]) -> tuple[Voter, ...]:
    """Return voters that are known by their ids alone."""
    return tuple(Voter(one, None) for one in sorted(ids))


def kraft_version_of(log: Contents, snapshot: Snapshot | None) -> int:
    """Return the last `kraft.version` of a snapshot and a log; 0 without one."""
    record = log.last(KRAFT_VERSION)
    if record is None and snapshot is not None:
        record = snapshot.contents.last(KRAFT_VERSION)
    return 0 if record is None else int(record.fields.get("kRaftVersion", 0))
