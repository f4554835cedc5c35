"""Compares the logs of copies batch by batch, where they have batches of the same offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kafkalog.errors import DataError
from kafkalog.io.paths.source import Source
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.headers import BatchColumns, batch_columns
from kafkalog.model import Level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.node.quorum.model import Replica

    Heads = NDArray[np.int64]
    """A column per batch: base offset, last offset, epoch, checksum."""


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

    last_offset: int
    epoch: int
    crc: int


_FIELDS = [h.BASE_OFFSET, h.LAST_OFFSET, h.EPOCH, h.CRC]


def compared(replicas: Sequence[Replica]) -> tuple[dict[int, set[int]], tuple[Conflict, ...]]:
    """Compare the batches of logs.

    Returns:
        By number of the log, the base offsets of batches that have another epoch than their
        copies, and are wrong; and the first offset at which two logs contradict each other, if any.

    Cost:
        Reads all headers; memory for those of a chunk of each log.
    """
    wrong: dict[int, set[int]] = {}
    for offset, here in _differing(replicas):
        for number in _misdated(here, replicas):
            wrong.setdefault(number, set()).add(offset)
        if (conflict := _conflict(offset, here, replicas)) is not None:
            return wrong, (conflict,)
    return wrong, ()


def _differing(replicas: Sequence[Replica]) -> Iterator[tuple[int, dict[int, _Head]]]:
    """Yield the offsets at which batches of several logs begin that are not the same."""
    logs = [_heads(one) for one in replicas]
    held = [next(log, None) for log in logs]
    while sum(one is not None for one in held) > 1:
        # Up to where all logs that go on are read.
        limit = min(int(one[0, -1]) for one in held if one is not None)
        parts, numbers = [], []
        for number, one in enumerate(held):
            if one is None:
                continue
            count = int(np.searchsorted(one[0], limit, side="right"))
            parts.append(one[:, :count])
            numbers.append(np.full(count, number))
            held[number] = one[:, count:] if count < one.shape[1] else next(logs[number], None)
        yield from _differing_in(np.concatenate(parts, axis=1), np.concatenate(numbers))


def _differing_in(
    heads: Heads, numbers: NDArray[np.int64]
) -> Iterator[tuple[int, dict[int, _Head]]]:
    order = np.argsort(heads[0], kind="stable")
    heads, numbers = heads[:, order], numbers[order]
    is_same_offset = heads[0, 1:] == heads[0, :-1]
    differs = is_same_offset & (heads[1:, 1:] != heads[1:, :-1]).any(axis=0)
    for offset in np.unique(heads[0, 1:][differs]).tolist():
        start, end = np.searchsorted(heads[0], [offset, offset + 1])
        yield (
            offset,
            {
                number: _Head(*head)
                for number, head in zip(
                    numbers[start:end].tolist(), heads[1:, start:end].T.tolist(), strict=True
                )
            },
        )


def _misdated(here: dict[int, _Head], replicas: Sequence[Replica]) -> Iterator[int]:
    """Yield the logs whose batch has another epoch than copies of the same bytes."""
    copies: dict[tuple[int, int], dict[int, list[int]]] = {}
    for number, head in here.items():
        of_bytes = copies.setdefault((head.last_offset, head.crc), {})
        of_bytes.setdefault(head.epoch, []).append(number)
    for epochs in copies.values():

        def weight(epoch: int, epochs: dict[int, list[int]] = epochs) -> tuple[int, int, int]:
            # A node notes an epoch before it writes a batch of it.
            states = (replicas[number].state for number in epochs[epoch])
            noted = sum(one is not None and epoch <= one.leader_epoch for one in states)
            return len(epochs[epoch]), noted, -epoch

        right = max(epochs, key=weight)
        yield from (number for epoch in epochs if epoch != right for number in epochs[epoch])


def _conflict(offset: int, here: dict[int, _Head], replicas: Sequence[Replica]) -> Conflict | None:
    found: dict[int, dict[tuple[int, int], list[str]]] = {}
    for number, head in here.items():
        of_epoch = found.setdefault(head.epoch, {})
        of_epoch.setdefault((head.last_offset, head.crc), []).append(replicas[number].path)
    for epoch, contents in found.items():
        if len(contents) > 1:
            return Conflict(
                offset, epoch, tuple(path for some in contents.values() for path in some)
            )
    return None


def _heads(replica: Replica) -> Iterator[Heads]:
    """Yield the sound batches of a log, whose checksums were right, some at a time."""
    spans = np.array(replica.lineage.spans, np.int64).reshape(-1, 3)
    for segment in replica.partition.segments:
        try:
            with Source(segment.log.path) as source:
                for found in batch_columns(source, Level.QUICK, 1):
                    if isinstance(found, BatchColumns):
                        heads = found.headers[_FIELDS]
                        at = np.searchsorted(spans[:, 1], heads[0], side="right") - 1
                        epochs, _, ends = spans[at].T if len(spans) else (heads[0],) * 3
                        is_sound = (at >= 0) & (heads[0] < ends) & (heads[2] == epochs)
                        if is_sound.any():
                            yield heads[:, is_sound]
        except DataError:
            continue  # what was read of it before has named what is wrong
