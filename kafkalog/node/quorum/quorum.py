"""The quorum of a cluster's metadata, from the disks of its nodes: who is here, what is proven."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from formats import file_names
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import DataError, NotFoundError, UsageError
from kafkalog.files.payloads.control_records import control_record
from kafkalog.files.payloads.internal_topics import decode
from kafkalog.files.payloads.kinds import PayloadKind
from kafkalog.files.text_files import properties_of, read_clean_shutdown, read_properties
from kafkalog.io.rows import Rows
from kafkalog.log.batches.selection import Selection
from kafkalog.log.defects import UNREADABLE
from kafkalog.log.events import reporting
from kafkalog.model import Record, computed_once
from kafkalog.node.choice import metadata_logs, require_one_cluster
from kafkalog.node.cluster_image.reader import ImageReader, records_in
from kafkalog.node.quorum import choice
from kafkalog.node.quorum.log import LEADER_CHANGE
from kafkalog.node.quorum.model import NOBODY, Replica, Role, Voter, VoterSet, static_voters
from kafkalog.node.quorum.read import read_replicas
from kafkalog.node.targets import log_dirs_of, open_targets, unlisted_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.errors import OnEvent
    from kafkalog.files.log_dir import AnyPath, Target
    from kafkalog.model import Defect
    from kafkalog.node.quorum.choice import Merge, Part
    from kafkalog.node.quorum.compare import Conflict

_VOTERS: Final = "controller.quorum.voters"
_REGISTER_BROKER: Final = "REGISTER_BROKER_RECORD"
_KEYS: Final = (
    "name", "topicName", "resourceType", "resourceName", "topicId", "partitionId", "brokerId",
    "controllerId", "id", "mechanism", "principal", "tokenId", "key", "featureLevel",
    "nextProducerId",
)  # fmt: skip
"""Fields of metadata records that tell what they are about, by Kafka's names."""


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A node's copy of the cluster's metadata, or a voter without one.

    Attributes:
        node_id: of the node; None if `meta.properties` does not say.
        role: what the node is in the quorum.
        directory_id: of its log directory; of a lost voter, what the voters' record says.
        path: of the metadata log; None of a lost voter.
        log_start_offset, log_end_offset: of its log, up to the first damage.
        leader_epoch: the last one in its log, or of a snapshot that takes the log's place.
        quorum_leader_epoch: what `quorum-state` says; None if it is missing or malformed.
        snapshot: the name of the newest one.
        proven_offset: below it all that it has is proven to be committed.
        states: how it differs from the copy that counts.
        behind_offsets: how many offsets it lacks.
        fork_offset: where it parts from the copy that counts.
        damaged_offset: the first one that could not be read.
        foreign_snapshots: names of snapshots of a history that its log has given up.
        listeners: of a voter, as `NAME://HOST:PORT`.
    """

    node_id: int | None
    role: Role
    directory_id: str | None
    path: str | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    leader_epoch: int | None = None
    quorum_leader_epoch: int | None = None
    snapshot: str | None = None
    proven_offset: int | None = None
    states: tuple[str, ...] = ()
    behind_offsets: int | None = None
    fork_offset: int | None = None
    damaged_offset: int | None = None
    foreign_snapshots: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QuorumRecord:
    """A record that is not proven to be committed.

    Attributes:
        offset, timestamp, leader_epoch: of the record.
        record_type: Kafka's name of its message; None if it cannot be decoded.
        key: what it is about: the fields that identify that.
    """

    offset: int
    timestamp: int
    leader_epoch: int
    record_type: str | None
    key: str


@dataclass(frozen=True)
class Quorum:
    """The quorum of a cluster, as far as directories of its nodes show it.

    Attributes:
        cluster_id: in `meta.properties`; None if none says.
        copies: what was read of each, in the order of node ids.
        conflicts: where two of them contradict each other.
        chosen: the copy that counts; None if none has anything.
        merged: what its log consists of once damage is replaced from others.
        voters: by that log; by a properties file if that is static.
        kraft_version: 0 of a static quorum, from 1 on of one whose voters are records.
        proven: below it all is proven to be committed.
    """

    _in_repr = ("cluster_id", "kraft_version", "proven")

    cluster_id: str | None
    copies: tuple[Replica, ...]
    conflicts: tuple[Conflict, ...]
    chosen: Replica | None
    merged: Merge | None
    voters: VoterSet
    kraft_version: int
    proven: int

    @property
    def majority(self) -> int:
        """How many voters elect a leader."""
        return self.voters.majority

    @computed_once
    def present(self) -> tuple[Voter, ...]:
        """The voters whose copies are here and have something."""
        here = [one for one in self.copies if not one.is_empty]
        return tuple(one for one in self.voters.voters if any(copy.is_of(one) for copy in here))

    @computed_once
    def empty(self) -> tuple[Voter, ...]:
        """The voters whose copies are here, and have nothing."""
        here = (one for one in self.voters.voters if one not in self.present)
        return tuple(one for one in here if any(copy.is_of(one) for copy in self.copies))

    @computed_once
    def replaced(self) -> tuple[Voter, ...]:
        """The voters whose nodes are here with another directory than that of the voter."""
        ids = {one.node_id for one in self.copies}
        here = (one for one in self.voters.voters if not any(c.is_of(one) for c in self.copies))
        return tuple(one for one in here if one.node_id in ids)

    @computed_once
    def candidates(self) -> tuple[Voter, ...]:
        """The voters that could win an election among what is here."""
        return tuple(choice.candidates(self.copies, self.voters))

    @computed_once
    def behind(self) -> tuple[Voter, ...]:
        """Voters here that together elect a leader which lacks committed records; none if none do.

        Only reformatted or restored disks make that possible. Where no disk proves what was
        committed, empty ones lack it.
        """
        ends = {
            voter: max(self.common_end(one) for one in self.copies if one.is_of(voter))
            for voter in self.voters.voters
            if any(one.is_of(voter) for one in self.copies)
        }
        lacking = tuple(
            voter for voter, end in ends.items() if end < max(self.proven, min(self.end, 1))
        )
        return lacking if len(lacking) >= self.majority else ()

    @property
    def leader(self) -> tuple[int, int]:
        """The leader of the latest epoch and that epoch, -1 if it is not known.

        By the message with which that began, or by `quorum-state`.
        """
        if self.chosen is None:
            return NOBODY, NOBODY
        message, epoch = self.chosen.log.last(LEADER_CHANGE), self.chosen.reach.epoch
        if message is not None and self.chosen.lineage.epoch_of(message.offset) == epoch:
            return message.fields.get("leaderId", NOBODY), epoch
        state = self.chosen.state
        return (NOBODY, epoch) if state is None else (state.leader_id, state.leader_epoch)

    @property
    def next_epoch(self) -> int:
        """The first epoch that is above all that any copy has seen."""
        return choice.next_epoch(self.copies)

    @property
    def end(self) -> int:
        """The end of the log that counts; 0 without one."""
        return 0 if self.chosen is None else self.chosen.reach.end

    @computed_once
    def metadata(self) -> ImageReader | None:
        """The metadata at the end of what the copies add up to; None if there is nothing.

        What is damaged of a copy was taken from another: only what could not be read is a defect.
        """
        if self.merged is None or not self.merged.end:
            return None
        first = self.merged.replica or self.merged.parts[0].replica
        found = ImageReader(first.partition)
        if self.merged.snapshot is not None:
            found.begin_with(self.merged.snapshot.entry)
        for part in self.merged.parts:
            found.advance_in(part.replica.partition, part.end)
        found.image.defects[:] = [one for one in found.image.defects if one.reference in UNREADABLE]
        return found

    def common_end(self, replica: Replica) -> int:
        """Return up to where a copy has the same log as the one that counts, without a gap."""
        if replica.superseding is not None and not self._fork(replica)[1]:
            return replica.superseding.position.end
        return min(self._fork(replica)[0], replica.lineage.whole_end)

    def _fork(self, replica: Replica) -> tuple[int, bool]:
        """Return where a copy ends or parts from the one that counts, and whether it parts."""
        if self.chosen is None or replica.reach == self.chosen.reach:
            return self.end, False
        fork = choice.history(self.chosen).fork(replica.lineage)
        end = replica.lineage.end
        # It ends later and in an earlier epoch: it has parted, wherever that was.
        return fork, fork < min(end, self.end) or end > self.end

    @property
    def replicas(self) -> Rows[QuorumReplica]:
        """A row for each copy, and for each voter without one."""
        rows = [self._row(one) for one in self.copies]
        lost = (one for one in self.voters.voters if not any(c.is_of(one) for c in self.copies))
        rows += [
            QuorumReplica(one.node_id, Role.LOST, one.directory_id, listeners=_listeners(one))
            for one in lost
        ]
        return Rows(sorted(rows, key=_order), QuorumReplica)

    def _row(self, one: Replica) -> QuorumReplica:
        voter = next((voter for voter in self.voters.voters if one.is_of(voter)), None)
        common, (fork, is_forked) = self.common_end(one), self._fork(one)
        damaged = one.lineage.whole_end if one.log.defects else None
        return QuorumReplica(
            one.node_id,
            Role.OBSERVER if voter is None else Role.VOTER,
            one.directory_id,
            one.path,
            one.lineage.start,
            one.lineage.whole_end,
            one.started.epoch,
            None if one.state is None else one.state.leader_epoch,
            None if one.newest is None else one.newest.name,
            min(self.proven, common),
            tuple(self._states(one, is_forked=is_forked)),
            max(self.end - common, 0),
            fork if is_forked else None,
            damaged,
            tuple(snapshot.name for snapshot in one.foreign),
            () if voter is None else _listeners(voter),
        )

    def _states(self, one: Replica, *, is_forked: bool) -> Iterator[str]:
        """Yield words for how a copy differs from the one that counts."""
        if one.is_empty:
            yield "empty"
        elif one.is_damaged:
            yield "damaged"
        if is_forked:
            yield "forked"
        if one.foreign:
            yield "foreign-snapshot"
        if one.superseding is not None and one.lineage.spans:
            yield "snapshot-beyond-log"
        if self._is_second(one):
            yield "second-copy"
        if any(one.path in conflict.paths for conflict in self.conflicts):
            yield "split-brain"
        if not one.is_empty and not is_forked:
            is_newest = self.chosen is not None and one.started >= self.chosen.reach
            yield "newest" if is_newest else "behind"
        if one.is_running:
            yield "running"

    def _is_second(self, one: Replica) -> bool:
        """Return whether a node has another copy, which is named before."""
        first = next(copy for copy in self.copies if copy.node_id == one.node_id)
        return one.node_id is not None and first is not one

    @property
    def records(self) -> Rows[QuorumRecord]:
        """The records that are not proven to be committed, by offset; read on demand."""
        return Rows(self._records, QuorumRecord)

    def _records(self) -> Iterator[QuorumRecord]:
        for part in () if self.merged is None else self.merged.parts:
            if part.end > self.proven:
                start = max(part.start, self.proven)
                yield from records_of(part._replace(start=start))

    @computed_once
    def defects(self) -> tuple[Defect, ...]:
        """What is wrong: damage, what the copies contradict, and what makes a start go wrong."""
        from kafkalog.node.quorum.findings import findings

        return tuple(findings(self))


def _order(one: QuorumReplica) -> tuple[int, str]:
    return (one.node_id if one.node_id is not None else -1), one.path or ""


def _listeners(voter: Voter) -> tuple[str, ...]:
    return tuple(f"{name}://{host}:{port}" for name, host, port in voter.listeners)


def records_of(part: Part) -> Iterator[QuorumRecord]:
    """Yield the records of a part of a log.

    Cost:
        Reads the part; memory for one batch.
    """
    wanted = Selection(from_offset=part.start, to_offset=part.end, sound=True)
    for one in records_in(part.replica.partition, wanted):
        if isinstance(one, Record):
            kind, key = _type_and_key(one)
            yield QuorumRecord(one.offset, one.timestamp, one.batch.leader_epoch, kind, key)


def _type_and_key(record: Record) -> tuple[str | None, str]:
    if record.batch.is_control:
        try:
            return control_record(record).type_name, ""
        except DataError:
            return None, ""
    value = decode(PayloadKind.CLUSTER_METADATA, record.key, record.value).value
    if value is None:
        return None, ""
    data: dict[str, Any] = value["data"]
    return value["type"], " ".join(f"{name}={data[name]}" for name in _KEYS if name in data)


def quorum(
    *paths: AnyPath,
    properties: str | None = None,
    on_event: OnEvent | None = None,
    progress: bool = False,
) -> Quorum:
    """Return the quorum of a cluster: who is here, who could be elected, what is proven.

    Args:
        paths: log directories of controllers and brokers, or `__cluster_metadata-0` in them.
        properties: a node's properties file, for the voters of a static quorum.
        on_event: is passed each defect, and what was read; without it the first one is raised.
        progress: whether to draw a bar.

    Raises:
        NotFoundError: no metadata log is there.
        UsageError: they are of several clusters.
        CorruptDataError, UnreadableError: something is damaged.
    """
    static = None if properties is None else voters_in_properties(properties)
    targets = open_targets(paths, topics={CLUSTER_METADATA})
    with reporting(on_event, progress=progress) as report:
        found = read_quorum(targets, static=static, progress=report.advance)
        for defect in found.defects:
            report.hear(defect)
    return found


def read_quorum(
    targets: Sequence[Target],
    *,
    static: VoterSet | None = None,
    progress: Callable[[int], None] | None = None,
) -> Quorum:
    """Read the quorum of a cluster from the directories of its nodes.

    Args:
        targets: log directories, or `__cluster_metadata-0` in them.
        static: the voters of a static quorum; None to take those that its log names.
        progress: called with numbers of bytes as they are read.

    Raises:
        NotFoundError, UnreadableError: no metadata log is there, or none can be listed.
        UsageError: they are of several clusters.

    Cost:
        Reads all metadata logs and snapshots, in chunks; memory for their epochs.
    """
    partitions = metadata_logs(targets)
    require_one_cluster(partitions)
    unlisted = [error for one, error in unlisted_of(targets) if one.topic == CLUSTER_METADATA]
    if not partitions and unlisted:
        raise unlisted[0]
    if not partitions:
        path = targets[0].path if targets else None
        hint = f"Give log directories of a KRaft cluster's nodes: each has {CLUSTER_METADATA}-0."
        raise NotFoundError("There is no metadata log here.", path=path, hint=hint)
    replicas, conflicts = read_replicas(partitions, progress)
    ordered = tuple(sorted(replicas, key=lambda one: (one.node_id or 0, one.path)))
    return quorum_of(ordered, conflicts, log_dirs_of(targets), static)


def quorum_of(
    copies: tuple[Replica, ...],
    conflicts: tuple[Conflict, ...] = (),
    log_dirs: Iterable[str] = (),
    static: VoterSet | None = None,
) -> Quorum:
    """Return the quorum that copies make up.

    Args:
        copies: what was read of each.
        conflicts: where they contradict each other.
        log_dirs: directories of brokers, whose marks of a clean shutdown prove something.
        static: the voters of a static quorum; None to take those that its log names.
    """
    ids = Counter(one.cluster_id for one in copies if one.cluster_id is not None)
    cluster_id = next(iter(ids), None)
    chosen = choice.choose(copies)
    if chosen is None:
        voters = next((one.voters for one in copies if one.voters.voters), VoterSet())
        return Quorum(cluster_id, copies, conflicts, None, None, static or voters, 0, 0)
    merged = choice.merge(chosen, copies)
    version = choice.true_kraft_version(chosen, merged)
    voters = choice.true_voters(chosen, merged)
    if static is not None and not version:
        voters = static
    proven = choice.proven_end(copies, chosen, voters, _registered(merged, log_dirs))
    return Quorum(cluster_id, copies, conflicts, chosen, merged, voters, version, proven)


def _registered(merged: Merge, log_dirs: Iterable[str]) -> Iterator[int]:
    """Yield the ends of registrations that brokers were told of: the quorum had committed them.

    A broker's epoch is the offset of its registration, and it notes that when it is shut down.
    """
    for log_dir in log_dirs:
        node = properties_of(log_dir)
        try:
            mark = read_clean_shutdown(os.path.join(log_dir, file_names.CLEAN_SHUTDOWN))
        except DataError:
            continue  # a broker without the file, or `verify` reports it
        offset = mark.get("brokerEpoch", -1)
        here = (one for one in merged.parts if one.start <= offset < one.end)
        for part in here:
            one = part._replace(start=offset, end=offset + 1)
            for record in records_of(one):
                is_its = node is not None and f"brokerId={node.node_id}" in record.key.split()
                if record.record_type == _REGISTER_BROKER and is_its:
                    yield offset + 1


def voters_in_properties(path: str) -> VoterSet:
    """Return the voters in `controller.quorum.voters` of a properties file.

    Raises:
        UsageError: it has none, or they are malformed.
    """
    text = read_properties(path).get(_VOTERS, "")
    try:
        ids = [int(one.partition("@")[0]) for one in text.split(",") if one.strip()]
    except ValueError:
        ids = []
    if not ids:
        raise UsageError(f"The file has no {_VOTERS}, or not in the form ID@HOST:PORT.", path=path)
    return VoterSet(static_voters(ids), os.path.basename(path))
