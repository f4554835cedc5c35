"""The frontier of a start: how far it has scanned a log for a reader that may stop early."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from formats.file_names import FileKind, FileState
from kafkalog.errors import DataError
from kafkalog.files.indexes import ENTRY_SIZES
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.framing import scan_batches
from kafkalog.log.living import CHANGES
from kafkalog.node.outcome import (
    View,
    begin_start,
    outcome_of,
    start_config_of,
    unknown_outcome,
    view_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.files.log_dir import FileEntry, PartitionDir, Segment
    from kafkalog.model import Batch


_LITTLE: Final = 3 << 16
"""Scan this much at once: a reader hardly notices."""
_NO_INDEX: Final = 1 << 20
"""Below this size, searching headers takes no more reads than searching an index."""


class Frontier:
    """How far the scan of a start has got that goes no further than a reader of its view does.

    The view has the files as they are; a reader asks at each position whether a start accepts what
    is there. Once one does not, the rest of the start is predicted, and the view is final.

    A scan may throw away what it has accepted: if offsets go back at a batch for which an index
    entry is due, nothing of the segment stays. Then it is named in `Difference.logs_in_doubt`.

    Args:
        partition: the directory.

    Attributes:
        final: the final view, once it is known.
        scanned_bytes: how much was scanned for parts.
    """

    def __init__(self, partition: PartitionDir) -> None:
        self.final: View | None = None
        self._partition = partition
        self._start, self._written = begin_start(partition, None)
        self._first = self.end_min
        logs = [one.log for one in partition.segments if one.base_offset >= self._first]
        self._hole_bytes = sum(log.hole_bytes for log in logs)  # preallocated
        self._positions: dict[str, int] = {}
        self.scanned_bytes = 0

    def can_wait(self) -> bool:
        """Return whether there is much to scan, and what comes before it is known to stay."""
        start = self._start
        while (scan := start.scan) is not None and start.scans_the_end:
            # A log that ends below its log start offset is dropped.
            if scan.reached[1] >= start.log_start_checkpoint:
                return start.unread_bytes - self._hole_bytes > _LITTLE
            if not start.advance():
                break
        return False

    @property
    def unscanned_bytes(self) -> int:
        """How much of the log a start would scan, and was not."""
        return 0 if self.final is not None else self._start.unread_bytes

    @property
    def end_min(self) -> int:
        """An offset at which, or after which, the log ends after the start."""
        return 0 if self._start.scan is None else self._start.scan.segment.base_offset

    def view(self) -> View:
        """Return the view with nothing scanned."""
        start = self._start
        shown = view_of(self._partition, start.tidying, start.contents, None)
        files = tuple(map(self._in_view, shown.partition.files))
        partition = replace(shown.partition, files=files)
        return View(partition, partition.segments, shown.difference, self)

    def cut_at(self, segment: Segment, position: int) -> int | None:
        """Return where a start ends a segment if it does not accept what is at a position."""
        path = segment.log.path
        with self._contained():
            if self.final is None and self._start.accepts(segment.base_offset, position):
                self._positions[path] = position
                return None
        there = (one.log for one in self.settle().segments if one.log.path == path)
        return next((log.end for log in there), 0)

    def final_at(self, segment: Segment) -> Sequence[Segment] | None:
        """Return the segments of the final view if that is known, or has to be to read one."""
        self.cut_at(segment, 0)
        return None if self.final is None else self.final.segments

    def part(self, size_bytes: int) -> PartitionDir | None:
        """Scan `size_bytes`; return the log as far as a start accepts it, None if that is all.

        It ends with batches that the start accepts, and has those of all segments before.
        """
        start = self._start
        with self._contained():
            while self.final is None and self.scanned_bytes < size_bytes:
                before = start.unread_bytes
                if not start.advance():
                    return None
                self.scanned_bytes += before - start.unread_bytes
        if self.final is not None or start.scan is None:
            return None
        position, end = start.scan.reached
        base, files = start.scan.segment.base_offset, []
        for entry in self.view().partition.files:
            kind, offset = entry.name.kind, entry.name.offset or 0
            is_log = kind == FileKind.LOG and entry.name.state == FileState.LIVE
            if is_log and offset == base:
                files.append(replace(entry, size_bytes=position, end=position, survey=None))
            elif offset < base or not (is_log or (kind in ENTRY_SIZES and position < _NO_INDEX)):
                files.append(entry)
        return replace(self._partition, files=tuple(files), end_offset=end)

    def is_followed(self, batch: Batch) -> bool:
        """Return whether those two batches are accepted, too, by which `Order` judges one."""
        scan = self._start.scan
        if scan is None or scan.segment.log.path != batch.path:
            return True
        with Source(batch.path, scan.reached[0]) as source:
            return len(list(islice(scan_batches(source, batch.end_position), 2))) == 2

    @contextmanager
    def _contained(self) -> Iterator[None]:
        """Show the files as they are if the block cannot read them."""
        try:
            yield
        except CHANGES:
            raise  # a new listing knows more
        except DataError as error:
            self.final = unknown_outcome(self._partition, error)

    def settle(self) -> View:
        """Return the final view. Raises as `show`.

        Cost:
            Scans what was not scanned. All of it is scanned, maybe again, if the topic's configs
            for indexes, which the metadata log has, are not the usual ones.
        """
        from kafkalog.node.recovery.start import usual_config

        with self._contained():
            if self.final is not None:
                return self.final
            config = start_config_of(self._partition)
            if config not in (None, usual_config(self._partition)):
                self._start, self._written = begin_start(self._partition, config)
            shown = outcome_of(self._partition, self._start, self._written)
            ends = {one.log.path: one.log.size_bytes for one in shown.segments}
            lost = [path for path, seen in self._positions.items() if ends.get(path, 0) < seen]
            if lost and shown.difference is not None:
                names = tuple(os.path.basename(path) for path in lost)
                shown = replace(shown, difference=replace(shown.difference, logs_in_doubt=names))
            self.final = shown
        assert self.final is not None, "errors settle it, too"
        return self.final

    def _in_view(self, entry: FileEntry) -> FileEntry:
        """Return a file of the view; a start writes the indexes of what it scans again."""
        is_scanned = (entry.name.offset or 0) >= self._first
        return replace(entry, is_stale=is_scanned) if entry.name.kind in ENTRY_SIZES else entry
