"""The replicas of a partition against each other, up to the offset that all of them have.

Follows `Partition`, `ReplicaFetcherThread` and KIP-101 and KIP-279 as of Kafka 4.3: below the high
watermark every replica has the leader's batches byte for byte, for followers append what they
fetched. Compaction goes on in each replica by itself, and so does retention.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.check.identity import topic_id_of
from kafkalog.columnar import header_table as h
from kafkalog.columnar.headers import header_stretches
from kafkalog.defects import make_defect
from kafkalog.errors import KafkaLogError
from kafkalog.model import Defect, Level
from kafkalog.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.check.batch_checks import CheckedPartition
    from kafkalog.check.identity import CheckedLogDir
    from kafkalog.model import EpochEntry

_COMPARED: Final = (h.BASE_OFFSET, h.LAST_OFFSET, h.EPOCH, h.CRC, h.MAGIC, h.POSITION)
_BASE, _LAST, _EPOCH, _CRC, _MAGIC, _POSITION = range(len(_COMPARED))
_SAME_BYTES: Final = [_BASE, _LAST, _EPOCH, _CRC]
_AFTER_ALL: Final = 2**63 - 1


@dataclass(frozen=True)
class Replica:
    """One broker's copy of a partition.

    Attributes:
        node_id: of the broker.
        partition: its directory, walked over.
    """

    node_id: int
    partition: CheckedPartition

    @property
    def high_watermark(self) -> int | None:
        """Up to where it knows all replicas to be, within its log; None where that is not said."""
        offset = self.partition.log.checkpoint("replication-offset-checkpoint")
        return None if offset is None else min(offset, self.partition.end_offset)

    @property
    def clean_up_to(self) -> int:
        """Offset below which its batches may have been compacted, 0 where none was.

        The cleaner's checkpoint is written after the segments are swapped in, so that a broker
        that was killed may have cleaned more; but never the active segment.
        """
        segments = self.partition.directory.segments
        offset = self.partition.log.checkpoint("cleaner-offset-checkpoint")
        return segments[-1].base_offset if segments and offset is not None else 0


def compare_replicas(replicas: Sequence[Replica]) -> Iterator[Defect]:
    """Where replicas of one partition do not have the same batches.

    Compared are base offset, last offset, leader epoch and checksum of every batch, from the
    largest log start offset to the smallest high watermark that the replicas' checkpoints say; a
    partition without one, such as that of the quorum, is not compared. Below the active segment
    of a partition that the cleaner has been in, batches may lack anywhere and have other records:
    there, only batches that two replicas have must agree, in last offset and leader epoch.
    A replica is left out from its first damage on, which its own checks tell.

    Args:
        replicas: of the same partition and topic id, by different brokers.

    Yields:
        `replicas-diverge`, once for each replica that is not with the majority; without one, once
        for all.

    Cost:
        Reads the headers of all batches, a stretch of each replica at a time.
    """
    marks = [mark for replica in replicas if (mark := replica.high_watermark) is not None]
    starts = [replica.partition.log.log_start_offset for replica in replicas]
    if len(replicas) < 2 or not marks:
        return
    start, end = max(starts), min(*marks, *(r.partition.end_offset for r in replicas))
    cleaned = max(replica.clean_up_to for replica in replicas)
    cursors = [_Cursor(replica, start, end) for replica in replicas]
    while len(cursors) > 1:
        rows = _next_rows(cursors)
        cursors = [cursor for cursor in cursors if not cursor.is_damaged]
        if not any(rows[id(cursor)].shape[1] for cursor in cursors):
            if all(cursor.has_ended for cursor in cursors):
                return
            continue
        offset = _divergence([rows[id(cursor)] for cursor in cursors], cleaned)
        if offset is not None:
            camps = _camps(cursors, [rows[id(cursor)] for cursor in cursors], offset, cleaned)
            yield from _tell(camps, offset, end)
            cursors = camps[0].cursors if _is_majority(camps) else []


class _Cursor:
    """The batches of a replica between two offsets, read as they are asked for."""

    def __init__(self, replica: Replica, start: int, end: int) -> None:
        self.replica = replica
        self.has_ended = False
        self.is_damaged = False
        self.path = replica.partition.directory.path
        self.rows = np.empty((len(_COMPARED), 0), np.int64)
        self._start, self._end = start, end
        self._blocks = self._read()

    def fill(self) -> None:
        """Read on if nothing is left."""
        while not self.rows.shape[1] and not self.has_ended:
            block = next(self._blocks, None)
            if block is None:
                self.has_ended = True
            else:
                self.rows = block

    def take(self, edge: int) -> NDArray[np.int64]:
        """The batches that start at or below an offset."""
        count = int(np.searchsorted(self.rows[_BASE], edge, "right"))
        taken, self.rows = self.rows[:, :count], self.rows[:, count:]
        return taken

    def _read(self) -> Iterator[NDArray[np.int64]]:
        before = -1
        for segment in self.replica.partition.directory.segments:
            if segment.next_base_offset is not None and segment.next_base_offset <= self._start:
                continue
            if segment.base_offset >= self._end:
                return
            try:
                with Source(segment.log.path) as source:
                    self.path = segment.log.path
                    for found in header_stretches(source, Level.QUICK):
                        if isinstance(found, Defect):
                            if found.reference != "zero-tail":
                                self.is_damaged = True
                                return
                            continue
                        rows = found.headers[list(_COMPARED)]
                        base = rows[_BASE]
                        if base[0] <= before or (np.diff(base) <= 0).any():
                            self.is_damaged = True
                            return
                        before = int(base[-1])
                        within = (base >= self._start) & (rows[_LAST] < self._end)
                        yield rows[:, within]
            except KafkaLogError:
                self.is_damaged = True
                return


def _next_rows(cursors: Sequence[_Cursor]) -> dict[int, NDArray[np.int64]]:
    """Of each replica the batches up to an offset that all have been read to."""
    for cursor in cursors:
        cursor.fill()
    edges = [int(cursor.rows[_BASE, -1]) for cursor in cursors if not cursor.has_ended]
    edge = min(edges, default=_AFTER_ALL)
    return {id(cursor): cursor.take(edge) for cursor in cursors}


def _divergence(rows: Sequence[NDArray[np.int64]], cleaned: int) -> int | None:
    """The smallest base offset at which two replicas do not agree."""
    first = rows[0]
    if all(
        other.shape == first.shape and np.array_equal(other[_SAME_BYTES], first[_SAME_BYTES])
        for other in rows[1:]
    ):
        return None
    return min(
        (
            offset
            for other in rows[1:]
            for offset in (_first_compacted(first, other, cleaned), _first(first, other, cleaned))
            if offset is not None
        ),
        default=None,
    )


def _first_compacted(one: NDArray[np.int64], other: NDArray[np.int64], cleaned: int) -> int | None:
    """The first batch below an offset that both have, and that is not the same batch."""
    _, mine, theirs = np.intersect1d(
        one[_BASE, one[_BASE] < cleaned],
        other[_BASE, other[_BASE] < cleaned],
        assume_unique=True,
        return_indices=True,
    )
    same = (one[_LAST, mine] == other[_LAST, theirs]) & (one[_EPOCH, mine] == other[_EPOCH, theirs])
    # The cleaner of Kafka 4 writes messages of magic 0 and 1 anew, as batches without an epoch.
    same |= (one[_EPOCH, mine] == -1) | (other[_EPOCH, theirs] == -1)
    wrong = np.flatnonzero(~same)
    return int(one[_BASE, mine[wrong[0]]]) if len(wrong) else None


def _first(one: NDArray[np.int64], other: NDArray[np.int64], cleaned: int) -> int | None:
    """The first batch at or above an offset that only one has, or that is not the same."""
    one, other = one[:, one[_BASE] >= cleaned], other[:, other[_BASE] >= cleaned]
    count = min(one.shape[1], other.shape[1])
    differs = (one[_SAME_BYTES, :count] != other[_SAME_BYTES, :count]).any(axis=0)
    if differs.any():
        i = int(np.argmax(differs))
        return int(min(one[_BASE, i], other[_BASE, i]))
    longer = one if one.shape[1] > count else other
    return int(longer[_BASE, count]) if longer.shape[1] > count else None


@dataclass
class _Camp:
    """Replicas that agree about an offset: `batch` is None where they have none there."""

    batch: tuple[int, ...] | None
    cursors: list[_Cursor] = field(default_factory=list)
    position: int | None = None

    def describe(self) -> str:
        """Who says what."""
        nodes = ", ".join(str(cursor.replica.node_id) for cursor in self.cursors)
        if self.batch is None:
            return f"no batch of node {nodes} starts there"
        return (
            f"that of node {nodes} ends at offset {self.batch[_LAST]} in leader epoch "
            f"{self.batch[_EPOCH]} with checksum {self.batch[_CRC]:#010x}"
        )


def _camps(
    cursors: Sequence[_Cursor], rows: Sequence[NDArray[np.int64]], offset: int, cleaned: int
) -> list[_Camp]:
    """The replicas by what they have at an offset, largest camp first."""
    camps: dict[tuple[int, ...] | None, _Camp] = {}
    for cursor, found in zip(cursors, rows, strict=True):
        at = np.flatnonzero(found[_BASE] == offset)
        batch = None
        if len(at):
            batch = tuple(found[_SAME_BYTES, at[0]].tolist())
        # A batch that the cleaner wrote anew has another checksum, which says nothing.
        key = (*batch[:_CRC], 0) if batch is not None and offset < cleaned else batch
        camp = camps.setdefault(key, _Camp(batch))
        camp.cursors.append(cursor)
        if len(at) and camp.position is None:
            camp.position = int(found[_POSITION, at[0]])
    return sorted(camps.values(), key=lambda camp: -len(camp.cursors))


def _is_majority(camps: Sequence[_Camp]) -> bool:
    return len(camps) < 2 or len(camps[0].cursors) > len(camps[1].cursors)


def _tell(camps: Sequence[_Camp], offset: int, end: int) -> Iterator[Defect]:
    said = "; ".join(camp.describe() for camp in camps)
    leader = camps[0].cursors[0].replica
    is_majority = _is_majority(camps)
    for camp in camps[1:] if is_majority else camps[1:2]:
        for cursor in camp.cursors if is_majority else camp.cursors[:1]:
            verdict = (
                f"Node {leader.node_id} and those with it are the majority. "
                if is_majority
                else "There is no majority. "
            )
            yield make_defect(
                "replicas-diverge",
                cursor.path,
                f"The replicas differ from offset {offset} on, below the high watermark {end}: "
                f"{said}. {verdict}{_truncation(leader, cursor.replica, offset)}",
                position=camp.position,
                offset=offset,
            )


def _truncation(leader: Replica, follower: Replica, offset: int) -> str:
    """What a follower does about it that starts to fetch."""
    to = truncation_offset(
        leader.partition.log.leader_epochs,
        leader.partition.end_offset,
        follower.partition.log.leader_epochs,
        follower.partition.end_offset,
    )
    who = f"a start of node {follower.node_id} as a follower of node {leader.node_id}"
    if to is None:
        return f"Without common epochs, {who} truncates to its high watermark."
    if to <= offset:
        return f"By the leader epochs, {who} truncates to {to} and fetches the rest anew."
    return f"By the leader epochs, {who} keeps all up to {to}: the difference stays."


def truncation_offset(
    leader: Sequence[EpochEntry],
    leader_end: int,
    follower: Sequence[EpochEntry],
    follower_end: int,
) -> int | None:
    """The offset to which a follower truncates: the end of the largest epoch both know.

    Args:
        leader: the leader's epochs, ascending.
        leader_end: its log end offset.
        follower: the follower's epochs, ascending.
        follower_end: its log end offset.

    Returns:
        The smaller of the two ends of that epoch, None where they have none in common.

    Source: `AbstractFetcherThread.getOffsetTruncationState` and KIP-279.
    """
    ends = _epoch_ends(leader, leader_end)
    own = _epoch_ends(follower, follower_end)
    common = ends.keys() & own.keys()
    return min(ends[max(common)], own[max(common)]) if common else None


def _epoch_ends(epochs: Sequence[EpochEntry], end: int) -> dict[int, int]:
    following = [*(entry.start_offset for entry in epochs[1:]), end]
    return {
        entry.epoch: after for entry, after in zip(epochs, following[: len(epochs)], strict=True)
    }


def replicas_agree(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """Replicas of a partition in the directories of several brokers of a cluster are the same."""
    groups: dict[tuple[object, ...], dict[int, Replica]] = defaultdict(dict)
    for found in log_dirs:
        if found.broker is not None:
            cluster, node_id = found.broker
            for partition in found.live():
                directory = partition.directory
                key = (cluster, directory.topic, directory.partition, topic_id_of(partition))
                groups[key].setdefault(node_id, Replica(node_id, partition))
    for _, replicas in sorted(groups.items(), key=str):
        yield from compare_replicas([replicas[node_id] for node_id in sorted(replicas)])
