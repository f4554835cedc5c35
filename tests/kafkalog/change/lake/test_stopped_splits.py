"""A run of `export --split-by-type` that stops anywhere: each row is in its table once."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
from base64 import b64decode
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog.change.lake.run
from kafkalog.change.lake import ExportRequest, writing
from kafkalog.change.lake.iceberg_append import IcebergAppend
from kafkalog.change.lake.model import TableFormat, local_catalog
from kafkalog.change.lake.run import Export
from kafkalog.change.lake.split import _Topic
from kafkalog.model import Replicas
from kafkalog.tables import Bounds, Request
from kafkalog.tables.topic_types import columns_by_data
from tests.kafkalog.change.lake.appending import DELTA, FILES, ICEBERG, Inline
from tests.kafkalog.change.lake.test_stopped_appends import Killing, StoppedError
from tests.kafkalog.log.typed.test_serialized import as_topic
from tests.kafkalog_cli.test_record_types import CASES, TOMBSTONE, rows_of, write
from tests.kafkalog_cli.test_split_by_type import shown, tables_in, wanted_of
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.lake import ExportSummary

CASE = CASES["record"]
FIRST = [*rows_of(CASE, "AVRO")[:1], None]
SECOND = [*rows_of(CASE, "AVRO")[1:4], None]
THIRD = [*rows_of(CASE, "JSON"), *rows_of(CASE, "AVRO")]


def grow(disk: Path, rows: list[Any], base: int) -> None:
    values = [TOMBSTONE if one is None else (b64decode(one["data"]), []) for one in rows]
    write(disk, values, base)


def run(disk: Path, to: Path, form: TableFormat, *, append: bool = True) -> list[ExportSummary]:
    """Do what the command does: complete an interrupted run, then add what is new."""
    to.mkdir(exist_ok=True)
    place, catalog = ("c.db", local_catalog(str(to))) if form == ICEBERG else (str(to), None)
    request = Request(bounds=Bounds(topics=("events",)), replicas=Replicas.BEST)
    asked = ExportRequest(
        (str(disk),), request, table_format=form, append=append, split_by_type=True,
        by_data=columns_by_data(str(disk), ("events",)),
    )  # fmt: skip
    done = []
    while True:
        with writing(asked, place, catalog=catalog) as one:
            one.run(Inline())
            done.append(one.summary())
            if not one.is_continued:
                return done


def is_sound(found: dict[str, Any], *states: dict[str, Any]) -> bool:
    """Return whether each table is as in one of these states."""
    return all(
        any(rows == one.get(name, []) for one in states) for name, rows in found.items()
    )  # fmt: skip


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of what was stopped
@pytest.mark.parametrize("changes", ["nothing", "more"])
@pytest.mark.parametrize("form", [FILES, DELTA, ICEBERG])
def test_a_run_that_stops_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat, changes: str
) -> None:
    """It adds to tables and makes one; then the log has one more type, or only what it had."""
    killing = Killing(monkeypatch)
    step = 1 if tries_everything() else 47
    at = drawn_for(f"{form} {changes} split").randrange(step)
    before, after = wanted_of(FIRST), wanted_of([*FIRST, *SECOND])
    made = as_topic(tmp_path / "disk", CASE["versions"])
    grow(made, FIRST, 0)
    run(made, tmp_path / "lake", form)
    is_stopped = True
    while is_stopped:
        disk, to = tmp_path / f"disk{at}", tmp_path / f"lake{at}"
        shutil.copytree(made, disk)
        if form == ICEBERG:  # its metadata has the names of its files
            grow(disk, FIRST, 0)
            run(disk, to, form)
        else:
            shutil.copytree(tmp_path / "lake", to)
        grow(disk, SECOND, len(FIRST))
        is_stopped = killing.stops(at, run, disk, to, form)
        if form != FILES:  # readers of plain files wait for `_SUCCESS`
            assert is_sound(shown(tables_in(to, str(form))), before, after)
        rows = [*FIRST, *SECOND]
        if changes == "more":
            grow(disk, THIRD, len(rows))
            rows += THIRD
        run(disk, to, form)
        assert shown(tables_in(to, str(form))) == wanted_of(rows)
        assert [one.was_complete for one in run(disk, to, form)] == [True]
        at += step
    assert killing.calls > 30, "each of three tables has a plan, files, entries and a commit"


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of what was stopped
@pytest.mark.parametrize("form", [FILES, DELTA, ICEBERG])
def test_a_run_that_stops_between_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """The next one, for which nothing is new in the log, gives the others what they lack."""
    before, after = wanted_of(FIRST), wanted_of([*FIRST, *SECOND])
    done: list[str] = []
    left = 99

    def stopping(kind: type[Any]) -> None:
        finish = kind.finish

        def finishing(run: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise StoppedError
            finish(run)
            done.append(run.summary().destination)

        monkeypatch.setattr(kind, "finish", finishing)

    stopping(Export)
    stopping(IcebergAppend)
    for at in (1, 2) if tries_everything() else [drawn_for(f"{form} commits").randint(1, 2)]:
        disk = as_topic(tmp_path / f"disk{at}", CASE["versions"])
        to = tmp_path / f"lake{at}"
        grow(disk, FIRST, 0)
        run(disk, to, form)
        grow(disk, SECOND, len(FIRST))
        done.clear()
        left = at
        with pytest.raises(StoppedError):
            run(disk, to, form)
        left = 99
        gc.collect()  # a process that is killed leaves no connection open
        assert len(done) == at
        found = shown(tables_in(to, str(form)))
        assert found["Order"] == after["Order"]
        if form != FILES:  # whose readers wait for `_SUCCESS`
            assert found["null"] == before["null"], "it is the last one"
        run(disk, to, form)
        assert shown(tables_in(to, str(form))) == after


@pytest.mark.sampled(2, each_value=True)
@pytest.mark.parametrize(
    ("form", "append"),
    [(FILES, True), (FILES, False), (DELTA, True), (DELTA, False), (ICEBERG, True)],
)
def test_all_tables_end_where_the_plan_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat, append: bool
) -> None:
    """What a broker writes after that, also of other types, is for the next run."""
    disk, to = as_topic(tmp_path / "disk", CASE["versions"]), tmp_path / "lake"
    grow(disk, FIRST, 0)
    begun = _Topic._begun
    late = list(THIRD)

    def growing(*arguments: Any) -> Any:
        if late:
            grow(disk, late, len(FIRST))
            late.clear()
        return begun(*arguments)

    monkeypatch.setattr(_Topic, "_begun", growing)
    run(disk, to, form, append=append)
    assert not late
    assert shown(tables_in(to, str(form))) == wanted_of(FIRST)
    if append:
        run(disk, to, form)
        assert shown(tables_in(to, str(form))) == wanted_of([*FIRST, *THIRD])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", [FILES, DELTA])
def test_an_export_that_stops_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """The next one completes what the first one planned, also if the log has grown meanwhile."""
    killing = Killing(monkeypatch)
    commit = kafkalog.change.lake.run.commit_delta

    def committing(*arguments: Any) -> None:
        killing.count()
        commit(*arguments)
        killing.count()

    monkeypatch.setattr(kafkalog.change.lake.run, "commit_delta", committing)
    step = 1 if tries_everything() else 7
    at = drawn_for(f"{form} whole split").randrange(step)
    is_stopped = True
    while is_stopped:
        to = tmp_path / f"lake{at}"
        disk = as_topic(tmp_path / f"disk{at}", CASE["versions"])
        grow(disk, [*FIRST, *SECOND], 0)
        is_stopped = killing.stops(at, run, disk, to, form, append=False)
        has_begun = (to / "topic=events" if form == FILES else to / "events.null").exists()
        run(disk, to, form, append=False)
        assert shown(tables_in(to, str(form))) == wanted_of([*FIRST, *SECOND])
        assert has_begun or at < step, "the first write is below the tables"
        at += step
    assert at > 15, "each of three tables has files, entries and a manifest"


SCRIPT = """
import os, signal, sys
from pathlib import Path
import kafkalog.change.lake.append, kafkalog.change.lake.rejects
from kafkalog.change.lake.iceberg import IcebergTable
from kafkalog.change.lake.model import TableFormat
from kafkalog.change.lake.run import Export
from tests.kafkalog.change.lake.test_stopped_splits import run

