"""The output of `quorum`: copies of the cluster's metadata, who could lead, what is not proven."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.io.wording import counted
from kafkalog.node.quorum.model import Role
from kafkalog_cli.output import kinds as k
from kafkalog_cli.output.objects import Column, Field, ObjectType
from kafkalog_cli.output.text import Tone, size_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kafkalog.node.quorum.consequences import Consequences, OfflinePartition, StrayPartition
    from kafkalog.node.quorum.model import Voter
    from kafkalog.node.quorum.quorum import Quorum, QuorumRecord, QuorumReplica
    from kafkalog.node.quorum.rescue import Rescue, RescueStep
    from kafkalog_cli.output.objects import Style, View

_DONE: Final = ("copy-snapshot", "copy-log", "append", "write")
"""The steps that `--to` does; they come first."""
_BAD: Final = {"damaged", "foreign-snapshot", "split-brain", "empty"}


def _ids(voters: Iterable[Voter]) -> list[int]:
    return [one.node_id for one in voters]


def _voters(voters: Iterable[Voter]) -> list[dict[str, object]]:
    return [
        {
            "node_id": voter.node_id,
            "directory_id": voter.directory_id,
            "listeners": [f"{name}://{host}:{port}" for name, host, port in voter.listeners],
        }
        for voter in voters
    ]


QUORUM: Final = ObjectType[Any](
    "quorum",
    "`quorum`",
    "The quorum of a cluster's metadata, as far as directories of its nodes show it.",
    Field("cluster_id", k.TEXT | None, "in `meta.properties`"),
    Field("kraft_version", k.INT, "0: voters are static; from 1 on they are records"),
    Field("voters", k.ARRAY, "objects: `node_id`, `directory_id` (null if static), `listeners`",
          lambda one: _voters(one.voters.voters)),
    Field("voters_source", k.TEXT | None, "`offset N` of the log, the name of a snapshot or of a "
          "properties file, or `quorum-state`", "voters.source"),
    Field("present_voters", k.ARRAY, "node ids of those whose copies are here, and not empty",
          lambda one: _ids(one.present)),
    Field("empty_voters", k.ARRAY, "node ids of those whose copies are here, and empty",
          lambda one: _ids(one.empty)),
    Field("replaced_voters", k.ARRAY, "node ids of those whose nodes have another directory now",
          lambda one: _ids(one.replaced)),
    Field("majority", k.INT, "voters that elect a leader"),
    Field("candidates", k.ARRAY, "node ids of those that could win an election among what is here",
          lambda one: _ids(one.candidates)),
    Field("leader_epoch", k.INT | None, "the last one of the log that counts; null without a log",
          lambda one: None if one.chosen is None else one.chosen.reach.epoch),
    Field("log_end_offset", k.INT, "of that log", "end"),
    Field("mergeable_offset", k.INT | None, "up to where it is whole once damage is replaced from "
          "other copies", lambda one: None if one.merged is None else one.merged.end),
    Field("proven_offset", k.INT, "below it all is proven to be committed", "proven"),
    Field("next_epoch", k.INT, "the first one above all that any copy has seen"),
)  # fmt: skip
REPLICA: Final = ObjectType[Any](
    "quorum_replica",
    "`quorum`",
    "A node's copy of the cluster's metadata, or a voter without one.",
    Field("node_id", k.INT | None, "null if `meta.properties` does not say"),
    Field("role", k.TEXT, "`voter`, `observer`, or `lost`: a voter whose directory is not in PATH"),
    Field("directory_id", k.TEXT | None, ""),
    Field("path", k.TEXT | None, "of the metadata log; null of a lost voter, as all that follows"),
    Field("log_start_offset", k.INT | None, ""),
    Field("log_end_offset", k.INT | None, "up to the first damage"),
    Field("leader_epoch", k.INT | None, "the last one of its log, or of a snapshot that takes its "
                                        "place"),
    Field("quorum_leader_epoch", k.INT | None, "in `quorum-state`; null if that is missing or "
                                               "malformed"),
    Field("snapshot", k.TEXT | None, "name of the newest one"),
    Field("proven_offset", k.INT | None, "below it all that it has is proven to be committed"),
    Field("states", k.ARRAY, "`newest`, `behind`, `forked`, `empty`, `damaged`, `foreign-snapshot`,"
          " `snapshot-beyond-log`, `split-brain`, `second-copy` of a node, `running`"),
    Field("behind_offsets", k.INT | None, "what it lacks of the log that counts"),
    Field("fork_offset", k.INT | None, "where it parts from that log"),
    Field("damaged_offset", k.INT | None, "the first one that could not be read"),
    Field("foreign_snapshots", k.ARRAY, "names of those of a history that its log has given up"),
    Field("listeners", k.ARRAY, "of a voter: `NAME://HOST:PORT`"),
)  # fmt: skip
RECORD: Final = ObjectType[Any](
    "quorum_record",
    "`quorum`",
    "A record of the cluster's metadata that no disk proves to be committed.",
    Field("offset", k.INT, ""),
    Field("timestamp", k.TIME, ""),
    Field("leader_epoch", k.INT, ""),
    Field("record_type", k.TEXT | None, "Kafka's name; null if it cannot be decoded"),
    Field("key", k.TEXT, "the fields that tell what it is about"),
)


class Rescued(NamedTuple):
    """How a quorum goes on.

    Attributes:
        plan: the plan of that.
        then: what becomes of partitions; None if no log directory of a broker was given.
        to: the log directory that was made; None if nothing was.
        files: how many files it has.
        status: the exit status of the command.
    """

    plan: Rescue
    then: Consequences | None
    to: str | None
    files: int
    status: int


RESCUE: Final = ObjectType[Rescued](
    "quorum_rescue_summary",
    "`quorum --standalone`, `quorum --voters`",
    "How controllers are a quorum again of which others are lost, or which have moved.",
    Field("node_id", k.INT, "the controller that leads first", "plan.node_id"),
    Field("voters", k.ARRAY, "objects: `node_id`, `directory_id` (null of the first, which gets a "
          "new one, and if static), `listeners`", lambda one: _voters(one.plan.voters)),
    Field("source", k.TEXT, "the copy that its log is taken from", "plan.source.path"),
    Field("end_offset", k.INT, "where that ends", "plan.end_offset"),
    Field("leader_epoch", k.INT, "the epoch that begins there", "plan.leader_epoch"),
    Field("lost_offsets", k.INT, "offsets that no copy has without damage", "plan.lost_offsets"),
    Field("not_proven_offsets", k.INT, "offsets that become committed, and may not have been",
          "plan.not_proven_offsets"),
    Field("stray_partitions", k.INT | None, "rows `quorum_stray`; null if no log directory of a "
          "broker was given", lambda one: None if one.then is None else len(one.then.strays)),
    Field("stray_bytes", k.SIZE | None, "of their files",
          lambda one: None if one.then is None else one.then.stray_bytes),
    Field("offline_partitions", k.INT | None, "rows `quorum_offline_partition`; null likewise",
          lambda one: None if one.then is None else len(one.then.offline)),
    Field("to", k.TEXT | None, "the log directory that was made; null for a plan alone"),
    Field("changed", k.INT, "files that were written", "files"),
    Field("status", k.INT, "exit status of the run"),
)  # fmt: skip
STEP: Final = ObjectType[Any](
    "quorum_step",
    "`quorum --standalone`, `quorum --voters`",
    "A step on the way to a quorum that leads again.",
    Field("step", k.INT, "number: each has to be done before the next"),
    Field("action", k.TEXT, "`move-away`, `erase`, `copy-snapshot`, `copy-log`, `append`, `write`, "
          "`configure`, `start`, `format` or `add-controller`"),
    Field("node_id", k.INT | None, "where; null for the directory of the leader, and for several "
                                   "nodes"),
    Field("path", k.TEXT | None, "what is moved or copied"),
    Field("detail", k.TEXT, "what to do, in words or as a command of Kafka's"),
)  # fmt: skip

STRAY: Final = ObjectType[Any](
    "quorum_stray",
    "`quorum --standalone`, `quorum --voters`",
    "A partition directory that its broker renames to `-stray`, as the log that counts has it.",
    Field("node_id", k.INT, "the broker"),
    Field("topic", k.TEXT, "by the name of the directory"),
    Field("partition", k.INT, ""),
    Field("path", k.TEXT, ""),
    Field("size_bytes", k.SIZE, "length of its files"),
    Field("reason", k.TEXT, "what the metadata say"),
)  # fmt: skip
OFFLINE: Final = ObjectType[Any](
    "quorum_offline_partition",
    "`quorum --standalone`, `quorum --voters`",
    "A partition that has no leader, for no replica in sync was given.",
    Field("topic", k.TEXT, ""),
    Field("partition", k.INT, ""),
    Field("in_sync", k.ARRAY, "node ids of the replicas in sync, and of those that are eligible",
          lambda one: list(one.in_sync)),
    Field("here", k.ARRAY, "node ids of the replicas that were given, for an unclean election",
          lambda one: list(one.here)),
)  # fmt: skip


def replica_view(style: Style) -> View[QuorumReplica]:
    return REPLICA.view(
        style,
        Column("NODE", "node_id", weight=9),
        Column("ROLE", "role", weight=9),
        Column("DIRECTORY ID", "directory_id", weight=4),
        Column("LOG", _log, weight=8),
        Column("EPOCH", "leader_epoch", weight=6),
        Column("SNAPSHOT", _snapshot, weight=6),
        Column("PROVEN", "proven_offset", weight=8),
        Column("STATE", _state, weight=9, below=True, tone=_tone),
    )


def record_view(style: Style) -> View[QuorumRecord]:
    return RECORD.view(
        style,
        Column("OFFSET", "offset"),
        Column("TIME", "timestamp"),
        Column("EPOCH", "leader_epoch", weight=4),
        Column("TYPE", "record_type", tone=lambda _: Tone.NAME),
        Column("KEY", "key", least=12),
    )


def step_view(style: Style) -> View[RescueStep]:
    return STEP.view(
        style,
        Column("STEP", "step", weight=9),
        Column("ACTION", "action", weight=9, tone=lambda _: Tone.NAME),
        Column("NODE", "node_id", weight=9),
        Column("PATH", "path", least=12, keeps_end=True, weight=4),
        Column("WHAT", "detail", weight=9, below=True),
    )


def stray_view(style: Style) -> View[StrayPartition]:
    return STRAY.view(
        style,
        Column("NODE", "node_id", weight=9),
        Column("STRAY", lambda one: f"{one.topic}-{one.partition}", least=12, weight=9),
        Column("SIZE", "size_bytes", weight=9),
        Column("WHY", "reason", weight=4),
    )


def offline_view(style: Style) -> View[OfflinePartition]:
    return OFFLINE.view(
        style,
        Column("OFFLINE", lambda one: f"{one.topic}-{one.partition}", least=12, weight=9),
        Column("IN SYNC", lambda one: _nodes(one.in_sync), weight=9),
        Column("HERE", lambda one: _nodes(one.here), weight=9),
    )


def _nodes(ids: Iterable[int]) -> str | None:
    return ", ".join(map(str, ids)) or None


def _log(one: QuorumReplica) -> str | None:
    return None if one.path is None else f"{one.log_start_offset}..{one.log_end_offset}"


def _snapshot(one: QuorumReplica) -> str | None:
    """Return the end and the epoch in the name of a snapshot, without leading zeros."""
    if one.snapshot is None:
        return None
    end, _, epoch = one.snapshot.partition(".")[0].partition("-")
    return f"{int(end)}-{int(epoch)}"


def _state(one: QuorumReplica) -> str | None:
    words = []
    for state in one.states:
        if state == "behind":
            words.append(f"behind {one.behind_offsets}")
        elif state == "forked":
            words.append(f"beyond fork at {one.fork_offset}")
        elif state == "damaged" and one.damaged_offset is not None:
            words.append(f"damaged at {one.damaged_offset}")
        elif state == "damaged":
            words.append("damaged snapshot")
        elif state == "foreign-snapshot":
            words.append(f"{counted(len(one.foreign_snapshots), 'foreign snapshot')}")
        else:
            words.append(state.replace("-", " "))
    return ", ".join(words) or None


def _tone(one: QuorumReplica) -> Tone | None:
    if one.role == Role.LOST or not _BAD.isdisjoint(one.states):
        return Tone.BAD
    return Tone.SOUND if one.states == ("newest",) else Tone.DOUBTFUL


def words(found: Quorum, plan: Rescue | None) -> Iterator[str]:
    """Yield the lines below the table of nodes, without or with a plan for them."""
    voters = found.voters
    if not voters.voters:
        yield f"kraft.version {found.kraft_version}; nothing here says who the voters are"
    else:
        names = ", ".join(map(str, _ids(voters.voters)))
        yield f"kraft.version {found.kraft_version}, voters {names} by {voters.source}"
        yield _election(found, plan)
    if found.chosen is not None:
        end, epoch = found.chosen.reach.end, found.chosen.reach.epoch
        line = f"the log that counts ends at {end} in epoch {epoch}"
        if found.merged is not None and not found.merged.is_whole:
            line += f", and is whole up to {found.merged.end}"
        above = end - found.proven
        proof = "all of it is proven to be committed"
        if above:
            proof = f"below {found.proven} all is proven to be committed"
        yield f"{line}; {proof}"


def result(one: Rescued, style: Style) -> Iterator[str]:
    """Yield the last lines of a plan, or of what was made by it."""
    if one.then is not None and one.then.strays:
        count, size = counted(len(one.then.strays), "partition"), one.then.stray_bytes
        yield f"{count} of {size_text(size, style)} become strays: the log that counts lacks them"
    if one.then is not None and one.then.offline:
        count = counted(len(one.then.offline), "partition")
        line = f"{count} without a leader: no replica in sync was given"
        if any(partition.here for partition in one.then.offline):
            line += "; `kafka-leader-election.sh --election-type UNCLEAN` elects one of HERE, "
            line += "which may lack records"
        yield line
    if not one.plan.steps:
        yield "nothing to do: these are the voters, and they can elect a leader"
        return
    if one.to is None:
        yield "Plan only: --to NEW makes the log directory of the controller"
        return
    first = next(step.step for step in one.plan.steps if step.action not in _DONE)
    yield f"made {one.to}, {counted(one.files, 'file')}: go on with step {first}"


def _election(found: Quorum, plan: Rescue | None) -> str:
    count = len(found.voters.voters)
    here = f"{len(found.present)} of {counted(count, 'voter')} here"
    if found.candidates:
        winners = ", ".join(map(str, _ids(found.candidates)))
        if plan is not None and plan.steps:
            return f"{here}: {winners} could be elected where they listened before"
        return f"{here}: {winners} can be elected, no rescue is needed"
    if len(found.present) >= found.majority:
        return f"{here}: nobody can be elected, for none of them starts"
    return f"{here}: nobody can be elected, which takes {found.majority}"
