"""Which batches of a part of a log are sound, and fit to offsets, leader epochs and each other."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from formats import constants as c
from kafkalog.errors import DataError, NotFoundError
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import read_batch
from kafkalog.log.batches.order import Order, batch_defects
from kafkalog.log.batches.records import resolve_batch
from kafkalog.log.columns import header_table as h
from kafkalog.log.columns.headers import batch_columns
from kafkalog.model import Batch, Defect, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray


Lineage = tuple[tuple[int, int], ...]
"""Leader epochs and their start offsets, as in `leader-epoch-checkpoint`."""

UNKNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class Run:
    """Sound batches of one file that follow each other.

    Attributes:
        start, end: positions in the file.
        first_offset, next_offset: of the first batch, and after the last.
        head: checksum and size of the first batch, and where the second begins.
        covers: bounds of the offsets of which this copy seems to have nothing else: wider, if the
            cleaner may have made holes at the ends of a segment.
    """

    start: int
    end: int
    first_offset: int
    next_offset: int
    head: tuple[int, int, int]
    covers: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Odd:
    """Bytes that are no sound batch, or a batch whose header or epoch is wrong.

    Attributes:
        start, end: positions in the file.
        first_offset, next_offset: true bounds of its offsets; UNKNOWN if nothing proves them.
        defect: what is wrong; None for a sound batch of another leader, and for unreadable bytes.
    """

    start: int
    end: int
    first_offset: int = UNKNOWN
    next_offset: int = UNKNOWN
    defect: Defect | None = None

    @property
    def is_restored(self) -> bool:
        """Whether readers know its records, although its header is wrong."""
        return self.first_offset != UNKNOWN and self.defect is not None


class Survey:
    """The batches of a part of a file, judged one by one.

    Args:
        low, high: bounds of the offsets that can be there; None if unknown.
        lineages: possible lineages; the first one counts.
        clean_to: offset below which the cleaner may have made holes.
    """

    def __init__(
        self, low: int | None, high: int | None, lineages: Sequence[Lineage], clean_to: int
    ) -> None:
        self.items: list[Run | Odd] = []
        self.misfits = [0] * len(lineages)
        self._low, self._high = low, high
        self._lineages, self._clean_to = lineages, clean_to
        self.is_compacted = False
        self._held: tuple[NDArray[np.int64], NDArray[np.bool_]] | None = None
        self._before: int | None = None

    def read(self, path: str, start: int, end: int, to_offset: int | None = None) -> None:
        """Judge the batches between two positions; from an offset on only one more."""
        position = start
        try:
            with Source(path) as source:
                end = min(end, source.size_bytes)
                for found in batch_columns(source, Level.STANDARD, 1, position=start, end=end):
                    if isinstance(found, Defect):
                        self._flush()
                        size = found.size_bytes or end - (found.position or 0)
                        position = min((found.position or 0) + size, end)
                        self.items.append(Odd(found.position or 0, position))
                        continue
                    self._take(found.headers, found.crc_valid)
                    position = int(found.headers[h.POSITION, -1] + found.headers[h.SIZE, -1])
                    if to_offset is not None and found.headers[h.BASE_OFFSET, -1] >= to_offset:
                        break
                self._flush()
                self.items = list(self._settled(source, end))
        except NotFoundError:
            raise
        except DataError:
            self._flush()
            self.items.append(Odd(position, end))
        if self.is_compacted:
            self.items = list(_without_holes(self.items))

    def _take(self, headers: NDArray[np.int64], valid: NDArray[np.bool_]) -> None:
        """Judge batches but the last, which the next one may contradict."""
        if self._held is not None:
            headers = np.concatenate([self._held[0], headers], axis=1)
            valid = np.concatenate([self._held[1], valid])
        self._held = headers[:, -1:].copy(), valid[-1:].copy()
        self._judge(headers, valid, headers.shape[1] - 1)

    def _flush(self) -> None:
        if self._held is not None:
            self._judge(*self._held, 1)
            self._held = None

    def _judge(self, headers: NDArray[np.int64], valid: NDArray[np.bool_], count: int) -> None:
        base, last = headers[h.BASE_OFFSET].copy(), headers[h.LAST_OFFSET]
        is_new = headers[h.MAGIC] >= 2
        first = int(base[0]) if self._before is None else self._before + 1
        before = np.concatenate([[first - 1], last[:-1]])
        # The header of compressed messages of magic 0 and 1 has their last offset only.
        wrapped = ~is_new & (headers[h.ATTRIBUTES] & c.COMPRESSION_MASK != 0)
        base[wrapped] = np.minimum(before + 1, last)[wrapped]
        overlaps = base <= before
        known = (headers[h.MAGIC] >= 0) & (headers[h.MAGIC] <= 2)  # no checksum covers it
        good = valid & known & (last >= base) & ~overlaps
        good[:-1] &= ~overlaps[1:]
        if self._low is not None:
            good &= base >= self._low
        if self._high is not None:
            good &= last < self._high
        for number, lineage in enumerate(self._lineages):
            fits = ~is_new | _fits(lineage, base, headers[h.EPOCH])
            self.misfits[number] += int((~fits & valid)[:count].sum())
            if not number:
                good &= fits
        # A producer's batch has a record for each offset; what the cleaner rewrites keeps its
        # range.
        kept = last - base + 1 != headers[h.COUNT]
        self.is_compacted |= bool((kept & good & is_new).any())
        hole = is_new & (base > before + 1) & (before + 1 >= self._clean_to)
        ends = [0, *(1 + np.flatnonzero(
            ~good[1:count] | ~good[: count - 1] | hole[1:count]
        )).tolist(), count] if count else []  # fmt: skip
        for start, end in pairwise(ends):
            self._add(headers, base, start, end, is_sound=bool(good[start]))
        if count:
            self._before = int(last[count - 1])

    def _add(
        self, headers: NDArray[np.int64], base: NDArray[np.int64], start: int, end: int, *,
        is_sound: bool,
    ) -> None:  # fmt: skip
        position, size = headers[h.POSITION], headers[h.SIZE]
        at, to = int(position[start]), int(position[end - 1] + size[end - 1])
        first, following = int(base[start]), int(headers[h.LAST_OFFSET, end - 1]) + 1
        if not is_sound:
            self.items.append(Odd(at, to))
            return
        head = int(headers[h.CRC, start]), int(size[start]), at + int(size[start])
        self._append(self.items, Run(at, to, first, following, head, (first, following)))

    def _append(self, items: list[Run | Odd], run: Run) -> None:
        before = items[-1] if items else None
        if isinstance(before, Run) and before.end == run.start and (
            _is_next(before, run, self._clean_to)
        ):  # fmt: skip
            run = _joined(before, run)
            items.pop()
        items.append(run)

    def _settled(self, source: Source, end: int) -> list[Run | Odd]:
        """Judge odd places again by the rules of readers, together with the runs around them."""
        items: list[Run | Odd] = []
        odd: list[Odd] = []
        for one in (*self.items, None):
            if isinstance(one, Odd):
                odd.append(one)
                continue
            if one is not None and (odd or not items):
                # Of compressed old messages it is a guess, by the batch before them.
                first = _first_offset(source, read_batch(source, one.start, end), one.first_offset)
                one = replace(one, first_offset=first, covers=(first, one.covers[1]))
            if odd:
                self._settle(source, end, odd, one, items)
                odd = []
            if one is not None:
                self._append(items, one)
        return items

    def _settle(
        self, source: Source, end: int, odd: Sequence[Odd], after: Run | None,
        items: list[Run | Odd],
    ) -> None:  # fmt: skip
        before = items[-1] if items else None
        low = before.next_offset if isinstance(before, Run) else self._low or 0
        high = self._high if after is None else after.first_offset
        order = Order(source, end, low, high)
        # By its neighbours alone: a lineage would make a batch of a deposed leader one of the next.
        noted = self._noted_epoch(low - 1) if isinstance(before, Run) else None
        order.epoch = c.NO_EPOCH if noted is None else noted
        position = odd[0].start
        while position < odd[-1].end:
            found = order.at(position)
            at, position = position, position + (found.size_bytes or 0)
            if isinstance(found, Defect) or not found.is_sound:
                wrong = found if isinstance(found, Defect) else next(batch_defects(found))
                items.append(Odd(at, position, defect=wrong))
                continue
            first, following = _first_offset(source, found, low), found.next_offset
            epoch = self._noted_epoch(first)
            is_misfit = found.magic >= 2 and epoch not in (None, found.leader_epoch)
            if found.header_defect is not None or is_misfit:
                defect = None if is_misfit else found.header_defect
                items.append(Odd(at, position, first, following, defect))
                continue
            head = found.crc, found.size_bytes, position
            self._append(items, Run(at, position, first, following, head, (first, following)))

    def _noted_epoch(self, offset: int) -> int | None:
        for epoch, start in reversed(self._lineages[0] if self._lineages else ()):
            if start <= offset:
                return epoch
        return None

    @property
    def runs(self) -> list[Run]:
        """What is sound."""
        return [one for one in self.items if isinstance(one, Run)]

    @property
    def restored(self) -> list[Run]:
        """Batches whose headers are wrong, but not their records."""
        return [
            Run(one.start, one.end, one.first_offset, one.next_offset, (UNKNOWN, 0, one.end),
                (one.first_offset, one.next_offset))
            for one in self.items
            if isinstance(one, Odd) and one.is_restored
        ]  # fmt: skip


def _first_offset(source: Source, found: Batch | Defect, guess: int) -> int:
    with suppress(DataError):
        return guess if isinstance(found, Defect) else resolve_batch(source, found).base_offset
    return guess


def _joined(one: Run, other: Run) -> Run:
    covers = one.covers[0], other.covers[1]
    return replace(one, end=other.end, next_offset=other.next_offset, covers=covers)


def _is_next(before: Run, run: Run, clean_to: int) -> bool:
    return before.next_offset == run.first_offset or before.next_offset < min(
        run.first_offset, clean_to
    )


def _without_holes(items: Iterable[Run | Odd]) -> Iterator[Run | Odd]:
    """Join runs that nothing but a hole is between."""
    held: Run | None = None
    for one in items:
        if held is not None and isinstance(one, Run) and held.end == one.start:
            held = _joined(held, one)
            continue
        if held is not None:
            yield held
        held = one if isinstance(one, Run) else None
        if held is None:
            yield one
    if held is not None:
        yield held


def _fits(lineage: Lineage, base: NDArray[np.int64], epoch: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether batches have the leader epoch of their offsets; unknown ones fit."""
    if not lineage:
        return np.ones(len(base), np.bool_)
    numbers = np.array([one for one, _ in lineage], np.int64)
    starts = np.array([start for _, start in lineage], np.int64)
    at = np.searchsorted(starts, base, "right") - 1
    fits: NDArray[np.bool_] = (at < 0) | (numbers[at.clip(0)] == epoch)
    return fits
