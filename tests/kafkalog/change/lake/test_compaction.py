"""Small files of growing tables are merged: the rows stay the same for any stop and reader."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import StringType

from tests.kafkalog.change.lake.appending import (
    DELTA,
    ICEBERG,
    add,
    append,
    asking,
    data_files,
    grow,
    iceberg,
    rows,
    rows_of,
)
from tests.kafkalog.change.lake.test_stopped_appends import Killing, StoppedError
from tests.kafkalog.tables.test_other_disks import make_log
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.change.lake import ExportSummary
    from kafkalog.change.lake.model import TableFormat
    from tests.conftest import Result

    Kafkalog = Callable[..., Result]

SIZE = 1 << 20


def merge(
    log: Path, to: Path, form: TableFormat, size: int | None = SIZE,
    columns: tuple[str, ...] | None = None,
) -> ExportSummary:  # fmt: skip
    """Add what is new, and merge files that are smaller than a size."""
    return add(replace(asking(log, form=form), compact_below=size, columns=columns), to)[-1]


def files_in(to: Path, form: TableFormat) -> list[str]:
    """Return the files of the current table."""
    if form == DELTA:
        return list(DeltaTable(to).file_uris())
    return [one.file.file_path for one in iceberg(to).scan().plan_files()]


def all_rows(to: Path, form: TableFormat) -> list[dict[str, Any]]:
    """Return every column of every row."""
    table = DeltaTable(to).to_pyarrow_table() if form == DELTA else iceberg(to).scan().to_arrow()
    found: list[dict[str, Any]] = table.sort_by("offset").to_pylist()
    return found


def table_of_many(tmp_path: Path, form: TableFormat) -> tuple[Path, Path]:
    """A log, and a table that three runs have filled."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    for first in (120, 123, 126):
        append(tmp_path / "log", to=to, form=form)
        grow(partition, first, 1)
    return tmp_path / "log", to


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
def test_the_rows_are_the_same(
    tmp_path: Path, form: TableFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in one file after a separate commit; the next run continues after them."""
    log, to = table_of_many(tmp_path, form)
    append(log, to=to, form=form)
    before, files = all_rows(to, form), files_in(to, form)
    assert len(files) > 4
    done = merge(log, to, form)
    assert done.was_complete
    assert (done.merged.files, done.merged.into) == (len(files), 1)
    assert len(files_in(to, form)) == 1
    assert all_rows(to, form) == before
    assert rows_of(to, form) == rows(0, 129)
    if form == DELTA:
        [last, *_] = DeltaTable(to).history(1)
        assert last["operation"] == "OPTIMIZE"
        log_file = max((to / "_delta_log").glob("*.json"))
        actions = [json.loads(line) for line in log_file.read_text().splitlines()]
        changes = [one.get("add") or one.get("remove") for one in actions]
        assert not any(one["dataChange"] for one in changes if one)
        assert DeltaTable(to).transaction_version("kafkalog") == 3
        framed = pl.scan_delta(to).sort("offset").collect()
    else:
        monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
        assert iceberg(to).properties["kafkalog.commit"] == "3"
        framed = pl.scan_iceberg(iceberg(to)).sort("offset").collect()
    assert framed["value"].to_list() == [one["value"] for one in before]
    path = files_in(to, form)[0].removeprefix("file://")
    found = duckdb.read_parquet(path, hive_partitioning=False).project('"offset"').fetchall()
    # deltalake puts the newest files first
    assert (found if form == ICEBERG else sorted(found)) == [(n,) for n in range(129)]
    assert merge(log, to, form).merged.files == 0
    grow(log / "orders-0", 129, 1)
    done = merge(log, to, form)
    assert (done.rows, done.merged.files, done.merged.into) == (3, 2, 1)
    assert rows_of(to, form) == rows(0, 132)
    if form == ICEBERG:
        before_last = iceberg(to).snapshots()[-2]
        table = iceberg(to)
        assert len(table.scan(snapshot_id=before_last.snapshot_id).to_arrow()) == 132
        table.manage_snapshots().rollback_to_snapshot(before_last.snapshot_id).commit()
        assert append(log, to=to, form=form)[0].was_complete


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
def test_files_with_other_columns(tmp_path: Path, form: TableFormat) -> None:
    """The merged file has all columns of the table."""
    log, to = tmp_path / "log", tmp_path / "lake"
    partition = make_log(log)
    fewer = ("offset", "value", "leader_epoch")
    for first, columns in ((120, fewer), (123, (*fewer, "headers", "timestamp")), (126, fewer)):
        merge(log, to, form, None, columns)
        grow(partition, first, 1)
    before = all_rows(to, form)
    assert {one["headers"] is None for one in before} == {True, False}
    assert merge(log, to, form, SIZE, fewer).merged.into == 1
    # pyiceberg reads a null list of structs as an empty one.
    [path] = [one.removeprefix("file://") for one in files_in(to, form)]
    found = duckdb.read_parquet(path, hive_partitioning=False).order('"offset"').limit(126)
    names = [*fewer, "headers", "timestamp"]
    assert found.project(", ".join(f'"{name}"' for name in names)).fetchall() == [
        tuple(one[name] for name in names) for one in before
    ]
    grow(partition, 129, 1)
    assert merge(log, to, form, SIZE, fewer).merged.files == 2
    [path] = [one.removeprefix("file://") for one in files_in(to, form)]
    again = duckdb.read_parquet(path, hive_partitioning=False).filter("headers IS NULL")
    assert len(again.fetchall()) == 126 + 3, "also in files that have the column"


def test_files_whose_columns_others_have_renamed(tmp_path: Path) -> None:
    """They are not merged: the values stay where they belong."""
    log, to = table_of_many(tmp_path, ICEBERG)
    append(log, to=to, form=ICEBERG)
    with iceberg(to).update_schema() as change:
        change.rename_column("key", "code")
    with iceberg(to).update_schema() as change:
        change.add_column("key", StringType())
    grow(log / "orders-0", 129, 2)
    columns = ("offset", "value", "leader_epoch")
    assert merge(log, to, ICEBERG, columns=columns).merged.files == 0
    found = all_rows(to, ICEBERG)
    assert [one["code"] for one in found] == [*(b"k%d" % (n % 3) for n in range(129)), *[None] * 6]
    assert {one["key"] for one in found} == {None}


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
def test_files_that_are_large_enough(tmp_path: Path, form: TableFormat) -> None:
    """They stay, and merged files do not get much larger than requested."""
    log, to = table_of_many(tmp_path, form)
    append(log, to=to, form=form)
    assert merge(log, to, form, 1).merged.files == 0
    if form == DELTA:
        sizes = DeltaTable(to).get_add_actions(flatten=True)["size_bytes"].to_pylist()
    else:
        sizes = [one.file.file_size_in_bytes for one in iceberg(to).scan().plan_files()]
    size = 3 * max(sizes)
    done = merge(log, to, form, size)
    assert 1 < done.merged.into < done.merged.files
    assert rows_of(to, form) == rows(0, 129)


@pytest.mark.parametrize("form", [DELTA, ICEBERG])
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of what was stopped
def test_a_run_that_stops_while_it_merges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """Readers see the rows before and after; the next run ends with all of them, merged."""
    killing = Killing(monkeypatch)
    step = 1 if tries_everything() else 29
    at = drawn_for(f"merging {form}").randrange(step)
    is_stopped = True
    while is_stopped:
        (tmp_path / f"{at}").mkdir()
        log, to = table_of_many(tmp_path / f"{at}", form)
        killing.calls = at
        try:
            merge(log, to, form)
        except StoppedError:
            pass
        else:
            is_stopped = False
        killing.calls = None
        gc.collect()  # a process that is killed leaves no connection open
        assert rows_of(to, form) in (rows(0, 126), rows(0, 129))
        grow(log / "orders-0", 129, 1)
        merge(log, to, form)
        assert rows_of(to, form) == rows(0, 132)
        assert len(files_in(to, form)) == 1
        at += step


@pytest.mark.parametrize("how", ["delete", "conflict"])
def test_others_that_change_the_table_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Nothing is merged then, and no file is left; deleted rows do not come back."""
    log, to = table_of_many(tmp_path, ICEBERG)
    append(log, to=to, form=ICEBERG)
    commit = SqlCatalog.commit_table
    left = [None]

    def committing(catalog: SqlCatalog, *arguments: Any) -> Any:
        if left:
            left.pop()
            if how == "conflict":
                raise CommitFailedException("changed")
            iceberg(to).delete("offset < 3")
        return commit(catalog, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", committing)
    assert merge(log, to, ICEBERG).merged.files == 0
    monkeypatch.undo()
    first = 3 if how == "delete" else 0
    assert rows_of(to, ICEBERG) == rows(first, 129)
    assert not [name for name in data_files(to) if name.startswith("merged")]
    assert merge(log, to, ICEBERG).merged.into == 1
    assert rows_of(to, ICEBERG) == rows(first, 129)


def test_readers_see_before_or_after(tmp_path: Path) -> None:
    """A table that was opened before the merge still has its files."""
    log, to = table_of_many(tmp_path, DELTA)
    append(log, to=to, form=DELTA)
    opened = DeltaTable(to)
    of_iceberg = tmp_path / "ice"
    append(log, to=of_iceberg, form=ICEBERG)
    scan = iceberg(of_iceberg).scan()
    merge(log, to, DELTA)
    merge(log, of_iceberg, ICEBERG)
    assert sorted(opened.to_pyarrow_table()["offset"].to_pylist()) == list(range(129))
    assert sorted(scan.to_arrow()["offset"].to_pylist()) == list(range(129))


def test_the_command(tmp_path: Path, kafkalog: Kafkalog) -> None:
    """It reports what was merged, and refuses what is no table of Delta or Iceberg that grows."""
    log, to = table_of_many(tmp_path, DELTA)
    words = ("export", log, "--to", to, "--append", "--table-format", "delta")
    result = kafkalog(*words, "--compact-below", "1MiB", "--format", "ndjson")
    assert result.status == 0, result.stderr
    summary = json.loads(result.stdout.splitlines()[-1])
    assert (summary["merged_into"], summary["rows"]) == (1, 3)
    grow(log / "orders-0", 129, 1)
    told = kafkalog(*words, "--compact-below", "1MiB")
    assert "merged 2 files of the table into 1" in f"{told.stdout}{told.stderr}"
    for refused in (
        ("--table-format", "delta"),
        ("--append",),
        ("--append", "--file-format", "csv"),
    ):
        new = ("export", log, "--to", tmp_path / "new", *refused)
        assert kafkalog(*new, "--compact-below", "1MiB").status == 2
