"""Iceberg tables that others change: runs at the same time, maintenance, and a history set back."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from kafkalog.change.lake.iceberg import UncertainError
from kafkalog.change.lake.iceberg_columns import iceberg_schema
from kafkalog.change.lake.part import rows_schema, with_path_columns
from kafkalog.change.lake.plan import make_plan
from kafkalog.errors import ChangedSinceError, CorruptDataError, Listener, UsageError
from tests.kafkalog.change.lake.appending import (
    ICEBERG,
    Inline,
    append,
    asking,
    data_files,
    empty_catalog,
    grow,
    iceberg,
    noted,
    rows,
    rows_of,
)
from tests.kafkalog.tables.test_other_disks import make_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def before_commits(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Run a function before the next commit, when everything else is decided."""
    commit = SqlCatalog.commit_table
    left = [act]

    def committing(catalog: SqlCatalog, *arguments: Any) -> Any:
        if left:
            left.pop()()
        return commit(catalog, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", committing)


@pytest.mark.parametrize("is_first", [True, False])
def test_two_runs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool) -> None:
    """The second one to commit is refused and leaves no files: pyiceberg would repeat the rows."""
    partition, lake = make_log(tmp_path / "log"), tmp_path / "lake"
    end = 120
    if not is_first:
        append(tmp_path / "log", to=lake, form=ICEBERG)
        grow(partition, 120, 1)
        end = 123
    before_commits(monkeypatch, lambda: append(tmp_path / "log", to=lake, form=ICEBERG))
    with pytest.raises(ChangedSinceError, match="Another run has added to the table"):
        append(tmp_path / "log", to=lake, form=ICEBERG)
    assert rows_of(lake, ICEBERG) == rows(0, end)
    named = {one.file.file_path.rpartition("/")[2] for one in iceberg(lake).scan().plan_files()}
    assert data_files(lake) == named
    assert append(tmp_path / "log", to=lake, form=ICEBERG)[0].was_complete


def test_others_may_change_the_table_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run commits after them."""
    partition, lake = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=lake, form=ICEBERG)
    grow(partition, 120, 1)
    before_commits(monkeypatch, lambda: iceberg(lake).delete("offset < 3"))
    assert append(tmp_path / "log", to=lake, form=ICEBERG)[0].rows == 3
    assert rows_of(lake, ICEBERG) == rows(3, 123)


@pytest.mark.parametrize("when", ["before the commit", "while it is made"])
def test_partitions_that_change_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Files of the previous partitioning are only committed if the table still knows it."""
    partition, lake = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=lake, form=ICEBERG)
    grow(partition, 120, 1)

    def repartition() -> None:
        with iceberg(lake).update_spec() as update:
            update.remove_field("timestamp_day")

    if when == "while it is made":
        before_commits(monkeypatch, repartition)
    else:
        run = Inline.run

        def running(inline: Inline, *arguments: Any) -> Any:
            yield from run(inline, *arguments)
            repartition()

        monkeypatch.setattr(Inline, "run", running)
        with pytest.raises(ChangedSinceError, match="partitions of the table were changed"):
            append(tmp_path / "log", to=lake, form=ICEBERG)
        monkeypatch.undo()
    append(tmp_path / "log", to=lake, form=ICEBERG)
    assert rows_of(lake, ICEBERG) == rows(0, 123)
    grow(partition, 123, 1)
    append(tmp_path / "log", to=lake, form=ICEBERG)
    assert rows_of(lake, ICEBERG) == rows(0, 126)


def fail_commits(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, *, has_committed: bool
) -> None:
    """Let each commit end with an error, before or after the catalog has made it."""
    commit = SqlCatalog.commit_table

    def failing(catalog: SqlCatalog, *arguments: Any) -> Any:
        if has_committed:
            commit(catalog, *arguments)
        raise error

    monkeypatch.setattr(SqlCatalog, "commit_table", failing)


