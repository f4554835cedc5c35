"""The rejects of an export: records whose key or value does not decode, in a table of their own.

They lie next to the table, in files of Parquet below `_rejects` whose names do not end as those of
the table do: no pattern that finds the table's files finds them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import pyarrow as pa

from kafkalog.change.lake.delta_log import append_delta, commit_delta, delta_commit, delta_schema
from kafkalog.change.lake.files import CountedFile
from kafkalog.change.lake.model import REJECTS, Rejects
from kafkalog.errors import RefusedError
from kafkalog.files.offsets import name_of
from kafkalog.io.wording import counted
from kafkalog.model import Header
from kafkalog.tables.arrow_files import parquet_writer
from kafkalog.tables.model import TableName
from kafkalog.tables.schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import ExitStack
    from typing import BinaryIO

    from kafkalog.change.lake.model import ExportedPart, Increment, Writing
    from kafkalog.change.lake.plan import Part
    from kafkalog.change.lake.targets import Target
    from kafkalog.log.typed import TypedColumn
    from kafkalog.log.typed.columns import Undecoded

RAW: Final = ("offset", "timestamp_ms", "leader_epoch", "key", "value", "headers")
"""The columns of a record that its row among the rejects has."""
REJECTS_SCHEMA: Final = pa.schema(
    [
        *(SCHEMAS[TableName.RECORDS].field(name) for name in RAW),
        pa.field("source", pa.string(), nullable=False),
        pa.field("schema_id", pa.string()),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
"""The columns of the rejects: the record, whether its `key` or its `value` is at fault, and why."""
SUFFIX: Final = ".rejects"
_SHOWN_MAX: Final = 5


def rejects_place(destination: str) -> str:
    return f"{destination}/{REJECTS}"


def rejects_name(part: Part, writing: Writing) -> str:
    return f"{REJECTS}/{part.file.removesuffix(writing.suffix)}{SUFFIX}"


def outputs(part: ExportedPart) -> Iterator[tuple[str, int, int | None]]:
    """Yield name, size and CRC-32C of each file of a part: of its rows, and of its rejects."""
    if part.file is not None:
        yield part.file, part.size_bytes, part.crc32c
    if part.rejects is not None:
        yield part.rejects.file, part.rejects.size_bytes, part.rejects.crc32c


@dataclass
class RejectsOf:
    """The rejects of a part, in bounded memory.

    Args:
        most: how many there may be.

    Attributes:
        count: how many there are.
        first: the first of them, as the error message names them.
    """

    part: Part
    most: int
    count: int = 0
    first: list[str] = field(default_factory=list)
    _rows: list[dict[str, Any]] = field(default_factory=list)
    _size: int = 0
    _file: RejectsFile | None = None

    def writes_to(self, file: RejectsFile) -> None:
        """Write them to a file, which must be known before the first is added."""
        self._file = file

    def add(self, batch: Any, found: Mapping[int, tuple[TypedColumn, Undecoded]]) -> None:
        """Add rows of a record batch.

        Raises:
            RefusedError: there are more than there may be.
        """
        for row in sorted(found):
            column, why = found[row]
            values = {name: batch.column(name)[row].as_py() for name in RAW}
            if len(self.first) < _SHOWN_MAX:
                self.first.append(f"the {column.source} at {values['offset']}: {why.reason}")
            self.count += 1
            raw = values[column.source] or b""
            headers = [Header(one["key"].encode(), one["value"]) for one in values["headers"]]
            schema_id, _ = column.split(column.with_prefix(raw, headers))
            self._rows.append(
                {
                    **values,
                    "source": column.source,
                    "schema_id": None if schema_id is None else str(schema_id),
                    # Lone surrogates, which Arrow refuses, become `?`.
                    "reason": why.reason.encode("utf-8", "replace").decode(),
                }
            )
            self._size += len(values["key"] or b"") + len(values["value"] or b"")
            if self.file.is_full(len(self._rows), self._size):
                self._flush()
        if self.count > self.most:
            split = self.part.splits[0]
            raise _too_many(self.most, [(name_of(split.topic, split.partition), self.first)])

    def told(self) -> Rejects | None:
        """Return what is recorded about them, of whom no more come; None if there are none."""
        if not self.count:
            return None
        if self._rows:
            self._flush()
        return Rejects(*self.file.end(), tuple(self.first), rows=self.count)

    @property
    def file(self) -> RejectsFile:
        """Where they go."""
        assert self._file is not None, "it is set first"
        return self._file

    def _flush(self) -> None:
        self.file.write(pa.Table.from_pylist(self._rows, REJECTS_SCHEMA))
        self._rows, self._size = [], 0


class RejectsFile(Protocol):
    """Where the rejects of a part go."""

    def is_full(self, rows: int, size: int) -> bool:
        """Return whether the rows are enough for a row group."""

    def write(self, table: Any) -> None:
        """Write a row group."""

    def end(self) -> tuple[str, int, int]:
        """End the file; return its name, its size and its CRC-32C."""


class NamedFile:
    """A file of rejects in a directory, which is made with the first of them.

    Args:
        target: the directory.
        name: the name of the file.
        writing: how it is written.
        held: what it waits for: the file appears when this ends.
    """

    def __init__(self, target: Target, name: str, writing: Writing, held: ExitStack) -> None:
        self._target = target
        self._name = name
        self._writing = writing
        self._held = held
        self._counted: CountedFile | None = None

    def is_full(self, rows: int, size: int) -> bool:
        return rows >= self._writing.row_group_rows or size >= self._writing.row_group_size

    def write(self, table: Any) -> None:
        if self._counted is None:
            file = self._held.enter_context(self._target.create(self._name))
            self._counted = CountedFile(file)
            self._writer = parquet_writer(cast("BinaryIO", self._counted), REJECTS_SCHEMA)
        self._writer.write_table(table, row_group_size=len(table))

    def end(self) -> tuple[str, int, int]:
        assert self._counted is not None, "there are rows"
        self._writer.close()
        return self._name, self._counted.size_bytes, self._counted.crc32c


def require_few(parts: Iterable[ExportedPart], most: int) -> None:
    """Raise `RefusedError` if parts together have more rejects than there may be."""
    found = [(part, part.rejects) for part in parts if part.rejects is not None]
    if sum(rejects.rows for _, rejects in found) > most:
        raise _too_many(
            most, [(name_of(part.topic, part.partition), rejects.first) for part, rejects in found]
        )


def _too_many(most: int, places: Sequence[tuple[str, Sequence[str]]]) -> RefusedError:
    shown = [f"{place}: {one}" for place, first in places for one in first][:_SHOWN_MAX]
    do = "does" if most == 1 else "do"
    what = (
        f"More than {counted(most, 'record')} {do} not decode" if most else "Records do not decode"
    )
    return RefusedError(
        f"{what}. The first: {'; '.join(shown)}.",
        hint="--accept rejects=N lets up to N records go to a table of rejects.",
    )


def table_schema() -> Any:
    """Return the `pyarrow.Schema` of the table of rejects, with topic and partition last."""
    schema = REJECTS_SCHEMA
    for name in ("topic", "partition"):
        schema = schema.append(SCHEMAS[TableName.RECORDS].field(name))
    return schema


# Their Delta table -------------------------------------------------------------------------------


def _as_table(parts: Iterable[ExportedPart]) -> list[ExportedPart]:
    """Return the files of rejects as parts of a table that begins in their directory."""
    found = ((part, part.rejects) for part in parts)
    return [
        replace(
            part,
            file=one.file.removeprefix(f"{REJECTS}/"),
            rows=one.rows,
            size_bytes=one.size_bytes,
        )
        for part, one in found
        if one is not None
    ]


def commit_rejects(
    destination: str, parts: Iterable[ExportedPart], increment: Increment | None = None
) -> None:
    """Make the rejects a Delta table, or add those of an increment to it, once.

    This follows the commit of the table itself, which decides whether an interrupted run is
    completed.

    Raises:
        as `commit_delta` and `append_delta`.
    """
    files = _as_table(parts)
    if not files:
        return
    place = rejects_place(destination)
    schema = delta_schema(place, table_schema())
    if increment is None:
        commit_delta(place, schema, files)
    # At this number, an interrupted run has already added them.
    elif delta_commit(place) in (None, *range(increment.number)):
        append_delta(place, schema, files, increment)
