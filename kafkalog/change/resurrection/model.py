"""The values of a resurrection: its options, the rows of its manifest, its totals."""

from __future__ import annotations

import base64
import uuid
from dataclasses import asdict, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from formats.late_classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LOG_ROOT: Final = "log"
"""The log directory in the new directory, as salvage names it."""
THERE: Final = "there"
"""How a partition was copied that an earlier run had put in place, and nobody has changed."""


class Retention(StrEnum):
    """What becomes of the retention of topics."""

    KEEP = "keep"
    """Nothing is deleted: old data would be gone minutes after the start."""
    ORIGINAL = "original"
    """Topics have the configs that they had."""


class Missing(StrEnum):
    """What becomes of partitions of which there is no directory."""

    REFUSE = "refuse"
    EMPTY = "empty"
    """They are there, and begin at offset 0."""
    OFFLINE = "offline"
    """They have no leader: clients get an error."""


class Copy(StrEnum):
    """How files are copied."""

    AUTO = "auto"
    REFLINK = "reflink"
    """Share blocks with the source, or refuse."""
    COPY = "copy"


@dataclass(frozen=True)
class ResurrectOptions:
    """What a resurrection does.

    Attributes:
        node_id: of the new node.
        cluster_id: of the new cluster; None for a new one.
        topics: only these topics, by their names in the source; None for all.
        undelete: whether `-delete`, `-stray` and `-future` directories are taken.
        rename: old name of a topic to its new name. If a topic is there both live and deleted, it
            names the deleted one.
        topic_ids: name of a topic to its id, or to `new`.
        as_of_metadata: the log directory whose metadata log counts, instead of the newest.
        retention, missing, copy: as their types say.
        prefer: below these paths copies are taken first.
        salvage: whether damaged partitions are salvaged instead of refused.
        properties_out: where else the properties of the broker are written.
        kafka: the release that is to start, 4.3 say; None for the newest.
    """

    node_id: int = 1
    cluster_id: str | None = None
    topics: Collection[str] | None = None
    undelete: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    as_of_metadata: str | None = None
    retention: Retention = Retention.KEEP
    missing: Missing = Missing.REFUSE
    copy: Copy = Copy.AUTO
    prefer: tuple[str, ...] = ()
    salvage: bool = False
    properties_out: str | None = None
    kafka: str | None = None


@dataclass(frozen=True, slots=True)
class Loser:
    """A copy of a partition that was not taken.

    Attributes:
        path: its directory.
        leader_epoch: its latest leader epoch, -1 if it knows none.
        log_end_offset: where it ends.
        differs_from: the offset to which it would be cut as a follower of the copy that was taken,
            which is then ahead or different; None if it holds all that the other holds.
        reason: why it was not taken.
    """

    path: str
    leader_epoch: int
    log_end_offset: int
    differs_from: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class ResurrectedPartition:
    """A partition of the new log directory.

    Attributes:
        path: in the source; None if there is no directory.
        target: relative to DIR or LOG_DIR.
        topic: its name now.
        how: `reflink` (shared blocks), `copied` or `salvaged`; `there` (by an earlier run); `empty`
            or `offline` (no directory).
        log_start_offset: of the new log.
        log_end_offset: offset of the next record.
        records: by batch headers, control records included.
        size_bytes: of its logs.
        leader_epoch: in the metadata.
        cut_bytes: of an incomplete batch at the end.
        first_unstable_offset: first of an open transaction.
        losers: other copies: `path`, `leader_epoch`, `log_end_offset`, `differs_from` (where a
            follower would cut it; None if the same), `reason`.
        remote_from: start of the old log, if offsets were left in remote storage.
    """

    path: str | None
    target: str | None
    topic: str
    partition: int
    topic_id: str
    how: str
    log_start_offset: int = 0
    log_end_offset: int = 0
    records: int = 0
    size_bytes: int = 0
    leader_epoch: int = 0
    cut_bytes: int = 0
    first_unstable_offset: int | None = None
    losers: tuple[Loser, ...] = ()
    remote_from: int | None = None


