"""Shared by the tests of tables that grow: add to a table, and read its rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from kafkalog.change.lake import ExportRequest, ExportSummary, TableFormat, local_catalog, writing
from kafkalog.model import Replicas
from kafkalog.tables import Request
from tests.builders import write_log
from tests.kafkalog.change.lake.exporting import table_of
from tests.kafkalog.tables.test_other_disks import batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kafkalog.io.engine import Engine

FILES, DELTA, ICEBERG = TableFormat.FILES, TableFormat.DELTA, TableFormat.ICEBERG
TABLE = "lake.kafka.records"
"""The Iceberg table, whose warehouse is the destination of the others."""
REQUEST = Request(replicas=Replicas.BEST, split_bytes=300)


class Inline:
    """Runs tasks one after the other, as workers do: with JSON in and out."""

    is_here = False

    def run(
        self, function: Callable[[Any], Any], tasks: list[dict[str, Any]]
    ) -> Iterator[tuple[int, Any]]:
        for number, task in enumerate(tasks):
            yield number, json.loads(json.dumps(function(json.loads(json.dumps(task)))))


def asking(*paths: Path | str, form: TableFormat = FILES) -> ExportRequest:
    return ExportRequest(tuple(map(str, paths)), REQUEST, table_format=form, append=True)


def append(
    *paths: Path | str, to: Path | str, form: TableFormat = FILES, **options: Any
) -> list[ExportSummary]:
    return add(asking(*paths, form=form), to, **options)


def add(
    asked: ExportRequest, to: Path | str, engine: Engine | None = None, **options: Any
) -> list[ExportSummary]:
    """Do what the command does: complete an interrupted run, then add what is new."""
    is_iceberg = asked.table_format == ICEBERG
    place, catalog = (TABLE, local_catalog(str(to))) if is_iceberg else (str(to), None)
    done = []
    is_continued = True
    while is_continued:
        with writing(asked, place, catalog=catalog, **options) as one:
            one.run(engine or Inline())
            done.append(one.summary())
            is_continued = one.is_continued
    return done


def rows_of(root: Path, form: TableFormat = FILES) -> list[tuple[int, bytes]]:
    """Return offset and value of each row, sorted."""
    if form == ICEBERG:
        try:
            table = iceberg(root).scan(selected_fields=("offset", "value")).to_arrow()
        except NoSuchTableError:
            return []
    elif form == DELTA:
        if not DeltaTable.is_deltatable(str(root)):
            return []
        table = DeltaTable(root).to_pyarrow_table(columns=["offset", "value"])
    else:
        table = table_of(root).select(["offset", "value"])
    return sorted((row["offset"], row["value"]) for row in table.to_pylist())


def empty_catalog(warehouse: Path) -> Any:
    """Make a catalog in an SQLite file with the namespace of the table, and without the table."""
    warehouse.mkdir()
    catalog = load_catalog("lake", **local_catalog(str(warehouse)))
    catalog.create_namespace("kafka")
    return catalog


def iceberg(warehouse: Path, name: str = "kafka.records") -> Any:
    """Open the Iceberg table with pyiceberg."""
    return load_catalog("lake", **local_catalog(str(warehouse))).load_table(name)


def merge_files(table: Any) -> None:
    """Put the rows of an Iceberg table into as few files as possible, as other programs do."""
    before = sum(1 for _ in table.scan().plan_files())
    table.overwrite(table.scan().to_arrow())
    assert sum(1 for _ in table.scan().plan_files()) < before


def noted(table: Any) -> dict[str, Any]:
    """Return what the last snapshot of an Iceberg table says about the export."""
    found: dict[str, Any] = json.loads(
        table.current_snapshot().summary.additional_properties["kafkalog.increment"]
    )
    return found


def data_files(lake: Path) -> set[str]:
    """Return all data files that exist, in a snapshot or not."""
    return {path.name for path in lake.rglob("*.parquet")}


def rows(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for n in range(first, end)]


def grow(partition: Path, first: int, count: int, epoch: int = 0) -> None:
    """Roll a segment, and append to it."""
    write_log(partition, *batches(first, count, epoch), name=f"{first:020}")
