"""One log out of several copies of a partition: of each range of offsets, batches that are sound.

The most complete copy is read. Where it has damage, a gap, or batches of another leader epoch than
its lineage says, the other copies are asked in turn. By Kafka's log matching, two copies have the
same batch at an offset if it was appended in the same leader epoch, so that any sound one will do.

Copies are looked at split by split, where they are read: a split is checked, and then read from the
page cache. A hole that the cleaner left is no gap: what it removed stays removed.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from formats import file_names
from formats.file_names import parse_file_name
from formats.late_classes import dataclass
from kafkalog.errors import DataError, NotFoundError
from kafkalog.files.log_dir import FileEntry, Segment, open_partition
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.segment import OpenSegment
from kafkalog.log.defects import make_defect
from kafkalog.model import Batch, Defect, computed_once
from kafkalog.node.unified_log import UnifiedLog
from kafkalog.node.view import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.errors import Listener
    from kafkalog.model import LogView
    from kafkalog.tables.model import Split
    from kafkalog.tables.soundness import Lineage, Odd, Run, Survey


def clean_to_of(log: UnifiedLog) -> int:
    """Return the offset below which a copy may have been compacted, 0 if it was not."""
    noted = log.checkpoint(file_names.CLEANER_OFFSETS)
    # The cleaner never takes the active segment.
    return log.segments[-1].base_offset if log.segments and noted is not None else 0


_TAIL_SIZE: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class After:
    """Sound bytes at the end of a segment, and nothing after them.

    A copy that has the same bytes at the same position was cleaned as far, or not at all: if it has
    more batches, they were lost here.
    """

    path: str
    position: int

    def is_in(self, log: UnifiedLog) -> bool:
        """Return whether a copy has the same bytes there."""
        name = os.path.basename(self.path)
        other = next((one.log.path for one in log.segments if one.log.name.name == name), None)
        if other is None:
            return False
        # What cannot be compared counts as different.
        with suppress(DataError), Source(self.path) as mine, Source(other) as its:
            start = max(0, self.position - _TAIL_SIZE)
            size = self.position - start
            return its.size_bytes >= self.position and (
                mine.read(start, size) == its.read(start, size)
            )
        return False


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of another copy, and the offsets it is read for."""

    path: str
    segment: Segment
    run: Run
    first_offset: int
    next_offset: int

    def batches(self, opened: OpenSegment) -> Iterator[Batch]:
        """Yield the batches that hold its offsets, their headers as they should be."""
        order = opened.order(low=self.run.first_offset, end=self.run.end)
        order.high = self.run.next_offset
        for one in order.scan(self.run.start):
            if isinstance(one, Batch) and one.base_offset >= self.next_offset:
                return
            if isinstance(one, Batch) and one.next_offset > self.first_offset:
                yield one


class _Kind(Enum):
    """What a copy can have of offsets that are missing elsewhere; the best first."""

    SOUND = auto()
    RESTORED = auto()
    """Batches whose headers are wrong, but not their records."""
    HOLE = auto()
    """Nothing, since the cleaner may have left it out at an end of a segment."""


