"""The steps of a scan over a chunk, each of bounded output: checksums, selection, formatting.

They are the twins of `ReadPlan.wants`, `ReadPlan.is_behind` and `record_matches` of the reference
reader. Work comes in two kinds, records and batches; the format decides what they become.

For expressions: most have a text that every match contains. Searching for that in all of the bytes
at once is much faster than trying the expression on each string; only strings with it are tried.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from formats import constants as c
from formats.late_classes import dataclass
from kafkalog.errors import DataError, FileChangedError
from kafkalog.log.batches.condition import Content
from kafkalog.log.batches.framing import read_batch
from kafkalog.log.batches.order import batch_defects
from kafkalog.log.batches.records import decode_records
from kafkalog.log.batches.selection import EVERYTHING, defect_of, record_matches, resolved
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.budget import SIZE_AT_ONCE, record_size
from kafkalog.log.columns.chunks import Chunk, Rows, Turn, is_wrapper
from kafkalog.log.columns.restored import records_of
from kafkalog.model import Batch, Defect, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from kafkalog.io.paths.source import Readable
    from kafkalog.log.batches.condition import Condition
    from kafkalog.log.batches.order import Order
    from kafkalog.log.batches.selection import ReadPlan, Selection

    Mask = NDArray[np.bool_]


_PLAIN: Final = re.compile(rb"[\w \"':;,=<>@#%&!~/-]+")
"""Bytes that stand for themselves."""
_STRUCTURE: Final = re.compile(rb"[()\[\]|]")
"""Signs after which a text may be one of several, or is none."""
_REPEATS: Final = (b"*", b"?", b"{")
_NUMBERS: Final = re.compile(rb"[\d,]+")
_TEXT_SIZE_MIN: Final = 2


@lru_cache(16)
def text_in(pattern: re.Pattern[bytes]) -> re.Pattern[bytes] | None:
    """Return the expression for a text that is in everything a pattern matches, or None."""
    # A text may then be written in other ways than it stands in the pattern.
    if pattern.flags & (re.IGNORECASE | re.VERBOSE) or _STRUCTURE.search(pattern.pattern):
        return None
    texts = []
    for match in _PLAIN.finditer(pattern.pattern):
        text = match[0]
        if _NUMBERS.fullmatch(text) and pattern.pattern[: match.start()].endswith(b"{"):
            continue  # how often something is repeated
        if pattern.pattern[: match.start()].endswith(b"\\"):
            text = text[1:] if text[:1] not in b"xuUN0123456789" else b""
        # The last sign may occur no time at all.
        if pattern.pattern[match.end() : match.end() + 1] in _REPEATS:
            text = text[:-1]
        texts.append(text)
    longest = max(texts, key=len, default=b"")
    return re.compile(re.escape(longest)) if len(longest) >= _TEXT_SIZE_MIN else None


def keep_matching(
    arena: NDArray[np.uint8],
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
    pattern: re.Pattern[bytes],
    chosen: NDArray[np.bool_],
) -> None:
    """Unset `chosen` for the byte strings that are null or empty, or in which nothing matches."""
    chosen &= sizes > 0
    text = text_in(pattern)
    # Searched in one go over the arena: the strings have to lie in it in order.
    if text is not None and chosen.any() and bool((positions[1:] >= positions[:-1]).all()):
        chosen &= _with_text(arena, positions, sizes, text)
    view = arena.data
    for i in np.flatnonzero(chosen).tolist():
        at = int(positions[i])
        chosen[i] = bool(pattern.search(view[at : at + int(sizes[i])]))


def _with_text(
    arena: NDArray[np.uint8],
    positions: NDArray[np.int64],
    sizes: NDArray[np.int64],
    text: re.Pattern[bytes],
) -> NDArray[np.bool_]:
    """Return which of the byte strings, in the order of their positions, have a text."""
    found = np.zeros(len(positions), np.bool_)
    ends = positions + np.maximum(sizes, 0)
    view, at, end = arena.data, int(positions[0]), int(ends.max())
    while (match := text.search(view, at, end)) is not None:
        i = int(np.searchsorted(positions, match.start(), "right")) - 1
        found[i] |= match.end() <= ends[i]
        at = max(match.start() + 1, int(ends[i]) if found[i] else 0)
    return found


def first_behind(headers: NDArray[np.int64], plan: ReadPlan) -> int:
    """Return the ordinal of the first batch after all wanted offsets, or the batch count."""
    if plan.selection.to_offset is None:
        return int(headers.shape[1])
    behind = (headers[k.BASE_OFFSET] >= plan.selection.to_offset) & ~is_wrapper(headers)
    return int(behind.argmax()) if behind.any() else int(headers.shape[1])


def in_order(order: Order, chunk: Chunk, count: int) -> int:
    """Return how many of the first `count` batches of a chunk have rising offsets and epochs.

    The twin of `Order.at`, which judges the batch after them. It compares neighbours only, and does
    not know yet whose checksum is right.
    """
    chunk.low = order.next_offset
    if not count or chunk.position == order.tied:
        return 0
    headers = chunk.headers
    base, last = headers[k.BASE_OFFSET, :count], headers[k.LAST_OFFSET, :count]
    epochs = headers[k.EPOCH, :count] if order.is_log else np.full(count, c.NO_EPOCH)
    following = chunk.following if count == chunk.count else chunk.place_of(count)
    high = c.INT64_MAX if order.high is None else order.high
    fits = last >= base
    fits[0] &= base[0] >= order.next_offset
    fits[0] &= epochs[0] >= order.epoch
    if following is not None:
        fits[-1] &= last[-1] < min(following[0], high)
        fits[-1] &= epochs[-1] <= following[1] or not order.is_log
    else:  # before damage: judged by what comes after that; after a gap: by where the log ends
        fits[-1] &= chunk.position + chunk.size_bytes == order.frames.end and last[-1] < high
        before = order.next_offset if count == 1 else int(last[-2]) + 1
        is_fit = base[-1] == before or order.high is not None
        if not is_fit and is_wrapper(headers)[count - 1]:  # it states its last offset alone
            is_fit = order.end_limit is None or last[-1] < order.end_limit()
        fits[-1] &= is_fit
    # A batch whose epoch neither neighbour has is alone with it.
    after = c.INT32_MAX if following is None or following[1] == c.NO_EPOCH else following[1]
    around = np.concatenate(([order.epoch], epochs, [after]))
    for alone in np.flatnonzero((around[:-2] < epochs) & (epochs < around[2:])).tolist():
        fits[alone] &= order.agrees(int(base[alone]), int(epochs[alone]))
    fits[:-1] &= (last[:-1] < np.minimum(base[1:], high)) & (epochs[:-1] <= epochs[1:])
    kept = count if fits.all() else int(fits.argmin())
    if kept:
        order.next_offset, order.epoch = int(last[kept - 1]) + 1, int(epochs[kept - 1])
    return kept


def wanted_batches(headers: NDArray[np.int64], plan: ReadPlan) -> NDArray[np.bool_]:
    """Return which batches can hold wanted records, according to their headers."""
    selection = plan.selection
    wanted = np.ones(headers.shape[1], np.bool_)
    if selection.from_offset is not None:
        wanted &= headers[k.LAST_OFFSET] >= selection.from_offset
    if selection.from_time is not None:
        wanted &= headers[k.MAX_TIMESTAMP] >= selection.from_time
    if selection.producer_id is not None:
        wanted &= headers[k.PRODUCER_ID] == selection.producer_id
    if selection.leader_epoch is not None:
        wanted &= headers[k.EPOCH] == selection.leader_epoch
    modern = headers[k.MAGIC] >= 2
    control = modern & (headers[k.ATTRIBUTES] & c.CONTROL_MASK != 0)
    if selection.control:
        wanted &= control
    elif selection.data:
        wanted &= ~control
    if selection.read_committed:
        hidden = control & (not selection.control)
        for producer_id, transactions in plan.aborted.items():
            of_producer = ~control & (headers[k.PRODUCER_ID] == producer_id)
            if not of_producer.any():
                continue
            for transaction in transactions:
                hidden |= (
                    of_producer
                    & (headers[k.BASE_OFFSET] >= transaction.first_offset)
                    & (headers[k.BASE_OFFSET] <= transaction.last_offset)
                )
        # Control batches of KRaft are not transactional, and stay.
        wanted &= ~(hidden & modern & (headers[k.ATTRIBUTES] & c.TRANSACTIONAL_MASK != 0))
    return wanted


def wanted_rows(rows: Rows, selection: Selection, chunk: Chunk) -> Rows:
    """Return the wanted rows, with the failures renumbered."""
    if selection is EVERYTHING:
        return rows
    table = rows.table
    chosen = np.ones(table.shape[1], np.bool_)
    if selection.from_offset is not None:
        chosen &= table[k.OFFSET] >= selection.from_offset
    if selection.to_offset is not None:
        chosen &= table[k.OFFSET] < selection.to_offset
    if selection.from_time is not None:
        chosen &= table[k.TIMESTAMP] >= selection.from_time
    if selection.to_time is not None:
        chosen &= table[k.TIMESTAMP] < selection.to_time
    if selection.key is not None:
        equal = np.empty(len(chosen), np.bool_)
        k.equal_bytes(
            rows.arena, table[k.KEY_POSITION], table[k.KEY_SIZE], _array(selection.key), equal
        )
        chosen &= equal
    for pattern, column in (
        (selection.key_regex, k.KEY_POSITION),
        (selection.value_regex, k.VALUE_POSITION),
    ):
        if pattern is not None:
            keep_matching(rows.arena, table[column], table[column + 1], pattern, chosen)
    if selection.header is not None:
        chosen &= _with_header(rows, chosen, *selection.header)
    if selection.where is not None:
        _keep_meeting(selection.where, rows, chunk, chosen)
    if chosen.all():
        return rows
    before = np.concatenate(([0], np.cumsum(chosen)))
    failures = tuple(failure._replace(row=int(before[failure.row])) for failure in rows.failures)
    return replace(rows, table=np.ascontiguousarray(table[:, chosen]), failures=failures)


def _with_header(
    rows: Rows, candidates: NDArray[np.bool_], name: bytes, value: bytes | None
) -> NDArray[np.bool_]:
    """Return which of the candidates have a header of this name and, unless None, this value."""
    found = np.zeros(len(candidates), np.bool_)
    counts = np.where(candidates, rows.table[k.HEADERS_COUNT], 0)
    total = int(counts.sum())
    fields = np.empty((4, total), np.int64)
    k.expand_headers(rows.arena, rows.table[k.HEADERS_POSITION], counts, fields)
    equal = np.empty(total, np.bool_)
    k.equal_bytes(rows.arena, fields[0], fields[1], _array(name), equal)
    if value is not None:
        same_value = np.empty(total, np.bool_)
        k.equal_bytes(rows.arena, fields[2], fields[3], _array(value), same_value)
        equal &= same_value
    found[np.repeat(np.arange(len(counts)), counts)[equal]] = True
    return found


def _keep_meeting(where: Condition, rows: Rows, chunk: Chunk, chosen: NDArray[np.bool_]) -> None:
    """Unset `chosen` for the rows that do not meet a condition."""
    candidates = np.flatnonzero(chosen)
    table = np.ascontiguousarray(rows.table[:, candidates])
    if where.is_about_content:
        found: Iterable[Record | Content] = _contents(table, rows.arena.data)
    else:
        found = records_of(replace(rows, table=table), chunk)
    chosen[candidates] = np.fromiter(map(where.matches, found), np.bool_, len(candidates))


def _contents(table: NDArray[np.int64], data: memoryview) -> Iterator[Content]:
    columns = (k.OFFSET, k.TIMESTAMP, k.KEY_POSITION, k.KEY_SIZE, k.VALUE_POSITION, k.VALUE_SIZE)
    for offset, timestamp, key, key_size, value, value_size in table[list(columns)].T.tolist():
        yield Content(
            offset,
            timestamp,
            None if key_size < 0 else bytes(data[key : key + key_size]),
            None if value_size < 0 else bytes(data[value : value + value_size]),
        )


def _array(data: bytes) -> NDArray[np.uint8]:
    # Writable: the address of a read-only array is several times as slow to get.
    return np.frombuffer(bytearray(data), np.uint8)


OFFSET_LIMIT: Final = 1 << 62
"""Above this, sums of offsets could overflow: the reference decoder takes over."""


class Event(NamedTuple):
    """A defect, and the number of rows of its part that come before it.

    If it `trails`, it belongs to the row before it: if that row is wanted, so is the defect.
    """

    row: int
    defect: Defect
    trails: bool = False


@dataclass(slots=True)
class Part:
    """A piece of a scan's output: its row count, approximate size in bytes, and defects."""

    content: Any
    rows: int
    size_bytes: int
    events: tuple[Event, ...] = ()


