"""The rows of a salvage's manifest, as values and as JSON lines.

Positions and sizes are in bytes, offsets are record offsets; ranges of offsets include both ends.
Paths of the new directory are relative to it, with slashes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, field
from enum import StrEnum

from formats.late_classes import dataclass
from kafkalog.model import Defect


class Fate(StrEnum):
    """What happened to a file of the source, or where a file of the result comes from."""

    COPIED = "copied"
    """Copied byte for byte."""
    REBUILT = "rebuilt"
    """Rebuilt from the copied batches, as a broker's recovery does."""
    LOST = "lost"
    """Unusable; its bytes are in `lost+found`."""
    SKIPPED = "skipped"
    """Left where it is: a leftover, or not one of Kafka's files."""


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """Consecutive batches that were copied byte for byte, or one whose header was corrected.

    Attributes:
        path: in the source.
        position: in that log.
        to_position: in the new log.
        base_offset: of the first batch.
        last_offset: of the last batch.
        records: each was decoded.
        corrected: what was wrong in its header.
    """

    path: str
    position: int
    size_bytes: int
    to_position: int
    base_offset: int
    last_offset: int
    batches: int
    records: int
    corrected: str | None = None


@dataclass(frozen=True, slots=True)
class LostRange:
    """Bytes between copied batches, or before or after them.

    Copied and lost ranges cover a log without a gap.

    Attributes:
        path: in the source.
        position: in that log.
        file: relative to the new directory; None if all bytes are zero.
        reference: kind of the first defect.
        defects: batches, and ranges without one.
        first_offset: first that no copied batch around it has, so that may be lost; None if they
            leave none out.
        last_offset: last that may be lost; None at the end of a log if no checkpoint notes where
            it ended.
        in_copies: whether other copies have all of it.
    """

    path: str
    position: int
    size_bytes: int
    file: str | None
    reference: str
    detail: str
    defects: int
    first_offset: int | None
    last_offset: int | None
    in_copies: bool = False

    @property
    def is_padding(self) -> bool:
        """Whether it is only preallocated zeros."""
        return self.file is None and self.first_offset is None


@dataclass(frozen=True, slots=True)
class SalvagedSegment:
    """A log, after its ranges: `copied_bytes` and `lost_bytes` together are `size`.

    Attributes:
        path: in the source.
        target: relative to the new directory; None if nothing of the log is left.
        topic: from the directory's name.
        partition: None if the directory's name has none.
        base_offset: in the file's name.
        size_bytes: of the source's log.
        from_copies_bytes: copied from other copies.
        batches, records: copied.
        crc: of the source's log; None unless it was read whole.
        crc_copied: of the new log.
    """

    path: str
    target: str | None
    topic: str
    partition: int | None
    base_offset: int
    size_bytes: int
    copied_bytes: int
    lost_bytes: int
    from_copies_bytes: int
    batches: int
    records: int
    crc: int | None
    crc_copied: int | None


@dataclass(frozen=True, slots=True)
class SalvagedFile:
    """A file or directory other than a salvaged log.

    Indexes and producer snapshots of the source are not listed: they are rebuilt.

    Attributes:
        path: in the source; None if rebuilt.
        target: relative to the new directory; None if skipped.
        fate: `copied`, `rebuilt`, `lost` (to `lost+found`) or `skipped`.
        records: in a skipped log, by batch headers.
    """

    path: str | None
    target: str | None
    fate: Fate
    detail: str
    records: int = 0


@dataclass(frozen=True, slots=True)
class SalvagedPartition:
    """A partition, after its logs and files.

    Attributes:
        path: in the source.
        target: relative to the new directory.
        topic: from the directory's name.
        partition: None if the directory's name has none.
        log_start_offset: of the new log.
        log_end_offset: offset of the next record.
        first_unstable_offset: first of an open transaction; None in a dry run.
    """

    path: str
    target: str
    topic: str
    partition: int | None
    log_start_offset: int
    log_end_offset: int
    first_unstable_offset: int | None


