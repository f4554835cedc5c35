"""What a salvage refuses, and what an interrupted one leaves: nothing, or the whole."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.change.rescue import salvage
from kafkalog.errors import (
    CorruptDataError,
    DestinationExistsError,
    LogDirInUseError,
    UnreadableError,
    UnwritableError,
    UsageError,
)
from kafkalog.files.log_dir import open_path
from kafkalog.io.storage import BUILDING_SUFFIX, NewDirectory
from tests.builders import batch, flip, record, write_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Result


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A log directory with one partition, whose third batch is damaged."""
    batches = [batch(i, [record(value=b"x" * 100)]) for i in range(6)]
    write_log(tmp_path / "logs" / "t-0", *batches[:2], flip(batches[2], 8 * 70), *batches[3:])
    (tmp_path / "logs" / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    (tmp_path / "logs" / ".lock").touch()
    return tmp_path / "logs"


def run(source: Path, destination: Path, **options: Any) -> Any:
    return salvage(open_path(str(source)), str(destination), **options)


def left(source: Path) -> list[str]:
    return sorted(set(os.listdir(source.parent)) - {"logs"})


def test_a_directory_with_something_in_it_is_refused(source: Path, tmp_path: Path):
    """An empty directory is accepted."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(DestinationExistsError) as caught:
        run(source, tmp_path / "out")
    assert caught.value.exit_code == 4
    assert os.listdir(tmp_path / "out") == ["mine"]
    (tmp_path / "out" / "mine").unlink()
    run(source, tmp_path / "out")
    assert sorted(os.listdir(tmp_path / "out")) == ["log", "lost+found", "manifest.ndjson"]
    assert left(source) == ["out"]


@pytest.mark.parametrize("place", ["logs/t-0/out", "logs/out", "logs/t-0"])
def test_nothing_is_written_into_the_source(source: Path, tmp_path: Path, place: str):
    """It must not be next to the partition either: it would keep the broker from starting."""
    with pytest.raises(UsageError):
        run(source / "t-0", tmp_path / place)
    assert sorted(os.listdir(source)) == [".lock", "meta.properties", "t-0"]


def test_a_running_broker_is_left_alone(source: Path, tmp_path: Path):
    """The broker holds a POSIX lock on `.lock`, as Java's FileChannel takes it."""
    code = "import fcntl,sys; f=open(sys.argv[1],'r+'); fcntl.lockf(f,fcntl.LOCK_EX);"
    code += "print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(source / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LogDirInUseError) as caught:
            run(source / "t-0", tmp_path / "out")
        run(source, tmp_path / "out", dry_run=True)
        holder.communicate()
    assert caught.value.exit_code == 4
    assert left(source) == []
    run(source, tmp_path / "out")


def test_a_plan_writes_nothing(source: Path, tmp_path: Path):
    """It gives the rows of the manifest, as far as they are known without writing."""
    planned: list[Any] = []
    summary = run(source, tmp_path / "out", dry_run=True, tell=planned.append)
    assert left(source) == []
    done: list[Any] = []
    written = run(source, tmp_path / "out", tell=done.append)
    assert (summary.lost_bytes, summary.records) == (written.lost_bytes, written.records) == (
        len(batch(0, [record(value=b"x" * 100)])),
        5,
    )  # fmt: skip
    kinds = {"CopiedRange", "LostRange"}
    assert [row for row in planned if type(row).__name__ in kinds] == [
        row for row in done if type(row).__name__ in kinds
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "x"), UnwritableError),
        (OSError(errno.EIO, "x"), UnwritableError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["full disk", "bad disk", "Ctrl-C"],
)
@pytest.mark.parametrize("after", [1, 2, 3, 5, 8])
def test_an_error_leaves_nothing(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    expected: type[BaseException],
    after: int,
):
    """Here the sync of some file or directory fails."""
    calls = []

    def fail(_: int) -> None:
        calls.append(1)
        if len(calls) == after:
            raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(expected):
        run(source, tmp_path / "out")
    assert left(source) == []


