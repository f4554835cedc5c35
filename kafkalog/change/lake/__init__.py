"""Exports tables of log directories to files for other programs: planned, resumable, exactly once.

export("/var/lib/kafka", to="lake").apply().rows

Names are loaded on first use: reading the options loads no pyarrow.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kafkalog.change.lake.append import Append as Append
    from kafkalog.change.lake.iceberg_append import IcebergAppend as IcebergAppend
    from kafkalog.change.lake.model import Accepted as Accepted
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
    from kafkalog.change.lake.split import SplitExport as SplitExport
    from kafkalog.change.plan import Plan as ChangePlan
    from kafkalog.errors import OnEvent
    from kafkalog.io.engine import Engine

_MODULES = {
    "append": ("Append",),
    "iceberg_append": ("IcebergAppend",),
    "model": (
        "Accepted",
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
    "split": ("SplitExport",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted([*_HOMES, "export", "writing"])  # noqa: PLE0605 # computed from the table above


def writing(
    asked: ExportRequest, to: str, **options: Any
) -> Export | Append | IcebergAppend | SplitExport:
    """Return the run of a request; use it as a context manager.

    Arguments and errors are those of `table_run`, or with `split_by_type` of `SplitExport`.
    """
    if asked.split_by_type:
        from kafkalog.change.lake.split import SplitExport

        return SplitExport(asked, to, **options)
    from kafkalog.change.lake.table_run import table_run

    return table_run(asked, to, **options)


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
        options: other attributes of `ExportRequest`: `request`, `append`, `split_by_type` ….

    Returns:
        The plan; `apply` returns the result, with `append` that of the last commit.

    Raises:
        as `writing`; with `registry` as `read_registry`.
        UsageError: the registry does not decide what the columns are.
    """
    from kafkalog.change.lake.model import Accepted, ExportRequest
    from kafkalog.change.lake.plan import Part, make_plan
    from kafkalog.change.plan import Plan as ChangePlan
    from kafkalog.errors import raised
    from kafkalog.io.engine import LocalEngine
    from kafkalog.log.events import Reporter
    from kafkalog.tables.topic_types import columns_by_data

    asked = ExportRequest(tuple(os.fspath(path) for path in paths), **options)
    topics = asked.request.bounds.topics or ()
    by_data = columns_by_data(registry, topics, connect, are_split=asked.split_by_type)
    asked = replace(asked, by_data=(*asked.by_data, *by_data))
    accepted = Accepted(allow_damage, allow_gaps, max_rejects)
    place, reporter = os.fspath(to), Reporter(on_event or raised)
    run = partial(
        writing, asked, place, fail_fast=fail_fast, accepted=accepted, catalog=catalog,
        listener=reporter,
    )  # fmt: skip

    def apply(_: str | None) -> ExportSummary:
        return _run_all(run, engine or LocalEngine())

    if asked.split_by_type:
        from kafkalog.change.lake.split import plan_anywhere

        parts = plan_anywhere(asked, reporter).parts
    else:
        parts = make_plan(asked, reporter).parts
    return ChangePlan("export", parts, Part, apply=apply, keeps_originals=False)


def _run_all(
    opened: Callable[[], Export | Append | IcebergAppend | SplitExport], engine: Engine
) -> ExportSummary:
    """Complete an interrupted run, which adds nothing else, then add what is new.

    Returns:
        the result of the last run that did something.
    """
    completed = None
    while True:
        with opened() as run:
            run.run(engine)
            summary = run.summary()
            if not run.is_continued:
                return completed if completed and summary.was_complete else summary
            completed = summary


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kafkalog.change.lake' has no attribute {name!r}")
    return getattr(import_module(f"kafkalog.change.lake.{_HOMES[name]}"), name)
