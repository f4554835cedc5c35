"""Plans how a quorum goes on that lost its majority, or whose controllers moved: from one copy.

Nothing is written. The plan is what has to be done, in order: what is put together into one log,
what is appended to it so that a voter leads, and what has to be done on all other nodes. The
voters that are kept follow with the disks that they have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from formats.constants import INT32_MAX
from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import RefusedError, UsageError
from kafkalog.io.wording import counted
from kafkalog.node.cluster_image.snapshot import control_batch
from kafkalog.node.quorum import choice
from kafkalog.node.quorum.choice import history
from kafkalog.node.quorum.log import KRAFT_VERSION, LEADER_CHANGE, VOTERS
from kafkalog.node.quorum.model import Voter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalog.node.quorum.choice import Merge
    from kafkalog.node.quorum.model import Replica
    from kafkalog.node.quorum.quorum import Quorum

LISTENER: Final = "CONTROLLER"
"""The listener of controllers if no voter here has one: its usual name."""
NO_DIRECTORY: Final = "A" * 22
"""The directory id of nobody; in a plan that of a directory that is not made yet."""
Endpoint: TypeAlias = tuple[str, int]
"""Host and port."""


def first_batch(
    offset: int, epoch: int, leader: int, voters: Sequence[Voter], timestamp_ms: int
) -> bytes:
    """Return the batch with which a leader begins its epoch, and which makes these the voters.

    Args:
        offset: where the log ends.
        epoch: above all that any copy has seen.
        leader: node id of the leader.
        voters: with their directory ids and listeners.
        timestamp_ms: the time of the records.
    """
    ids = [{"voterId": one.node_id} for one in voters]
    granting = [{"voterId": leader}]
    change = {"leaderId": leader, "voters": ids, "grantingVoters": granting}
    return control_batch(
        offset,
        epoch,
        (
            (LEADER_CHANGE, "LeaderChangeMessage", change),
            (KRAFT_VERSION, "KRaftVersionRecord", {"kRaftVersion": 1}),
            (VOTERS, "VotersRecord", {"voters": [_fields(one) for one in voters]}),
        ),
        timestamp_ms,
    )


def _fields(voter: Voter) -> dict[str, Any]:
    return {
        "voterId": voter.node_id,
        "voterDirectoryId": voter.directory_id,
        "endpoints": [
            {"name": name, "host": host, "port": port} for name, host, port in voter.listeners
        ],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }


@dataclass(frozen=True, slots=True)
class RescueStep:
    """A step of a rescue.

    Attributes:
        step: its number, from 1 on; each step has to be done before the next one.
        action: `move-away`, `erase`, `copy-snapshot`, `copy-log`, `append`, `write`, `configure`,
            `start`, `format`, `add-controller`.
        node_id: the node that it is done on; None for the directory that is put together.
        path: what it is about; None if that is not here.
        detail: what to do, in words or as a command of Kafka's.
    """

    step: int
    action: str
    node_id: int | None
    path: str | None
    detail: str


@dataclass(frozen=True, slots=True)
class Rescue:
    """How a quorum goes on.

    Attributes:
        voters: those that it has then. The first leads: its log directory is made, of a directory
            id that no record names yet; the others keep theirs. Those of a static quorum have none.
        source: the copy that its log is taken from.
        end_offset: where that ends; what comes first is a batch of the new epoch.
        leader_epoch: the new epoch.
        lost_offsets: how many offsets of the log that counts are in no sound batch.
        not_proven_offsets: how many offsets become committed that were not proven to be.
        steps: in their order; none if the quorum has these voters, and they can elect a leader.
        warnings: what somebody has to know before the first of them.
    """

    _in_repr = ("node_id", "end_offset", "leader_epoch")

    voters: tuple[Voter, ...]
    source: Replica
    end_offset: int
    leader_epoch: int
    lost_offsets: int
    not_proven_offsets: int
    steps: tuple[RescueStep, ...]
    warnings: tuple[str, ...]

    @property
    def node_id(self) -> int:
        """The voter that leads first."""
        return self.voters[0].node_id


def plan_rescue(
    quorum: Quorum, voters: Mapping[int, Endpoint | None], *, allow_loss: bool = False
) -> Rescue:
    """Plan how controllers are a quorum again, of which others are lost or which have moved.

    Args:
        quorum: what is left of it.
        voters: node ids of the controllers, with their hosts and ports, None for what the voters'
            records say. The first leads, and may be one that is lost: any copy will do.
        allow_loss: whether offsets may be lost that no copy has without damage.

    Raises:
        RefusedError: it would lose or contradict something, or is not needed.
        UsageError: an endpoint has to be given.
    """
    chosen, merged = _required(quorum, allow_loss=allow_loss)
    if len(voters) > 1 and not quorum.kraft_version:
        raise RefusedError(
            "The voters of this quorum are static: no record says where they listen.",
            path=chosen.path,
            hint="Change controller.quorum.voters on all nodes.",
        )
    wanted = tuple(_voters(quorum, voters))
    is_needed = _is_needed(quorum, wanted)
    if is_needed:
        _require_majority(quorum, wanted)
    steps = [
        *_writes(quorum, wanted),
        *_moves(quorum, merged.end, wanted),
        *(_runbook(quorum, wanted) if quorum.kraft_version else _static_runbook(quorum, wanted)),
    ]
    return Rescue(
        wanted,
        chosen,
        merged.end,
        quorum.next_epoch,
        merged.reach.end - merged.end,
        max(merged.end - quorum.proven, 0),
        tuple(RescueStep(number, *step) for number, step in enumerate(steps, 1) if is_needed),
        tuple(_warnings(quorum, merged, wanted)) if is_needed else (),
    )


def _required(quorum: Quorum, *, allow_loss: bool) -> tuple[Replica, Merge]:
    """Return the copy that counts and what it is put together from, or refuse."""
    chosen, merged = quorum.chosen, quorum.merged
    if chosen is None or merged is None:
        raise RefusedError("No copy here has any metadata.")
    if quorum.cluster_id is None:
        raise RefusedError("No `meta.properties` says which cluster this is.", path=chosen.path)
    for one in quorum.copies:
        if one.is_running:
            raise RefusedError("A broker is running on it.", path=one.path, hint="Stop it.")
    if quorum.conflicts:
        conflict = quorum.conflicts[0]
        words = f"Two leaders wrote in epoch {conflict.epoch}, from offset {conflict.offset} on."
        raise RefusedError(words, path=conflict.paths[0], hint="Give the copy that counts alone.")
    if quorum.next_epoch >= INT32_MAX:
        words = f"An epoch here is {quorum.next_epoch - 1}: no leader could have a later one."
        raise RefusedError(words, path=chosen.path, hint="Leave out the copy that has it.")
    if not merged.end:
        words = f"The log begins at offset {chosen.lineage.start}, and no sound snapshot is before."
        raise RefusedError(words, path=chosen.path, hint="Give more nodes; else `resurrect`.")
    if not (merged.is_whole or allow_loss):
        lost = merged.reach.end - merged.end
        words = f"{counted(lost, 'offset')} from {merged.end} on are in no sound batch."
        raise RefusedError(words, path=chosen.path, hint="Give more nodes; or --allow-loss.")
    return chosen, merged


def _voters(quorum: Quorum, given: Mapping[int, Endpoint | None]) -> Iterator[Voter]:
    """Yield the voters that a quorum shall have, with their listeners, the first one's id unknown.

    An old disk of the first is no voter then: it may have voted, and lacks what comes next.
    """
    known = {one.node_id: one for one in quorum.voters.voters}
    usual = next((one.listeners[0][0] for one in known.values() if one.listeners), LISTENER)
    ids = set[str]()
    for number, (node_id, endpoint) in enumerate(given.items()):
        is_broker = quorum.metadata is not None and node_id in quorum.metadata.image.brokers
        if is_broker and known and node_id not in known:
            hint = f"Give a controller: {', '.join(map(str, known))}, or a new id."
            raise RefusedError(f"Node {node_id} is a broker, and no controller.", hint=hint)
        old = known.get(node_id, Voter(node_id, None))
        listeners = old.listeners
        if endpoint is None and not listeners and quorum.kraft_version:
            words = f"Nothing here says where controller {node_id} listens."
            raise UsageError(words, hint=f"Give {node_id}@HOST:PORT.")
        if endpoint is not None and endpoint not in [one[1:] for one in listeners[:1]]:
            listeners = ((listeners[0][0] if listeners else usual, *endpoint),)
        if not number:
            yield Voter(node_id, None, listeners)
            continue
        directory_id = _directory_id(quorum, old)
        if directory_id in ids:
            words = f"Two controllers have the directory id {directory_id}."
            raise RefusedError(words, hint="A disk was copied: format it.")
        ids.add(directory_id)
        yield Voter(node_id, directory_id, listeners)


def _directory_id(quorum: Quorum, old: Voter) -> str:
    """Return the directory id of a controller that keeps its disk: as recorded, or as it is now."""
    here = {one.directory_id for one in quorum.copies if one.node_id == old.node_id} - {None}
    if old.directory_id is not None and (not here or old.directory_id in here):
        return old.directory_id
    if len(here) == 1 and (found := here.pop()) is not None:
        return found
    if here:
        words = f"Controller {old.node_id} has {len(here)} log directories here."
        raise RefusedError(words, hint="Give the one that it starts on.")
    words = f"Nothing here says which directory id controller {old.node_id} has."
    raise RefusedError(words, hint="Give its log directory, or add it once there is a leader.")


def _is_needed(quorum: Quorum, wanted: Sequence[Voter]) -> bool:
    """Return whether a quorum has other voters; refuse if it can have a leader without a rescue.

    Voters find each other by their records alone, but each knows its own endpoint; and it tells
    the leader.
    """
    known = {one.node_id: one for one in quorum.voters.voters}
    listeners = {one.node_id: one.listeners for one in wanted}
    winners = choice.candidates(quorum.copies, quorum.voters, listeners)
    if not winners:
        return True
    first, *others = wanted
    old = known.get(first.node_id, first)
    if {first._replace(directory_id=old.directory_id), *others} == {*known.values()}:
        return False
    hint = "Start them: each tells the leader where it listens." if others else "Start them."
    if quorum.behind:
        hint = f"{_names(quorum.behind)} lack records, and are a majority: start others first."
    raise RefusedError(f"The voters here can elect a leader: {_names(winners)}.", hint=hint)


def _require_majority(quorum: Quorum, wanted: Sequence[Voter]) -> None:
    """Refuse voters of which too few are here: they would wait for the others."""
    here = 1 + sum(
        any(copy.is_of(one) and copy.starts for copy in quorum.copies) for one in wanted[1:]
    )
    majority = len(wanted) // 2 + 1
    if here < majority:
        words = f"{here} of {counted(len(wanted), 'voter')} would be here: nobody could be elected"
        hint = "Give more of their log directories, or fewer voters: others join later."
        raise RefusedError(f"{words}, which takes {majority}.", hint=hint)


_Step: TypeAlias = tuple[str, int | None, str | None, str]


def _moves(quorum: Quorum, end: int, wanted: Sequence[Voter]) -> Iterator[_Step]:
    """Yield what may not be there when its node starts: what the new history contradicts."""
    assert quorum.chosen is not None, "it was required"
    log, metadata = history(quorum.chosen), f"{CLUSTER_METADATA}-0"
    for one in quorum.copies:
        fork = min(log.fork(one.lineage), end)
        words = f"move {metadata} away before the node starts: "
        if one.node_id == wanted[0].node_id:
            words += "its log directory is the new one, whole, by log.dirs or metadata.log.dir"
            yield "move-away", one.node_id, one.path, words
        elif one.lineage.end > fork:
            words += f"what it has from offset {fork} on is given up"
            yield "move-away", one.node_id, one.path, words
        elif one.foreign or any(snapshot.position.end > end for snapshot in one.snapshots):
            words += "it has snapshots of another history"
            yield "move-away", one.node_id, one.path, words
        elif one.is_damaged:
            words += "it is damaged, and its node may not start on it"
            yield "move-away", one.node_id, one.path, words
    gone = {one.node_id for one in quorum.copies} | {one.node_id for one in wanted[1:]}
    for voter in quorum.voters.voters:
        if voter.node_id not in gone:
            directory = "" if voter.directory_id is None else f", directory id {voter.directory_id}"
            words = f"never start it again on its old disk{directory}: erase or rename that"
            yield "erase", voter.node_id, None, words


def _writes(quorum: Quorum, wanted: Sequence[Voter]) -> Iterator[_Step]:
    """Yield what the directory of the leader is made of."""
    merged, leader = quorum.merged, wanted[0].node_id
    assert merged is not None, "it was required"
    if merged.snapshot is not None:
        yield "copy-snapshot", None, merged.snapshot.entry.path, f"copy {merged.snapshot.name}"
    for part in merged.parts:
        words = f"copy offsets {part.start} to {part.end - 1}"
        yield "copy-log", None, part.replica.path, words
    epoch, vote = quorum.next_epoch, "no vote"
    if quorum.kraft_version:
        voters = [wanted[0]._replace(directory_id=NO_DIRECTORY), *wanted[1:]]
        size = len(first_batch(merged.end, epoch, leader, voters, 0))
        words = f"append {counted(size, 'byte')} at offset {merged.end}: epoch {epoch} begins, "
        if len(wanted) == 1:
            vote = f"voted for {leader}"
            words += f"led by {leader}, the only voter"
        else:
            words += f"with the voters {_names(wanted)}"
        yield "append", None, None, words
    yield "write", None, None, f"write quorum-state: epoch {epoch}, {vote}"
    yield "write", None, None, f"write meta.properties: cluster {quorum.cluster_id}, node {leader}"


def _names(voters: Sequence[Voter]) -> str:
    return ", ".join(str(one.node_id) for one in voters)


def _address(voter: Voter) -> str:
    """Return where a voter listens, as properties and Kafka's tools have it."""
    if not voter.listeners:
        return "HOST:PORT"
    _, host, port = voter.listeners[0]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _runbook(quorum: Quorum, wanted: Sequence[Voter]) -> Iterator[_Step]:
    """Yield what is done with Kafka's tools once the directory is in place."""
    leader, *followers = wanted
    at, epoch = _address(leader), quorum.next_epoch
    configured = f"controller.quorum.bootstrap.servers={','.join(map(_address, wanted))}"
    if followers:
        yield "configure", None, None, f"on all controllers: {configured}"
        words = f"it leads once {len(wanted) // 2 + 1} of {_names(wanted)} have started"
        yield "start", leader.node_id, None, words
    else:
        yield "configure", leader.node_id, None, configured
        yield "start", leader.node_id, None, f"alone, until it leads in epoch {epoch + 1}"
    for one in followers:
        yield "start", one.node_id, None, f"at {_address(one)}, on its old disk: it follows"
    for one in quorum.voters.voters:
        if one.node_id in {kept.node_id for kept in wanted}:
            continue
        yield from _formats(quorum, one, " --no-initial-controllers")
        yield "start", one.node_id, None, "until it has caught up: LAG 0"
        tool = "bin/kafka-metadata-quorum.sh --command-config FILE --bootstrap-controller"
        yield "add-controller", one.node_id, None, f"{tool} {at} add-controller"
    yield "start", None, None, f"the brokers, with {configured}"