def test_all_is_synced_before_the_name_is_given(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every file and directory of the result is synced, then renamed, then the parent is synced."""
    synced: list[str] = []
    sync, rename = os.fsync, os.rename

    def noted_sync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    def noted_rename(old: str, new: str) -> None:
        synced.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "rename", noted_rename)
    run(source, tmp_path / "out")
    at = synced.index("rename")
    before = {path.replace(BUILDING_SUFFIX, "") for path in synced[:at]}
    there = {str(path) for path in (tmp_path / "out").rglob("*")} | {str(tmp_path / "out")}
    assert there <= before
    assert synced[at + 1 :] == [str(tmp_path)]


def test_what_a_killed_run_left_is_removed(source: Path, tmp_path: Path):
    """Its name shows that it is a leftover, and nobody has it open."""
    (tmp_path / f"out{BUILDING_SUFFIX}" / "log").mkdir(parents=True)
    assert run(source, tmp_path / "out").left_over_removed
    assert left(source) == ["out"]


def test_what_another_run_is_writing_is_left_alone(source: Path, tmp_path: Path):
    """Two runs for one destination do not mix."""
    with NewDirectory(str(tmp_path / "out")) as other:
        with pytest.raises(DestinationExistsError, match="Another run"):
            run(source, tmp_path / "out")
        assert os.path.isdir(other.building)


def test_a_disk_without_room_is_refused_beforehand(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The run does not start."""
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    with pytest.raises(UnwritableError, match="has 10 left") as caught:
        run(source, tmp_path / "out")
    assert caught.value.exit_code == 4
    assert left(source) == []


def test_what_does_not_read_back_is_not_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A bit that the disk flips while writing is found before the result has its name."""
    publish = NewDirectory.write

    def spoil(self: NewDirectory, name: str, data: bytes) -> None:
        publish(self, name, data)
        log = self.place("log/t-0/00000000000000000000.log")
        with open(log, "r+b") as file:
            file.seek(40)
            byte = file.read(1)[0]
            file.seek(40)
            file.write(bytes([byte ^ 1]))

    monkeypatch.setattr(NewDirectory, "write", spoil)
    with pytest.raises(CorruptDataError):
        run(source, tmp_path / "out")
    assert left(source) == []


def test_a_log_that_cannot_be_read_stops_it(source: Path, tmp_path: Path, monkeypatch: Any):
    """A failing disk must be imaged first; unreadable bytes are never guessed."""

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "x")

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(UnreadableError):
        run(source, tmp_path / "out")
    assert left(source) == []


def test_an_index_alone_is_no_log(source: Path, tmp_path: Path):
    """The error names what can be salvaged."""
    index = source / "t-0" / "00000000000000000000.index"
    index.touch()
    with pytest.raises(UsageError, match="Only logs"):
        run(index, tmp_path / "out")


def test_the_command_says_what_is_lost(
    source: Path, tmp_path: Path, kafkalog: Callable[..., Result]
):
    """Status 8, a row for the loss, and the rows of the manifest as NDJSON."""
    result = kafkalog("salvage", source, "--to", tmp_path / "out")
    assert result.status == 8
    assert b"batch-crc-mismatch" in result.stdout
    assert b"\n1 range of bytes lost, with 1 offset\n" in result.stdout
    result = kafkalog("salvage", source, "--to", tmp_path / "more", "--format", "ndjson")
    manifest = (tmp_path / "more" / "manifest.ndjson").read_text().splitlines()
    *rows, summary = [json.loads(line) for line in result.stdout.splitlines()]
    assert (summary.pop("status"), summary.pop("changed")) == (8, 1)
    assert [*rows, summary] == [*map(json.loads, manifest)]
    assert kafkalog("salvage", source, "--to", tmp_path / "out").status == 4
    assert kafkalog("salvage", source, "--to", source / "x").status == 2


def test_one_log_is_salvaged_alone(source: Path, tmp_path: Path):
    """The result is a directory with the partition's name."""
    run(source / "t-0" / "00000000000000000000.log", tmp_path / "out")
    names = os.listdir(tmp_path / "out" / "log" / "t-0")
    assert "00000000000000000000.log" in names
