"""The records of two logs against each other, and the latest records of their keys."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.log.batches.selection import Selection
from kafkalog.log.columns.arrow import BATCH_SCHEMA, schema_of
from kafkalog.model import MISPLACED
from kafkalog.node.reader import plan_reading
from kafkalog.node.scan import scan
from kafkalog.node.unified_log import UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.model import AbortedTransaction, Defect
    from kafkalog.node.outcome import View

_COMPARED: Final = ("timestamp", "key", "value", "headers")
_COLUMNS: Final = ("offset", *_COMPARED)
_KEPT: Final = (
    "last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence",
)  # fmt: skip
_BATCH: Final = ("path", "batch_position")
_DIGEST_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class Window:
    """Some consecutive offsets of two logs: `pyarrow.Table`s of offset, timestamp, key ….

    `left` and `right` are the records that only one log has; `differing` has the rows of both for
    each offset where they are not the same.
    """

    left: Any
    right: Any
    differing: tuple[Any, Any]


def windows(
    left: View, right: View, start: int, defects: Callable[[Defect], object]
) -> Iterator[Window]:
    """Yield the differences of the records from an offset on; most windows have few rows or none.

    Control records are compared, too. The defects of the left log come first. Raises as `scan`.
    """
    # How much of a log is read at a time, and so which defect is met first, depends on the decoder.
    of_right: list[Defect] = []
    one, other = _Rows(left, start, defects), _Rows(right, start, of_right.append)
    while True:
        edges = [rows.edge() for rows in (one, other)]
        edge = min((edge for edge in edges if edge is not None), default=None)
        if edge is None:
            for defect in of_right:
                defects(defect)
            yield _compared(one.low, other.low)
            return
        yield _compared(one.take(edge), other.take(edge))


class _Rows:
    """The rows of a log, read on demand.

    Those of a batch whose offsets may be wrong do not say how far the log was read: higher ones
    wait for the others to get there.

    Attributes:
        low: the rows of such batches that are lower than others before them.
    """

    def __init__(self, log: View, start: int, defects: Callable[[Defect], object]) -> None:
        self._defects = defects
        self._doubtful: set[tuple[str, int | None]] = set()
        self._batches = scan(
            plan_reading(log, Selection(from_offset=start)),
            columns=[*_COLUMNS, *_BATCH],
            defects=self._hear,
        )
        self._rows = self._high = self.low = schema_of(_COLUMNS).empty_table()
        self._end = start - 1

    def edge(self) -> int | None:
        """Return the largest offset that was read; None at the end."""
        while not self._rows.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                self._rows, self._high = self._high, self._high.slice(0, 0)
                break
            self._sort_out(pa.Table.from_batches([batch]))
        edge: int | None = pc.max(self._rows["offset"]).as_py()
        return edge

    def take(self, edge: int) -> Any:
        taken, self._rows = _cut(self._rows, edge)
        if not self._high.num_rows:
            return taken
        also, self._high = _cut(self._high, edge)
        return pa.concat_tables([taken, also])

    def _hear(self, defect: Defect) -> None:
        if defect.reference in (*MISPLACED, "batch-crc-mismatch"):
            self._doubtful.add((defect.path, defect.position))
        self._defects(defect)

    def _sort_out(self, table: Any) -> None:
        rows = table.select(_COLUMNS)
        if not self._doubtful:
            self._rows = rows
        else:
            batches = zip(*(table[name].to_pylist() for name in _BATCH), strict=True)
            is_odd = np.fromiter((one in self._doubtful for one in batches), np.bool_)
            offsets = rows["offset"].to_numpy()
            ends = np.maximum.accumulate(np.where(is_odd, self._end, offsets))
            is_low = is_odd & (offsets <= ends)
            self._rows = rows.filter(pa.array(~is_odd))
            self._high = pa.concat_tables([self._high, rows.filter(pa.array(is_odd & ~is_low))])
            self.low = pa.concat_tables([self.low, rows.filter(pa.array(is_low))])
        self._end = max(self._end, pc.max(self._rows["offset"]).as_py() or self._end)


def _cut(rows: Any, edge: int) -> tuple[Any, Any]:
    """Return the rows up to an offset, and those above it."""
    offsets = rows["offset"].to_numpy()
    if (offsets <= edge).all():
        return rows, rows.slice(0, 0)
    is_within = pa.array(offsets <= edge)
    return rows.filter(is_within), rows.filter(pc.invert(is_within))


def _compared(left: Any, right: Any) -> Window:
    mine, theirs = left["offset"].to_numpy(), right["offset"].to_numpy()
    if len(mine) == len(theirs) and np.array_equal(mine, theirs):
        wrong = _unequal(left, right)
        pair = (left, right) if len(wrong) else (left.slice(0, 0), right.slice(0, 0))
        if len(wrong):
            pair = pair[0].take(wrong), pair[1].take(wrong)
        return Window(left.slice(0, 0), right.slice(0, 0), pair)
    _, at, there = np.intersect1d(mine, theirs, return_indices=True)
    both = left.take(at), right.take(there)
    wrong = _unequal(*both)
    return Window(
        left.take(np.setdiff1d(np.arange(len(mine)), at)),
        right.take(np.setdiff1d(np.arange(len(theirs)), there)),
        (both[0].take(wrong), both[1].take(wrong)),
    )


def _unequal(left: Any, right: Any) -> Any:
    """Return the numbers of the rows that are not the same."""
    wrong = np.zeros(left.num_rows, np.bool_)
    for name in _COMPARED:
        mine, theirs = left[name], right[name]
        if name == "headers":
            lengths = [pc.list_value_length(column).to_numpy() for column in (mine, theirs)]
            wrong |= lengths[0] != lengths[1]
            for i in np.flatnonzero((lengths[0] > 0) & ~wrong).tolist():
                wrong[i] = mine[i].as_py() != theirs[i].as_py()
            continue
        same = pc.fill_null(pc.equal(mine, theirs), False)
        is_null = pc.and_(pc.is_null(mine), pc.is_null(theirs))
        wrong |= ~pc.or_(same, is_null).to_numpy()
    return np.flatnonzero(wrong)


def fits_compaction(left: View, right: View, start: int) -> bool:
    """Return whether the batches that both have can be the same ones before and after a cleaning.

    The cleaner keeps the offsets of a batch, its epochs, producer and sequence; the largest
    timestamp only if no record goes. Messages of magic 0 and 1 it rewrites as batches of magic 2.
    """
    one, other = (_batches(log, start) for log in (left, right))
    bases = one["base_offset"].to_numpy(), other["base_offset"].to_numpy()
    _, at, there = np.intersect1d(*bases, return_indices=True)
    mine, theirs = one.take(at), other.take(there)

    def same(name: str) -> Any:
        equal: Any = mine[name].to_numpy() == theirs[name].to_numpy()
        return equal

    fits = np.logical_and.reduce([same(name) for name in _KEPT])
    fits &= same("max_timestamp") | ~same("records")
    fits |= ~same("magic") | (mine["magic"].to_numpy() < 2)
    return bool(fits.all())


def _batches(log: View, start: int) -> Any:
    columns = ["base_offset", *_KEPT, "max_timestamp", "records", "magic"]
    plan = plan_reading(log, Selection(from_offset=start))
    found = list(scan(plan, columns=columns, batches=True, defects=lambda _: None))
    return pa.Table.from_batches(found, schema_of(columns, BATCH_SCHEMA))


def same_latest_records(
    left: View, right: View, start: int, end: int, defects: Callable[[Defect], object]
) -> bool:
    """Return whether each log has all that the other has, as far as a cleaner keeps it.

    The latest record of a key below the offset where one of the logs ends must be in the other log,
    or a later one of the key, which may be after that end. A tombstone may be gone; what
    transactions have aborted does not count.

    Cost:
        Reads and decodes both logs; memory for the distinct keys, about 400 bytes each.
    """
    logs = [UnifiedLog(shown.partition) for shown in (left, right)]
    aborted: dict[int, list[AbortedTransaction]] = {}
    for transaction in (one for log in logs for one in log.hidden_transactions()):
        aborted.setdefault(transaction.producer_id, []).append(transaction)
    one, other = (_latest(shown, start, end, aborted, defects) for shown in (left, right))
    if one is None or other is None:
        return False
    return all(
        theirs.overall.get(key, -1) >= offset
        for mine, theirs in ((one, other), (other, one))
        for key, offset in mine.kept.items()
    )


@dataclass(frozen=True, slots=True)
class _Latest:
    """The latest offset of each key.

    Attributes:
        kept: below some offset, unless it is a tombstone.
        overall: in all of the log.
    """

    kept: dict[bytes, int]
    overall: dict[bytes, int]


def _latest(
    log: View,
    start: int,
    end: int,
    aborted: dict[int, list[AbortedTransaction]],
    defects: Callable[[Defect], object],
) -> _Latest | None:
    """Return the latest offsets of the keys; None if a record has no key."""
    plan = plan_reading(log, Selection(from_offset=start, data=True))
    names = ["offset", "key", "value", "producer_id"]
    found = _Latest({}, {})
    for rows in scan(plan, columns=names, defects=defects):
        if rows["key"].null_count:
            return None
        offsets, keys, producers = (rows[name].to_pylist() for name in ("offset", "key", names[3]))
        has_value = pc.is_valid(rows["value"]).to_pylist()
        for offset, key, producer, is_kept in zip(offsets, keys, producers, has_value, strict=True):
            if any(one.first_offset <= offset <= one.last_offset
                   for one in aborted.get(producer, ())):  # fmt: skip
                continue
            name = _short(key)
            found.overall[name] = offset
            if offset < end and is_kept:
                found.kept[name] = offset
            elif offset < end:
                found.kept.pop(name, None)
    return found


def _short(key: bytes) -> bytes:
    """Return a key, or its digest if it is long."""
    if len(key) <= _DIGEST_SIZE:
        return key
    # Longer than any key that stays as it is: the two cannot be taken for each other.
    return hashlib.blake2b(key, digest_size=_DIGEST_SIZE + 1).digest()
