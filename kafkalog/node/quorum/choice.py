"""Which copy of the metadata counts, what of it is proven, and who could be elected.

As an election of KRaft does, the latest epoch decides, then the end of the log; it does not matter
whether a copy is that of a voter. Such a log has all that was committed and is still on any disk.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from formats.late_classes import dataclass
from kafkalog.node.quorum.lineage import Lineage, Position, Standing
from kafkalog.node.quorum.log import VOTERS
from kafkalog.node.quorum.model import Voter, VoterSet, kraft_version_of, voters_in, voters_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.node.quorum.model import Replica, Snapshot


def choose(replicas: Sequence[Replica]) -> Replica | None:
    """Return the copy that goes furthest; None if none has anything.

    Of equal ones that of a voter, then the one with the least damage, whatever their order.
    """
    furthest = max((one.reach for one in replicas), default=Position(0, 0))
    equals = [one for one in replicas if one.reach == furthest and not one.is_empty]
    if not equals:
        return None
    ids = sorted(equals, key=lambda one: (len(one.damage), one.node_id or 0, one.path))
    voters = ids[0].voters
    return min(ids, key=lambda one: not voters.has(one))


def history(chosen: Replica) -> Lineage:
    """Return the lineage up to where a copy reaches: of its log, or of a snapshot beyond it."""
    return chosen.lineage if chosen.reach == chosen.lineage.position else Lineage(chosen.reach.end)


class Part(NamedTuple):
    """Offsets of a log, from `start` up to `end`, and the copy that they are taken from."""

    replica: Replica
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Merge:
    """What of several copies makes up the log that counts, up to its end.

    Attributes:
        replica, snapshot: the newest sound snapshot of its history that its log goes on from, and
            where it is; None if the log goes back to offset 0.
        parts: the log after it, by offset.
        start, end: of what they add up to.
        reach: how far the chosen copy goes; what lies between `end` and that is lost.
    """

    replica: Replica | None
    snapshot: Snapshot | None
    parts: tuple[Part, ...]
    start: int
    end: int
    reach: Position

    @property
    def is_whole(self) -> bool:
        """Whether nothing is lost."""
        return self.end >= self.reach.end


def merge(chosen: Replica, replicas: Sequence[Replica]) -> Merge:
    """Return what of several copies makes up the log of the chosen one.

    Damaged batches and snapshots of one are taken from another with the same history.
    """
    log, reach = history(chosen), chosen.reach
    ordered = [chosen, *(one for one in replicas if one is not chosen)]
    runs = [part for one in ordered for part in _runs(one, log)]
    starts = [*_snapshots(ordered, log, reach), (None, None, 0)]
    best: Merge | None = None
    for replica, snapshot, start in starts:
        parts = tuple(_bridge(runs, start, reach.end))
        end = parts[-1].end if parts else start
        if best is None or end > best.end:
            best = Merge(replica, snapshot, parts, start, end, reach)
        if end >= reach.end:
            break
    assert best is not None, "there is always offset 0"
    return best


def _runs(replica: Replica, log: Lineage) -> Iterator[Part]:
    """Yield the parts of a copy's log that belong to a history and have no gaps."""
    start = end = None
    for span in replica.lineage.up_to(log.fork(replica.lineage)).spans:
        if end != span.start:
            if start is not None and end is not None:
                yield Part(replica, start, end)
            start = span.start
        end = span.end
    if start is not None and end is not None:
        yield Part(replica, start, end)


def _snapshots(
    replicas: Sequence[Replica], log: Lineage, reach: Position
) -> list[tuple[Replica, Snapshot, int]]:
    """Return the sound snapshots of a history, the newest first, then in the order of copies."""
    found = [
        (one, snapshot, snapshot.position.end)
        for one in replicas
        for snapshot in one.snapshots
        if snapshot.is_sound and belongs(snapshot.position, log, reach)
    ]
    return sorted(found, key=lambda one: -one[2])


def belongs(snapshot: Position, log: Lineage, reach: Position) -> bool:
    """Return whether a snapshot is of a history that reaches so far."""
    if log.spans:
        return log.standing(snapshot) == Standing.OWN
    return snapshot <= reach and snapshot.end <= reach.end


def _bridge(runs: Sequence[Part], start: int, end: int) -> Iterator[Part]:
    """Yield parts that follow each other from an offset on, of equal ones the first given."""
    while start < end:
        here = [one for one in runs if one.start <= start < one.end]
        if not here:
            return
        own = [one for one in here if one.replica is runs[0].replica]
        part = own[0] if own else max(here, key=lambda one: one.end)
        yield part._replace(start=start, end=min(part.end, end))
        start = min(part.end, end)


