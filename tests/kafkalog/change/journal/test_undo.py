"""A run with a backup can be continued, and undone to the last byte and time."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.journal import Run, undo
from kafkalog.errors import (
    ChangedSinceError,
    CorruptDataError,
    DestinationExistsError,
    LogDirInUseError,
    NotFoundError,
    UnsupportedError,
    UsageError,
)
from kafkalog.files.log_dir import open_partition
from kafkalog.io.storage import LogDirLock, files
from tests.crash.commands import (
    CLEANER_OFFSETS,
    PARTITION,
    Command,
    StoppedError,
    stopped_before,
    swap,
    swapped,
)

if TYPE_CHECKING:
    from pathlib import Path

STOPS = ("swap", "delete", "final", "remove")


def everything(path: Path) -> dict[str, Any]:
    """Return bytes, owners, permissions and times of everything but the lock."""
    found = {}
    for inner in sorted(path.rglob("*")):
        status = inner.stat()
        facts = (status.st_mode, status.st_uid, status.st_gid)
        # a checkpoint that was written again with the old entries is younger
        time = None if inner.name.endswith("offset-checkpoint") else status.st_mtime_ns
        data = inner.read_bytes() if inner.is_file() else None
        found[str(inner.relative_to(path))] = (*facts, time, data)
    return found


def sorted_lines(found: dict[str, Any]) -> dict[str, Any]:
    """Sort the lines: entries of a checkpoint may come in another order."""
    name = CLEANER_OFFSETS
    return {**found, name: (*found[name][:-1], sorted(found[name][-1].split(b"\n")))}


@pytest.fixture
def root(corpus_dir: Path, tmp_path: Path) -> Path:
    Command("", swap).ready(corpus_dir, tmp_path)
    for path in (tmp_path / "log" / PARTITION).iterdir():
        path.chmod(0o640)
    os.utime(tmp_path / "log" / PARTITION / f"{0:020}.log", ns=(1, 1_600_000_000_123_456_789))
    os.utime(tmp_path / "log" / PARTITION, ns=(1, 1_600_000_001_123_456_789))
    return tmp_path


def test_a_run_that_is_done_is_taken_back_exactly(root: Path) -> None:
    """A plan of the undo changes nothing."""
    before = everything(root / "log")
    swapped(root)
    after = everything(root / "log")
    assert sorted_lines(after) != sorted_lines(before)
    planned = undo(str(root / "backup"))
    assert everything(root / "log") == after
    assert [partition.topic for partition in planned.partitions] == ["orders"]
    assert undo(str(root / "backup" / "journal.ndjson"), in_place=True) == planned
    assert sorted_lines(everything(root / "log")) == sorted_lines(before)
    assert not undo(str(root / "backup"), in_place=True).partitions


@pytest.mark.parametrize("where", STOPS)
def test_a_run_that_was_stopped_is_taken_back_exactly(root: Path, where: str) -> None:
    """The run may stop at any step."""
    before = everything(root / "log")
    stopped_before(where)(root)
    undo(str(root / "backup"), in_place=True)
    assert sorted_lines(everything(root / "log")) == sorted_lines(before)


@pytest.mark.parametrize("where", STOPS)
def test_a_run_that_was_stopped_is_gone_on_with(root: Path, where: str) -> None:
    """It comes to the same end, and can still be undone; a finished run is not repeated."""
    before = everything(root / "log")
    shutil.copytree(root, root / "other")
    swapped(root / "other")
    stopped_before(where)(root)
    swapped(root)
    assert bytes_of(root / "log") == bytes_of(root / "other" / "log")
    done = everything(root / "log")
    swapped(root)
    assert everything(root / "log") == done
    undo(str(root / "backup"), in_place=True)
    assert sorted_lines(everything(root / "log")) == sorted_lines(before)


def bytes_of(path: Path) -> dict[str, Any]:
    return {name: facts[-1] for name, facts in everything(path).items()}


def test_what_a_resumed_run_restored_is_told(root: Path) -> None:
    """A caller that listed the partition before the run must list it again."""
    stopped_before("final")(root)
    with Run(str(root / "log"), command="swap", backup=str(root / "backup")) as run:
        assert run.restored == (PARTITION,)
        assert not run.is_done(open_partition(str(root / "log" / PARTITION)))


@pytest.mark.parametrize("name", [f"{51:020}.log", f"{0:020}.log", f"{66:020}.snapshot"])
def test_a_log_that_has_changed_since_is_left(root: Path, name: str) -> None:
    """For example, a broker has appended: an undo would lose its records."""
    swapped(root)
    with (root / "log" / PARTITION / name).open("ab") as file:
        file.write(b"\0")
    before = everything(root / "log")
    with pytest.raises(ChangedSinceError):
        undo(str(root / "backup"), in_place=True)
    assert everything(root / "log") == before


@pytest.mark.parametrize("where", STOPS)
def test_a_stopped_run_whose_log_has_changed_since_is_left(root: Path, where: str) -> None:
    """A starting broker changes at least the indexes of the active segment."""
    stopped_before(where)(root)
    os.utime(root / "log" / PARTITION / f"{51:020}.index", ns=(1, 1))
    before = everything(root / "log")
    with pytest.raises(ChangedSinceError):
        undo(str(root / "backup"), in_place=True)
    with pytest.raises(ChangedSinceError):
        swapped(root)
    assert everything(root / "log") == before


def test_an_entry_that_has_changed_since_is_left(root: Path) -> None:
    """A broker has cleaned the log further in the meantime."""
    swapped(root)
    (root / "log" / CLEANER_OFFSETS).write_text("0\n1\norders 0 51\n")
    with pytest.raises(ChangedSinceError):
        undo(str(root / "backup"), in_place=True)


def test_a_backup_that_has_changed_is_not_trusted(root: Path) -> None:
    """Leaving the log as it is loses nothing."""
    swapped(root)
    (root / "backup" / PARTITION / f"{0:020}.log").write_bytes(b"other")
    before = everything(root / "log")
    with pytest.raises(ChangedSinceError):
        undo(str(root / "backup"), in_place=True)
    assert everything(root / "log") == before


def test_a_file_system_that_cannot_exchange_names_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything stays as it was, checkpoints included."""
    swapped(root)
    before = everything(root / "log")

    class Library:
        def __init__(self, *_: object, **__: object) -> None: ...

    monkeypatch.setattr(files.ctypes, "CDLL", Library)
    with pytest.raises(UnsupportedError):
        undo(str(root / "backup"), in_place=True)
    after = everything(root / "log")
    assert {**sorted_lines(after), PARTITION: 0} == {**sorted_lines(before), PARTITION: 0}