class Copies:
    """The other copies of a partition, looked at on demand."""

    def __init__(self, paths: Sequence[str], view: LogView, lineage: Lineage | None) -> None:
        self._paths = paths
        self._view = view
        self._lineages = () if lineage is None else (lineage,)

    @computed_once
    def _logs(self) -> list[UnifiedLog]:
        found = []
        for path in self._paths:
            with suppress(DataError):  # a copy that cannot be read fills no gap
                found.append(UnifiedLog(show(open_partition(path), self._view).partition))
        return found

    def end_offset(self) -> int:
        """Return the offset after the last record that a copy may lend."""
        epochs = [
            one.leader_epochs[-1].leader_epoch if one.leader_epochs else -1 for one in self._logs
        ]
        latest = self._lineages[0][-1][0] if self._lineages else max(epochs, default=-1)
        pairs = zip(self._logs, epochs, strict=True)
        return max((one.log_end_offset for one, epoch in pairs if epoch == latest), default=0)

    def fill(
        self, first: int, end: int, after: After | None = None
    ) -> tuple[list[Piece], list[tuple[int, int]]]:
        """Return what some copy has of a range of offsets, in order, and what none has.

        Args:
            first, end: the range.
            after: what the range comes after; copies that have something else there are not asked.
        """
        pieces: list[Piece] = []
        missing = [(first, end)] if first < end else []
        for kind in _Kind:
            for log in self._logs:
                if missing and (after is None or after.is_in(log)):
                    missing = self._taken(log, missing, kind, pieces)
        return sorted(pieces, key=lambda one: one.first_offset), missing

    def _taken(
        self, log: UnifiedLog, missing: list[tuple[int, int]], kind: _Kind, pieces: list[Piece]
    ) -> list[tuple[int, int]]:
        """Return what is still missing, and add what a log has of it to the pieces."""
        left = []
        for start, stop in missing:
            at = start
            for segment, run in self._runs(log, start, stop, kind):
                bounds = run.first_offset, run.next_offset
                if kind == _Kind.HOLE:
                    bounds = run.covers
                low, high = max(at, bounds[0]), min(stop, bounds[1])
                if low < high:
                    if kind != _Kind.HOLE:
                        pieces.append(Piece(log.partition.path, segment, run, low, high))
                    left += [(at, low)] if at < low else []
                    at = high
            left += [(at, stop)] if at < stop else []
        return left

    def _runs(
        self, log: UnifiedLog, first: int, end: int, kind: _Kind
    ) -> Iterator[tuple[Segment, Run]]:
        clean_to = clean_to_of(log)
        for segment in log.segments:
            following = segment.next_base_offset
            if (following is not None and following <= first) or segment.base_offset >= end:
                continue
            with suppress(DataError):
                # What cannot be read is not sound: other copies may have it.
                for run in self._survey(segment, (first, end), clean_to, kind):
                    yield segment, run

    def _survey(
        self, segment: Segment, bounds: tuple[int, int], clean_to: int, kind: _Kind
    ) -> list[Run]:
        from kafkalog.tables.soundness import Survey  # it needs numpy

        first, end = bounds
        with OpenSegment(segment) as opened:
            entry = opened.index_entry(first)
            start = 0 if entry is None else entry.position
            low = opened.base_offset_at(start)
            start = 0 if low is None or low > first else start  # the index may be damaged
            size = opened.source.size_bytes
        base, following = segment.base_offset, segment.next_base_offset
        survey = Survey(base, following, self._lineages, clean_to)
        survey.read(segment.log.path, start, size, end)
        runs = survey.restored if kind == _Kind.RESTORED else survey.runs
        if not runs or kind == _Kind.RESTORED:
            return runs
        # At both ends of a segment, too, the cleaner makes holes.
        head, tail = runs[0], runs[-1]
        if head.start == 0 and (survey.is_compacted or base < clean_to):
            runs[0] = replace(head, covers=(base, head.covers[1]))
        is_cleaned = survey.is_compacted or tail.next_offset < clean_to
        if tail.end == size and following is not None and is_cleaned:
            runs[-1] = replace(runs[-1], covers=(runs[-1].covers[0], following))
        return runs


def sound_parts(split: Split, listener: Listener) -> list[Split]:
    """Return the splits that have the rows of a split: itself, unless other copies must help.

    Args:
        split: of records or batches, with the copies that can help.
        listener: hears of each range that comes from another copy, and of the damage of this copy
            where others have a part of what is lost, but none has the rest.

    Cost:
        Reads a split of a partition with several copies once, for its checksums; of other copies
        only the ranges that are needed.
    """
    if not split.copies or split.first_offset is None or split.next_offset is None:
        return [split]
    try:
        return _parts(split, listener)
    except NotFoundError:
        return [split]  # a broker has just replaced the file, which its reader handles


def _parts(split: Split, listener: Listener) -> list[Split]:
    survey, lineage = _surveyed(split)
    copies = Copies(split.copies, split.view, lineage)
    plain = replace(split, copies=(), lineages=(), seen=None)
    parts: list[Split] = []
    has_changed = False
    for region in _regions(split, survey.items):
        first, end, odd, run = region
        after = None
        if (
            not odd
            and first >= split.base_offset
            and (survey.is_compacted or (survey.items and first < split.clean_to))
        ):  # the cleaner may have made this hole
            after = After(split.path, survey.runs[-1].end if survey.runs else 0)
            end = first if run is not None else end
        if first < end or odd:
            pieces, missing = copies.fill(first, end, after)
            if pieces or (odd and not missing):
                has_changed = True
                run = _without_moved(run, pieces)
                for part in _filled(plain, pieces, missing, odd):
                    _add(parts, part)
                for one in odd if missing else ():
                    if one.defect is not None and not one.is_restored:
                        listener.hear(one.defect)
                _tell(split, pieces, listener)
            elif odd:
                _add(parts, replace(plain, start=odd[0].start, end=odd[-1].end))
        if run is not None:
            _add(parts, replace(plain, start=run.start, end=run.end))
    return [one for one in parts if one.start < one.end] if has_changed else [split]


