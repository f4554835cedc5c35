"""A new file is either complete or missing, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.journal.backup import Backup
from kafkalog.change.journal.journal import BEGINS, JOURNAL_NAME
from kafkalog.errors import (
    CorruptDataError,
    DestinationExistsError,
    NotAKafkaFileError,
    PartlyDoneError,
    UnreadableError,
    UnwritableError,
)
from kafkalog.io.storage import AppendedFile, Attempt, Changes, NewDirectory, NewFile
from kafkalog.wire.server import commits_file
from kafkalog.wire.server.commits_file import CommitsFile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def write(path: Path, act: Callable[[], object] = bool) -> None:
    """Write a new file, and do something else before it is finished."""
    with NewFile(str(path)) as new:
        new.file.write(b"content")
        act()


def test_a_file_appears_when_the_block_ends(tmp_path: Path):
    """Before that no file has the name; afterwards no temporary file is left."""
    path = tmp_path / "new"
    with NewFile(str(path)) as new:
        new.file.write(b"content")
        assert not path.exists()
    assert path.read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["new"]


def test_bytes_and_directory_are_synced_in_the_right_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A name that survives a crash without its bytes would be a torn file."""
    done = []
    sync, link = os.fsync, os.link

    def noted_sync(descriptor: int) -> None:
        done.append("directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")
        sync(descriptor)

    def noted_link(source: str, target: str) -> None:
        done.append("name")
        link(source, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "link", noted_link)
    with NewFile(str(tmp_path / "new")) as new:
        new.file.write(b"content")
    assert done == ["file", "name", "directory"]


@pytest.mark.parametrize("error", [ValueError("a mistake"), KeyboardInterrupt()])
def test_an_error_or_an_interrupt_leaves_nothing(tmp_path: Path, error: BaseException):
    """No temporary file is left either."""

    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        write(tmp_path / "new", fail)
    assert os.listdir(tmp_path) == []


def test_a_discarded_file_leaves_nothing(tmp_path: Path):
    """This is for callers that find nothing to write."""
    with NewFile(str(tmp_path / "new")) as new:
        new.discard()
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The last bytes can fail as late as at the sync."""

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "x")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UnwritableError, match="No space left") as caught:
        write(tmp_path / "new")
    assert caught.value.exit_code == 4
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("what", ["file", "directory", "dangling link"])
def test_what_is_there_is_not_replaced(tmp_path: Path, what: str):
    """Files, directories and links stay."""
    path = tmp_path / "there"
    if what == "file":
        path.write_bytes(b"old")
    elif what == "directory":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    with pytest.raises(DestinationExistsError):
        NewFile(str(path))
    assert os.listdir(tmp_path) == ["there"]


def test_what_comes_meanwhile_is_not_replaced_either(tmp_path: Path):
    """The name is given by a hard link, which fails if the name exists."""
    path = tmp_path / "new"
    with pytest.raises(DestinationExistsError):
        write(path, lambda: path.write_bytes(b"other"))
    assert path.read_bytes() == b"other"
    assert os.listdir(tmp_path) == ["new"]


def test_a_file_system_without_links_gets_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The file is renamed instead."""

    def refuse(_source: str, _target: str) -> None:
        raise OSError(errno.EPERM, "x")

    monkeypatch.setattr(os, "link", refuse)
    with NewFile(str(tmp_path / "new")) as new:
        new.file.write(b"content")
    assert (tmp_path / "new").read_bytes() == b"content"
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize("name", ["missing/new", "a\0b"])
def test_an_impossible_place_is_told(tmp_path: Path, name: str):
    """The error is one of ours."""
    with pytest.raises(UnwritableError):
        NewFile(str(tmp_path / name))


