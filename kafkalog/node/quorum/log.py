"""Reads the log of a copy of the cluster's metadata: its epochs, its control records, its damage.

KRaft leaves no gaps: each batch begins where the one before it ends, and each epoch with the
message of its leader. So what no checksum covers, offset and epoch, is known here, too.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass
from kafkalog.errors import DataError, NotFoundError
from kafkalog.files.payloads.control_records import control_record
from kafkalog.io.paths.source import Source
from kafkalog.log.batches.records import decode_records
from kafkalog.log.defects import kind_of, make_defect
from kafkalog.model import Batch, Defect, Level
from kafkalog.node.quorum.lineage import Lineage, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from kafkalog.files.log_dir import FileEntry, PartitionDir, Segment
    from kafkalog.log.columns.headers import BatchColumns

_NONE: Final[Container[int]] = ()
_INCOMPLETE: Final = ("torn-tail", "zero-tail")
"""What a broker leaves at the end of its log that was killed, or whose machine stopped."""
TORN: Final = "kraft-snapshot-torn"
MISDATED: Final = "batch-leader-epoch-wrong"
# Of `ControlRecordType`.
LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
VOTERS: Final = 6


@dataclass(frozen=True, slots=True)
class Control:
    """A control record of KRaft.

    Attributes:
        offset: in the log, or in the snapshot that holds it.
        type_id: of `ControlRecordType`.
        fields: by Kafka's names; empty if its value cannot be read.
    """

    offset: int
    type_id: int
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """What was read of a log or of a snapshot.

    Attributes:
        lineage: the epochs of its sound batches; of a log only.
        controls: its control records, but for messages of leaders before the last one.
        defects: its damage, by position.
        torn: an incomplete batch at its end, which a broker leaves that was killed; None without.
    """

    lineage: Lineage
    controls: tuple[Control, ...] = ()
    defects: tuple[Defect, ...] = ()
    torn: Defect | None = None

    def last(self, type_id: int) -> Control | None:
        """Return its last control record of a type."""
        return next((one for one in reversed(self.controls) if one.type_id == type_id), None)


@dataclass
class _Reading:
    """A log that is being read.

    Attributes:
        start: its first offset.
        misdated: base offsets of batches whose epochs other logs have shown to be wrong.
        next_offset: the offset of the next batch; None behind damage.
        limit: the offset before which batches have to end; None in the last segment.
    """

    start: int
    misdated: Container[int]
    spans: list[Span] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    defects: list[Defect] = field(default_factory=list)
    next_offset: int | None = None
    limit: int | None = None
    _last: Batch | None = None
    """The last batch, while it is the only one of its epoch."""

    @property
    def lowest(self) -> int:
        """The lowest offset that a batch may begin at."""
        return self.spans[-1].end if self.spans else self.start

    def take_all(self, source: Source, columns: BatchColumns) -> None:
        """Take batches, at once if nothing about them is unusual."""
        from kafkalog.log.columns import header_table as h

        run, span = columns.plain, self.spans[-1] if self.spans else None
        if (
            run is not None
            and span is not None
            and not self.misdated
            and (run.epoch, run.first_offset) == (span.epoch, self.next_offset)
            and run.first_offset == span.end
            and (self.limit is None or run.next_offset <= self.limit)
        ):
            self.spans[-1] = span._replace(end=run.next_offset)
            self.next_offset, self._last = run.next_offset, None
            return
        kinds, valid = columns.markers[h.MARKER_TYPE].tolist(), columns.crc_valid.tolist()
        for at in range(columns.count):
            batch = h.batch_at(columns.headers, at, source.path, valid[at])
            self._take(source, batch, kinds[at])

    def _take(self, source: Source, batch: Batch, kind: int) -> None:
        wrong = self._wrong(batch, kind)
        if wrong is not None:
            self.spoil(_defect(batch, *wrong))
            return
        span = self.spans[-1] if self.spans else None
        if span is not None and (span.epoch, span.end) == (batch.leader_epoch, batch.base_offset):
            self.spans[-1] = span._replace(end=batch.next_offset)
            self._last = None
        else:
            self.spans.append(Span(batch.leader_epoch, batch.base_offset, batch.next_offset))
            self._last = batch
        self.next_offset = batch.next_offset
        if batch.is_control:
            self._take_controls(source, batch)

    def _wrong(self, batch: Batch, kind: int) -> tuple[str, str] | None:
        """Return the kind of defect that a batch is, and its words; None if it is sound."""
        first, end, limit = batch.base_offset, batch.next_offset, self.limit
        if (damage := _damaged(batch)) is not None:
            return damage
        follows = first >= self.lowest if self.next_offset is None else first == self.next_offset
        if not follows or end <= first or (limit is not None and end > limit):
            wanted = "a later offset" if self.next_offset is None else str(self.next_offset)
            words = f"The batch has base offset {first}; after the one before it comes {wanted}."
            return "batch-offset-not-increasing", words
        span = self.spans[-1] if self.spans else None
        epoch, before = batch.leader_epoch, None if span is None else span.epoch
        is_behind_damage = span is None or span.end != first
        if first in self.misdated:
            return MISDATED, f"Another copy of the batch has another leader epoch than {epoch}."
        if epoch < 0:
            return MISDATED, f"The batch has leader epoch {epoch}."
        if before is not None and epoch < before:
            if self._last is not None and not is_behind_damage and self._is_later(epoch):
                self._take_back(before)
                return self._wrong(batch, kind)
            return MISDATED, f"The batch has leader epoch {epoch}, the one before it {before}."
        if not is_behind_damage and epoch != before and kind != LEADER_CHANGE:
            words = f"The batch has leader epoch {epoch}, the one before it {before}, and no "
            return MISDATED, f"{words}message of a new leader."
        return None

    def _is_later(self, epoch: int) -> bool:
        """Return whether an epoch may follow the one before the last."""
        return len(self.spans) < 2 or self.spans[-2].epoch <= epoch

    def _take_back(self, epoch: int) -> None:
        """Count the last batch, the only one of its epoch, as damage."""
        batch = self._last
        assert batch is not None, "somebody has looked"
        self.spans.pop()
        self.controls = [one for one in self.controls if one.offset < batch.base_offset]
        words = f"The batch has leader epoch {epoch}, the one after it an earlier one."
        self.spoil(_defect(batch, MISDATED, words))

    def _take_controls(self, source: Source, batch: Batch) -> None:
        for one in controls_of(source, batch):
            if one.type_id == LEADER_CHANGE:
                self.controls = [old for old in self.controls if old.type_id != LEADER_CHANGE]
            self.controls.append(one)

    def spoil(self, defect: Defect) -> None:
        """Note damage: where the next batch begins is not known."""
        self.defects.append(defect)
        self.next_offset, self._last = None, None


def _damaged(batch: Batch) -> tuple[str, str] | None:
    """Return the kind of defect that a batch by itself is, and its words; None if it is sound."""
    if not batch.crc_valid:
        words = f"The batch at offset {batch.base_offset} does not match its checksum."
        return "batch-crc-mismatch", words
    if batch.magic != 2:
        return "magic-unknown", f"Magic {batch.magic}: metadata have batches of magic 2."
    return None


def _defect(batch: Batch, kind: str, words: str) -> Defect:
    return make_defect(
        kind, batch.path, words, position=batch.position, offset=batch.base_offset,
        size_bytes=batch.size_bytes,
    )  # fmt: skip


def read_log(
    partition: PartitionDir,
    misdated: Container[int] = _NONE,
    progress: Callable[[int], None] | None = None,
) -> Contents:
    """Read the log of a copy of the cluster's metadata.

    Args:
        partition: its directory.
        misdated: base offsets of batches whose epochs are known to be wrong.
        progress: called with numbers of bytes as they are read.

    Cost:
        Reads all of it, in chunks; memory for its epochs and its damage.
    """
    segments = partition.segments
    reading = _Reading(segments[0].base_offset if segments else 0, misdated)
    for segment in segments:
        _read_segment(reading, segment, progress)
    torn = None
    if reading.defects and reading.defects[-1].reference in _INCOMPLETE:
        is_at_end = reading.defects[-1].path == segments[-1].log.path
        torn = reading.defects.pop() if is_at_end else None
    lineage = Lineage(reading.start, tuple(reading.spans))
    return Contents(lineage, tuple(reading.controls), tuple(reading.defects), torn)


def _read_segment(
    reading: _Reading, segment: Segment, progress: Callable[[int], None] | None
) -> None:
    from kafkalog.log.columns.headers import BatchColumns, batch_columns

    base = segment.base_offset
    if reading.next_offset not in (None, base):
        kind = "offsets-missing"
        words = f"Offsets {reading.next_offset} to {base - 1} are missing before this segment."
        if base < reading.lowest:
            kind, words = (
                "segments-overlap",
                f"The log before this segment ends at {reading.lowest}.",
            )
        reading.spoil(make_defect(kind, segment.log.path, words, offset=base))
    if base >= reading.lowest:
        reading.next_offset = base
    reading.limit = segment.next_base_offset
    try:
        with Source(segment.log.path) as source:
            for found in batch_columns(source, Level.STANDARD):
                if isinstance(found, BatchColumns):
                    reading.take_all(source, found)
                else:
                    reading.spoil(found)
                if progress is not None:
                    progress(found.size_bytes or 0)
    except DataError as error:
        following = segment.next_base_offset
        if is_gone(error, segment.log) and following is not None and not reading.spans:
            reading.start, reading.next_offset = following, None
            return
        reading.spoil(make_defect(kind_of(error), error.path or segment.log.path, error.message))


def is_gone(error: DataError, entry: FileEntry) -> bool:
    """Return whether a broker has deleted a file since it was listed."""
    return isinstance(error, NotFoundError) and entry.error is None


def read_snapshot(
    entry: FileEntry, progress: Callable[[int], None] | None = None
) -> Contents | None:
    """Read a snapshot: all checksums, the header it begins with, the footer it ends with.

    Returns:
        What it holds; None if a broker has deleted it meanwhile.

    Cost:
        Reads all of it, in chunks.
    """
    from kafkalog.log.columns import header_table as h
    from kafkalog.log.columns.headers import BatchColumns, batch_columns

    controls: list[Control] = []
    defects: list[Defect] = []
    kinds: list[int] = []
    try:
        with Source(entry.path) as source:
            for found in batch_columns(source, Level.STANDARD):
                if progress is not None:
                    progress(found.size_bytes or 0)
                if not isinstance(found, BatchColumns):
                    defects.append(found)
                    continue
                kinds = [*kinds[:1], *found.markers[h.MARKER_TYPE].tolist()]
                kinds = [kinds[0], kinds[-1]]
                wrong = ~found.crc_valid | (found.headers[h.MAGIC] != 2)
                for at in (wrong | (found.markers[h.MARKER_TYPE] >= 0)).nonzero()[0]:
                    batch = h.batch_at(found.headers, at, entry.path, bool(found.crc_valid[at]))
                    damage = _damaged(batch)
                    defects += [] if damage is None else [_defect(batch, *damage)]
                    controls += controls_of(source, batch) if damage is None else ()
    except DataError as error:
        if is_gone(error, entry):
            return None
        defects.append(make_defect(kind_of(error), error.path or entry.path, error.message))
    if not kinds and not defects:
        # It loads the schemas of records.
        from kafkalog.node.cluster_image.reader import empty_snapshot

        defects.append(empty_snapshot(entry.path))
    elif not defects and kinds != [SNAPSHOT_HEADER, SNAPSHOT_FOOTER]:
        what = "header" if kinds[0] != SNAPSHOT_HEADER else "footer"
        words = f"The snapshot is not whole: it has no {what}."
        defects.append(make_defect(TORN, entry.path, words))
    return Contents(Lineage(entry.name.offset or 0), tuple(controls), tuple(defects))


def controls_of(source: Source, batch: Batch) -> Iterator[Control]:
    """Yield the control records of a batch; one that cannot be read ends them."""
    try:
        for record in decode_records(source, batch):
            found = control_record(record)
            yield Control(record.offset, found.type_id, dict(found.fields or {}))
    except DataError:
        return  # reported where the log is checked