@pytest.mark.parametrize("inside", ["log/backup", f"log/{PARTITION}/backup", "log"])
def test_a_backup_in_the_log_directory_is_refused(root: Path, inside: str) -> None:
    """A broker does not start if a directory in it is no partition."""
    before = everything(root / "log")
    with pytest.raises(UsageError):
        swap(root, backup=str(root / inside))
    assert everything(root / "log") == before


def test_a_backup_in_another_brokers_log_directory_is_refused(root: Path) -> None:
    """That broker would not start either."""
    (root / "meta.properties").touch()
    with pytest.raises(UsageError):
        swap(root, backup=str(root / "backup"))


def test_a_directory_with_something_else_is_refused(root: Path) -> None:
    """New files are never mixed with existing ones."""
    (root / "backup").mkdir()
    (root / "backup" / "mine").touch()
    with pytest.raises(DestinationExistsError):
        swapped(root)


def test_the_journal_of_another_run_is_refused(root: Path) -> None:
    """It is of another command, or of another log directory."""
    swapped(root)
    with (
        pytest.raises(DestinationExistsError),
        Run(str(root / "log"), command="other", backup=str(root / "backup")),
    ):
        pass
    shutil.copytree(root / "log", root / "log2")
    with (
        pytest.raises(DestinationExistsError),
        Run(str(root / "log2"), command="swap", backup=str(root / "backup")),
    ):
        pass


def test_undo_keeps_brokers_off(root: Path) -> None:
    """A running broker also keeps `undo` off."""
    swapped(root)
    taken = os.fork()
    if not taken:  # POSIX locks are those of a process
        with LogDirLock(str(root / "log"), writes=True):
            (root / "ready").touch()
            while not (root / "over").exists():
                pass
        os._exit(0)
    try:
        while not (root / "ready").exists():
            pass
        with pytest.raises(LogDirInUseError):
            undo(str(root / "backup"), in_place=True)
    finally:
        (root / "over").touch()
        os.waitpid(taken, 0)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("cut", range(1, 40))
def test_a_journal_whose_last_line_was_being_written_is_read(root: Path, cut: int) -> None:
    """The step after that line was not done."""
    before = everything(root / "log")
    with pytest.raises(StoppedError):
        swap(root, backup=str(root / "backup"), fail_before=stop)
    journal = root / "backup" / "journal.ndjson"
    journal.write_bytes(journal.read_bytes()[:-cut])
    undo(str(root / "backup"), in_place=True)
    assert sorted_lines(everything(root / "log")) == sorted_lines(before)


def stop(_what: str) -> None:
    raise StoppedError


@pytest.mark.parametrize(
    "line", [b"{}", b"[]", b"x", b'{"type":"partition"}', b'{"type":"offset","path":"x"}', b"\xff"]
)
def test_a_damaged_journal_is_told(root: Path, line: bytes) -> None:
    """Nothing is guessed from it."""
    swapped(root)
    journal = root / "backup" / "journal.ndjson"
    journal.write_bytes(journal.read_bytes() + line + b"\n")
    with pytest.raises(CorruptDataError):
        undo(str(root / "backup"), in_place=True)
    lines = journal.read_bytes().split(b"\n")
    journal.write_bytes(b"\n".join([line, *lines[1:]]))
    with pytest.raises(CorruptDataError):
        undo(str(root / "backup"), in_place=True)


def test_a_missing_journal_is_told(root: Path) -> None:
    with pytest.raises(NotFoundError):
        undo(str(root))


def test_a_copied_partition_is_taken_back(root: Path) -> None:
    """It has no log directory around it, and no lock."""
    (root / "copy").mkdir()
    copy = root / "copy" / "orders-0"
    shutil.copytree(root / "log" / PARTITION, copy)
    before = everything(root / "copy")
    name = f"{0:020}.log"
    with Run(None, command="cut", backup=str(root / "backup")) as run:
        partition = open_partition(str(copy))
        with run.partition(partition, [name]) as changing:
            changing.changes.truncate(name, 10)
            changing.set_offset(CLEANER_OFFSETS, 7)
    assert (copy / name).stat().st_size == 10
    assert (root / "backup" / PARTITION / name).stat().st_size > 10
    assert len(undo(str(root / "backup"), in_place=True).partitions) == 1
    assert everything(root / "copy") == before
    lines = (root / "backup" / "journal.ndjson").read_bytes().splitlines()
    assert json.loads(lines[0])["log_dir"] is None
