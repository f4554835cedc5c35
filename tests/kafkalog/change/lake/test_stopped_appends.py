"""A run of `export --append` that stops anywhere: the next one ends with each row once."""

from __future__ import annotations

import gc
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import kafkalog.change.lake.append
import kafkalog.change.lake.rejects
from kafkalog.change import lake
from kafkalog.change.lake.iceberg_files import SyncedFileIO, _SyncedFile
from kafkalog.errors import UsageError
from kafkalog.io.storage import FileTree, NewFile
from kafkalog.model import Replicas
from kafkalog.tables import Bounds, Request
from tests.kafkalog.change.lake.appending import DELTA, FILES, ICEBERG, append, grow, rows, rows_of
from tests.kafkalog.tables.test_other_disks import make_log
from tests.sampling import drawn_for, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kafkalog.change.lake.model import ExportSummary, TableFormat


class StoppedError(BaseException):
    """Stands for a kill of the process."""


class Killing:
    """Stops a run at its nth call that writes, before or after the write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self._last: int | None = None
        create, remove, commit = (
            FileTree.create,
            FileTree.remove,
            kafkalog.change.lake.append.append_delta,
        )

        @contextmanager
        def creating(tree: FileTree, name: str) -> Iterator[Any]:
            self.count()
            with create(tree, name) as file:
                yield file
            self.count()

        def removing(tree: FileTree, name: str) -> None:
            self.count()
            remove(tree, name)

        def committing(*arguments: Any) -> None:
            self.count()
            commit(*arguments)
            self.count()

        def around(kind: type, name: str) -> None:
            made = getattr(kind, name)

            def counting(*arguments: Any, **named: Any) -> Any:
                self.count()
                result = made(*arguments, **named)
                self.count()
                return result

            monkeypatch.setattr(kind, name, counting)

        around(_SyncedFile, "__init__")
        around(NewFile, "_publish")
        around(SyncedFileIO, "delete")
        for name in ("create_namespace", "create_table", "commit_table"):
            around(SqlCatalog, name)
        monkeypatch.setattr(FileTree, "create", creating)
        monkeypatch.setattr(FileTree, "remove", removing)
        monkeypatch.setattr(kafkalog.change.lake.append, "append_delta", committing)
        monkeypatch.setattr(kafkalog.change.lake.rejects, "append_delta", committing)

    def stops(self, at: int, run: Callable[..., object], *arguments: Any, **named: Any) -> bool:
        """Run once, and return whether that was stopped."""
        self.calls, self._last = 0, at
        try:
            run(*arguments, **named)
        except StoppedError:
            return True
        finally:
            self._last = None
            gc.collect()  # a process that is killed leaves no connection open
        return False

    def count(self) -> None:
        """Count a call, and stop if it is the one."""
        if self._last is not None:
            if self.calls >= self._last:
                raise StoppedError
            self.calls += 1


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", [FILES, DELTA])
@pytest.mark.parametrize("changes", ["nothing", "more", "deleted", "moved"])
def test_a_run_that_stops_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat, changes: str
) -> None:
    """The next one ends with each row once, even if the logs have changed meanwhile."""
    make_log(tmp_path / "first")
    append(tmp_path / "first", to=tmp_path / "lake", form=form)
    killing = Killing(monkeypatch)
    step = 1 if tries_everything() else 4
    at = drawn_for(f"{form} {changes}").randrange(step)
    while True:
        log, to = tmp_path / f"log{at}" / "log", tmp_path / f"lake{at}"
        shutil.copytree(tmp_path / "first", log)
        shutil.copytree(tmp_path / "lake", to)
        for end in (126, 132, 138, 144):
            grow(log / "orders-0", end - 6, 2)
        is_stopped = killing.stops(at, append, log, to=to, form=form)
        if form == DELTA:
            assert rows_of(to, form) in (rows(0, 120), rows(0, 144))
        if changes == "more":
            grow(log / "orders-0", end, 2)
            end = 150
        elif changes == "deleted":
            (log / "orders-0" / f"{0:020}.log").unlink()
        elif changes == "moved":
            log = log.rename(log.parent / "elsewhere")
        append(log, to=to, form=form)
        assert rows_of(to, form) == rows_of(to) == rows(0, end)
        assert (to / "_SUCCESS").exists()
        assert {path.name for path in (to / "_kafkalog").iterdir()} <= {"commits", "building"}
        assert append(log, to=to, form=form)[0].was_complete
        if not is_stopped:
            break
        at += step
    assert at > 14 + step, "it writes a plan, files, entries and a commit"


@pytest.mark.thorough(
    "tests/kafkalog/change/lake/test_stopped_splits.py::test_a_run_that_stops_at_any_write"
)
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of what was stopped
@pytest.mark.parametrize("changes", ["nothing", "deleted"])
def test_a_run_into_iceberg_that_stops_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: str
) -> None:
    """It creates the table or adds to it; files outside of snapshots are no rows."""
    killing = Killing(monkeypatch)
    step = 1 if tries_everything() else 19
    tries = 0
    for is_first in (True, False):
        at = drawn_for(f"{changes} {is_first}").randrange(step)
        is_stopped = True
        while is_stopped:
            log, to = tmp_path / f"log{tries}", tmp_path / f"lake{tries}"
            partition = make_log(log)
            end = 120
            if not is_first:
                append(log, to=to, form=ICEBERG)
                grow(partition, 120, 2)
                grow(partition, 126, 2)
                end = 132
            is_stopped = killing.stops(at, append, log, to=to, form=ICEBERG)
            assert rows_of(to, ICEBERG) in (rows(0, 0 if is_first else 120), rows(0, end))
            if changes == "deleted" and not is_first:
                (partition / f"{0:020}.log").unlink()
            grow(partition, end, 2)
            append(log, to=to, form=ICEBERG)
            assert rows_of(to, ICEBERG) == rows(0, end + 6)
            assert append(log, to=to, form=ICEBERG)[0].was_complete
            at += step
            tries += 1
        assert at > 12, "files of data, manifests, metadata, and the catalog"


@pytest.mark.parametrize("form", [FILES, DELTA])
def test_a_repeated_call_returns_what_it_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat
) -> None:
    """Not that nothing was new after that; but what is new then, if there is something."""
    killing = Killing(monkeypatch)

    def export() -> ExportSummary:
        request = Request(replicas=Replicas.BEST, split_bytes=300)
        place, source = tmp_path / "lake", tmp_path / "log"
        plan = lake.export(source, to=place, append=True, table_format=form, request=request)
        return plan.apply()

    partition = make_log(tmp_path / "log")
    assert killing.stops(5, export)
    done = export()
    assert (done.rows, done.was_complete) == (120, False)
    assert export().was_complete
    grow(partition, 120, 2)
    assert killing.stops(5, export)
    grow(partition, 126, 2)
    assert export().rows == 6
    assert len(rows_of(tmp_path / "lake", form)) == 132


def test_words_that_are_no_lists_and_no_formats(tmp_path: Path) -> None:
    """A text would be taken for its letters."""
    make_log(tmp_path / "log")
    wrong: list[dict[str, Any]] = [
        {"table_format": "Delta"},
        {"columns": "offset"},
        {"columns": ("offset", "offset")},
    ]
    for options in wrong:
        with pytest.raises(UsageError):
            lake.export(tmp_path / "log", to=tmp_path / "lake", **options)
    with pytest.raises(UsageError, match="not a text"):
        Bounds(topics="orders")
    assert not (tmp_path / "lake").exists()
