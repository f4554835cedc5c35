"""Exports tables of log directories to files for other programs: planned, resumable, exactly once.

export("/var/lib/kafka", to="lake").apply().rows

Names are loaded on first use: reading the options loads no pyarrow.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.change.lake.append import Append as Append
    from kafkalog.change.lake.iceberg_append import IcebergAppend as IcebergAppend
    from kafkalog.change.lake.model import Codec as Codec
    from kafkalog.change.lake.model import ExportedPart as ExportedPart
    from kafkalog.change.lake.model import ExportRequest as ExportRequest
    from kafkalog.change.lake.model import ExportSummary as ExportSummary
    from kafkalog.change.lake.model import FileFormat as FileFormat
    from kafkalog.change.lake.model import TableFormat as TableFormat
    from kafkalog.change.lake.model import Writing as Writing
    from kafkalog.change.lake.model import local_catalog as local_catalog
    from kafkalog.change.lake.plan import Part
    from kafkalog.change.lake.run import Export as Export
    from kafkalog.change.plan import Plan as ChangePlan
    from kafkalog.errors import Listener, OnEvent
    from kafkalog.io.engine import Engine

_MODULES = {
    "append": ("Append",),
    "iceberg_append": ("IcebergAppend",),
    "model": (
        "Codec",
        "ExportRequest",
        "ExportSummary",
        "ExportedPart",
        "FileFormat",
        "TableFormat",
        "Writing",
        "local_catalog",
    ),
    "run": ("Export",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted([*_HOMES, "appending", "export"])  # noqa: PLE0605 # computed from the table above


def appending(
    asked: ExportRequest,
    to: str,
    *,
    fail_fast: bool = False,
    allow_gaps: bool = False,
    allow_damage: bool = False,
    catalog: Mapping[str, str] | None = None,
    max_rejects: int = 0,
    listener: Listener | None = None,
) -> Append | IcebergAppend:
    """Return a run that adds to a table; use it as a context manager.

    Args:
        asked, to, fail_fast, allow_gaps, allow_damage, max_rejects, listener: as for `Append`.
        catalog: properties of the catalog of an Iceberg table.

    Raises:
        UnsupportedError: `pyiceberg` is not installed.
        as `Append` or `IcebergAppend`.
    """
    from kafkalog.change.lake.append import Append
    from kafkalog.change.lake.model import TableFormat
    from kafkalog.errors import UnsupportedError

    if asked.table_format != TableFormat.ICEBERG:
        return Append(
            asked, to, fail_fast=fail_fast, allow_gaps=allow_gaps, allow_damage=allow_damage,
            max_rejects=max_rejects, listener=listener,
        )  # fmt: skip
    try:
        from kafkalog.change.lake.iceberg_append import IcebergAppend
    except ImportError as error:
        raise UnsupportedError(
            "Iceberg tables are written by pyiceberg, which is not installed.",
            hint="pip install 'kafkalog[lake]'",
        ) from error
    return IcebergAppend(
        asked, to, fail_fast=fail_fast, allow_gaps=allow_gaps, allow_damage=allow_damage,
        catalog=catalog, max_rejects=max_rejects, listener=listener,
    )  # fmt: skip


def export(
    *paths: str | os.PathLike[str],
    to: str | os.PathLike[str],
    engine: Engine | None = None,
    fail_fast: bool = False,
    allow_gaps: bool = False,
    allow_damage: bool = False,
    catalog: Mapping[str, str] | None = None,
    max_rejects: int = 0,
    registry: str | os.PathLike[str] | None = None,
    connect: Sequence[str] = (),
    on_event: OnEvent | None = None,
    **options: Any,
) -> ChangePlan[Part, ExportSummary]:
    """Plan to write the records of logs, or other tables of them, to files.

    The plan has the files with all that is there now; with `append` only what is new is written.
    What was stopped goes on where it was, if it is applied again.

    Args:
        paths: log directories, partition directories or logs.
        to: a local directory, a URI of an object store, or `CATALOG.NAMESPACE.TABLE`.
        engine: runs the parts; None for threads of this process.
        fail_fast: whether damage ends the export; otherwise it is skipped and counted.
        allow_gaps: with `append`, whether to commit although records are gone; the summary names
            them.
        allow_damage: likewise, although damage hides records.
        catalog: properties of the Iceberg catalog, added to those that pyiceberg finds.
        max_rejects: how many records whose key or value does not decode may go to the table of
            rejects; if there are more, nothing is exported.
        registry: where the schemas of the one topic of `request` are, which give keys and values
            types; and `connect`: which of both have a schema in each message; as for `dataset`.
        on_event: is passed what is left out; without it the first failure is raised.
        options: the other attributes of `ExportRequest`: `request`, `columns`, `append` ….

    Returns:
        The plan; `apply` returns the result, with `append` that of the last commit.

    Raises:
        as `Export`, or with `append` as `appending`; with `registry` as `read_registry`.
        UsageError: the registry does not decide what the columns are.
    """
    from kafkalog.change.lake.model import ExportRequest
    from kafkalog.change.lake.plan import Part, make_plan
    from kafkalog.change.lake.run import Export
    from kafkalog.change.plan import Plan as ChangePlan
    from kafkalog.errors import raised
    from kafkalog.io.engine import LocalEngine
    from kafkalog.log.events import Reporter
    from kafkalog.tables.topic_types import columns_by_data

    asked = ExportRequest(tuple(os.fspath(path) for path in paths), **options)
    by_data = columns_by_data(registry, asked.request.bounds.topics or (), connect)
    asked = replace(asked, by_data=(*asked.by_data, *by_data))
    place, reporter = os.fspath(to), Reporter(on_event or raised)

    def apply(_: str | None) -> ExportSummary:
        # A run that completes an interrupted one adds nothing else; the next turn adds what is new.
        while asked.append:
            with appending(
                asked, place, fail_fast=fail_fast, allow_gaps=allow_gaps,
                allow_damage=allow_damage, catalog=catalog, max_rejects=max_rejects,
                listener=reporter,
            ) as commit:  # fmt: skip
                commit.run(engine or LocalEngine())
                if not commit.is_continued:
                    return commit.summary()
        with Export(
            asked, place, fail_fast=fail_fast, max_rejects=max_rejects, listener=reporter
        ) as run:
            run.run(engine or LocalEngine())
            return run.summary()

    parts = make_plan(asked, reporter).parts
    return ChangePlan("export", parts, Part, apply=apply, keeps_originals=False)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kafkalog.change.lake' has no attribute {name!r}")
    return getattr(import_module(f"kafkalog.change.lake.{_HOMES[name]}"), name)
