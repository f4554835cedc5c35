"""The records of a log as pieces of messages: what a producer takes, in order, in bounded memory.

A record that librdkafka cannot send unchanged is in no piece; its offset is reported instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalog.log.batches.selection import planned_records
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.budget import record_size
from kafkalog.log.columns.chunks import ranges_of
from kafkalog.log.columns.scan_steps import Part
from kafkalog.model import Defect, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from numpy.typing import NDArray

    from kafkalog.log.batches.selection import ReadPlan
    from kafkalog.log.columns.chunks import Chunk, Rows

    Headers = list[tuple[str, str | bytes | None]]
    Message = tuple[int, bytes | None, bytes | None, int, Headers | None]
    """Offset in the source, value, key, timestamp, headers."""

_ROWS_MAX: Final = 4096
_NAME_KEPT_MAX: Final = 256  # longer names are rare, and would only fill the cache


@dataclass(slots=True)
class Piece:
    """Records of one log that follow each other.

    Attributes:
        messages: those that can be sent.
        size_bytes: of their keys, values and headers.
        unsendable: offsets of records with a header whose name is not UTF-8.
        refused: offsets of records that the topic in the cluster does not take.
    """

    messages: list[Message]
    size_bytes: int
    unsendable: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def without(self, refused: Collection[int]) -> Piece:
        """Return it without records that are refused."""
        kept = [one for one in self.messages if one[0] not in refused]
        return Piece(kept, _size(kept), self.unsendable, sorted(refused))


def pieces_of(
    plan: ReadPlan, progress: Callable[[int], None] | None, *, bulk: bool
) -> Iterator[Piece | Defect]:
    """Yield the wanted records of a plan, and defects, in order. Raises as `read_records`."""
    if not bulk:
        yield from _collected(planned_records(plan, progress))
        return
    from kafkalog.log.columns.pipeline import read_contents

    yield from read_contents(plan, _Messages(), progress, batches=False)


def _collected(found: Iterator[Record | Defect]) -> Iterator[Piece | Defect]:
    while some := list(islice(found, _ROWS_MAX)):
        start = 0
        for at, one in enumerate((*some, None)):
            if isinstance(one, Record):
                continue
            if start < at:
                yield _of_records([r for r in some[start:at] if isinstance(r, Record)])
            if one is not None:
                yield one
            start = at + 1


class _Messages:
    """A format of a scan: pieces of messages. See `scan_steps.RecordFormat`."""

    rows_max = _ROWS_MAX

    def left_over(self, _headers: NDArray[np.int64]) -> None:
        """Leave no batch to the reference decoder."""
        return

    def of_rows(self, rows: Rows, _chunk: Chunk) -> Iterator[Part]:
        for first, last in ranges_of(rows):
            yield _part(_of_rows(replace(rows, table=rows.table[:, first:last])))

    def of_records(self, records: list[Record], *, begins: bool) -> Iterator[Part]:  # noqa: ARG002
        """Yield a part of records of the reference decoder."""
        yield _part(_of_records(records))

    def cut(self, content: Piece, first: int, last: int) -> Piece:
        """Return some rows; unsendable records count as rows."""
        offsets = sorted([*(one[0] for one in content.messages), *content.unsendable])
        kept = set(offsets[first:last])
        messages = [one for one in content.messages if one[0] in kept]
        unsendable = [one for one in content.unsendable if one in kept]
        return Piece(messages, _size(messages), unsendable)

    def release(self, content: Piece | None) -> None:
        """Do nothing: bytes were copied."""


def _part(piece: Piece) -> Part:
    return Part(piece, len(piece.messages) + len(piece.unsendable), piece.size_bytes)


def _size(messages: Sequence[Message]) -> int:
    return sum(
        len(key or b"")
        + len(value or b"")
        + sum(len(name.encode()) + len(content or b"") for name, content in headers or ())
        for _, value, key, _, headers in messages
    )


def _of_records(records: Sequence[Record]) -> Piece:
    piece = Piece([], 0)
    for record in records:
        headers: Headers | None = []
        for one in record.headers:
            name = _name(one.key)
            if name is None or headers is None:
                headers = None
            else:
                headers.append((name, one.value))
        if headers is None:
            piece.unsendable.append(record.offset)
            continue
        piece.messages.append(
            (record.offset, record.value, record.key, record.timestamp, headers or None)
        )
        piece.size_bytes += record_size(record)
    return piece


def _of_rows(rows: Rows) -> Piece:
    table = rows.table
    counts = table[k.HEADERS_COUNT]
    pairs = np.empty((4, int(counts.sum())), np.int64)
    if pairs.shape[1]:
        k.expand_headers(rows.arena, table[k.HEADERS_POSITION], counts, pairs)
    start, data = _bytes_around(rows.arena, table, pairs)
    fields = [table[row] for row in (k.OFFSET, k.TIMESTAMP, k.KEY_SIZE, k.VALUE_SIZE)]
    starts = [table[row] - start for row in (k.KEY_POSITION, k.VALUE_POSITION)]
    columns = [one.tolist() for one in (*fields, *starts)]
    size = int(table[k.KEY_SIZE].clip(0).sum() + table[k.VALUE_SIZE].clip(0).sum())
    if not pairs.shape[1]:
        return Piece(
            [
                (
                    offset,
                    None if value_size < 0 else data[value : value + value_size],
                    None if key_size < 0 else data[key : key + key_size],
                    timestamp,
                    None,
                )
                for offset, timestamp, key_size, value_size, key, value in zip(
                    *columns, strict=True
                )
            ],
            size,
        )
    size += int(pairs[1].sum() + pairs[3].clip(0).sum())
    return _with_headers(columns, counts.tolist(), pairs, start, data, size)


def _bytes_around(
    arena: NDArray[np.uint8], table: NDArray[np.int64], pairs: NDArray[np.int64]
) -> tuple[int, bytes]:
    """Return the part of the arena that has all keys, values and headers, and where it starts."""
    positions = [table[k.KEY_POSITION], table[k.VALUE_POSITION], pairs[0], pairs[2]]
    sizes = [table[k.KEY_SIZE], table[k.VALUE_SIZE], pairs[1], pairs[3]]
    position, size = np.concatenate(positions), np.concatenate(sizes)
    is_there = size > 0
    if not is_there.any():
        return 0, b""
    start = int(position[is_there].min())
    return start, arena[start : int((position + size)[is_there].max())].tobytes()


def _with_headers(
    columns: list[list[int]],
    counts: list[int],
    pairs: NDArray[np.int64],
    start: int,
    data: bytes,
    size: int,
) -> Piece:
    piece = Piece([], size)
    pairs = pairs - np.array([[start], [0], [start], [0]])
    header = iter(pairs.T.tolist())
    rows = zip(*columns, counts, strict=True)
    for offset, timestamp, key_size, value_size, key, value, count in rows:
        headers: Any = [
            (_name(data[a : a + m]), None if n < 0 else data[b : b + n])
            for a, m, b, n in islice(header, count)
        ]
        if any(name is None for name, _ in headers):
            piece.unsendable.append(offset)
            continue
        piece.messages.append(
            (
                offset,
                None if value_size < 0 else data[value : value + value_size],
                None if key_size < 0 else data[key : key + key_size],
                timestamp,
                headers or None,
            )
        )
    if piece.unsendable:
        piece.size_bytes = _size(piece.messages)
    return piece


def _name(key: bytes) -> str | None:
    """Return the name of a header; None if it is not UTF-8, which the binding cannot send."""
    return _kept_name(key) if len(key) <= _NAME_KEPT_MAX else _decoded(key)


@lru_cache(1024)
def _kept_name(key: bytes) -> str | None:
    return _decoded(key)


def _decoded(key: bytes) -> str | None:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return None