class Format(Protocol):
    """Formats rows; several threads use it at once."""

    rows_max: int
    """Maximum number of rows decoded at a time."""

    def cut(self, content: Any, first: int, last: int) -> Any:
        """Return the rows from `first` up to `last` of a part's content."""

    def release(self, content: Any) -> None:
        """Release the content, which is no longer used."""


class RecordFormat(Format, Protocol):
    """Formats records."""

    def left_over(self, headers: NDArray[np.int64]) -> Mask | None:
        """Return which batches the reference decoder must decode for it."""

    def of_rows(self, rows: Rows, chunk: Chunk) -> Iterator[Part]:
        """Yield parts of decoded rows, without events."""

    def of_records(self, records: list[Record], *, begins: bool) -> Iterator[Part]:
        """Yield parts of the first or of later records of one batch, without events."""


class BatchFormat(Format, Protocol):
    """Formats batches."""

    def of_batches(self, chunk: Chunk, first: int, last: int, chosen: Mask) -> Iterator[Part]:
        """Yield parts of the chosen batches from `first` up to `last`, without events."""

    def of_batch(self, batch: Batch) -> Part:
        """Return the part for a batch from the reference scanner."""


class Work(Protocol):
    """Processes chunks, and what the reference scanner found between them."""

    @property
    def format(self) -> Format:
        """The output format."""

    def steps(self, chunk: Chunk) -> Iterator[Part | Turn]:
        """Yield the parts of a chunk; large batches wait for their turn, if the chunk does."""

    def of_batch(self, source: Readable, batch: Batch) -> Iterator[Part]:
        """Yield the parts of a batch that the reference scanner read and judged."""

    def of_plan(self, plan: ReadPlan) -> Work:
        """Return the same work for another plan of the same reading."""