def true_voters(chosen: Replica, merged: Merge) -> VoterSet:
    """Return the voters by the history that counts, whatever snapshots of others say."""
    return voters_of(chosen.log, merged.snapshot, chosen.state)


def true_kraft_version(chosen: Replica, merged: Merge) -> int:
    """Return `kraft.version` by the history that counts."""
    return kraft_version_of(chosen.log, merged.snapshot)


def proven_end(
    replicas: Sequence[Replica], chosen: Replica, voters: VoterSet, more: Iterable[int] = ()
) -> int:
    """Return the offset below which all is proven to be committed.

    A snapshot is only made of committed records. So is, in the latest epoch, what a majority of the
    voters has: of an epoch that they all were in when they were stopped, or it may have come from
    a leader of a later one.

    Args:
        replicas: all copies.
        chosen: the one that counts.
        voters: of the quorum.
        more: ends of records that were committed for other reasons.
    """
    log, reach = history(chosen), chosen.reach
    ends = [
        snapshot.position.end
        for one in replicas
        for snapshot in one.snapshots
        if snapshot.is_sound and belongs(snapshot.position, log, reach)
    ]
    ends += [one for one in more if one <= log.end]
    proven = max(ends, default=0)
    sets = [voters, *_earlier(chosen, proven)]
    return max(proven, min(_held(replicas, one.voters, log) for one in sets))


def _earlier(chosen: Replica, proven: int) -> Iterator[VoterSet]:
    """Yield the earlier sets of voters that may have to commit records from an offset on.

    Of two sets that differ by one voter, each majority of one has a voter of each of the other.
    """
    records = [one for one in chosen.log.controls if one.type_id == VOTERS]
    for record, later in pairwise(records):
        before, after = voters_in(record), voters_in(later)
        names = {one.name for one in before.voters} ^ {one.name for one in after.voters}
        if later.offset >= proven and len(names) > 1:
            yield before


def _held(replicas: Sequence[Replica], voters: Sequence[Voter], log: Lineage) -> int:
    """Return up to where a majority of voters has the same log in the latest epoch."""
    latest = log.position.epoch
    ends: dict[Voter, int] = {}
    for voter in voters:
        for one in replicas:
            if not one.is_of(voter):
                continue
            is_alone = len(voters) == 1
            if is_alone or (one.state is not None and one.state.leader_epoch <= latest):
                ends[voter] = max(ends.get(voter, 0), log.fork(one.lineage))
    majority = len(voters) // 2 + 1
    if not voters or len(ends) < majority:
        return 0
    end = sorted(ends.values(), reverse=True)[majority - 1]
    is_latest = end > 0 and log.epoch_of(end - 1) == latest
    return end if is_latest or len(voters) == 1 else 0


def next_epoch(replicas: Iterable[Replica]) -> int:
    """Return the first epoch that is above all that any copy has seen, in whatever file."""
    seen = [0]
    for one in replicas:
        seen += [span.epoch for span in one.lineage.spans]
        seen += [snapshot.position.epoch for snapshot in one.snapshots]
        seen += [] if one.state is None else [one.state.leader_epoch]
    return 1 + max(seen)


def candidates(
    replicas: Sequence[Replica],
    voters: VoterSet,
    moved: Mapping[int, tuple[tuple[str, str, int], ...]] | None = None,
) -> list[Voter]:
    """Return the voters that could win an election among what is here, by node id.

    A node asks the voters that it knows, where it knows them; each of these votes for a log that
    goes at least as far as its own.

    Args:
        replicas: all copies.
        voters: of the quorum; those of a static one are what all nodes know.
        moved: listeners by node id where they are not what `voters` says.
    """
    disks: dict[tuple[int | None, str | None], Replica] = {}
    for one in sorted(replicas, key=lambda one: one.started):
        if one.starts:
            disks[one.node_id, one.directory_id] = one
    listeners = {one.node_id: one.listeners for one in voters.voters} | dict(moved or {})
    is_static = all(one.directory_id is None for one in voters.voters)

    def wins(candidate: Replica) -> bool:
        known = voters if is_static else candidate.voters
        votes = 0
        for voter in known.voters:
            is_there = voter.listeners in ((), listeners.get(voter.node_id))
            here = [one for one in disks.values() if one.is_of(voter)]
            votes += candidate in here or (
                is_there and bool(here) and all(one.started <= candidate.started for one in here)
            )
        return known.has(candidate) and votes >= known.majority

    return [
        voter
        for voter in voters.voters
        if any(one.is_of(voter) and wins(one) for one in disks.values())
    ]
