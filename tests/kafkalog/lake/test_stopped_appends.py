"""A run of `export --append` that stops anywhere: the next one ends with each row once."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog.lake.append
from kafkalog.storage import FileTree
from tests.kafkalog.lake.appending import DELTA, FILES, append, grow, rows, rows_of
from tests.kafkalog.tables.test_other_disks import make_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafkalog.lake.model import TableFormat


class StoppedError(BaseException):
    """As if the process was killed."""


class Killing:
    """Stops a run at its nth call that writes: before, or after it has taken effect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: int | None = None
        create, remove, commit = FileTree.create, FileTree.remove, kafkalog.lake.append.append_delta

        @contextmanager
        def creating(tree: FileTree, name: str) -> Iterator[Any]:
            self._count()
            with create(tree, name) as file:
                yield file
            self._count()

        def removing(tree: FileTree, name: str) -> None:
            self._count()
            remove(tree, name)

        def committing(*arguments: Any) -> None:
            self._count()
            commit(*arguments)
            self._count()

        monkeypatch.setattr(FileTree, "create", creating)
        monkeypatch.setattr(FileTree, "remove", removing)
        monkeypatch.setattr(kafkalog.lake.append, "append_delta", committing)

    def _count(self) -> None:
        if self.calls is not None:
            self.calls -= 1
            if self.calls < 0:
                raise StoppedError


@pytest.mark.parametrize("form", [FILES, DELTA])
@pytest.mark.parametrize("changes", ["nothing", "more", "deleted", "moved"])
def test_a_run_that_stops_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: TableFormat, changes: str
) -> None:
    """The next one ends with each row once, also if the logs have changed meanwhile."""
    make_log(tmp_path / "first")
    append(tmp_path / "first", to=tmp_path / "lake", form=form)
    killing = Killing(monkeypatch)
    at = 0
    while True:
        log, to = tmp_path / f"log{at}" / "log", tmp_path / f"lake{at}"
        shutil.copytree(tmp_path / "first", log)
        shutil.copytree(tmp_path / "lake", to)
        grow(log / "orders-0", 120, 2)
        grow(log / "orders-0", 126, 2)
        end = 132
        killing.calls = at
        try:
            append(log, to=to, form=form)
        except StoppedError:
            is_stopped = True
        else:
            is_stopped = False
        killing.calls = None
        if form == DELTA:
            assert rows_of(to, form) in (rows(0, 120), rows(0, 132))
        if changes == "more":
            grow(log / "orders-0", 132, 2)
            end = 138
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
        at += 1
    assert at > 15, "it writes a plan, files, entries and a commit"