@dataclass(slots=True)
class ResurrectedTopic:
    """A topic, after its partitions.

    Attributes:
        topic: its name now.
        old_name: in the source.
        missing: numbers of those without a directory.
        size_bytes: their logs.
        log_start_offset: the lowest.
        log_end_offset: the highest.
        sources: log directories of its partitions.
        configs: its own.
        replaced: of the source, but not of the new topic.
        notes: what an operator should know.
    """

    topic: str
    topic_id: str
    old_name: str
    partitions: int = 0
    missing: tuple[int, ...] = ()
    records: int = 0
    size_bytes: int = 0
    log_start_offset: int = 0
    log_end_offset: int = 0
    sources: tuple[str, ...] = ()
    configs: dict[str, str] = field(default_factory=dict)
    replaced: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftOutDirectory:
    """A directory that was not taken.

    Attributes:
        path: in the source.
        unreadable: whether the disk does not give it.
    """

    path: str
    reason: str
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A record of the new `bootstrap.checkpoint`.

    Attributes:
        name: Kafka's name.
        fields: by Kafka's names; secrets of credentials are None in `data`.
        evidence: where it comes from.
    """

    name: str
    version: int
    fields: dict[str, Any]
    evidence: str

    @property
    def data(self) -> dict[str, Any]:
        """The fields, without secrets."""
        return {name: _shown(value) for name, value in self.fields.items()}


def _shown(value: Any) -> Any:
    """Return a value for a manifest: the bytes of credentials stay where they are."""
    return None if isinstance(value, bytes) else value


@dataclass
class ResurrectSummary:
    """The last object: totals.

    Attributes:
        destination: as given.
        kafka: the release that starts on it; empty with `--into`.
        metadata_version: feature level.
        metadata_from: log directories.
        partitions: missing ones included.
        missing_partitions: without a directory.
        shortened_partitions: with offsets left in remote storage.
        unused_copies: those not taken.
        left_out_directories: those not taken.
        unreadable_directories: those of them that cannot be read.
        next_producer_id: the first that the new cluster gives; None if no producer was seen.
        metadata_records: in `bootstrap.checkpoint`.
        start_command: empty with `--into`.
        notes: what an operator should know.
        left_over_removed: the leftover of a killed run was removed.
    """

    destination: str
    dry_run: bool
    log_dir: str = ""
    cluster_id: str = ""
    directory_id: str = ""
    node_id: int = 1
    kafka: str = ""
    metadata_version: int = 0
    metadata_from: tuple[str, ...] = ()
    topics: int = 0
    partitions: int = 0
    records: int = 0
    size_bytes: int = 0
    missing_partitions: int = 0
    reflinked_partitions: int = 0
    salvaged_partitions: int = 0
    shortened_partitions: int = 0
    unused_copies: int = 0
    left_out_directories: int = 0
    unreadable_directories: int = 0
    next_producer_id: int | None = None
    metadata_records: int = 0
    start_command: str = ""
    notes: list[str] = field(default_factory=list)
    left_over_removed: bool = False

    def count(self, row: Row) -> None:
        match row:
            case ResurrectedPartition():
                self.partitions += 1
                self.records += row.records
                self.size_bytes += row.size_bytes
                self.missing_partitions += row.path is None
                self.reflinked_partitions += row.how == "reflink"
                self.salvaged_partitions += row.how == "salvaged"
                self.shortened_partitions += row.remote_from is not None
                self.unused_copies += len(row.losers)
            case ResurrectedTopic():
                self.topics += 1
            case LeftOutDirectory():
                self.left_out_directories += 1
                self.unreadable_directories += row.unreadable
            case MetadataRecord():
                self.metadata_records += 1


Row = ResurrectedPartition | ResurrectedTopic | LeftOutDirectory | MetadataRecord | ResurrectSummary
"""The kinds of rows in a manifest."""

_TYPES: Final[dict[type, str]] = {
    ResurrectedPartition: "resurrected_partition",
    ResurrectedTopic: "resurrected_topic",
    LeftOutDirectory: "left_out_directory",
    ResurrectSummary: "resurrect_summary",
}
_NAMES: Final = {"target": "to"}


def manifest_object(row: Row) -> dict[str, object]:
    """Return the object for a row: its type, then its fields."""
    if isinstance(row, MetadataRecord):
        return {
            "type": "metadata_record",
            "record": row.name,
            "version": row.version,
            "data": row.data,
            "evidence": row.evidence,
        }
    fields = {_NAMES.get(name, name): _listed(value) for name, value in asdict(row).items()}
    return {"type": _TYPES[type(row)], **fields}


def _listed(value: object) -> object:
    """Return a tuple as a list, as JSON has it."""
    return list(value) if isinstance(value, tuple) else value


def new_id() -> str:
    """Return a random id as `Uuid.randomUuid` makes it: its text does not begin with a dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
