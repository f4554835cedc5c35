"""The options of an export: which go together, and which a later run must repeat."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from kafkalog.change.lake.model import FileFormat, TableFormat
from kafkalog.errors import DestinationExistsError, UsageError
from kafkalog.files.topics import PartitionNumbers, Topics
from kafkalog.io.paths import file_system
from kafkalog.log.batches.condition import condition_of
from kafkalog.log.typed import TypedColumn, TypedForm
from kafkalog.log.typed.framing import Framing
from kafkalog.model import Replicas
from kafkalog.tables.model import OF_LOGS, Contents, TableName

if TYPE_CHECKING:
    from kafkalog.change.lake.model import ExportRequest
    from kafkalog.tables.topic_types import ByData

OF_A_RUN: Final = ("paths", "split_bytes")
"""Options that may differ from run to run of a table that grows."""
OF_COLUMNS: Final = ("columns", "typed")
"""Further ones, where readers find the columns in each file."""


def require_what_applies(asked: ExportRequest) -> None:
    """Raise `UsageError` if options do not go together."""
    if asked.table_format != TableFormat.FILES and asked.writing.form != FileFormat.PARQUET:
        name = asked.table_format.capitalize()
        raise UsageError(f"{name} tables consist of Parquet files, not {asked.writing.form}.")
    if asked.table_format == TableFormat.ICEBERG and not asked.append:
        raise UsageError("Iceberg tables grow run by run.", hint="Add --append.")
    request = asked.request
    bounds, table = request.bounds, request.table
    has_times = bounds.from_time is not None or bounds.to_time is not None
    has_offsets = bounds.from_offset is not None or bounds.to_offset is not None
    if has_times and table != TableName.RECORDS:
        raise UsageError(f"Times select records; the table {table} has no timestamps.")
    if asked.sources and table != TableName.RECORDS:
        raise UsageError(f"Only records have keys and values, not {table}.")
    if table != TableName.RECORDS and (request.where or request.contents != Contents()):
        raise UsageError(f"Conditions select records, not rows of {table}.")
    _require_plain(asked)
    if asked.flat and "value" not in asked.sources:
        raise UsageError(
            "--flatten is about decoded values.", hint="--registry PLACE, or --value-format json"
        )
    if asked.append and (has_times or has_offsets):
        raise UsageError(
            "--append exports everything that is new: it takes no offsets or times.",
            hint="Leave them out, or leave out --append and give each run a directory of its own.",
        )
    if asked.append and request.replicas != Replicas.BEST:
        raise UsageError("--append exports each partition once: it needs --replicas best.")
    if has_offsets and table not in OF_LOGS:
        raise UsageError(f"Offsets select records, batches and defects, not rows of {table}.")


def _require_plain(asked: ExportRequest) -> None:
    """Raise `UsageError` if a condition would look into what only a schema decodes."""
    where = asked.request.where
    roots = () if where is None else condition_of(where).roots
    columns: tuple[TypedColumn | ByData, ...] = (*asked.typed, *asked.by_data)
    for one in columns:
        is_plain = one.form == TypedForm.JSON and one.framing == Framing.NONE
        if one.source in roots and not is_plain:
            form = one.form or "data"
            raise UsageError(
                f"--where reads a {one.source} as JSON or text, not as {form} with a schema.",
                hint="kafkalog find PATH --where … --to FILE.parquet decodes it.",
            )


def options_of(asked: ExportRequest) -> dict[str, Any]:
    """Return the request as JSON, the same for the same export."""
    request = asdict(asked.request)
    bounds = request.pop("bounds")
    # What is named exists; two are Spark's; the others change nothing of the files.
    for name in ("named", "assigned", "pattern", "gaps_when_read", "notes_hosting"):
        del request[name]
    for name in ("topics", "partitions"):
        given = bounds[name]
        texts = given.texts if isinstance(given, Topics | PartitionNumbers) else given
        bounds[name] = None if texts is None else sorted(texts)
    return {
        **request,
        "contents": asked.request.contents.as_json(),
        "paths": [file_system.absolute(path) for path in asked.paths],
        "bounds": bounds,
        "columns": None if asked.columns is None else list(asked.columns),
        "writing": asdict(asked.writing),
        "typed": [one.as_json() for one in asked.typed],
        "table_format": asked.table_format,
        "append": asked.append,
        # Only of such tables: those of others are compared with what earlier releases stored.
        **({} if asked.of_type is None else {"of_type": asked.of_type}),
    }


def require_same_options(stored: Any, asked: ExportRequest, place: str) -> None:
    """Raise unless an earlier run had the same options.

    The runs of a table that grows may have other paths, splits, and schemas of writers; if it
    consists of Parquet files, also other columns.

    Raises:
        DestinationExistsError: it had others.
    """
    # As it was stored: tuples are lists in JSON.
    wanted = json.loads(json.dumps(options_of(asked)))
    if asked.append and isinstance(stored, dict):
        free = OF_A_RUN if asked.writing.form != FileFormat.PARQUET else (*OF_A_RUN, *OF_COLUMNS)
        stored = {**stored, **{name: wanted[name] for name in free}}
        # What the data decides is compared once it is decided.
        if asked.by_data or _of_column(stored.get("typed")) == _of_column(wanted["typed"]):
            stored["typed"] = wanted["typed"]
    if stored == wanted:
        return
    found = stored if isinstance(stored, dict) else {}
    names = [name for name in wanted if found.get(name) != wanted[name]]
    raise DestinationExistsError(
        f"The directory holds another export, with other {', '.join(names) or 'options'}.",
        path=place,
        hint="Choose another directory, or repeat the same command.",
    )


def stored_columns(stored: Any) -> tuple[TypedColumn, ...]:
    """Return the typed columns of an earlier run, from its options as they were stored."""
    try:
        return tuple(TypedColumn.from_json(one) for one in stored["typed"])
    except (AttributeError, LookupError, TypeError, ValueError):
        return ()  # of no run of kafkalog: `require_same_options` says so


def _of_column(typed: Any) -> Any:
    """Return what decides the type of typed columns: more writers' schemas may come."""
    try:
        return [
            {
                **one,
                "writers": None,
                "guids": None,
                "names": None,
                "place": None,
                # The data has them, each run others.
                **({"versions": None} if one["form"] == TypedForm.CONNECT else {}),
                "types": [[name, *_of_column([of_type])] for name, of_type in one.get("types", ())],
            }
            for one in typed
        ]
    except (AttributeError, TypeError, ValueError):
        return typed  # no list of columns: it differs, whatever it is