@dataclass(frozen=True, slots=True)
class RecordWork:
    """Yields the wanted records."""

    plan: ReadPlan
    format: RecordFormat

    def of_plan(self, plan: ReadPlan) -> RecordWork:
        return replace(self, plan=plan)

    def steps(self, chunk: Chunk) -> Iterator[Part | Turn]:
        wanted = wanted_batches(chunk.headers, self.plan)
        reported = wanted & ~chunk.crc_valid
        if self.plan.selection.sound:
            wanted &= chunk.crc_valid
        yield from self.decoded(chunk, wanted, reported)

    def decoded(self, chunk: Chunk, wanted: Mask, reported: Mask) -> Iterator[Part | Turn]:
        """Yield the parts of some batches, and the wrong checksums of others."""
        key = self.plan.selection.key
        left_over = self.format.left_over(chunk.headers)
        for rows in chunk.decode(wanted, left_over, None if key is None else _array(key)):
            if isinstance(rows, Turn):
                yield rows
                continue
            if isinstance(rows, int):
                if chunk.waits:
                    yield Turn.WAIT  # the reference decoder holds the whole batch
                yield from self.of_batch(chunk, chunk.batch(rows))
                continue
            chosen = wanted_rows(rows, self.plan.selection, chunk)
            events = defects_of(chosen, chunk, reported)
            yield from _with_events(self.format.of_rows(chosen, chunk), events)

    def of_batch(self, source: Readable, batch: Batch) -> Iterator[Part]:
        for defect in batch_defects(batch):
            yield Part(None, 0, 0, (Event(0, defect),))
        if self.plan.selection.sound and not batch.is_sound:
            return
        found = decode_records(source, batch)
        failure: Defect | None = None
        begins, is_over = True, False
        while not is_over:
            records: list[Record] = []
            size = 0
            try:
                for record in found:
                    if record_matches(record, self.plan.selection):
                        records.append(record)
                        size += record_size(record)
                        if len(records) == self.format.rows_max or size >= SIZE_AT_ONCE:
                            break
                else:
                    is_over = True
            except FileChangedError:
                raise  # reading resumes elsewhere
            except DataError as error:
                failure, is_over = defect_of(error, batch), True
            if records:  # the format may fail, too, which does not end the batch
                yield from self.format.of_records(records, begins=begins)
                begins = False
        if failure is not None:
            yield Part(None, 0, 0, (Event(0, failure),))


