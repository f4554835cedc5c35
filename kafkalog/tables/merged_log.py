"""The log that several copies of a partition are together, as planners see it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from formats import file_names
from kafkalog.errors import DataError, Deaf
from kafkalog.files.tiers import is_remote
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.batches.segment import OpenSegment, cut_positions
from kafkalog.model import AbortedTransaction, Batch, Defect, LogView, computed_once
from kafkalog.node.targets import best_replica
from kafkalog.node.unified_log import END, UnifiedLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.files.log_dir import PartitionDir, Segment
    from kafkalog.log.columns.headers import BatchColumns
    from kafkalog.model import ProducerState
    from kafkalog.tables.model import Split
    from kafkalog.tables.planning import Target
    from kafkalog.tables.soundness import Lineage

from kafkalog.tables.merging import Copies, clean_to_of, segment_of, sound_parts


def _parts_of_segment(segment: Segment, size: int) -> Iterator[tuple[Segment, int, int, int]]:
    positions, offsets = [0], [segment.base_offset]
    length = segment.log.end or segment.log.size_bytes
    with suppress(DataError), OpenSegment(segment) as opened:  # else it stays in one piece
        length = opened.source.size_bytes
        for position in cut_positions(opened, 0, length, size):
            offset = opened.base_offset_at(position)
            following = segment.next_base_offset
            if offset is None or offset <= offsets[-1]:
                continue
            if following is None or offset < following:
                positions.append(position)
                offsets.append(offset)
    for start, end, offset in zip(positions, [*positions[1:], length], offsets, strict=True):
        yield segment, start, end, offset


def _sought(segment: Segment, offset: int, usual: tuple[int, int], end: int) -> tuple[int, int]:
    """Return where to begin in a part for an offset, and which offset is there."""
    # Else the part is read from its beginning.
    with suppress(DataError), OpenSegment(segment) as opened:
        entry = opened.index_entry(offset)
        if entry is not None and usual[0] < entry.position < end:
            low = opened.base_offset_at(entry.position)
            if low is not None and usual[1] < low <= offset:
                return entry.position, low
    return usual


class MergedLog(UnifiedLog):
    """The log that several copies of a partition are together, as planners see it.

    Args:
        partition: the most complete copy, as a view shows it.
        copies: the others, likewise.
        plain: a split with its topic, its partition and its view.
        to_end: whether it ends at its end, instead of the high watermark.
    """

    def __init__(
        self, partition: PartitionDir, copies: Sequence[PartitionDir], plain: Split, *,
        to_end: bool,
    ) -> None:  # fmt: skip
        main = UnifiedLog(partition)
        logs = [UnifiedLog(one) for one in copies]
        # A copy whose last leader is older may end with what was cut off elsewhere.
        epoch = _latest_epoch(main)
        others = [one for one in logs if _latest_epoch(one) >= epoch]
        ends = [_known(one, "log_end_offset", 0) for one in others]
        self._noted_by = {
            file_names.HIGH_WATERMARKS: (main, *others), file_names.LOG_STARTS: (main, *logs),
        }  # fmt: skip
        self._first = min(one.first_offset for one in (main, *logs) if one.segments or one is main)
        super().__init__(
            partition,
            high_watermark=END if to_end else None,
            log_end_offset=max(main.log_end_offset, *ends, 0),
        )
        self.copies = tuple(one.path for one in copies)
        lineages = [lineage_of(one) for one in (main, *logs)]
        self._plain = replace(
            plain,
            copies=self.copies,
            lineages=tuple(dict.fromkeys(one for one in lineages if one)),
            clean_to=clean_to_of(main),
        )
        self._logs = (main, *logs)

    def listed_again(self, view: LogView = LogView.RECOVERED) -> MergedLog:
        """List all copies again; return the log, same options. Raises as `list_partition`."""
        main, *copies = (one.listed_again(view).partition for one in self._logs)
        return MergedLog(main, copies, self._plain, to_end=self.given.high_watermark == END)

    def checkpoint(self, name: str) -> int | None:
        """Return the largest entry that a checkpoint has in the log directories of the copies."""
        by = self._noted_by.get(name, self._logs[:1])
        noted = [UnifiedLog.checkpoint(one, name) for one in by]
        return max((one for one in noted if one is not None), default=None)

    def end_of_copy(self, copy: PartitionDir) -> int:
        """Return the log end offset of a copy after a start, which may be the first one."""
        return self._logs[0].end_of_copy(copy)

    @property
    def first_offset(self) -> int:
        """Base offset of the first segment that a copy has."""
        return self._first

    def splits(self, first: int, end: int, size: int, of: Split | None = None) -> Iterator[Split]:
        """Yield splits of about a size that together answer for a range of offsets.

        Offsets that no segment has belong to the part before them, or to the first part. Positions
        come from offset indexes, and offsets from the batches there. The rest is that of another
        split.
        """
        mine = self._plain
        plain = mine if of is None else replace(
            of, copies=mine.copies, lineages=mine.lineages, clean_to=mine.clean_to
        )  # fmt: skip
        parts = [part for one in self.segments for part in _parts_of_segment(one, size)]
        for number, (segment, start, stop, offset) in enumerate(parts):
            low = offset if number else min(offset, first)
            is_last = number + 1 == len(parts)
            high = max(self.log_end_offset, offset) if is_last else parts[number + 1][3]
            if high <= first or (low >= end and number):
                continue
            if offset < first:
                start, low = _sought(segment, first, (start, low), stop)
            yield replace(
                plain, path=segment.log.path, base_offset=segment.base_offset, start=start,
                end=stop, first_offset=low, next_offset=high, high=segment.next_base_offset,
            )  # fmt: skip

    def planned(self, wanted: Split, size: int) -> Iterator[Split]:
        """Yield splits of about a size for the offsets, times and transactions of another one."""
        first = self.first_offset if wanted.from_offset is None else wanted.from_offset
        end = self.log_end_offset if wanted.to_offset is None else wanted.to_offset
        for one in self.splits(first, end, size, wanted):
            low, high = one.first_offset or 0, one.next_offset or 0
            seen = None
            with suppress(DataError), Source(one.path) as source:
                if wanted.seen is not None and not is_remote(one.path):
                    seen = wanted.seen.of_part(source, one.start, one.end)
            aborted = tuple(some for some in wanted.aborted if some[2] >= low and some[1] < high)
            yield replace(one, seen=seen, aborted=aborted)

    def lacks(self, first: int, end: int) -> bool:
        """Return whether no copy has some offsets of a range between segments of this one."""
        lineages = self._plain.lineages
        copies = Copies(self.copies, self._plain.view, lineages[0] if lineages else None)
        return bool(copies.fill(first, end)[1])

    @computed_once
    def _has_one_story(self) -> bool:
        """Whether the transactions can be taken from the most complete copy alone.

        Its log has no damage where they are looked for, and no copy has others.
        """
        stories = []
        for log in self._logs:
            end = min(self.high_watermark, _known(log, "log_end_offset", 0))
            one = UnifiedLog(log.partition, high_watermark=end)
            try:
                told = one.hidden_transactions()
            except DataError:
                return False
            opened = {some.producer_id for some in one.open_transactions()}
            stories.append((log.log_start_offset, end, told, opened))
            if one.damage:
                return False
        main, *others = stories
        is_whole = main[0] <= self.log_start_offset and main[1] >= self.high_watermark
        return is_whole and all(_agree(main, other) for other in others)

    def aborted_transactions(self) -> list[AbortedTransaction]:
        """Return the aborted transactions that are listed; without sound lists none."""
        return super().aborted_transactions() if self._has_one_story else []

    def _producers_in_snapshot(self, start: int, end: int) -> tuple[list[ProducerState], int]:
        return super()._producers_in_snapshot(start, end) if self._has_one_story else ([], start)

    def headers_from(self, offset: int) -> Iterator[tuple[Batch | BatchColumns, OpenSegment]]:
        """Yield the batch headers from an offset on, of all copies if they differ."""
        follow = super().headers_from if self._has_one_story else self.batches_from
        yield from follow(offset)

    def batches_from(self, offset: int) -> Iterator[tuple[Batch, OpenSegment]]:
        """Yield the batch headers from an offset on, of all copies if they differ."""
        if self._has_one_story:
            yield from super().batches_from(offset)
            return
        for split in self.splits(offset, self.log_end_offset, 1 << 30):
            for part in sound_parts(split, Deaf()):
                with OpenSegment(segment_of(part)) as opened:
                    for found in scan_batches(opened.source, part.start, part.end):
                        if isinstance(found, Defect):
                            self._passed_over(found)
                        elif found.last_offset >= max(offset, part.from_offset or 0) and (
                            part.to_offset is None or found.base_offset < part.to_offset
                        ):
                            yield found, opened


_Story = tuple[int, int, list[AbortedTransaction], set[int]]


def _agree(one: _Story, other: _Story) -> bool:
    """Return whether two copies have the same transactions, where both have the log."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    told = [
        {
            (some.producer_id, some.first_offset, some.last_offset)
            for some in story[2]
            if low <= some.first_offset and some.last_offset < high
        }
        for story in (one, other)
    ]
    return told[0] == told[1] and (one[1] != other[1] or one[3] == other[3])