@dataclass(frozen=True, slots=True)
class FailedPartition:
    """A partition that was not copied because the work on it failed.

    Attributes:
        path: in the source.
        reference: kind of the error, as on stderr.
    """

    path: str
    reference: str
    detail: str


@dataclass
class SalvageSummary:
    """The last object: totals.

    Attributes:
        destination: as given; None in a plan without one.
        segments: logs.
        size_bytes: of the source's logs.
        from_copies_bytes: copied from other copies.
        batches, records: copied.
        lost_ranges: without preallocated zeros, and what copies have.
        lost_offsets: in ranges with known ends; some may never have had a record, as after
            compaction.
        corrected_batches: with a corrected header.
        skipped_records: in logs that others have replaced.
        files: by fate.
        findings: of `verify` about the result, except notes; and gaps in the source.
        failed_partitions: not copied because the work failed.
        left_over_removed: the leftover of a killed run was removed.
    """

    destination: str | None
    dry_run: bool
    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    copied_bytes: int = 0
    lost_bytes: int = 0
    from_copies_bytes: int = 0
    batches: int = 0
    records: int = 0
    lost_ranges: int = 0
    lost_offsets: int = 0
    corrected_batches: int = 0
    skipped_records: int = 0
    files: Counter[Fate] = field(default_factory=Counter)
    findings: int = 0
    failed_partitions: int = 0
    left_over_removed: bool = False

    def count(self, row: Row) -> None:
        match row:
            case SalvagedPartition():
                self.partitions += 1
            case SalvagedSegment():
                self.segments += 1
                self.size_bytes += row.size_bytes
                self.copied_bytes += row.copied_bytes
                self.lost_bytes += row.lost_bytes
                self.from_copies_bytes += row.from_copies_bytes
                self.batches += row.batches
                self.records += row.records
            case LostRange() if not (row.is_padding or row.in_copies):
                self.lost_ranges += 1
                if row.first_offset is not None and row.last_offset is not None:
                    self.lost_offsets += row.last_offset - row.first_offset + 1
            case CopiedRange() if row.corrected is not None:
                self.corrected_batches += 1
            case SalvagedFile():
                self.files[row.fate] += 1
                self.skipped_records += row.records
            case FailedPartition():
                self.failed_partitions += 1
            case Defect():
                self.findings += 1

    @property
    def has_losses(self) -> bool:
        """Whether the new log lacks anything of the old one, or still has defects."""
        # Leftovers with records next to a log are old versions of it; without a log they were the
        # data.
        is_all_skipped = self.skipped_records > 0 and not self.records
        return bool(
            self.lost_ranges
            or self.files[Fate.LOST]
            or self.findings
            or self.failed_partitions
            or is_all_skipped
        )


Row = (
    CopiedRange
    | LostRange
    | SalvagedSegment
    | SalvagedFile
    | SalvagedPartition
    | FailedPartition
    | SalvageSummary
    | Defect
)
"""The kinds of rows in a manifest."""


MANIFEST = "manifest.ndjson"
_TYPES: dict[type, str] = {
    CopiedRange: "copied_range",
    LostRange: "lost_range",
    SalvagedSegment: "salvage",
    SalvagedFile: "salvaged_file",
    SalvagedPartition: "salvaged_partition",
    FailedPartition: "failed_partition",
    SalvageSummary: "salvage_summary",
    Defect: "defect",
}
_NAMES = {"target": "to", "crc": "crc32c", "crc_copied": "copy_crc32c"}
_DEFECT_FIELDS = (
    "reference",
    "severity",
    "path",
    "position",
    "offset",
    "size_bytes",
    "detail",
    "hint",
)


def manifest_object(row: Row) -> dict[str, object]:
    """Return the object for a row: its type, then its fields."""
    fields = {_NAMES.get(name, name): value for name, value in asdict(row).items()}
    if isinstance(row, Defect):
        fields = {name: fields[name] for name in _DEFECT_FIELDS}
    elif isinstance(row, LostRange):
        fields = {("reason" if name == "reference" else name): fields[name] for name in fields}
    elif isinstance(row, SalvageSummary):
        fields["files"] = {fate.value: row.files[fate] for fate in Fate}
    return {"type": _TYPES[type(row)], **fields}
