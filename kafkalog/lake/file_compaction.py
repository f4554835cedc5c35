"""Merges small files of a table of plain Parquet files: the rows of a directory, in fewer files.

The files that count are those of the commits and of the merges, without what a merge replaces. A
merge is a file in `_kafkalog/merges`, written before it takes effect.

New directories with the merged files are built next to the table, and each is exchanged with the
old one in one step: who lists it finds every row once. Whatever stops this, each directory is the
old one or the new one, and `settle` lets the merge say which.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow.parquet as pq

from kafkalog.documents import Anything, Fields, Items, read_document, schema_of
from kafkalog.errors import CorruptDataError, KafkaLogError, UnwritableError
from kafkalog.lake.evolution import conformed
from kafkalog.lake.files import CountedFile, row_groups, table_writer, to_merge
from kafkalog.lake.model import (
    MERGES,
    REJECTS,
    SUCCESS,
    ExportedPart,
    Merged,
    commit_name,
    merge_name,
)
from kafkalog.lake.rejects import REJECTS_SCHEMA
from kafkalog.lake.rejects import SUFFIX as OF_REJECTS
from kafkalog.lake.run import PART
from kafkalog.storage import require_space
from kafkalog.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kafkalog.lake.model import Writing
    from kafkalog.lake.targets import LocalTarget
    from kafkalog.storage import FileTree


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of the table, or of that of its rejects, as a commit or a merge describes it.

    Attributes:
        file: path relative to the table, with slashes.
        rows: number of rows.
        size_bytes: size of the file.
        crc32c: checksum of the file.
        first_offset: that of its first row, if known.
        replaces: the files whose rows it has, in this order.
    """

    file: str
    rows: int
    size_bytes: int
    crc32c: int | None
    first_offset: int | None
    replaces: tuple[str, ...] = ()

    @property
    def directory(self) -> str:
        return os.path.dirname(self.file)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild the value from the result of `asdict`."""
        return cls(**{**fields, "replaces": tuple(fields["replaces"])})


_COMMIT: Final = Fields({"parts": Items(PART)}, others=Anything())
_MERGE: Final = Fields({"files": Items(schema_of(TableFile))}, others=Anything())
_OURS: Final = re.compile(
    rf"(?:{REJECTS}/)?topic=[^/]+/partition=[0-9]+/(commit|merged)([0-9]{{8,}})-[^/]+"
)


def merge_files(target: LocalTarget, schema: Any, size: int, writing: Writing) -> Merged:
    """Merge files that are smaller into files of about this size.

    Args:
        target: the table, locked, without an interrupted run.
        schema: the `pyarrow.Schema` of its files; merged ones have all its columns.
        size: the size in bytes.
        writing: how files are written.

    Raises:
        CorruptDataError: a file is not as it was written.
        UnsupportedError: the file system cannot exchange two names.
        UnwritableError: files cannot be written next to the table, or are not as they were written.

    Cost:
        Three times a row group of memory. Each file is read three times.

    On disk after a crash: each directory as before, or with the merged files. Until `settle`,
    `_SUCCESS` may be missing, and next to the table there may be a directory to be removed.
    """
    try:
        return _merge_files(target, schema, size, writing)
    except KafkaLogError:
        settle(target)  # at once: the next run may be far, and readers wait for `_SUCCESS`
        _mark_complete(target)
        raise


def _merge_files(target: LocalTarget, schema: Any, size: int, writing: Writing) -> Merged:
    sizes = target.sizes()
    groups = list(_groups(target, sizes, size))
    if not groups:
        return Merged()
    built = target.tree.build_tree()
    # The old files stay until the exchange, so there are two copies for a while.
    require_space(built.root, sum(one.size_bytes for group in groups for one in group))
    number = len(_merges(sizes))
    made = [
        _written_again(
            target, built, f"merged{number:08d}-{place:08d}", group,
            REJECTS_SCHEMA if group[0].file.startswith(f"{REJECTS}/") else schema, writing,
        )
        for place, group in enumerate(groups)
    ]  # fmt: skip
    # The merge is written before the first exchange: what a crash leaves undone, `settle` strikes
    # out of it. In the other order, files could lie there that no commit and no merge names.
    target.remove(SUCCESS)
    _write(target, number, made)
    for directory, files in groupby(made, lambda one: one.directory):
        replaced = {os.path.basename(old) for one in files for old in one.replaces}
        target.tree.link_directory(directory, built, replaced)  # what is not merged
        target.tree.exchange(directory, built)
    built.discard()
    _mark_complete(target)
    return Merged(sum(map(len, groups)), len(made))


def settle(target: LocalTarget) -> None:
    """Complete an interrupted merge: where files were not exchanged, it replaces nothing.

    Raises:
        CorruptDataError: the last merge is none.
    """
    target.tree.build_tree().discard()
    sizes = target.sizes()
    number = len(_merges(sizes)) - 1
    if number < 0:
        return
    files = _read_merge(target, number)
    kept = [
        one
        for one in files
        if sizes.get(one.file) == one.size_bytes or not all(old in sizes for old in one.replaces)
    ]
    if not kept:
        target.remove(merge_name(number))
    elif kept != files:
        _write(target, number, kept)


def _mark_complete(target: LocalTarget) -> None:
    with target.create(SUCCESS):
        pass


def _merges(sizes: Mapping[str, int]) -> list[str]:
    return [name for name in sizes if name.startswith(f"{MERGES}/")]


def _write(target: LocalTarget, number: int, files: Sequence[TableFile]) -> None:
    with target.create(merge_name(number)) as file:
        fields = {"version": 1, "files": [asdict(one) for one in files]}
        file.write(json.dumps(fields, indent=1).encode() + b"\n")


def _read_merge(target: LocalTarget, number: int) -> list[TableFile]:
    name = merge_name(number)
    place = f"{target.shown}/{name}"
    fields = read_document(target.read(name) or b"", _MERGE, place, "a merge of an export")
    return [TableFile.from_json(one) for one in fields["files"]]


# What is merged ------------------------------------------------------------------------------


def _groups(target: LocalTarget, sizes: Mapping[str, int], size: int) -> Iterator[list[TableFile]]:
    """Yield files of one directory each, to be merged into a file of about `size` bytes."""
    small = [one for one in _named_files(target, sizes, size) if one.size_bytes < size]
    small.sort(key=lambda one: (one.directory, one.first_offset or 0, one.file))
    for _, files in groupby(small, lambda one: one.directory):
        yield from to_merge(files, size, lambda one: one.size_bytes)


def _named_files(target: LocalTarget, sizes: Mapping[str, int], below: int) -> Iterator[TableFile]:
    """Yield small files of the directory as the commit or the merge in their names has them.

    Files of which they know nothing are left alone.
    """
    found = (_OURS.fullmatch(name) for name, size in sizes.items() if size < below)
    wanted = {(match[1], int(match[2])) for match in found if match is not None}
    for kind, number in sorted(wanted):
        name = commit_name(number) if kind == "commit" else merge_name(number)
        if name in sizes:
            read = _read_commit if kind == "commit" else _read_merge
            yield from (one for one in read(target, number) if sizes.get(one.file) is not None)


def _read_commit(target: LocalTarget, number: int) -> Iterator[TableFile]:
    """Yield the files that a commit has added."""
    name = commit_name(number)
    place = f"{target.shown}/{name}"
    fields = read_document(target.read(name) or b"", _COMMIT, place, "a commit of an export")
    for part in map(ExportedPart.from_json, fields["parts"]):
        first = part.first_offset
        if part.file is not None:
            yield TableFile(part.file, part.rows, part.size_bytes, part.crc32c, first)
        if part.rejects is not None:
            one = part.rejects
            yield TableFile(one.file, one.rows, one.size_bytes, one.crc32c, first)


# Rows ----------------------------------------------------------------------------------------


def _written_again(
    target: LocalTarget, built: FileTree, name: str, group: Sequence[TableFile], schema: Any,
    writing: Writing,
) -> TableFile:  # fmt: skip
    """Write the rows of files to a file of another tree, and compare them with what is there then.

    Raises:
        as `merge_files`.
    """
    for one in group:
        # A merge must not give a damaged file a new and valid checksum.
        if target.checksum(one.file) != one.crc32c:
            raise CorruptDataError(
                "The file is not as it was written.",
                path=f"{target.shown}/{one.file}",
                hint="Nothing was merged. Restore it, or export into another directory.",
            )
    is_rejects = schema is REJECTS_SCHEMA
    file = f"{group[0].directory}/{name}{OF_REJECTS if is_rejects else writing.suffix}"
    with built.create(file) as opened:
        written = CountedFile(opened)
        with table_writer(written, schema, writing) as write:
            for rows in _rows(target.tree, group, schema, writing):
                write(rows)
    first = group[0].first_offset
    made = TableFile(
        file, sum(one.rows for one in group), written.size_bytes, written.crc32c, first,
        tuple(one.file for one in group),
    )  # fmt: skip
    # Read back from disk: the files before are removed on the strength of this.
    old, new = (_rows(tree, files, schema, writing) for tree, files in (
        (target.tree, group), (built, [made])
    ))  # fmt: skip
    count = 0
    for before, after in zip_longest(old, new):
        if before is None or after is None or not _are_equal(before, after):
            raise UnwritableError("A merged file does not have the rows before.", path=built.root)
        count += len(after)
    if count != made.rows:
        raise UnwritableError(
            f"A merged file has {counted(count, 'row')}, not {made.rows}.", path=built.root
        )
    return made


def _are_equal(before: Any, after: Any) -> bool:
    if before.equals(after):
        return True
    return repr(before.to_pylist()) == repr(after.to_pylist())  # NaN is not equal to itself


def _rows(
    tree: FileTree, files: Sequence[TableFile], schema: Any, writing: Writing
) -> Iterator[Any]:
    """Yield the rows of files as tables of a row group each, with the columns of a schema."""
    batches = (batch for one in files for batch in _batches(tree, one, schema))
    return row_groups(batches, writing.row_group_rows, writing.row_group_size)


def _batches(tree: FileTree, one: TableFile, schema: Any) -> Iterator[Any]:
    path = os.path.join(tree.root, one.file)
    with open(path, "rb") as opened, pq.ParquetFile(opened) as file:
        for batch in file.iter_batches():
            yield conformed(batch, schema)
