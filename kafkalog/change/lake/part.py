"""Writes one part of an export, the rows of some splits, to one file; every engine runs this."""

from __future__ import annotations

import json
import socket
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.change.lake.evolution import conformed, delta_named, schema_from
from kafkalog.change.lake.files import CountedFile, row_groups, table_writer
from kafkalog.change.lake.model import (
    MANIFEST,
    PLAN,
    ExportedPart,
    TableFormat,
    Writing,
    entry_name,
)
from kafkalog.change.lake.of_type import columns_of
from kafkalog.change.lake.plan import parts_of
from kafkalog.change.lake.rejects import RAW, NamedFile, RejectsOf, rejects_name
from kafkalog.change.lake.run_types import TableColumns, arrays_of, fields_of
from kafkalog.change.lake.targets import open_target
from kafkalog.errors import Listener, UnreadableError
from kafkalog.io.engine import failures_kept
from kafkalog.log.batches.condition import Condition
from kafkalog.log.typed import TypedColumn
from kafkalog.log.typed.columns import aligned, typed_pieces
from kafkalog.model import Defect
from kafkalog.tables import TableName, read_split
from kafkalog.tables.listeners import COPIED, MISSING, Strict
from kafkalog.tables.schemas import SCHEMAS, table_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeAlias

    from kafkalog.change.lake.model import ExportRequest
    from kafkalog.change.lake.plan import Part
    from kafkalog.change.lake.targets import Target
    from kafkalog.errors import Event
    from kafkalog.log.typed.columns import Undecoded

    Rejected: TypeAlias = dict[int, tuple[TypedColumn, Undecoded]]

DEFECTS_KEPT: Final = 1000
_PATH_COLUMNS: Final = ("topic", "partition")
_RANGE_COLUMNS: Final = {
    TableName.RECORDS: ("offset", "offset"),
    TableName.BATCHES: ("base_offset", "last_offset"),
}


def write_parts(task: Mapping[str, Any]) -> dict[str, Any]:
    """Write the files of some parts, and an entry about them.

    Args:
        task: `to`, the target; `plan`, the id of the plan; `columns`; `typed`; `writing`;
            `of_type`; `schema`, that of the files; `fail_fast`; `max_rejects`; `parts`. All as JSON
            values.

    Returns:
        `parts`: the `ExportedPart`s as JSON values.

    Raises:
        CorruptDataError: something is damaged, with `fail_fast`.
        RefusedError: more than `max_rejects` records of a part do not decode.
        UnreadableError, NotFoundError: a source cannot be read, or this process does not see the
            export at the target.
        UnwritableError: a file cannot be written.

    Cost:
        That of `read_split`, and three times a row group, which is at most `row_group_size` and one
        record; or seven times the largest record, if that is more. A file for an object store is on
        the local disk meanwhile.

    On disk after a crash: each file whole or not at all; parts with files but without the entry are
    written again, with the same bytes.
    """
    target = open_target(task["to"])
    _require_begun(target)
    writing = Writing.from_json(task["writing"])
    typed = [TypedColumn.from_json(one) for one in task["typed"]]
    schema = schema_from(task["schema"], target.shown)
    columns = TableColumns(typed, schema, task["of_type"])
    done: list[dict[str, Any]] = []
    failures: list[dict[str, Any]] = []
    for part in parts_of(task):
        with failures_kept(part.splits[0].path, failures):
            rows = Rows(
                part, task["columns"], columns, RejectsOf(part, task["max_rejects"]),
                fail_fast=task["fail_fast"], schema=schema,
            )  # fmt: skip
            done.append(rows.write(target, writing).as_json())
    if done:
        # After the files: those without an entry are written again, an entry without them would be
        # taken for parts that exist. One for all: each takes two syncs, as a small file does.
        with target.create(entry_name(done[0]["number"])) as file:
            file.write(json.dumps({"plan": task["plan"], "parts": done}).encode())
    return {"parts": done, "failures": failures}


def _require_begun(target: Target) -> None:
    """Raise unless this is the directory in which the driver has started the export."""
    if not (target.has(PLAN) or target.has(MANIFEST)):
        raise UnreadableError(
            f"The worker on {socket.gethostname()} does not see the export that was started here.",
            path=target.shown,
            hint="All workers and the driver must see the same directory at this path.",
        )


