"""The rows of a salvage's manifest, as values and as JSON lines.

Positions and sizes are in bytes, offsets are record offsets; ranges of offsets include both ends.
Paths of the new directory are relative to it, with slashes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum

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

    `path` is their log, `position` their place in it, `to_position` their place in the new log. All
    `records` were decoded. `corrected` is what was wrong in a corrected header; None for others.
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
    """Bytes between two copied batches, or between one and an end of the log.

    Attributes:
        path: the log they are from.
        position: where they begin.
        size_bytes: their number.
        file: where they are now; None if all are zero.
        reference: kind of the first defect there.
        detail: description of that defect.
        defects: number of defects there.
        first_offset: first offset that no copied batch around the range has; None if the
            batches around it leave none out.
        last_offset: last of these offsets; None if there are none, and at the end of a log
            whose end is unknown.
        lent: whether other copies have lent all of it.
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
    lent: bool = False

    @property
    def is_padding(self) -> bool:
        """Whether it is only preallocated zeros."""
        return self.file is None and self.first_offset is None


@dataclass(frozen=True, slots=True)
class SalvagedSegment:
    """A log file and what was copied of it; its copied and lost ranges come before.

    `target` is None if nothing of the log is left. The checksums are the CRC-32C of whole files:
    the source and the new log; None if nothing was written.
    """

    path: str
    target: str | None
    topic: str
    partition: int | None
    base_offset: int
    size_bytes: int
    size_copied: int
    size_lost: int
    batches: int
    records: int
    crc: int | None
    crc_copied: int | None


@dataclass(frozen=True, slots=True)
class SalvagedFile:
    """A file or directory that did not become a log of the result, and what happened to it.

    `target` is None if it was skipped. `records` is the number of readable records in a log.
    """

    path: str | None
    target: str | None
    fate: Fate
    detail: str
    records: int = 0


@dataclass(frozen=True, slots=True)
class SalvagedPartition:
    """A partition of the result, after its segments and files.

    Attributes:
        path: the directory of the source.
        target: the new directory.
        topic: name of the topic.
        partition: number; None if the directory's name has none.
        log_start_offset: log start offset of the new log.
        log_end_offset: log end offset of the new log, which the next record gets.
        first_unstable_offset: first offset of a transaction that has no marker in the new log; None
            if there is none, or if nothing was written.
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
    """A partition that is missing from the result because the work on it failed.

    `reference` is the kind of the error that ended it, `detail` its message.
    """

    path: str
    reference: str
    detail: str


@dataclass
class SalvageSummary:
    """Totals of a run.

    `size_bytes` is the size of the logs: copied and lost bytes together. `offsets_lost` counts the
    offsets of lost ranges with known ends; some may never have had a record, as after compaction.
    `batches_corrected` counts those whose headers were corrected. `lost_ranges` excludes
    preallocated zeros and what copies lent. `records_skipped` are in logs that were left where they
    are, because others have replaced them. `findings` is what `verify` reports about the result.
    `left_over_removed`: whether the leftover of a killed run for the same destination was
    removed.
    """

    destination: str
    dry_run: bool
    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    size_copied: int = 0
    size_lost: int = 0
    batches: int = 0
    records: int = 0
    lost_ranges: int = 0
    offsets_lost: int = 0
    batches_corrected: int = 0
    records_skipped: int = 0
    files: Counter[Fate] = field(default_factory=Counter)
    findings: int = 0
    partitions_failed: int = 0
    left_over_removed: bool = False

    def count(self, row: Row) -> None:
        """Add a row to the totals."""
        match row:
            case SalvagedPartition():
                self.partitions += 1
            case SalvagedSegment():
                self.segments += 1
                self.size_bytes += row.size_bytes
                self.size_copied += row.size_copied
                self.size_lost += row.size_lost
                self.batches += row.batches
                self.records += row.records
            case LostRange() if not (row.is_padding or row.lent):
                self.lost_ranges += 1
                if row.first_offset is not None and row.last_offset is not None:
                    self.offsets_lost += row.last_offset - row.first_offset + 1
            case CopiedRange() if row.corrected is not None:
                self.batches_corrected += 1
            case SalvagedFile():
                self.files[row.fate] += 1
                self.records_skipped += row.records
            case FailedPartition():
                self.partitions_failed += 1
            case Defect():
                self.findings += 1

    @property
    def has_losses(self) -> bool:
        """Whether the new log lacks anything of the old one, or still has defects."""
        # Leftovers with records next to a log are old versions of it; without a log they were the
        # data.
        is_all_skipped = self.records_skipped > 0 and not self.records
        return bool(
            self.lost_ranges
            or self.files[Fate.LOST]
            or self.findings
            or self.partitions_failed
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
_NAMES = {"size_bytes": "size", "target": "to", "crc": "crc32c", "crc_copied": "crc32c_copied"}
_DEFECT_FIELDS = ("reference", "severity", "path", "position", "offset", "size", "detail", "hint")


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
