"""The copies of a partition against each other, up to the offset that all of them have.

Follows `Partition`, `ReplicaFetcherThread`, KIP-101 and KIP-279 as of Kafka: below the high
watermark every replica has the leader's batches byte for byte, because followers append what they
fetched. Above it a replica may have batches that no leader has any more. Each replica compacts and
deletes independently. A backup counts as another broker's replica.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import field
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import file_names
from formats.late_classes import dataclass
from kafkalog.check.batches import CheckedPartition, copies_check
from kafkalog.errors import DataError
from kafkalog.files.text_files import epoch_end
from kafkalog.io.paths import file_system
from kafkalog.io.paths.source import Source
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.headers import batch_columns
from kafkalog.log.defects import make_defect
from kafkalog.model import Defect, EpochEntry, Level
from kafkalog.node.identity import topic_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.check.identity import CheckedLogDir

_COMPARED: Final = (h.BASE_OFFSET, h.LAST_OFFSET, h.EPOCH, h.CRC, h.MAGIC, h.POSITION)
_BASE, _LAST, _EPOCH, _CRC, _MAGIC, _POSITION = range(len(_COMPARED))
_SAME_BYTES: Final = [_BASE, _LAST, _EPOCH, _CRC]
_AFTER_ALL: Final = 2**63 - 1


@dataclass(frozen=True)
class Replica:
    """One copy of a partition.

    Attributes:
        name: its node, or its path if several copies are of one node or the node is unknown.
    """

    name: str
    partition: CheckedPartition

    @property
    def high_watermark(self) -> int | None:
        """The offset up to which it knows all replicas to be, within its log; None if unknown."""
        offset = self.partition.log.checkpoint(file_names.HIGH_WATERMARKS)
        return None if offset is None else min(offset, self.partition.end_offset)

    @property
    def clean_up_to(self) -> int:
        """The offset below which its batches may have been compacted, 0 if none was.

        The cleaner's checkpoint is written after the segments are swapped in, so a killed broker
        may have cleaned more, but never the active segment.
        """
        segments = self.partition.directory.segments
        offset = self.partition.log.checkpoint(file_names.CLEANER_OFFSETS)
        return segments[-1].base_offset if segments and offset is not None else 0


def compare_replicas(replicas: Sequence[Replica]) -> Iterator[Defect]:
    """Yield the places where copies of one partition do not have the same batches.

    Compares base offset, last offset, leader epoch and checksum of every batch, from the largest
    log start offset to the smallest log end. Below the active segment of a partition that the
    cleaner has been in, batches may be missing or have other records: there, only batches that two
    copies have must agree, in last offset and leader epoch. A copy is left out from its first
    damage on, which its own checks report.

    Yields:
        `replicas-diverge` below the smallest high watermark in the copies' checkpoints,
        `replicas-fork` above it or without one; once for each copy outside the majority, or once
        for all without a majority.

    Cost:
        Reads the headers of all batches, a few at a time from each copy.
    """
    if len(replicas) < 2:
        return
    marks = [mark for replica in replicas if (mark := replica.high_watermark) is not None]
    # Retention runs on each broker by itself, and followers lag: compare what all have.
    start = max(replica.partition.log.log_start_offset for replica in replicas)
    end = min(replica.partition.end_offset for replica in replicas)
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
            yield from _tell(camps, offset, min(marks, default=None))
            # After a fork all batches differ: only the first difference says something.
            cursors = camps[0].cursors if _is_majority(camps) else []


class _Cursor:
    """The batches of a replica between two offsets, read on demand."""

    def __init__(self, replica: Replica, start: int, end: int) -> None:
        self.replica = replica
        self.has_ended = False
        self.is_damaged = False
        self.path = replica.partition.directory.path
        self.rows = np.empty((len(_COMPARED), 0), np.int64)
        self._start, self._end = start, end
        self._blocks = self._read()

    def fill(self) -> None:
        while not self.rows.shape[1] and not self.has_ended:
            block = next(self._blocks, None)
            if block is None:
                self.has_ended = True
            else:
                self.rows = block

    def take(self, edge: int) -> NDArray[np.int64]:
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
                    for found in batch_columns(source, Level.QUICK):
                        if isinstance(found, Defect):
                            # Preallocated zeros follow the last batch: nothing is missing.
                            if found.reference != "zero-tail":
                                self.is_damaged = True
                                return
                            continue
                        rows = found.headers[list(_COMPARED)]
                        base = rows[_BASE]
                        # `take` searches the base offsets, which have to increase for that.
                        if base[0] <= before or (np.diff(base) <= 0).any():
                            self.is_damaged = True
                            return
                        before = int(base[-1])
                        within = (base >= self._start) & (rows[_LAST] < self._end)
                        yield rows[:, within]
            except DataError:
                self.is_damaged = True
                return


def _next_rows(cursors: Sequence[_Cursor]) -> dict[int, NDArray[np.int64]]:
    for cursor in cursors:
        cursor.fill()
    edges = [int(cursor.rows[_BASE, -1]) for cursor in cursors if not cursor.has_ended]
    # Beyond it, a cursor may have batches that it has not read yet.
    edge = min(edges, default=_AFTER_ALL)
    return {id(cursor): cursor.take(edge) for cursor in cursors}


def _divergence(rows: Sequence[NDArray[np.int64]], cleaned: int) -> int | None:
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
    """Return the first offset below a limit at which both have a batch, but not the same one."""
    _, mine, theirs = np.intersect1d(
        one[_BASE, one[_BASE] < cleaned],
        other[_BASE, other[_BASE] < cleaned],
        assume_unique=True,
        return_indices=True,
    )
    # Checksums are no evidence here: each replica is cleaned by itself, at other times.
    same = (one[_LAST, mine] == other[_LAST, theirs]) & (one[_EPOCH, mine] == other[_EPOCH, theirs])
    # The cleaner of Kafka 4 rewrites messages of magic 0 and 1 as batches without an epoch.
    same |= (one[_EPOCH, mine] == -1) | (other[_EPOCH, theirs] == -1)
    wrong = np.flatnonzero(~same)
    return int(one[_BASE, mine[wrong[0]]]) if len(wrong) else None


def _first(one: NDArray[np.int64], other: NDArray[np.int64], cleaned: int) -> int | None:
    """Return the first offset from a limit on that only one has, or that differs."""
    one, other = one[:, one[_BASE] >= cleaned], other[:, other[_BASE] >= cleaned]
    count = min(one.shape[1], other.shape[1])
    # Followers append the leader's batches as they are, so checksums must agree.
    differs = (one[_SAME_BYTES, :count] != other[_SAME_BYTES, :count]).any(axis=0)
    if differs.any():
        i = int(np.argmax(differs))
        return int(min(one[_BASE, i], other[_BASE, i]))
    longer = one if one.shape[1] > count else other
    return int(longer[_BASE, count]) if longer.shape[1] > count else None


@dataclass
class _Camp:
    """Replicas that agree about an offset; `batch` is None if they have no batch there."""

    batch: tuple[int, ...] | None
    cursors: list[_Cursor] = field(default_factory=list)
    position: int | None = None

    def describe(self) -> str:
        names = " and ".join(cursor.replica.name for cursor in self.cursors)
        if self.batch is None:
            return f"no batch of {names} starts there"
        return (
            f"that of {names} ends at offset {self.batch[_LAST]} in leader epoch "
            f"{self.batch[_EPOCH]} with checksum {self.batch[_CRC]:#010x}"
        )


def _camps(
    cursors: Sequence[_Cursor], rows: Sequence[NDArray[np.int64]], offset: int, cleaned: int
) -> list[_Camp]:
    camps: dict[tuple[int, ...] | None, _Camp] = {}
    for cursor, found in zip(cursors, rows, strict=True):
        at = np.flatnonzero(found[_BASE] == offset)
        batch = None
        if len(at):
            batch = tuple(found[_SAME_BYTES, at[0]].tolist())
        # A batch that the cleaner rewrote has another checksum, which proves nothing.
        key = (*batch[:_CRC], 0) if batch is not None and offset < cleaned else batch
        camp = camps.setdefault(key, _Camp(batch))
        camp.cursors.append(cursor)
        if len(at) and camp.position is None:
            camp.position = int(found[_POSITION, at[0]])
    return sorted(camps.values(), key=lambda camp: -len(camp.cursors))


def _is_majority(camps: Sequence[_Camp]) -> bool:
    return len(camps) < 2 or len(camps[0].cursors) > len(camps[1].cursors)


def _tell(camps: Sequence[_Camp], offset: int, high_watermark: int | None) -> Iterator[Defect]:
    said = "; ".join(camp.describe() for camp in camps)
    leader = camps[0].cursors[0].replica
    is_majority = _is_majority(camps)
    where = "and no high watermark is known"
    if high_watermark is not None:
        side = "below" if offset < high_watermark else "not below"
        where = f"{side} the high watermark {high_watermark}"
    is_committed = high_watermark is not None and offset < high_watermark
    verdict = f"The majority is with {leader.name}." if is_majority else "There is no majority."
    for camp in camps[1:] if is_majority else camps[1:2]:
        for cursor in camp.cursors if is_majority else camp.cursors[:1]:
            yield make_defect(
                "replicas-diverge" if is_committed else "replicas-fork",
                cursor.path,
                f"The copies differ from offset {offset} on, {where}: {said}. {verdict} "
                f"{_truncation(leader, cursor.replica, offset)}",
                position=camp.position,
                offset=offset,
            )


def _truncation(leader: Replica, follower: Replica, offset: int) -> str:
    to = truncation_offset(
        leader.partition.log.leader_epochs,
        leader.partition.end_offset,
        follower.partition.log.leader_epochs,
        follower.partition.end_offset,
    )
    who = f"a start of {follower.name} as a follower of {leader.name}"
    if to is None:
        return f"Without an epoch to ask for, {who} truncates to its high watermark."
    if to <= offset:
        return f"By the leader epochs, {who} truncates to {to} and fetches the rest again."
    return f"By the leader epochs, {who} keeps everything up to {to}: the difference stays."


def truncation_offset(
    leader: Sequence[EpochEntry],
    leader_end: int,
    follower: Sequence[EpochEntry],
    follower_end: int,
) -> int | None:
    """Return the offset to which a follower truncates before it fetches from a leader.

    Args:
        leader: the leader's epochs, ascending.
        follower: the follower's epochs, ascending.

    Returns:
        None if the follower goes back to its high watermark: it knows no epoch, or the leader knows
        none that is as late.

    Source: `AbstractFetcherThread.getOffsetTruncationState` and KIP-279; the follower asks for the
    end of its latest epoch, and again for the one before as long as it does not know the answer's.
    """
    asked = follower[-1].leader_epoch if follower else None
    while asked is not None:
        answer = epoch_end(leader, leader_end, asked)
        if answer is None:
            return None
        own = epoch_end(follower, follower_end, answer[0])
        if own is None:
            return min(answer[1], follower_end)
        if own[0] == answer[0]:
            return min(own[1], answer[1], follower_end)
        asked, follower_end = own[0], min(own[1], follower_end)
        follower = [entry for entry in follower if entry.start_offset < follower_end]
    return None


@copies_check
def replicas_agree(log_dirs: Sequence[CheckedLogDir]) -> Iterator[Defect]:
    """All copies of a partition, on one or several brokers of a cluster, are the same.

    Copies belong to one partition if neither their clusters nor their topic ids differ.
    """
    named: dict[tuple[str, int | None], list[_Copy]] = defaultdict(list)
    for found in log_dirs:
        for partition in filter(attrgetter("is_judged"), found.live()):
            directory = partition.directory
            cluster = found.properties.cluster_id if found.properties is not None else None
            copy = _Copy(found.broker, cluster, topic_id_of(partition.directory), partition)
            named[directory.topic, directory.partition].append(copy)
    for name in sorted(named, key=str):
        for group in _groups(named[name]):
            yield from compare_replicas(_replicas(group))


@dataclass(frozen=True)
class _Copy:
    """A copy of a partition, with its cluster, node and topic id as far as they are known."""

    broker: tuple[str | None, int] | None
    cluster_id: str | None
    topic_id: str | None
    partition: CheckedPartition


def _groups(copies: Sequence[_Copy]) -> Iterator[list[_Copy]]:
    """Group copies by partition; ids that a copy does not state are assumed to match."""
    cluster = _only(copy.cluster_id for copy in copies)
    topic_id = _only(copy.topic_id for copy in copies)
    groups: dict[tuple[str | None, str | None], list[_Copy]] = defaultdict(list)
    for copy in copies:
        groups[copy.cluster_id or cluster, copy.topic_id or topic_id].append(copy)
    yield from groups.values()


def _only(ids: Iterable[str | None]) -> str | None:
    known = {identity for identity in ids if identity is not None}
    return known.pop() if len(known) == 1 else None


def _replicas(copies: Sequence[_Copy]) -> list[Replica]:
    """Return the copies under distinct names, each directory once."""
    by_path = {file_system.absolute(copy.partition.directory.path): copy for copy in copies}
    nodes = Counter(copy.broker for copy in by_path.values())
    found = []
    for copy in by_path.values():
        is_named = copy.broker is not None and nodes[copy.broker] == 1
        name = (
            f"node {copy.broker[1]}" if is_named and copy.broker else copy.partition.directory.path
        )
        found.append(Replica(name, copy.partition))
    return found