@dataclass
class Rows(Listener):
    """The rows of a part on their way into its files, and what is recorded about them.

    With a schema of a table, the file has the columns of that: null where the rows have none.
    Records that do not decode go to the file of rejects.
    """

    part: Part
    columns: list[str]
    typed: TableColumns
    rejects: RejectsOf
    fail_fast: bool
    schema: Any = None
    count: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    where: Condition | None = None
    undecoded: dict[str, int] = field(default_factory=lambda: {"key": 0, "value": 0})
    losses: dict[str, Counter[str]] = field(default_factory=dict)
    defect_count: int = 0
    defects: list[Defect] = field(default_factory=list)

    def __post_init__(self) -> None:
        if (where := self.part.splits[0].where) is not None:
            self.where = Condition(where)  # of this part alone, since it counts

    def write(self, target: Target, writing: Writing) -> ExportedPart:
        """Write the file, unless there are no rows, and that of the rejects, if there are any."""
        with ExitStack() as held:
            name = rejects_name(self.part, writing)
            self.rejects.writes_to(NamedFile(target, name, writing, held))
            return self._write(target, writing)

    def _write(self, target: Target, writing: Writing) -> ExportedPart:
        groups = row_groups(self.batches(), writing.row_group_rows, writing.row_group_size)
        first = next(groups, None)
        if first is None:
            return self.told(None, 0, None)
        with target.create(self.part.file) as file:
            counted = CountedFile(file)
            with table_writer(counted, self.schema, writing, first) as write:
                write(first)
                del first  # a row group less while the next one is made
                for group in groups:
                    write(group)
                    del group  # before the next one is made
        return self.told(self.part.file, counted.size_bytes, counted.crc32c)

    def batches(self) -> Iterator[Any]:
        """Yield the rows with the columns of the file; offsets are read for the entry."""
        table = self.part.splits[0].table
        needed = _RANGE_COLUMNS.get(table, ())
        # A reject keeps the bytes that did not decode.
        raw = RAW if self.typed.decoders or self.typed.records.column is not None else ()
        schema = table_schema(table, list(dict.fromkeys([*self.columns, *needed, *raw])))
        for split in self.part.splits:
            for batch in read_split(split, schema, self, where=self.where):
                for found in self._with_typed(batch, needed):
                    yield found if self.schema is None else conformed(found, self.schema)

    def _with_typed(self, batch: Any, needed: tuple[str, ...]) -> Iterator[Any]:
        """Yield the columns of the file, of some rows each: typed ones last, without rejects."""
        batch, values, undecoded = self.typed.records.among(batch)
        rejected: Rejected = {}
        if undecoded and (of_values := self.typed.records.column) is not None:
            self.undecoded["value"] += len(undecoded)
            rejected = {one.row: (of_values, one) for one in undecoded}
        if not self.typed.decoders:
            yield self._kept(batch, batch.select(self.columns), rejected, needed)
            return
        sources = {
            column: (values, None) if column.source == "value" and values is not None
            else (batch.column(column.source), batch.column("headers"))
            for column in self.typed.decoders
        }  # fmt: skip
        start = 0
        for pieces in aligned([
            typed_pieces(column, decoder, *sources[column])
            for column, decoder in self.typed.decoders.items()
        ]):  # fmt: skip
            end = start + len(pieces[0].array)
            some = batch.slice(start, end - start)
            found = some.select(self.columns)
            its = {row - start: one for row, one in rejected.items() if start <= row < end}
            for column, (array, failures, losses) in zip(self.typed.decoders, pieces, strict=True):
                self.undecoded[column.source] += len(failures)
                if losses:
                    self.losses.setdefault(column.name, Counter()).update(losses)
                for one in failures:
                    its.setdefault(one.row, (column, one))
                data, headers = (
                    None if one is None else one.slice(start, end - start)
                    for one in sources[column]
                )
                arrays = arrays_of(column, array, data, headers)
                for name, part in zip(self.typed.fields[column], arrays, strict=True):
                    found = found.append_column(name, part)
            yield self._kept(some, found, its, needed)
            start = end

    def _kept(self, batch: Any, found: Any, rejected: Rejected, needed: tuple[str, ...]) -> Any:
        """Return the rows that are no rejects, of columns of a batch, and note them."""
        if rejected:
            self.rejects.add(batch, rejected)
            is_kept = np.ones(len(batch), bool)
            is_kept[list(rejected)] = False
            batch, found = batch.filter(pa.array(is_kept)), found.filter(pa.array(is_kept))
        self._note(batch, needed)
        return found

    def _note(self, batch: Any, needed: tuple[str, ...]) -> None:
        self.count += batch.num_rows
        if needed and batch.num_rows:
            first = pc.min(batch.column(needed[0])).as_py()
            last = pc.max(batch.column(needed[1])).as_py()
            old = self.first_offset, self.last_offset
            self.first_offset = first if old[0] is None else min(old[0], first)
            self.last_offset = last if old[1] is None else max(old[1], last)

    def hear(self, event: Event) -> None:
        """Record a defect; what comes from copies, or is missing after a split, is no damage."""
        if not isinstance(event, Defect):
            super().hear(event)
            return
        if event.reference not in (COPIED, *MISSING):
            if self.fail_fast:
                Strict().hear(event)
            self.defect_count += 1
        if len(self.defects) < DEFECTS_KEPT:
            self.defects.append(event)

    def told(self, file: str | None, size_bytes: int, checksum: int | None) -> ExportedPart:
        """Return what is recorded about the rows, all of which are in one file."""
        split = self.part.splits[0]
        return ExportedPart(
            self.part.number, file, split.topic, split.partition, split.log_dir, self.count,
            size_bytes, checksum, self.first_offset, self.last_offset,
            self.undecoded["key"], self.undecoded["value"], self.defect_count, tuple(self.defects),
            self.rejects.told(), 0 if self.where is None else self.where.undecodable,
            {name: dict(counts) for name, counts in self.losses.items()},
        )  # fmt: skip


def rows_schema(asked: ExportRequest, columns: Sequence[str]) -> Any:
    """Return the `pyarrow.Schema` of the files that a request asks for: typed columns are last."""
    schema = table_schema(asked.request.table, columns)
    for column in columns_of(asked.typed, asked.of_type):
        for one in fields_of(column, column.decoder()):
            schema = schema.append(one)
    return delta_named(schema) if asked.table_format == TableFormat.DELTA else schema


def with_path_columns(asked: ExportRequest, schema: Any) -> Any:
    """Return the `pyarrow.Schema` of a table whose files have another, columns in paths last."""
    for name in _PATH_COLUMNS:
        schema = schema.append(SCHEMAS[asked.request.table].field(name))
    return schema


def column_types(asked: ExportRequest, schema: Any) -> list[dict[str, str]]:
    """Return names and types of the columns of a table, with those in paths first."""
    known = SCHEMAS[asked.request.table]
    by_path = [{"name": name, "type": str(known.field(name).type), "in": "path"}
               for name in _PATH_COLUMNS]  # fmt: skip
    return by_path + [
        {"name": field.name, "type": str(field.type), "in": "files"} for field in schema
    ]