left = int(sys.argv[4])

def killing(kind, name):
    made = getattr(kind, name)
    def counting(*arguments, **named):
        global left
        for _ in range(2):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            result = made(*arguments, **named) if _ == 0 else result
        return result
    setattr(kind, name, counting)

killing(kafkalog.change.lake.append, "append_delta")
killing(IcebergTable, "is_made")
killing(Export, "_conclude")
run(Path(sys.argv[1]), Path(sys.argv[2]), TableFormat(sys.argv[3]))
"""


@pytest.mark.thorough(
    "tests/kafkalog/change/lake/test_stopped_splits.py::test_a_run_that_stops_at_any_write"
)
@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("form", [FILES, DELTA, ICEBERG])
def test_a_process_that_is_killed_around_a_commit(
    tmp_path: Path, form: TableFormat, at: int
) -> None:
    """Before or after that of a table; its locks go with it."""
    disk, to = as_topic(tmp_path / "disk", CASE["versions"]), tmp_path / "lake"
    grow(disk, FIRST, 0)
    run(disk, to, form)
    grow(disk, SECOND, len(FIRST))
    words = [sys.executable, "-c", SCRIPT, disk, to, form, f"{at}"]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(words, env=environment, check=False, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    grow(disk, THIRD, len(FIRST) + len(SECOND))
    run(disk, to, form)
    assert shown(tables_in(to, str(form))) == wanted_of([*FIRST, *SECOND, *THIRD])