def _surveyed(split: Split) -> tuple[Survey, Lineage | None]:
    """Judge a split, by the lineage that most of its batches fit; the first among equals."""
    from kafkalog.tables.soundness import Survey

    lineages = split.lineages
    number = 0
    while True:
        order = (lineages[number], *lineages[:number], *lineages[number + 1 :]) if lineages else ()
        survey = Survey(split.first_offset, split.next_offset, order, split.clean_to)
        if split.start < split.end:
            survey.read(split.path, split.start, split.end)
        if number or not any(survey.misfits):
            return survey, order[0] if order else None
        number = survey.misfits.index(min(survey.misfits))
        if not number:
            return survey, order[0]


def _regions(
    split: Split, items: Sequence[Run | Odd]
) -> Iterator[tuple[int, int, list[Odd], Run | None]]:
    """Yield what is before each sound run: a range of offsets, and odd bytes; then the rest."""
    from kafkalog.tables.soundness import Run

    at = split.first_offset or 0
    odd: list[Odd] = []
    for one in items:
        if not isinstance(one, Run):
            odd.append(one)
            continue
        yield at, max(at, one.first_offset), odd, one
        at, odd = max(at, one.next_offset), []
    yield at, max(at, split.next_offset or 0), odd, None


def _without_moved(run: Run | None, pieces: Sequence[Piece]) -> Run | None:
    """Leave out the first batch if it is one of those filled in: its base offset is wrong."""
    if run is None:
        return None
    crc, size, position = run.head
    for piece in pieces:
        with suppress(DataError), Source(piece.segment.log.path) as source:
            for one in scan_batches(source, piece.run.start, piece.run.end):
                if isinstance(one, Batch) and (one.crc, one.size_bytes) == (crc, size):
                    is_filled = piece.first_offset <= one.base_offset < piece.next_offset
                    if is_filled and one.base_offset != run.first_offset:
                        return replace(run, start=position)
    return run


def _filled(
    plain: Split,
    pieces: Sequence[Piece],
    missing: Sequence[tuple[int, int]],
    odd: Sequence[Odd],
) -> list[Split]:
    """Return the splits for a region: other copies' batches, and what only this copy has."""
    found = []
    for piece in pieces:
        part = replace(
            plain,
            log_dir=os.path.dirname(piece.path),
            path=piece.segment.log.path,
            base_offset=piece.segment.base_offset,
            first_offset=piece.run.first_offset,
            next_offset=piece.run.next_offset,
            high=piece.run.next_offset,
            start=piece.run.start,
            end=piece.run.end,
        )
        part = _clipped(part, piece.first_offset, piece.next_offset)
        found.append((piece.first_offset, part))
    for one in odd:
        own = replace(plain, start=one.start, end=one.end)
        if one.first_offset < 0:
            if missing and one.defect is None:  # reading it says why it cannot be read
                found.append((missing[0][0], own))
            continue
        own = replace(
            own, first_offset=one.first_offset, next_offset=one.next_offset, high=one.next_offset
        )
        for start, stop in missing:
            if start <= one.first_offset and one.next_offset <= stop:
                found.append((one.first_offset, own))
            elif max(start, one.first_offset) < min(stop, one.next_offset):
                found.append((max(start, one.first_offset), _clipped(own, start, stop)))
    return [part for _, part in sorted(found, key=lambda item: item[0])]


def _clipped(split: Split, first: int, end: int) -> Split:
    to_offset = end if split.to_offset is None else min(end, split.to_offset)
    return replace(split, from_offset=max(first, split.from_offset or 0), to_offset=to_offset)


def _add(parts: list[Split], part: Split) -> None:
    """Add a part; what follows another one in its file says, read together, what is right there."""
    before = parts[-1] if parts else None
    if before is not None and before.end == part.start and (
        (before.path, before.from_offset, before.to_offset)
        == (part.path, part.from_offset, part.to_offset)
    ):  # fmt: skip
        part = replace(before, end=part.end, next_offset=part.next_offset, high=part.high)
        parts.pop()
    parts.append(part)


def _tell(split: Split, pieces: Sequence[Piece], listener: Listener) -> None:
    for piece in pieces:
        if split.to_offset is not None and piece.first_offset >= split.to_offset:
            continue
        if split.from_offset is not None and piece.next_offset <= split.from_offset:
            continue
        listener.hear(copied_note(f"{split.topic}-{split.partition}", split.path, piece))


def copied_note(name: str, path: str, piece: Piece) -> Defect:
    """Return the finding that a range of offsets of a log comes from another copy."""
    detail = (
        f"Offsets {piece.first_offset} to {piece.next_offset - 1} of {name} come from the copy "
        f"in {piece.path}."
    )
    return make_defect("read-from-copy", path, detail, offset=piece.first_offset)


def segment_of(split: Split) -> Segment:
    """Return the segment that a split is of, without its indexes."""
    name = parse_file_name(split.path.rpartition("/")[2])
    log = FileEntry(split.path, name, split.end)
    return Segment(split.base_offset, log, None, None, None, split.high)
