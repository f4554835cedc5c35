"""The log of a Delta table, which names the files of an export.

The package `deltalake`, which is not part of kafkalog, writes it: a commit adds files, with topic
and partition as partition values.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.change.lake.evolution import Evolution, fields_of
from kafkalog.change.lake.files import as_text
from kafkalog.errors import (
    DestinationExistsError,
    KafkaLogError,
    UnreadableError,
    UnsupportedError,
    UnwritableError,
)
from kafkalog.io.paths import file_system

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deltalake import DeltaTable

    from kafkalog.change.lake.model import ExportedPart, Increment

_LOCAL_TIMES: Final = "timestampNtz"
_BY_PATH: Final = ["topic", "partition"]
_APP: Final = "kafkalog"
_NO_TOPIC: Final = "/"
"""No directory of a topic has this name."""


def delta_schema(place: str, schema: Any) -> Any:
    """Return the table's schema (a `pyarrow.Schema`, with topic and partition).

    Raises:
        UnsupportedError: `deltalake` is not installed or cannot name the directory, or Delta has
            no such type.
    """
    # Delta's log is JSON: a name that is not UTF-8 cannot be written there.
    if as_text(place) != place:
        raise UnsupportedError(
            "Delta tables need names in UTF-8.", path=place, hint="Choose another directory."
        )
    try:
        from deltalake import Schema
    except ImportError as error:
        raise UnsupportedError(
            "Delta tables are written by deltalake, which is not installed.",
            hint="pip install 'kafkalog[lake]'",
        ) from error
    try:
        return Schema.from_arrow(schema)
    except Exception as error:  # deltalake and arro3 raise bare `Exception`, too
        raise UnsupportedError(
            f"Delta cannot have these columns: {_words(error)}.",
            hint="Choose others with --columns.",
        ) from error


def require_fitting(place: str, schema: Any) -> None:
    """Raise unless rows of a schema, as returned by `delta_schema`, can be added to a table.

    Raises:
        DestinationExistsError: a column has another type in the table.
        UnreadableError: its log cannot be read.
    """
    from deltalake import DeltaTable

    with _failing(UnreadableError, place, "read"):
        if _is_table(place):
            _with_columns(DeltaTable(place), schema, place)


def _with_columns(table: DeltaTable, schema: Any, place: str) -> Any:
    """Return the schema of a table with the columns of a run.

    Types stay: readers know files with narrower ones only by a feature that deltalake lacks.
    """
    from deltalake import Schema

    found = table.schema()
    here = pa.schema(found.to_arrow())
    wanted = pa.schema(schema.to_arrow())
    merged = Evolution(here, wanted, place, widens=False, by_name=True).schema
    if merged == here:
        return found
    # deltalake cannot keep comments and generated columns on the way to Arrow and back.
    if Schema.from_arrow(here) != found:
        raise DestinationExistsError(
            "Columns cannot be added: the table has notes about columns that would be lost.",
            path=place,
            hint="Add them with the program that made the notes.",
        )
    return Schema.from_arrow(merged)


def _allow_local_times(table: DeltaTable, schema: Any) -> None:
    """Give a table the feature of times without a zone, if it gets the first of them.

    That is a commit of its own, without rows.
    """
    from deltalake import TableFeatures

    if _LOCAL_TIMES in (table.protocol().reader_features or ()):
        return
    if any(map(_has_local_times, schema)):
        table.alter.add_feature(
            TableFeatures.TimestampWithoutTimezone, allow_protocol_versions_increase=True
        )


def _has_local_times(field: Any) -> bool:
    kind = field.type
    is_one = pa.types.is_timestamp(kind) and kind.tz is None
    return bool(is_one or any(map(_has_local_times, fields_of(kind))))


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
    from deltalake.transaction import create_table_with_add_actions

    with _failing(UnwritableError, place, "created"):
        if _is_table(place):
            # A killed run may have made the table: it is done if the files are the same.
            found = {os.path.relpath(uri, place) for uri in _local(DeltaTable(place).file_uris())}
            if found != {part.file for part in parts if part.file is not None}:
                raise DestinationExistsError(
                    "There is already a Delta table of other files.", path=place
                )
            return
        create_table_with_add_actions(place, schema, _adds(place, parts), partition_by=_BY_PATH)


def delta_commit(place: str) -> int | None:
    """Return the number of the last commit of ours in a Delta table.

    None if there is no table, or it has no commit of an appending export.

    Raises:
        UnreadableError: its log cannot be read.
    """
    from deltalake import DeltaTable

    with _failing(UnreadableError, place, "read"):
        return DeltaTable(place).transaction_version(_APP) if _is_table(place) else None


def append_delta(
    place: str, schema: Any, parts: Sequence[ExportedPart], increment: Increment
) -> None:
    """Add the files of an increment to a Delta table in one commit, or create it with them.

    The commit has the number of the increment as the version of the application `kafkalog`, and the
    next offset of each partition as that of `kafkalog TOPIC-PARTITION@TOPICID`.

    On disk after a crash: the table before, or after the commit.

    Raises:
        UnwritableError: its log cannot be written or read.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import create_table_with_add_actions

    # Only partitions that moved get a new version: there is one action for each.
    moved = {
        key: offset
        for key, (offset, _) in increment.end.items()
        if increment.start.get(key, [None])[0] != offset
    }
    # Delta's `txn` actions: for each application the last version, in the same atomic commit.
    properties = CommitProperties(
        app_transactions=[
            Transaction(_APP, increment.number),
            *(Transaction(f"{_APP} {as_text(key)}", offset) for key, offset in moved.items()),
        ]
    )
    adds = _adds(place, parts)
    with _failing(UnwritableError, place, "changed"):
        if _is_table(place):
            table = DeltaTable(place)
            merged = _with_columns(table, schema, place)
            _allow_local_times(table, pa.schema(merged.to_arrow()))
            # Only a commit that overwrites can change columns: here it overwrites nothing.
            is_same = merged == table.schema()
            table.create_write_transaction(
                adds,
                "append" if is_same else "overwrite",
                merged,
                _BY_PATH,
                None if is_same else [("topic", "=", _NO_TOPIC)],
                commit_properties=properties,
            )
        else:
            create_table_with_add_actions(
                place, schema, adds, partition_by=_BY_PATH, commit_properties=properties
            )


def _is_table(place: str) -> bool:
    from deltalake import DeltaTable

    return bool(DeltaTable.is_deltatable(place))


def _adds(place: str, parts: Sequence[ExportedPart]) -> list[Any]:
    from deltalake.transaction import AddAction

    return [
        AddAction(
            part.file,  # unencoded: deltalake encodes it
            part.size_bytes,
            {"topic": as_text(part.topic), "partition": str(part.partition)},
            file_system.status(os.path.join(place, part.file)).st_mtime_ns // 1_000_000,
            True,  # data_change: these are new rows, not rearranged ones
            json.dumps({"numRecords": part.rows}),  # `stats` is JSON in a string
        )
        for part in parts
        if part.file is not None
    ]


def _local(uris: Sequence[str]) -> list[str]:
    return [uri.removeprefix("file://") for uri in uris]


def _words(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


@contextmanager
def _failing(kind: type[KafkaLogError], place: str, done: str) -> Iterator[None]:
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise kind(f"The Delta table cannot be {done}: {_words(error)}.", path=place) from error
