"""Merges small files of an Iceberg table: the rows of each partition, in fewer files."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import index_name_by_id

from kafkalog.change.lake.evolution import conformed
from kafkalog.change.lake.files import row_groups, to_merge
from kafkalog.change.lake.iceberg_commits import once
from kafkalog.change.lake.iceberg_files import NewDataFiles, data_file
from kafkalog.change.lake.model import Merged
from kafkalog.errors import UnwritableError
from kafkalog.io.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.table import FileScanTask, Table

    from kafkalog.change.lake.iceberg import IcebergTable
    from kafkalog.change.lake.model import Writing

_MERGED: Final = "kafkalog.merged-files"


def merge_small(iceberg: IcebergTable, size: int, writing: Writing) -> Merged:
    """Merge data files that are smaller into files of about this size: the rows stay the same.

    pyiceberg has no snapshots that replace files, only some that overwrite rows. If another program
    changes the table meanwhile, nothing is merged.

    On disk after a crash: the table before, or after the commit, and perhaps files that are in no
    snapshot.

    Raises:
        UnwritableError: files cannot be written.
        UncertainError: the catalog did not say whether the commit has succeeded.
    """
    iceberg.load()
    table = iceberg.table
    if table is None:
        return Merged()
    with iceberg.failing(UnwritableError, "changed"):
        groups = _small_files(table, size)
        if not groups:
            return Merged()
        task = {**iceberg.task_for(table.schema()), "name": f"merged-{uuid4().hex[:8]}"}
        made = _written_again(table, task, groups, writing)
        count = sum(map(len, groups))
        change = once(table)
        noted = {_MERGED: str(count)}
        # Files of one commit replace others: readers see the rows once, before and after.
        replacing = change.update_snapshot(snapshot_properties=noted).overwrite()
        for old in (one.file for group in groups for one in group):
            replacing.delete_data_file(old)
        for new in made:
            replacing.append_data_file(data_file(new, table.spec().spec_id))
        replacing.commit()
    if iceberg.is_made(change, replacing.snapshot_id):
        return Merged(count, len(made))
    iceberg.remove([one["file_path"] for one in made])
    return Merged()


def _small_files(table: Table, size: int) -> list[list[FileScanTask]]:
    """Return files of one partition each, to be merged into a file of about `size` bytes.

    Files are left alone if other programs have deleted rows of them, or renamed columns that they
    have, or if they were written by other partitions.
    """
    spec_id = table.spec().spec_id
    small = [
        one
        for one in table.scan().plan_files()
        if one.file.file_size_in_bytes < size
        and not one.delete_files
        and one.file.spec_id == spec_id
        and _has_known_columns(table, one)
    ]
    small.sort(key=lambda one: (_partition(one), *_bounds(table, one), one.file.file_path))
    return [
        group
        for _, files in groupby(small, _partition)
        for group in to_merge(files, size, lambda one: one.file.file_size_in_bytes)
    ]


def _partition(task: FileScanTask) -> str:
    return repr(task.file.partition)


def _bounds(table: Table, task: FileScanTask) -> Iterator[int]:
    """Yield the smallest partition and offset of a file: by these, rows stay in order."""
    for name in ("partition", "offset"):
        # Iceberg stores bounds of numbers as little-endian bytes.
        known = task.file.lower_bounds or {}
        found = [known.get(one.field_id) for one in table.schema().fields if one.name == name]
        yield int.from_bytes(found[0], "little", signed=True) if found and found[0] else -1


def _written_again(
    table: Table, task: Mapping[str, Any], groups: Sequence[Sequence[FileScanTask]],
    writing: Writing,
) -> list[dict[str, Any]]:  # fmt: skip
    """Write the rows of each group to a file, and return what the table notes about the files.

    Raises:
        UnwritableError: a file cannot be written, or does not have the rows that it should.

    Cost:
        Three times a row group.
    """
    made: list[dict[str, Any]] = []
    try:
        for number, group in enumerate(groups):
            files = NewDataFiles(task, writing, number, {})
            with files:
                batches = _rows(table, group)
                for rows in row_groups(batches, writing.row_group_rows, writing.row_group_size):
                    files.write(rows)
            made += [one["data_file"] for one in files.written]
            count = sum(one["rows"] for one in files.written)
            wanted = sum(one.file.record_count for one in group)
            if count != wanted:
                raise UnwritableError(
                    f"Merged files have {counted(count, 'row')}, not {wanted}.",
                    path=table.location(),
                )
    except BaseException:  # raised again: no snapshot will name these files
        for one in made:
            with suppress(Exception):  # a file may stay; what failed first is told
                table.io.delete(one["file_path"])
        raise
    return made


def _rows(table: Table, group: Sequence[FileScanTask]) -> Iterator[Any]:
    # Not by a scan of pyiceberg: for it, a null list of structs is an empty list.
    schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
    for one in group:
        with _opened(table, one) as file:
            for batch in file.iter_batches():
                yield conformed(batch, schema)


@contextmanager
def _opened(table: Table, task: FileScanTask) -> Iterator[pq.ParquetFile]:
    with table.io.new_input(task.file.file_path).open() as stream, pq.ParquetFile(stream) as file:
        yield file


def _has_known_columns(table: Table, task: FileScanTask) -> bool:
    """Return whether the columns of a file have the names by which the table knows them now."""
    with _opened(table, task) as file:
        try:
            found = index_name_by_id(pyarrow_to_schema(file.schema_arrow))
        except ValueError:  # its columns have no ids
            return False
    known = index_name_by_id(table.schema())
    ids = {name: number for number, name in known.items()}
    return all(
        ids.get(name, number) == number and known.get(number, name) == name
        for number, name in found.items()
    )