def _formats(quorum: Quorum, voter: Voter, options: str = "") -> Iterator[_Step]:
    """Yield how a voter gets an empty log directory."""
    for one in quorum.copies:
        if one.node_id == voter.node_id:
            words = "move all that is in its log directories away: they are formatted again"
            yield "move-away", one.node_id, one.partition.log_dir, words
    tool = f"bin/kafka-storage.sh format{options} --cluster-id {quorum.cluster_id} --config FILE"
    yield "format", voter.node_id, None, tool


def _static_runbook(quorum: Quorum, wanted: Sequence[Voter]) -> Iterator[_Step]:
    """Yield the same for voters that only properties name."""
    leader = wanted[0].node_id
    configured = f"controller.quorum.voters={leader}@{_address(wanted[0])}"
    yield "configure", leader, None, configured
    yield "start", leader, None, "alone, until it leads"
    for one in quorum.voters.voters:
        if one.node_id == leader:
            continue
        # Empty voters that are a majority would cut the log of the one that has it.
        configured += f",{one.node_id}@HOST:PORT"
        yield from _formats(quorum, one)
        yield "configure", one.node_id, None, f"on all controllers: {configured}"
        words = f"once the others have been started again with that, {leader} first; until it has "
        yield "start", one.node_id, None, f"{words}caught up"
    yield "start", None, None, f"the brokers, with {configured}"


