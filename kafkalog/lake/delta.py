"""Turns the files of an export into a Delta table, whose log names them; they stay as they are.

The package `deltalake`, which is not part of kafkalog, writes the log: one commit that creates the
table and adds all files, with topic and partition as partition values.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from kafkalog.errors import DestinationExistsError, UnsupportedError, UnwritableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.lake.model import ExportedPart

_BY_PATH = ["topic", "partition"]


def delta_schema(place: str, schema: Any) -> Any:
    """Return the table's schema (a `pyarrow.Schema`, with topic and partition).

    Raises:
        UnsupportedError: `deltalake` is not installed or cannot name the directory, or Delta has
            no such type.
    """
    if _text(place) != place:
        raise UnsupportedError(
            "Delta tables need names in UTF-8.", path=place, hint="Choose another directory."
        )
    try:
        from deltalake import Schema
    except ImportError as error:
        raise UnsupportedError(
            "Delta tables are written by deltalake, which is not installed.",
            hint="pip install 'kafkalog[delta]'",
        ) from error
    try:
        return Schema.from_arrow(schema)
    except Exception as error:  # deltalake and arro3 raise exceptions of their own, some bare
        words = " ".join(str(error).split())
        raise UnsupportedError(
            f"Delta cannot have these columns: {words}.", hint="Choose others with --columns."
        ) from error


def commit_delta(place: str, schema: Any, parts: Sequence[ExportedPart]) -> None:
    """Make a directory a Delta table of the files of these parts; an existing table is left alone.

    On disk after a crash: no table, or the whole table.

    Args:
        place: a local directory.
        schema: as returned by `delta_schema`.
        parts: the parts of an export, all written.

    Raises:
        DestinationExistsError: there is a table of other files.
        UnwritableError: its log cannot be written or read.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError
    from deltalake.transaction import AddAction, create_table_with_add_actions

    files = {part.file: part for part in parts if part.file is not None}
    try:
        if DeltaTable.is_deltatable(place):
            found = {os.path.relpath(uri, place) for uri in _local(DeltaTable(place).file_uris())}
            if found != set(files):
                raise DestinationExistsError(
                    "There is already a Delta table of other files.", path=place
                )
            return
        create_table_with_add_actions(
            place,
            schema,
            [
                AddAction(
                    file,  # unencoded: deltalake encodes it
                    part.size_bytes,
                    {"topic": _text(part.topic), "partition": str(part.partition)},
                    os.stat(os.path.join(place, file)).st_mtime_ns // 1_000_000,
                    True,
                    json.dumps({"numRecords": part.rows}),
                )
                for file, part in files.items()
            ],
            partition_by=_BY_PATH,
        )
    except (DeltaError, OSError) as error:
        words = " ".join(str(error).split()).rstrip(".")
        raise UnwritableError(f"The Delta table cannot be created: {words}.", path=place) from error


def _text(name: str) -> str:
    """Return a name as readers of the directory see it, with invalid UTF-8 replaced."""
    return os.fsencode(name).decode("utf-8", "replace")


def _local(uris: Sequence[str]) -> list[str]:
    return [uri.removeprefix("file://") for uri in uris]