def lineage_of(log: UnifiedLog) -> Lineage:
    return tuple((one.leader_epoch, one.start_offset) for one in log.leader_epochs)


def _latest_epoch(log: UnifiedLog) -> int:
    """Return the latest leader epoch that is noted, or of the last batch; -1 if unknown."""
    if log.leader_epochs:
        return log.leader_epochs[-1].leader_epoch
    with suppress(DataError):
        for segment in log.segments[-1:]:
            with OpenSegment(segment) as opened:
                found = [one.leader_epoch for one in opened.batches(0)]
            return found[-1] if found else -1
    return -1


def _known(log: UnifiedLog, name: str, usual: int) -> int:
    """Return an offset of a log, or another value if it cannot be read."""
    with suppress(DataError):
        return int(getattr(log, name))
    return usual


def best_targets(targets: Sequence[Target], *, merges: bool) -> list[Target]:
    """Return the most complete replica of each partition; among equals the first.

    Args:
        targets: the replicas, all of one topic (`kafkalog.node.choice`). A deleted directory is no
            replica of a live one.
        merges: whether it has the others as its copies. A single file stays alone.
    """
    found: dict[tuple[object, ...], list[Target]] = {}
    for target in targets:
        of = target.partition
        found.setdefault((of.topic, of.partition, of.state), []).append(target)
    best = []
    for some in found.values():
        partition = best_replica([one.partition for one in some])
        chosen = next(one for one in some if one.partition is partition)
        place = chosen.listed.path
        others = [one for one in some if not one.is_file and one.listed.path != place]
        if merges and others and not chosen.is_file:
            # What a start on one copy would change says nothing about all of them together.
            chosen = replace(chosen, copies=tuple(others), difference=None)
        best.append(chosen)
    return best
