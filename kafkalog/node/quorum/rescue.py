"""Plans how a quorum that has lost its majority goes on: from one copy of its metadata.

Nothing is written. The plan is what has to be done, in order: what is put together into one log,
what is appended to it so that a voter leads, and what has to be done on all other nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass
from formats.topic_names import CLUSTER_METADATA
from kafkalog.errors import RefusedError, UsageError
from kafkalog.io.wording import counted
from kafkalog.node.cluster_image.snapshot import control_batch
from kafkalog.node.quorum.choice import history
from kafkalog.node.quorum.log import KRAFT_VERSION, LEADER_CHANGE, VOTERS
from kafkalog.node.quorum.model import Voter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.node.quorum.model import Replica
    from kafkalog.node.quorum.quorum import Quorum

LISTENER: Final = "CONTROLLER"
"""The listener of controllers if no voter here has one: its usual name."""


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
        node_id: the voter that leads first, alone.
        listener: name, host and port of it.
        source: the copy that its log is taken from.
        end_offset: where that ends; what comes first is a batch of the new epoch.
        leader_epoch: the new epoch.
        lost_offsets: how many offsets of the log that counts are in no sound batch.
        not_proven_offsets: how many offsets become committed that were not proven to be.
        steps: in their order.
        warnings: what somebody has to know before the first of them.
    """

    _in_repr = ("node_id", "end_offset", "leader_epoch")

    node_id: int
    listener: tuple[str, str, int] | None
    source: Replica
    end_offset: int
    leader_epoch: int
    lost_offsets: int
    not_proven_offsets: int
    steps: tuple[RescueStep, ...]
    warnings: tuple[str, ...]


def plan_rescue(
    quorum: Quorum,
    node_id: int,
    endpoint: tuple[str, int] | None = None,
    *,
    allow_loss: bool = False,
) -> Rescue:
    """Plan how one controller leads a quorum again, of which the others are lost.

    Args:
        quorum: what is left of it.
        node_id: the controller, which may be one that is lost: any copy will do.
        endpoint: its host and port; None for what the voters' records say.
        allow_loss: whether offsets may be lost that no copy has without damage.

    Raises:
        RefusedError: it would lose or contradict something, or is not needed.
        UsageError: the endpoint has to be given.
    """
    chosen, merged = _required(quorum, allow_loss=allow_loss)
    is_static = not quorum.kraft_version
    listener = _listener(quorum, node_id, endpoint)
    if listener is None and not is_static:
        raise UsageError(
            f"Nothing here says where controller {node_id} listens.",
            hint=f"Give {node_id}@HOST:PORT.",
        )
    steps = [
        *_moves(quorum, merged.end, node_id),
        *_writes(quorum, node_id, listener),
        *_runbook(quorum, node_id, listener),
    ]
    return Rescue(
        node_id,
        listener,
        chosen,
        merged.end,
        quorum.next_epoch,
        merged.reach.end - merged.end,
        max(merged.end - quorum.proven, 0),
        tuple(RescueStep(number, *step) for number, step in enumerate(steps, 1)),
        tuple(_warnings(quorum, node_id)),
    )


def _required(quorum: Quorum, *, allow_loss: bool) -> Any:
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
    if quorum.candidates:
        names = ", ".join(str(one.node_id) for one in quorum.candidates)
        words = f"The voters here can elect a leader: {names}."
        raise RefusedError(words, hint="Start them.")
    if not merged.end:
        words = f"The log begins at offset {chosen.lineage.start}, and no sound snapshot is before."
        raise RefusedError(words, path=chosen.path, hint="Give more nodes; else `resurrect`.")
    if not (merged.is_whole or allow_loss):
        lost = merged.reach.end - merged.end
        words = f"{counted(lost, 'offset')} from {merged.end} on are in no sound batch."
        raise RefusedError(words, path=chosen.path, hint="Give more nodes.")
    return chosen, merged


def _listener(
    quorum: Quorum, node_id: int, endpoint: tuple[str, int] | None
) -> tuple[str, str, int] | None:
    """Return where a controller listens: as it was, or at another endpoint."""
    known = {one.node_id: one.listeners[0] for one in quorum.voters.voters if one.listeners}
    if endpoint is None:
        return known.get(node_id)
    name = next((one[0] for one in known.values()), LISTENER)
    return (name, *endpoint)


_Step = tuple[str, int | None, str | None, str]