@dataclass(frozen=True, slots=True)
class BatchWork:
    """Yields the wanted batches."""

    plan: ReadPlan
    format: BatchFormat

    def of_plan(self, plan: ReadPlan) -> BatchWork:
        return replace(self, plan=plan)

    def steps(self, chunk: Chunk) -> Iterator[Part | Turn]:
        valid, headers = chunk.crc_valid, chunk.headers
        wanted = wanted_batches(headers, self.plan)
        odd = is_wrapper(headers) | (np.abs(headers[k.BASE_OFFSET]) > OFFSET_LIMIT)
        first = 0
        for i in (*np.flatnonzero(odd & wanted).tolist(), chunk.count):
            if first < i:
                yield from self._of_range(chunk, first, i, wanted)
            if i < chunk.count:
                found = read_batch(
                    chunk, int(headers[k.POSITION, i]), chunk.position + chunk.size_bytes
                )
                assert isinstance(found, Batch), "the chunk holds whole batches"
                if chunk.waits:
                    yield Turn.WAIT
                yield from self.of_batch(chunk, replace(found, crc_valid=bool(valid[i])))
            first = i + 1

    def _of_range(self, chunk: Chunk, first: int, last: int, wanted: Mask) -> Iterator[Part]:
        before = np.concatenate(([0], np.cumsum(wanted[first:last]))).tolist()
        bad = np.flatnonzero(wanted[first:last] & ~chunk.crc_valid[first:last]).tolist()
        events = [
            Event(before[i + 1], next(batch_defects(chunk.batch(first + i))), trails=True)
            for i in bad
        ]
        yield from _with_events(self.format.of_batches(chunk, first, last, wanted), events)

    def of_batch(self, source: Readable, batch: Batch) -> Iterator[Part]:
        batch = resolved(source, batch)
        part = self.format.of_batch(batch)
        part.events = tuple(Event(1, defect, trails=True) for defect in batch_defects(batch))
        yield part


def defects_of(rows: Rows, chunk: Chunk, bad: Mask) -> list[Event]:
    """Return the defects of the batches of these rows, in order.

    A wrong checksum (`bad`: which batches have one) is reported before defects in its records.
    """
    told = [
        (rows.row_of(i), i, 0, next(batch_defects(chunk.batch(i))))
        for i in np.flatnonzero(bad).tolist()
        if i in rows.started
    ]
    told += [
        (failure.row, failure.ordinal, 1, defect_of(failure.error, chunk.batch(failure.ordinal)))
        for failure in rows.failures
    ]
    told.sort(key=itemgetter(0, 1, 2))
    return [Event(event[0], event[3]) for event in told]


def _with_events(parts: Iterator[Part], events: list[Event]) -> Iterator[Part]:
    """Yield the parts with their share of the events, whose rows count from the first part on."""
    done = 0
    for part in parts:
        last = done + part.rows
        share = [event for event in events if event.row < last or (event.trails and
                 event.row == last)]  # fmt: skip
        if share:
            part.events = tuple(event._replace(row=event.row - done) for event in share)
            events = events[len(share) :]
        yield part
        done = last
    if events:
        yield Part(None, 0, 0, tuple(event._replace(row=event.row - done) for event in events))