@pytest.mark.parametrize("has_committed", [True, False])
def test_an_answer_that_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_committed: bool
) -> None:
    """The run looks up whether the commit was made, and reports an error if it cannot tell."""
    lake = tmp_path / "lake"
    make_log(tmp_path / "log")
    fail_commits(monkeypatch, ConnectionError("reset by peer"), has_committed=has_committed)
    if has_committed:
        assert append(tmp_path / "log", to=lake, form=ICEBERG)[0].rows == 120
    else:
        with pytest.raises(UncertainError, match="reset by peer"):
            append(tmp_path / "log", to=lake, form=ICEBERG)
        monkeypatch.undo()
        append(tmp_path / "log", to=lake, form=ICEBERG)
    assert rows_of(lake, ICEBERG) == rows(0, 120)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_refusal_by_its_own_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    """A client that repeats a commit whose answer was lost hears of a conflict: nothing is lost.

    The clients of AWS repeat calls. pyiceberg would delete the manifests that the table has now.
    """
    partition, lake = make_log(tmp_path / "log"), tmp_path / "lake"
    end = 120
    if not is_first:
        append(tmp_path / "log", to=lake, form=ICEBERG)
        grow(partition, 120, 2)
        end = 126
    error = CommitFailedException("has been updated by another process")
    fail_commits(monkeypatch, error, has_committed=True)
    assert append(tmp_path / "log", to=lake, form=ICEBERG)[0].rows == (120 if is_first else 6)
    assert rows_of(lake, ICEBERG) == rows(0, end)


@pytest.mark.parametrize("has_committed", [True, False])
def test_ctrl_c_while_a_commit_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_committed: bool
) -> None:
    """The files stay, because the table may have them."""
    lake = tmp_path / "lake"
    make_log(tmp_path / "log")
    fail_commits(monkeypatch, KeyboardInterrupt(), has_committed=has_committed)
    with pytest.raises(KeyboardInterrupt):
        append(tmp_path / "log", to=lake, form=ICEBERG)
    monkeypatch.undo()
    assert rows_of(lake, ICEBERG) == (rows(0, 120) if has_committed else [])
    assert append(tmp_path / "log", to=lake, form=ICEBERG)[0].was_complete == has_committed
    assert rows_of(lake, ICEBERG) == rows(0, 120)


def test_a_table_that_always_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run gives up and removes its files."""
    make_log(tmp_path / "log")

    def failing(*_: Any) -> None:
        raise CommitFailedException("changed")

    monkeypatch.setattr(SqlCatalog, "commit_table", failing)
    monkeypatch.setattr("kafkalog.change.lake.iceberg.WAIT_S", 0)
    with pytest.raises(ChangedSinceError, match="all the time"):
        append(tmp_path / "log", to=tmp_path / "lake", form=ICEBERG)
    assert not data_files(tmp_path / "lake")


def lake_of_three(tmp_path: Path) -> tuple[Path, Path]:
    """A table with three commits."""
    partition, lake = make_log(tmp_path / "log"), tmp_path / "lake"
    for first in (120, 123, 126):
        append(tmp_path / "log", to=lake, form=ICEBERG)
        grow(partition, first, 1)
    return tmp_path / "log", lake


def test_a_table_that_is_set_back(tmp_path: Path) -> None:
    """The next run adds again what the current snapshot lacks."""
    log, lake = lake_of_three(tmp_path)
    table = iceberg(lake)
    first = table.snapshots()[0].snapshot_id
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert rows_of(lake, ICEBERG) == rows(0, 120)
    append(log, to=lake, form=ICEBERG)
    assert rows_of(lake, ICEBERG) == rows(0, 129)
    assert noted(iceberg(lake))["number"] == 1


def compact(lake: Path) -> None:
    """Rewrite all rows, as maintenance does; only that snapshot stays."""
    table = iceberg(lake)
    table.overwrite(table.scan().to_arrow())
    now = iceberg(lake).current_snapshot().snapshot_id
    expire(lake, now)


def expire(lake: Path, *kept: int) -> None:
    ids = [one.snapshot_id for one in iceberg(lake).snapshots() if one.snapshot_id not in kept]
    iceberg(lake).maintenance.expire_snapshots().by_ids(ids).commit()


def test_snapshots_that_have_expired(tmp_path: Path) -> None:
    """The table's properties say where to continue, unless the table was set back before."""
    log, lake = lake_of_three(tmp_path)
    compact(lake)
    assert len(iceberg(lake).snapshots()) == 1
    compacted = iceberg(lake).current_snapshot().snapshot_id
    append(log, to=lake, form=ICEBERG)
    assert rows_of(lake, ICEBERG) == rows(0, 129)
    iceberg(lake).manage_snapshots().rollback_to_snapshot(compacted).commit()
    with pytest.raises(CorruptDataError, match="was rolled back to before the last run"):
        append(log, to=lake, form=ICEBERG)


