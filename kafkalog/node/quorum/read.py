"""Reads the copies of the cluster's metadata that nodes have, and compares them batch by batch."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from formats.file_names import QUORUM_STATE, FileKind
from kafkalog.errors import DataError, NotFoundError
from kafkalog.files.text_files import properties_of, read_quorum_state
from kafkalog.io.broker_lock import is_broker_running
from kafkalog.io.paths.source import Source
from kafkalog.log.defects import kind_of, make_defect
from kafkalog.model import Level
from kafkalog.node.quorum.lineage import Position
from kafkalog.node.quorum.log import read_log, read_snapshot
from kafkalog.node.quorum.model import QuorumState, Replica, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from kafkalog.files.log_dir import PartitionDir


class Conflict(NamedTuple):
    """Batches of one offset and one epoch that have other bytes: two leaders wrote in one epoch.

    Attributes:
        offset, epoch: of the first of them.
        paths: where they are.
    """

    offset: int
    epoch: int
    paths: tuple[str, ...]


class _Head(NamedTuple):
    """A batch of one of several logs that are compared."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


def read_replica(
    partition: PartitionDir,
    misdated: Collection[int] = (),
    progress: Callable[[int], None] | None = None,
) -> Replica:
    """Read a node's copy of the cluster's metadata, with all checksums.

    Args:
        partition: its directory.
        misdated: base offsets of batches whose epochs other copies have shown to be wrong.
        progress: called with numbers of bytes as they are read.
    """
    log = read_log(partition, misdated, progress)
    snapshots = []
    for entry in partition.live(FileKind.KRAFT_SNAPSHOT):
        position = Position(entry.name.epoch or 0, entry.name.offset or 0)
        standing = log.lineage.standing(position)
        snapshots.append(Snapshot(entry, read_snapshot(entry, progress), standing))
    node, state, defects = properties_of(partition.log_dir), None, []
    path = partition.place_of(QUORUM_STATE)
    try:
        state = QuorumState.of(read_quorum_state(path))
    except NotFoundError:
        pass  # what that leads to, the copy as a whole says
    except DataError as error:
        kind = kind_of(error)
        kind = "file-malformed" if kind == "file-unreadable" and error.exit_code != 3 else kind
        defects.append(make_defect(kind, path, error.message))
    return Replica(
        partition,
        None if node is None else node.cluster_id,
        None if node is None else node.node_id,
        None if node is None else node.directory_id,
        log,
        tuple(snapshots),
        state,
        tuple(defects),
        is_broker_running(partition.log_dir),
    )


def read_replicas(
    partitions: Sequence[PartitionDir], progress: Callable[[int], None] | None = None
) -> tuple[tuple[Replica, ...], tuple[Conflict, ...]]:
    """Read copies, each for itself and then against each other.

    Epochs of batches are in no checksum: where copies of a batch differ only in that, it counts as
    damage in those that are alone with theirs.

    Cost:
        Reads all bytes of the logs once, the headers once more.
    """
    replicas = [read_replica(one, (), progress) for one in partitions]
    wrong, conflicts = compared(replicas)
    for number, offsets in wrong.items():
        again = read_replica(replicas[number].partition, offsets, None)
        replicas[number] = replace(again, is_running=replicas[number].is_running)
    return tuple(replicas), conflicts


def compared(replicas: Sequence[Replica]) -> tuple[dict[int, set[int]], tuple[Conflict, ...]]:
    """Compare the batches of logs.

    Returns:
        By number of the log, the base offsets of batches that have another epoch than their
        copies, and are wrong; and the first offset at which two logs contradict each other, if any.
    """
    logs = {number: _heads(one) for number, one in enumerate(replicas)}
    heads = {number: head for number, log in logs.items() if (head := next(log, None))}
    wrong: dict[int, set[int]] = {}
    while len(heads) > 1:
        first = min(head.base_offset for head in heads.values())
        here = {number: head for number, head in heads.items() if head.base_offset == first}
        if len(set(here.values())) > 1:
            for number in _misdated(here, replicas):
                wrong.setdefault(number, set()).add(first)
            if (conflict := _conflict(here, replicas)) is not None:
                return wrong, (conflict,)
        for number in here:
            if (head := next(logs[number], None)) is None:
                del heads[number]
            else:
                heads[number] = head
    return wrong, ()


def _misdated(here: dict[int, _Head], replicas: Sequence[Replica]) -> Iterator[int]:
    """Yield the logs whose batch has another epoch than copies of the same bytes."""
    copies: dict[tuple[int, int], dict[int, list[int]]] = {}
    for number, head in here.items():
        of_bytes = copies.setdefault((head.next_offset, head.crc), {})
        of_bytes.setdefault(head.epoch, []).append(number)
    for epochs in copies.values():

        def weight(epoch: int, epochs: dict[int, list[int]] = epochs) -> tuple[int, int, int]:
            # A node notes an epoch before it writes a batch of it.
            states = (replicas[number].state for number in epochs[epoch])
            noted = sum(one is not None and epoch <= one.leader_epoch for one in states)
            return len(epochs[epoch]), noted, -epoch

        right = max(epochs, key=weight)
        yield from (number for epoch in epochs if epoch != right for number in epochs[epoch])


def _conflict(here: dict[int, _Head], replicas: Sequence[Replica]) -> Conflict | None:
    found: dict[int, dict[tuple[int, int], list[str]]] = {}
    for number, head in here.items():
        of_epoch = found.setdefault(head.epoch, {})
        of_epoch.setdefault((head.next_offset, head.crc), []).append(replicas[number].path)
    for epoch, contents in found.items():
        if len(contents) > 1:
            paths = tuple(path for some in contents.values() for path in some)
            return Conflict(next(iter(here.values())).base_offset, epoch, paths)
    return None


def _heads(replica: Replica) -> Iterator[_Head]:
    """Yield the sound batches of a log; their checksums were right."""
    from kafkalog.log.columns import header_table as h
    from kafkalog.log.columns.headers import BatchColumns, batch_columns

    spans = iter(replica.lineage.spans)
    span = next(spans, None)
    for segment in replica.partition.segments:
        try:
            with Source(segment.log.path) as source:
                for found in batch_columns(source, Level.QUICK, 1):
                    if not isinstance(found, BatchColumns):
                        continue
                    fields = h.BASE_OFFSET, h.LAST_OFFSET, h.EPOCH, h.CRC
                    for base, last, epoch, crc in zip(
                        *(found.headers[one].tolist() for one in fields), strict=True
                    ):
                        while span is not None and span.end <= base:
                            span = next(spans, None)
                        if span is not None and span.start <= base and span.epoch == epoch:
                            yield _Head(base, last + 1, epoch, crc)
        except DataError:
            continue  # what was read of it before has named what is wrong


def place_of_state(replica: Replica) -> str:
    """Return where `quorum-state` is, or should be."""
    return os.path.join(replica.path, QUORUM_STATE)
