"""The request for an export, its result, and the names in its destination.

Names that begin with an underscore or a dot are skipped by programs that read a directory as a
table: Spark, Hive, DuckDB's and pyarrow's data sets.
"""

from __future__ import annotations

from dataclasses import asdict, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

from formats.late_classes import dataclass
from kafkalog.errors import UsageError
from kafkalog.files.offsets import LeftOut
from kafkalog.io.paths.file_system import absolute
from kafkalog.io.paths.uris import LOCAL
from kafkalog.model import Defect, Severity, named_member
from kafkalog.tables.model import LossReason, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.files.offsets import PartitionOffsets
    from kafkalog.log.typed import TypedColumn
    from kafkalog.log.typed.remarks import Remark
    from kafkalog.tables.model import Loss, Offsets
    from kafkalog.tables.topic_types import ByData


OWN: Final = "_kafkalog"
PLAN: Final = f"{OWN}/plan.json"
BUILDING: Final = f"{OWN}/building"
PARTS: Final = f"{OWN}/parts"
MANIFEST: Final = f"{OWN}/manifest.json"
SUCCESS: Final = "_SUCCESS"
COMMITS: Final = f"{OWN}/commits"
REJECTS: Final = "_rejects"
"""The directory of the table of records that do not decode, or the end of its name."""
CATALOG: Final = "catalog.db"
"""The SQLite file of a local catalog of Iceberg tables."""


def entry_name(number: int) -> str:
    """Return the name of the entry of a task, whose first part has a number."""
    return f"{PARTS}/{number:08d}.json"


def commit_name(number: int) -> str:
    """Return the name of the file that makes an increment part of a table."""
    return f"{COMMITS}/{number:08d}.json"


def local_catalog(directory: str) -> dict[str, str]:
    """Return the properties of a catalog in an SQLite file, with the tables around it.

    Raises:
        UsageError: the directory has a name that no URI can hold.
    """
    place = absolute(directory)
    if any(sign in place for sign in "?#%") or not place.isprintable():
        raise UsageError("Locations of Iceberg tables cannot hold this name.", path=directory)
    return {"type": "sql", "uri": f"sqlite:///{place}/{CATALOG}", "warehouse": f"{LOCAL}{place}"}


class FileFormat(StrEnum):
    """The format of the files."""

    PARQUET = "parquet"
    NDJSON = "ndjson"
    CSV = "csv"
    ARROW = "arrow"


class TableFormat(StrEnum):
    """What turns the files into a table."""

    FILES = "files"
    """Their directory names alone."""
    DELTA = "delta"
    """Also the log of a Delta table."""
    ICEBERG = "iceberg"
    """A table of a catalog; its commits alone, and files that it names."""


class Codec(StrEnum):
    """The compression of the files."""

    NONE = "none"
    SNAPPY = "snappy"
    ZSTD = "zstd"
    LZ4 = "lz4"
    GZIP = "gzip"


class BytesForm(StrEnum):
    """How keys and values are written in text files."""

    BASE64 = "base64"
    """As Spark writes and reads a binary column in text."""
    HEX = "hex"
    TEXT = "text"
    """Bytes that are not UTF-8 become U+FFFD."""


CODECS: Final = {
    FileFormat.PARQUET: (Codec.SNAPPY, Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.NONE),
    FileFormat.ARROW: (Codec.NONE, Codec.LZ4, Codec.ZSTD),
    FileFormat.NDJSON: (Codec.NONE, Codec.GZIP, Codec.ZSTD),
    FileFormat.CSV: (Codec.NONE, Codec.GZIP, Codec.ZSTD),
}
"""The codecs of each format, the default first."""
GROUP_ROWS: Final = 1 << 17
GROUP_SIZE: Final = 32 << 20  # per thread, an export holds three row groups (docs/memory.md)