def test_a_file_may_be_replaced(tmp_path: Path):
    """The old file stays complete until the new one is; a failure keeps it."""
    path = tmp_path / "state"
    path.write_bytes(b"old")
    with NewFile(str(path), replaces=True) as new:
        new.file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    with pytest.raises(ZeroDivisionError), NewFile(str(path), replaces=True) as new:
        new.file.write(b"newer" + bytes(1 // 0))
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["state"]


def test_a_directory_is_not_replaced(tmp_path: Path):
    """The block ends with an error, and no temporary file is left."""
    (tmp_path / "state").mkdir()
    with pytest.raises(UnwritableError), NewFile(str(tmp_path / "state"), replaces=True):
        pass
    assert os.listdir(tmp_path) == ["state"]


def test_a_link_replaces_nothing(tmp_path: Path):
    """The file that has the name already stays as it is."""
    (tmp_path / "source").write_bytes(b"new")
    (tmp_path / "taken").write_bytes(b"old")
    with pytest.raises(DestinationExistsError):
        Changes(str(tmp_path)).link(str(tmp_path / "source"), "taken")
    assert (tmp_path / "taken").read_bytes() == b"old"


def test_a_task_of_an_ended_run_does_not_begin(tmp_path: Path):
    """The staging directory is gone: nothing could take what the task would write."""
    with pytest.raises(UnwritableError), Attempt(str(tmp_path / "gone"), "result"):
        pytest.fail("the task began")
    assert os.listdir(tmp_path) == []


FOREIGN = [
    b"notes", b"\0" * 10_000, b"{}", b'{"groups": []}', b"first\nlast", b'{"group":"a"}',
    b'{"type":"run"}', b"\xff" * (1 << 17),
]  # fmt: skip


@pytest.mark.parametrize("content", FOREIGN)
def test_a_file_to_append_to_is_ours_before_it_is_cut(tmp_path: Path, content: bytes):
    """A user may name any file: nothing in it shows that its last line was torn."""
    file, backup = tmp_path / "file", tmp_path / "backup"
    backup.mkdir()
    (backup / JOURNAL_NAME).write_bytes(content)
    file.write_bytes(content)
    for opened, path in (
        (CommitsFile(str(file), []), file),
        (Backup(str(backup), "compact", None), backup / JOURNAL_NAME),
    ):
        with pytest.raises(CorruptDataError, match="kafkalog did not write"):
            opened.__enter__()
        assert path.read_bytes() == content


@pytest.mark.parametrize("begins", [commits_file._BEGINS, BEGINS])
def test_a_torn_line_is_cut(tmp_path: Path, begins: tuple[bytes, ...]):
    """A crash leaves any part of the last line, the first line of a file included."""
    path, line = tmp_path / "file", begins[0] + b'one"}'
    for before in (b"", line + b"\n"):
        for end in range(len(line)):
            path.write_bytes(before + line[:end])
            with AppendedFile(str(path), begins) as file:
                assert path.read_bytes() == before
                file.append(line)
            assert path.read_bytes() == before + line + b"\n"


@pytest.mark.parametrize("fails", ["copy_file_range", "read", "write"])
def test_a_copy_blames_the_side_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
):
    """A disk that cannot be read is no reason to look for another target."""
    source = tmp_path / "source"
    source.write_bytes(b"content")

    def failing(*_: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "copy_file_range", failing)
    monkeypatch.setattr(os, fails, failing)
    writing = UnwritableError if fails == "write" else UnreadableError
    for copy in (
        lambda: copy_into_new_directory(source, tmp_path / "new"),
        lambda: Changes(str(tmp_path))._copy(str(source), "again"),
    ):
        if fails == "copy_file_range":
            copy()
            continue
        with pytest.raises(writing) as raised:
            copy()
        assert (raised.value.path == str(source)) == (fails == "read")


def copy_into_new_directory(source: Path, to: Path) -> None:
    with NewDirectory(str(to)) as directory:
        directory.copy(str(source), "file", 0, clones=False)


def test_a_directory_that_has_its_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The disk fails when the name is made durable: nothing is removed any more."""
    path, sync = tmp_path / "new", os.fsync

    def fail(descriptor: int) -> None:
        if path.exists():
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    with (
        pytest.raises(PartlyDoneError, match="is there, whole; afterwards this failed"),
        NewDirectory(str(path)) as new,
        new.create("a") as file,
    ):
        file.write(b"content")
    assert (path / "a").read_bytes() == b"content"


@pytest.mark.parametrize("kind", ["device", "FIFO", "directory"])
def test_only_regular_files_are_copied(tmp_path: Path, kind: str):
    """Bytes of a device never end; a FIFO would wait."""
    source = tmp_path / "source"
    match kind:
        case "device":
            source.symlink_to("/dev/zero")
        case "FIFO":
            os.mkfifo(source)
        case _:
            source.mkdir()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(NotAKafkaFileError, match=kind):
            copy_into_new_directory(source, tmp_path / "new")
        if kind != "device":  # links are refused there
            with pytest.raises(NotAKafkaFileError, match=kind):
                Changes(str(tmp_path))._copy(str(source), "again")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "new").exists()


def test_a_copy_has_what_was_there_when_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A source that grows faster than it is copied does not fill the disk."""
    source = tmp_path / "source"
    source.write_bytes(b"content")
    read = os.read

    def growing(descriptor: int, size: int) -> bytes:
        with source.open("ab") as file:
            file.write(b"more" * 100)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", growing)
    monkeypatch.setattr(os, "copy_file_range", lambda *_: os.truncate("/", 0))  # fails
    copy_into_new_directory(source, tmp_path / "new")
    assert (tmp_path / "new" / "file").read_bytes() == b"content"