def _warnings(quorum: Quorum, merged: Merge, wanted: Sequence[Voter]) -> Iterator[str]:
    epoch, above = quorum.next_epoch, merged.end - quorum.proven
    if not merged.is_whole:
        lost = counted(merged.reach.end - merged.end, "offset")
        yield f"{lost} from {merged.end} on are lost: no copy has them undamaged"
    if above > 0:
        yield (
            f"{counted(above, 'offset')} that are not proven to be committed become so: `quorum` "
            "lists them"
        )
    if quorum.metadata is not None and quorum.metadata.pending_from is not None:
        records = counted(quorum.metadata.pending_count, "record")
        yield (
            f"the metadata transaction that begins at offset {quorum.metadata.pending_from} has no "
            f"end: the leader aborts it, {records}"
        )
    kept = {one.node_id for one in wanted}
    lost_voters = [one for one in quorum.voters.voters if one.node_id not in kept]
    if len(lost_voters) >= quorum.majority:
        yield (
            f"the other {counted(len(lost_voters), 'voter')} are a majority: started on their old "
            "disks, they would be a second cluster of the same id"
        )
    known = {one.node_id: one.listeners for one in quorum.voters.voters}
    if len(wanted) > 1 and any(known.get(one.node_id) != one.listeners for one in wanted):
        yield (
            f"the disks of {_names(wanted[1:])} still name the old endpoints: started there, the "
            "controllers would be a second cluster of the same id"
        )
    absent = [one for one in wanted[1:] if not any(copy.is_of(one) for copy in quorum.copies)]
    for one in absent:
        yield (
            f"the disk of controller {one.node_id} is not here: what it has from offset "
            f"{merged.end} on is given up"
        )
    yield f"epoch {epoch} is above all epochs here; a disk that is not may have seen a later one"