@dataclass(frozen=True, slots=True)
class Writing:
    """How files are written.

    Attributes:
        row_group_rows: maximum rows per row group of Parquet, or record batch of Arrow.
        row_group_size: a row group ends with the row that reaches this size, uncompressed.
        key_form, value_form: how keys and other bytes are written in text files.

    Raises:
        UsageError: the format has no such codec, or a row group would be empty.
    """

    form: FileFormat = FileFormat.PARQUET
    codec: Codec | None = None
    row_group_rows: int = GROUP_ROWS
    row_group_size: int = GROUP_SIZE
    key_form: BytesForm = BytesForm.BASE64
    value_form: BytesForm = BytesForm.BASE64

    def __post_init__(self) -> None:
        known = CODECS[self.form]
        if self.codec is None:
            object.__setattr__(self, "codec", known[0])  # it is frozen
        elif self.codec not in known:
            raise UsageError(
                f"Files of {self.form} are not compressed with {self.codec}.",
                hint=f"There are {', '.join(known)}.",
            )
        if self.row_group_rows < 1 or self.row_group_size < 1:
            raise UsageError("A row group has at least one row.")

    @property
    def suffix(self) -> str:
        if self.form in (FileFormat.NDJSON, FileFormat.CSV):
            return f".{self.form}" + {"gzip": ".gz", "zstd": ".zst"}.get(self.codec or "", "")
        return f".{self.form}"

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            FileFormat(fields["form"]),
            Codec(fields["codec"]),
            fields["row_group_rows"],
            fields["row_group_size"],
            BytesForm(fields["key_form"]),
            BytesForm(fields["value_form"]),
        )


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A request for an export.

    Attributes:
        paths: log directories, partition directories or logs.
        request: the table, and which of its rows.
        columns: the columns; None for the default ones. `topic` and `partition` are in the names of
            directories, never in the files.
        writing: how the files are written.
        typed: columns of records to decode from keys and values, after the others.
        table_format: what turns the files into a table.
        append: whether each run adds what is new; otherwise there is one run.
        by_data: more typed columns, whose types the data decides that is exported.
        flat: whether the fields of decoded values are columns, in place of one.
        split_by_type: whether each type of a topic's values has a table of its own.
        of_type: of such a table the field that the type has among those of the topic; empty for the
            table of the records that have no type. None for tables of all records.
    """

    paths: tuple[str, ...]
    request: Request = field(default_factory=Request)
    columns: tuple[str, ...] | None = None
    writing: Writing = field(default_factory=Writing)
    typed: tuple[TypedColumn, ...] = ()
    table_format: TableFormat = TableFormat.FILES
    append: bool = False
    by_data: tuple[ByData, ...] = ()
    flat: bool = False
    split_by_type: bool = False
    of_type: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "table_format", named_member(TableFormat, self.table_format))
        if isinstance(self.columns, str):
            raise UsageError("Columns are names in a list, not a text.")

    @property
    def sources(self) -> set[str]:
        """What the table may have typed columns of: `key`, `value`."""
        return {one.source for one in self.typed} | {one.source for one in self.by_data}


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a table may lack.

    Attributes:
        damage: offsets that damage hides.
        gaps: offsets that are gone.
        rejects: the most records that need not decode; they go to the table of rejects.
    """

    damage: bool = False
    gaps: bool = False
    rejects: int = 0

    def has(self, gap: Gap) -> bool:
        """Return whether the table may lack these offsets."""
        return self.damage if gap.is_damage else self.gaps