def test_many_commits_share_manifests(tmp_path: Path) -> None:
    """A table that grows every minute does not get a manifest per commit."""
    partition, lake = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=lake, form=ICEBERG)
    with iceberg(lake).transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "2"})
    for first in (120, 123, 126):
        grow(partition, first, 1)
        append(tmp_path / "log", to=lake, form=ICEBERG)
    table = iceberg(lake)
    assert len(table.current_snapshot().manifests(table.io)) < 4
    assert rows_of(lake, ICEBERG) == rows(0, 129)


def test_a_table_that_was_made_before(tmp_path: Path) -> None:
    """An empty table with the right columns keeps its own partitioning, and gets the rows."""
    make_log(tmp_path / "log")
    lake = tmp_path / "lake"
    asked = asking(tmp_path / "log", form=ICEBERG)
    schema = iceberg_schema(
        with_path_columns(asked, rows_schema(asked, make_plan(asked, Listener()).columns))
    )
    catalog = empty_catalog(lake)
    spec = PartitionSpec(PartitionField(3, 1000, BucketTransform(4), "some"))
    table = catalog.create_table("kafka.records", schema, partition_spec=spec)
    with table.update_schema() as change:
        change.add_column("note", StringType())
    append(tmp_path / "log", to=lake, form=ICEBERG)
    assert rows_of(lake, ICEBERG) == rows(0, 120)
    tasks = iceberg(lake).scan().plan_files()
    assert {task.file.partition[0] for task in tasks} == {0, 1, 2, 3}
    assert iceberg(lake).scan(row_filter="offset = 77").to_arrow()["note"].to_pylist() == [None]


def test_a_location_as_hadoop_writes_it(tmp_path: Path) -> None:
    """With one slash, as in a Hive metastore: a local directory, which must not be in a log."""
    make_log(tmp_path / "log")
    lake = tmp_path / "lake"
    catalog = empty_catalog(lake)
    asked = asking(tmp_path / "log", form=ICEBERG)
    schema = iceberg_schema(
        with_path_columns(asked, rows_schema(asked, make_plan(asked, Listener()).columns))
    )
    catalog.create_table("kafka.records", schema, location=f"file:{tmp_path}/log/table")
    with pytest.raises(UsageError, match="inside the source"):
        append(tmp_path / "log", to=lake, form=ICEBERG)


def test_a_commit_that_a_reader_of_the_catalog_prevents_is_told(tmp_path: Path):
    """SQLite refuses it in the last step; that connection would still show the new rows."""
    partition, to = make_log(tmp_path / "log"), tmp_path / "lake"
    append(tmp_path / "log", to=to, form=ICEBERG)
    grow(partition, 120, 2)
    with contextlib.closing(sqlite3.connect(to / "catalog.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert len(reader.execute("SELECT * FROM iceberg_tables").fetchall()) == 1
        with pytest.raises(UncertainError, match=r"It is unknown .*database is locked"):
            append(tmp_path / "log", to=to, form=ICEBERG)
    assert rows_of(to, ICEBERG) == rows(0, 120)
    append(tmp_path / "log", to=to, form=ICEBERG)
    assert rows_of(to, ICEBERG) == rows(0, 126)