def _moves(quorum: Quorum, end: int, leader: int) -> Iterator[_Step]:
    """Yield what may not be there when its node starts: what the new history contradicts."""
    assert quorum.chosen is not None, "it was required"
    log = history(quorum.chosen)
    for one in quorum.copies:
        if one.node_id == leader:
            continue
        fork, why = min(log.fork(one.lineage), end), None
        if one.lineage.end > fork:
            why = f"what it has from offset {fork} on is given up"
        elif one.foreign or any(snapshot.position.end > end for snapshot in one.snapshots):
            why = "it has snapshots of another history"
        if why is not None:
            words = f"move {CLUSTER_METADATA}-0 away before the node starts: {why}"
            yield "move-away", one.node_id, one.path, words
    here = {one.node_id for one in quorum.copies}
    for voter in quorum.voters.voters:
        if voter.node_id != leader and voter.node_id not in here:
            directory = "" if voter.directory_id is None else f", directory id {voter.directory_id}"
            words = f"never start it again on its old disk{directory}: erase or rename that"
            yield "erase", voter.node_id, None, words


def _writes(quorum: Quorum, node_id: int, listener: tuple[str, str, int] | None) -> Iterator[_Step]:
    """Yield what the directory of the leader is made of."""
    merged = quorum.merged
    assert merged is not None, "it was required"
    if merged.snapshot is not None:
        yield "copy-snapshot", None, merged.snapshot.entry.path, f"copy {merged.snapshot.name}"
    for part in merged.parts:
        words = f"copy offsets {part.start} to {part.end - 1}"
        yield "copy-log", None, part.replica.path, words
    epoch = quorum.next_epoch
    if quorum.kraft_version and listener is not None:
        voters = [Voter(node_id, "A" * 22, (listener,))]
        size = len(first_batch(merged.end, epoch, node_id, voters, 0))
        words = f"append {counted(size, 'byte')} at offset {merged.end}: epoch {epoch} begins, led "
        yield "append", None, None, f"{words}by {node_id}, the only voter"
    words = f"write quorum-state: epoch {epoch}, voted for {node_id}"
    if not quorum.kraft_version:
        words = f"write quorum-state: epoch {epoch}, no vote"
    yield "write", None, None, words
    yield "write", None, None, f"write meta.properties: cluster {quorum.cluster_id}, node {node_id}"


def _runbook(
    quorum: Quorum, node_id: int, listener: tuple[str, str, int] | None
) -> Iterator[_Step]:
    """Yield what is done with Kafka's tools once the directory is in place."""
    others = [one for one in quorum.voters.voters if one.node_id != node_id]
    at = "HOST:PORT" if listener is None else f"{listener[1]}:{listener[2]}"
    epoch = quorum.next_epoch
    if quorum.kraft_version:
        yield "configure", node_id, None, f"controller.quorum.bootstrap.servers={at}"
        yield "start", node_id, None, f"alone, until it leads in epoch {epoch + 1}"
        for one in others:
            tool = "bin/kafka-storage.sh format --no-initial-controllers --cluster-id"
            yield "format", one.node_id, None, f"{tool} {quorum.cluster_id} --config FILE"
            yield "start", one.node_id, None, "until it has caught up: LAG 0"
            tool = "bin/kafka-metadata-quorum.sh --bootstrap-controller"
            yield "add-controller", one.node_id, None, f"{tool} {at} add-controller"
    else:
        yield "configure", node_id, None, f"controller.quorum.voters={node_id}@{at}"
        yield "start", node_id, None, "alone, until it leads"
        voters = f"{node_id}@{at}"
        for one in others:
            # Empty voters that are a majority would cut the log of the one that has it.
            voters += f",{one.node_id}@HOST:PORT"
            yield "format", one.node_id, None, "bin/kafka-storage.sh format, with its old node id"
            yield (
                "configure",
                one.node_id,
                None,
                f"on all controllers: controller.quorum.voters={voters}",
            )
            yield "start", one.node_id, None, f"after {node_id}, until it has caught up"
    yield "start", None, None, "the brokers"


def _warnings(quorum: Quorum, node_id: int) -> Iterator[str]:
    epoch, above = quorum.next_epoch, quorum.end - quorum.proven
    if above:
        yield (
            f"{counted(above, 'offset')} that are not proven to be committed become so: `quorum` "
            "lists them"
        )
    lost = [one for one in quorum.voters.voters if one.node_id != node_id]
    if len(lost) >= quorum.majority:
        yield (
            f"the other {counted(len(lost), 'voter')} are a majority: started on their old disks, "
            "they would be a second cluster of the same id"
        )
    yield f"epoch {epoch} is above all epochs here; a disk that is not may have seen a later one"