NOTHING_ACCEPTED: Final = Accepted()


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of a partition that a table never gets, or has although the log cut them off.

    Attributes:
        topic, partition, topic_id: the partition; without an id if its directory has none.
        first_offset: the first of them.
        last_offset: the last of them; None if unknown.
        detail: a sentence for a person.
    """

    topic: str
    partition: int
    topic_id: str | None
    first_offset: int
    last_offset: int | None
    reason: LossReason
    detail: str

    @property
    def is_damage(self) -> bool:
        """Whether the offsets are in the log, and damage hides them."""
        return self.reason == LossReason.DAMAGED

    @property
    def offsets(self) -> str:
        """The offsets, for a person."""
        last = self.last_offset
        return f"{self.first_offset} to {'the end' if last is None else last}"

    @classmethod
    def of(cls, loss: Loss) -> Self:
        """Return the gap that a loss makes."""
        name, _, topic_id = loss.key.partition("@")
        topic, _, partition = name.rpartition("-")
        last = None if loss.end_offset is None else loss.end_offset - 1
        return cls(
            topic, int(partition) if partition.isdecimal() else -1, topic_id or None,
            loss.first_offset, last, loss.reason, loss.detail,
        )  # fmt: skip

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        return cls(**{**fields, "reason": LossReason(fields["reason"])})


@dataclass(frozen=True, slots=True)
class Increment:
    """What one commit adds to a table.

    Attributes:
        number: number of the commit, from 0.
        start: for each partition the offset where the increment begins, and the leader epoch before
            it; a partition that is missing begins at its log start offset.
        end: where the next increment begins, likewise.
        gaps: what is missing between `start` and `end`.
        gone: the partitions of `end` that are in none of the paths.
    """

    number: int
    start: Offsets
    end: Offsets
    gaps: tuple[Gap, ...] = ()
    gone: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        gaps = tuple(Gap.from_json(one) for one in fields["gaps"])
        return cls(**{**fields, "gaps": gaps, "gone": tuple(fields["gone"])})


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """How the columns of a run differ from those of the table, with dots before their fields.

    Attributes:
        added: what the table gets; it is null in the rows before.
        widened: what gets a wider type in the table.
        absent: what the run lacks; it is null in its rows.
    """

    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rejects:
    """The records of a part that do not decode.

    Attributes:
        file: path relative to the destination, with slashes; its location if the table is one of
            Iceberg.
        first: the first of them, as the error message names them.
        rows: number of records.
    """

    file: str
    size_bytes: int
    crc32c: int
    first: tuple[str, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class ExportedPart:
    """A part of an export, as its manifest describes it.

    Attributes:
        number: its ordinal in the plan.
        file: path relative to the destination, with slashes; None if there are no rows.
        topic, partition, log_dir: where its rows come from.
        first_offset, last_offset: offsets of its rows; None without rows, and for tables whose
            rows have no offset.
        undecoded_keys, undecoded_values: numbers of keys and values that did not decode.
        defect_count: damage that was skipped, and deletions before the rows were read.
        defects: the first thousand of these.
        rejects: the records that did not decode; None if all did.
        without_answer: number of records that did not decode for the condition, and do not match.
        losses: by typed column, how many of its values lost what.
    """

    number: int
    file: str | None
    topic: str
    partition: int
    log_dir: str
    rows: int
    size_bytes: int
    crc32c: int | None
    first_offset: int | None
    last_offset: int | None
    undecoded_keys: int
    undecoded_values: int
    defect_count: int
    defects: tuple[Defect, ...]
    rejects: Rejects | None = None
    without_answer: int = 0
    losses: dict[str, dict[str, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        defects = tuple(
            Defect(**{**one, "severity": Severity(one["severity"])}) for one in fields["defects"]
        )
        rejects = fields.get("rejects")
        if rejects is not None:
            rejects = Rejects(**{**rejects, "first": tuple(rejects["first"])})
        return cls(**{**fields, "defects": defects, "rejects": rejects})


@dataclass(frozen=True, slots=True)
class ExportSummary:
    """The result of an export.

    Attributes:
        destination: the destination, without credentials.
        parts: all parts, by number.
        written_files: number of parts that this run wrote; the others existed.
        was_complete: whether an earlier run had done everything.
        swept: number of leftovers of killed runs that were removed.
        left_out: records of the logs that are in no file.
        increment: what an appending run has added; None for others.
        columns: how its columns differ from those that the table had.
        rejects_at: the table of rejects, without credentials.
        ends: for each partition, where its log ends, and which bound decides where its rows end.
        log_bytes: size of what was read.
        remarks: what typed columns have another type for than one may expect.
        tables: the tables of types and the rows that each has got, if types are split.
    """

    destination: str
    parts: tuple[ExportedPart, ...]
    written_files: int
    was_complete: bool
    swept: int
    left_out: LeftOut = field(default_factory=LeftOut)
    increment: Increment | None = None
    columns: ColumnChanges = field(default_factory=ColumnChanges)
    rejects_at: str = ""
    ends: tuple[PartitionOffsets, ...] = ()
    log_bytes: int = 0
    remarks: tuple[Remark, ...] = ()
    tables: dict[str, int] = field(default_factory=dict)

    @property
    def losses(self) -> dict[str, dict[str, int]]:
        """By typed column, how many of its values lost what."""
        found: dict[str, dict[str, int]] = {}
        for part in self.parts:
            for column, counts in part.losses.items():
                sums = found.setdefault(column, {})
                for loss, count in counts.items():
                    sums[loss] = sums.get(loss, 0) + count
        return found

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The offsets that an appending run could not add."""
        return () if self.increment is None else self.increment.gaps

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.parts)

    @property
    def defect_count(self) -> int:
        """Number of defects that were skipped."""
        return sum(part.defect_count for part in self.parts)

    @property
    def rejects(self) -> int:
        """Number of records that did not decode."""
        return sum(part.rejects.rows for part in self.parts if part.rejects is not None)

    @property
    def without_answer(self) -> int:
        """Number of records that did not decode for the condition."""
        return sum(part.without_answer for part in self.parts)

    @property
    def undecoded_keys(self) -> int:
        """Number of keys that did not decode."""
        return sum(part.undecoded_keys for part in self.parts)

    @property
    def undecoded_values(self) -> int:
        """Number of values that did not decode."""
        return sum(part.undecoded_values for part in self.parts)
