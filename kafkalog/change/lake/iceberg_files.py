"""Writes the data files of an Iceberg table, a file per partition of the table; engines run this.

The package `pyiceberg`, which is not part of kafkalog, knows where the files go and what a table
notes about them. A file is in no table before the commit that names it.
"""

from __future__ import annotations

import base64
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import TimestamptzType

from kafkalog.change.lake.evolution import converted
from kafkalog.change.lake.files import CountedFile, as_text, row_groups
from kafkalog.change.lake.iceberg_columns import arrow_schema
from kafkalog.change.lake.model import Codec, Writing
from kafkalog.change.lake.part import Rows
from kafkalog.change.lake.plan import Part
from kafkalog.change.lake.rejects import RejectsOf
from kafkalog.change.lake.run_types import TableColumns
from kafkalog.errors import KafkaLogError, ShortageError, UnwritableError
from kafkalog.io.engine import failures_kept
from kafkalog.io.paths.retry import shortage
from kafkalog.io.storage import NewFile, make_directories
from kafkalog.log.typed import TypedColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyiceberg.io import FileIO

    from kafkalog.change.lake.model import ExportedPart

IO_PROPERTY: Final = "py-io-impl"
_OPEN_MAX: Final = 16
"""Files that one part writes at the same time: row groups of the others wait for nobody."""
_WITH_BOUNDS: Final = (
    "topic", "partition", "offset", "timestamp", "timestamp_ms", "leader_epoch", "producer_id",
    "base_offset", "last_offset", "max_timestamp", "segment_base_offset",
)  # fmt: skip
"""Columns by which files are skipped; bounds of others would only make the metadata larger."""
_METRICS: Final = "write.metadata.metrics"
_TIMES: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""Microseconds of the years 1 to 9999: pyiceberg cannot name the day of any other time."""


class SyncedFileIO(PyArrowFileIO):
    """Reads and writes files as pyiceberg does; those on local disks are synced before they appear.

    On disk after a crash: each file whole or not at all, and perhaps a temporary one.
    """

    def new_output(self, location: str) -> Any:
        made = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme == "file":
            made.create = lambda overwrite=False: _SyncedFile(path, replaces=overwrite)  # type: ignore[method-assign]
        return made


class _SyncedFile:
    """A new file as pyiceberg writes to it."""

    def __init__(self, path: str, *, replaces: bool) -> None:
        make_directories(path.rpartition("/")[0])
        self._new = NewFile(path, replaces=replaces)
        self.write = self._new.file.write
        self.tell = self._new.file.tell
        self.flush = self._new.file.flush

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: Any) -> None:
        if not self.closed:
            self._new.__exit__(*raised)

    def close(self) -> None:
        """Give the file its name."""
        self.__exit__(None, None, None)

    @property
    def closed(self) -> bool:
        return self._new.file.closed


def write_data_files(task: Mapping[str, Any]) -> dict[str, Any]:
    """Write the data files of some parts.

    Args:
        task: `io`, the properties of the file system; `location` and `properties` of the table;
            `schema` and `spec`, those of the table; `name`, the beginning of the files' names;
            `columns`, `typed`, `of_type`, `writing`, `fail_fast`, `max_rejects`, `parts` as for
        `write_parts`;
        `rejects`: the first of these, of the table of rejects, or None if there may be none.

    Returns:
        `parts`: an `ExportedPart` for each file, or for a part without rows; `files`: what the
        table notes about each file, from which `data_file` makes a `DataFile`; `rejects`: the same
        about the files of rejects; `failures`.

    Raises:
        as `write_parts`.

    Cost:
        That of `read_split`, and three times a row group.

    On disk after a crash: files that are in no table.
    """
    writing = Writing.from_json(task["writing"])
    typed = [TypedColumn.from_json(one) for one in task["typed"]]
    schema = arrow_schema(Schema.model_validate(task["schema"]), has_ids=False)
    columns = TableColumns(typed, schema, task["of_type"])
    found: dict[str, list[Any]] = {"parts": [], "files": [], "rejects": [], "failures": []}
    for fields in task["parts"]:
        part = Part.from_json(fields)
        with failures_kept(part.splits[0].path, found["failures"]):
            rows = Rows(
                part, task["columns"], columns, RejectsOf(part, task["max_rejects"]),
                fail_fast=task["fail_fast"],
            )  # fmt: skip
            split = part.splits[0]
            constant = {"topic": as_text(split.topic), "partition": split.partition}
            files = NewDataFiles(task, writing, part.number, constant)
            with ExitStack() as held:
                rejected = _RejectsFile(task["rejects"], writing, part.number, constant, held)
                rows.rejects.writes_to(rejected)
                held.enter_context(files)
                groups = row_groups(rows.batches(), writing.row_group_rows, writing.row_group_size)
                for group in groups:
                    files.write(group)
                whole = rows.told(None, 0, None)
            found["rejects"] += [one["data_file"] for one in rejected.written]
            found["parts"] += [one.as_json() for one in _told(whole, files.written)]
            found["files"] += [one["data_file"] for one in files.written]
    return found


def _told(whole: ExportedPart, written: list[dict[str, Any]]) -> Iterator[ExportedPart]:
    """Yield an `ExportedPart` for each file; the first also carries what concerns them all."""
    if not written:
        yield whole
    for one in written:
        first, last = one.pop("offsets")
        only = {name: one[name] for name in ("file", "rows", "size_bytes", "crc32c")}
        yield replace(whole, **only, first_offset=first, last_offset=last)
        whole = replace(
            whole, undecoded_keys=0, undecoded_values=0, defect_count=0, defects=(), rejects=None,
            without_answer=0, losses={},
        )  # fmt: skip


class NewDataFiles:
    """The files that some rows fill, one or more per partition of the table.

    Args:
        task: as for `write_data_files`: `io`, `location`, `properties`, `schema`, `spec`, `name`.
        writing: how they are written.
        number: part of their names.
        constant: values of columns that the rows do not have.
    """

    def __init__(
        self, task: Mapping[str, Any], writing: Writing, number: int, constant: Mapping[str, Any]
    ) -> None:
        self._io = load_file_io(task["io"], task["location"])
        self._schema = Schema.model_validate(task["schema"])
        self._spec = PartitionSpec.model_validate(task["spec"])
        self._places = load_location_provider(task["location"], task["properties"])
        self._name = f"{task['name']}-{number:08d}"
        self._writing = writing
        self._constant = constant
        self._file_schema = arrow_schema(self._schema, has_ids=True)
        self._open: dict[tuple[Any, ...], _File] = {}
        self._count = 0
        self.written: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: Any) -> None:
        if kind is None:
            self.close()
        for key in list(self._open):
            self._open.pop(key).abandon(kind, *raised)

    def close(self) -> None:
        """End all of them."""
        for key in list(self._open):
            self._close(key)

    def write(self, group: Any) -> None:
        """Write the rows of a `pyarrow.Table`, each to the file of its partition."""
        table = self._as_file(group)
        keys = pa.table({f"{i}": self._key(one, table) for i, one in enumerate(self._spec.fields)})
        if not keys.num_columns:
            self._file(()).write(table)
            return
        distinct = keys.group_by(keys.column_names).aggregate([])
        # By `repr`: null and values have no order.
        for key in sorted(map(tuple, zip(*distinct.to_pydict().values(), strict=True)), key=repr):
            # Most groups have one day of one topic: nothing is to be filtered.
            if len(distinct) == 1:
                self._file(key).write(table)
                return
            chosen = None
            for column, value in zip(keys.columns, key, strict=True):
                here = pc.is_null(column) if value is None else pc.equal(column, value)
                here = pc.fill_null(here, False)
                chosen = here if chosen is None else pc.and_(chosen, here)
            self._file(key).write(table.filter(chosen))

    def _key(self, field: PartitionField, table: Any) -> Any:
        kind = self._schema.find_type(field.source_id)
        column = table.column(self._schema.find_column_name(field.source_id))
        if isinstance(field.transform, DayTransform) and isinstance(kind, TimestamptzType):
            # That of pyiceberg is a day late for some times before 1970.
            return column.cast(pa.timestamp("us")).cast(pa.date32(), safe=False).cast(pa.int32())
        return field.transform.pyarrow_transform(kind)(column)

    def _as_file(self, group: Any) -> Any:
        arrays = []
        for field in self._file_schema:
            if field.name in self._constant:
                value = pa.scalar(self._constant[field.name], field.type)
                arrays.append(pa.repeat(value, group.num_rows))
            elif field.name not in group.column_names:  # the table needs it for its partitions
                arrays.append(pa.nulls(group.num_rows, field.type))
            else:
                array = converted(group.column(field.name).combine_chunks(), field.type)
                arrays.append(_in_calendar(array) if field.name == "timestamp" else array)
        return pa.Table.from_arrays(arrays, schema=self._file_schema)

    def _file(self, key: tuple[Any, ...]) -> _File:
        """Return the open file of a partition; it is the one that was written to last."""
        found = self._open.pop(key, None)
        if found is None:
            # The one that was written to longest ago; its partition gets another file if more come.
            if len(self._open) >= _OPEN_MAX:
                self._close(next(iter(self._open)))
            values = [PartitionFieldValue(field, value) for field, value in
                      zip(self._spec.fields, key, strict=True)]  # fmt: skip
            partition = PartitionKey(values, self._spec, self._schema)
            name = f"{self._name}-{self._count}.parquet"
            place = self._places.new_data_location(name, partition if key else None)
            self._count += 1
            found = _File(self._io, place, self._file_schema, self._writing, partition.partition)
        self._open[key] = found
        return found

    def _close(self, key: tuple[Any, ...]) -> None:
        self.written.append(self._open.pop(key).closed(self._schema))


class _File:
    def __init__(
        self, io: FileIO, place: str, schema: Any, writing: Writing, partition: Record
    ) -> None:
        self._io = io
        self._place = place
        self._partition = partition
        self._has_bounds = [name for name in _WITH_BOUNDS if name in schema.names]
        self._rows = 0
        self._offsets: tuple[int | None, int | None] = (None, None)
        self._held = ExitStack()
        try:
            stream = self._held.enter_context(cast("Any", io.new_output(place).create()))
            self._counted = CountedFile(cast("BinaryIO", stream))
            codec = "none" if writing.codec == Codec.NONE else str(writing.codec)
            self._writer = self._held.enter_context(
                # Not the encodings of plain exports: vectorized readers of Iceberg lack some.
                pq.ParquetWriter(
                    self._counted, schema, compression=codec, write_statistics=self._has_bounds
                )
            )
        except KafkaLogError:
            raise
        except Exception as error:  # pyarrow's file systems raise their own
            raise _unwritable(place, error) from error

    def write(self, table: Any) -> None:
        if "offset" in table.column_names:
            low, high = (
                pc.min_max(table.column("offset"))[name].as_py() for name in ("min", "max")
            )
            first, last = self._offsets
            self._offsets = (
                low if first is None else min(first, low),
                high if last is None else max(last, high),
            )
        self._rows += table.num_rows
        try:
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        except OSError as error:
            raise _unwritable(self._place, error) from error

    def abandon(self, *raised: Any) -> None:
        """End it without a result: no table will name it."""
        self._held.__exit__(*raised)

    def closed(self, schema: Schema) -> dict[str, Any]:
        """End it, and return what is known about it, as JSON values."""
        try:
            self._held.close()
            file = self._io.new_input(self._place)
            with file.open() as stream:
                metadata = pq.read_metadata(stream)
        except KafkaLogError:
            raise
        except Exception as error:  # close writes the footer, through the same file system
            raise _unwritable(self._place, error) from error
        modes = {f"{_METRICS}.column.{name}": "full" for name in self._has_bounds}
        known = data_file_statistics_from_parquet_metadata(
            metadata,
            compute_statistics_plan(schema, {f"{_METRICS}.default": "none", **modes}),
            parquet_path_to_id_mapping(schema),
        ).to_serialized_dict()
        return {
            "file": self._place,
            "rows": self._rows,
            "size_bytes": self._counted.size_bytes,
            "crc32c": self._counted.crc32c,
            "offsets": self._offsets,
            "data_file": {
                "file_path": self._place,
                "file_size_in_bytes": self._counted.size_bytes,
                "partition": [self._partition[i] for i in range(len(self._partition))],
                **{name: _as_json(value) for name, value in known.items()},
            },
        }


class _RejectsFile:
    """The file with the rejects of a part, as `RejectsOf` writes it; made with the first of them.

    A table of rejects whose partitions others have chosen may get several.
    """

    def __init__(
        self, task: Mapping[str, Any] | None, writing: Writing, number: int,
        constant: Mapping[str, Any], held: ExitStack,
    ) -> None:  # fmt: skip
        self._task = task
        self._writing = writing
        self._number = number
        self._constant = constant
        self._held = held
        self._files: NewDataFiles | None = None
        self.written: list[dict[str, Any]] = []

    def is_full(self, rows: int, size: int) -> bool:
        return rows >= self._writing.row_group_rows or size >= self._writing.row_group_size

    def write(self, table: Any) -> None:
        if self._files is None:
            assert self._task is not None, "there may be rejects"
            files = NewDataFiles(self._task, self._writing, self._number, self._constant)
            self._files = self._held.enter_context(files)
        self._files.write(table)

    def end(self) -> tuple[str, int, int]:
        assert self._files is not None, "there are rows"
        self._files.close()
        self.written = self._files.written
        first = self.written[0]
        return first["file"], first["size_bytes"], first["crc32c"]


def data_file(fields: Mapping[str, Any], spec_id: int) -> DataFile:
    values = dict(fields)
    for name, value in values.items():
        if isinstance(value, dict):
            # JSON has only texts as keys.
            values[name] = {int(key): _from_json(one) for key, one in value.items()}
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_format=FileFormat.PARQUET,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **{**values, "partition": Record(*values["partition"])},
    )
    made.spec_id = spec_id
    return made


def _in_calendar(times: Any) -> Any:
    """Return timestamps with null for those that the calendar lacks."""
    numbers = times.cast(pa.int64())
    is_in = pc.and_(pc.greater_equal(numbers, _TIMES[0]), pc.less_equal(numbers, _TIMES[1]))
    return pc.if_else(is_in, times, pa.scalar(None, times.type))


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _as_json(one) for key, one in value.items()}
    # A list tells bytes from a text.
    return [base64.b64encode(value).decode()] if isinstance(value, bytes) else value


def _from_json(value: Any) -> Any:
    return base64.b64decode(value[0]) if isinstance(value, list) else value


def _unwritable(place: str, error: Exception) -> UnwritableError | ShortageError:
    if (short := shortage(error, place)) is not None:
        return short
    words = " ".join(str(error).split()).rstrip(".")
    return UnwritableError(f"The table cannot be written: {words}.", path=place)
