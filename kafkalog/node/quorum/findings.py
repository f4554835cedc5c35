"""What is wrong with a quorum, as findings: its nodes' starts and checks have them from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.io.wording import counted
from kafkalog.log.defects import UNREADABLE, make_defect
from kafkalog.node.quorum.lineage import foreign_snapshot
from kafkalog.node.quorum.log import TORN
from kafkalog.node.quorum.read import place_of_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.model import Defect
    from kafkalog.node.quorum.model import Replica
    from kafkalog.node.quorum.quorum import Quorum


def findings(quorum: Quorum) -> Iterator[Defect]:
    """Yield all that is wrong: damage in the files, then what else makes a start go wrong."""
    for one in quorum.copies:
        yield from one.damage
    yield from findings_of_quorum(quorum)


def torn_snapshots(quorum: Quorum) -> Iterator[Defect]:
    """Yield what only whole snapshots show: that one does not begin or end as it should."""
    for one in quorum.copies:
        yield from (defect for defect in one.damage if defect.reference == TORN)


def findings_of_quorum(quorum: Quorum) -> Iterator[Defect]:
    """Yield what is wrong with the files of copies as a whole, and with the quorum."""
    for one in quorum.copies:
        # What could not be read of a log may be what a snapshot belongs to.
        if all(defect.reference not in UNREADABLE for defect in one.log.defects):
            yield from _of_snapshots(one)
        yield from _of_epoch(one)
    for conflict in quorum.conflicts:
        first, *others = conflict.paths
        words = f"At offset {conflict.offset} it has another batch of epoch {conflict.epoch} than"
        words = f"{words} {' and '.join(others)}."
        yield make_defect("metadata-split-brain", first, words, offset=conflict.offset)
    yield from _of_voters(quorum)


def _of_snapshots(one: Replica) -> Iterator[Defect]:
    log = one.lineage
    for snapshot in one.foreign:
        yield foreign_snapshot(snapshot.entry, log, is_loaded=snapshot is one.newest)
    if one.superseding is not None and log.spans:
        epoch, end = one.superseding.position
        words = f"The snapshot is of epoch {epoch} up to offset {end}, the log of epoch "
        words += f"{log.position.epoch} up to {log.end}: a start drops the log."
        yield make_defect("snapshot-beyond-log", one.superseding.entry.path, words, offset=end)


def _of_epoch(one: Replica) -> Iterator[Defect]:
    """A node notes an epoch before it writes or fetches batches of it."""
    epoch = one.lineage.position.epoch
    if not one.lineage.spans or one.defects:
        return
    if one.state is None:
        words = f"The file is missing; the log has reached epoch {epoch}."
    elif one.state.leader_epoch < epoch:
        words = f"It says epoch {one.state.leader_epoch}; the log has reached epoch {epoch}."
    else:
        return
    yield make_defect("quorum-epoch-below-log", place_of_state(one), words)


def _of_voters(quorum: Quorum) -> Iterator[Defect]:
    voters, chosen = quorum.voters.voters, quorum.chosen
    if chosen is None:
        return
    left = len(voters) - len(quorum.replaced)
    if voters and left < quorum.majority:
        names = ", ".join(one.name for one in quorum.replaced)
        words = f"{len(quorum.replaced)} of {counted(len(voters), 'voter')} have other directories "
        words = f"now: {names}. The {left} left cannot elect a leader."
        yield make_defect("quorum-lost", chosen.path, words)
    if quorum.behind:
        names = ", ".join(str(one.node_id) for one in quorum.behind)
        words = f"The voters {names} are a majority, and have no record from offset "
        end = max(quorum.common_end(c) for c in quorum.copies for v in quorum.behind if c.is_of(v))
        known = f"up to {quorum.proven} all was committed" if quorum.proven else "others have some"
        words = f"{words}{end} on; {known}."
        yield make_defect("quorum-behind", chosen.path, words, offset=end)
