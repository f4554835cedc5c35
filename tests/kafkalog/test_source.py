"""Reads by position: exact bytes, plain errors, regular files only."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import (
    FileChangedError,
    KafkaLogError,
    NotAKafkaFileError,
    NotFoundError,
    TemporaryError,
    UnreadableError,
)
from kafkalog.io.paths.kept_files import SIZE_MAX, each_file_once
from kafkalog.io.paths.source import WINDOW_SIZE_MAX, WINDOW_SIZE_MIN, Source, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = bytes((i * 7 + i // 251) % 256 for i in range(3 * WINDOW_SIZE_MIN + 17))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    return path


@given(st.lists(st.tuples(st.integers(0, len(DATA) + 10), st.integers(-5, len(DATA) + 10))))
def test_a_read_is_a_slice_of_the_file(file: Path, reads: list[tuple[int, int]]):
    """Earlier reads do not matter: the window must never show through."""
    with Source(str(file)) as source:
        assert source.size_bytes == len(DATA)
        for position, size in reads:
            assert source.read(position, size) == DATA[position : position + max(size, 0)]


@given(
    st.lists(st.tuples(st.integers(0, len(DATA)), st.integers(0, 99), st.booleans())),
    st.integers(0, len(DATA)),
)
def test_a_read_apart_is_the_same_slice(
    file: Path, reads: list[tuple[int, int, bool]], end: int
) -> None:
    """Before and after other reads, and no farther than the end that counts."""
    with Source(str(file), end) as source:
        for position, size, is_apart in reads:
            read = source.read_apart if is_apart else source.read
            assert read(position, size) == DATA[position : min(position + size, end)]


def test_what_cannot_be_read_apart_has_the_same_error(tmp_path: Path) -> None:
    """Of a file that became shorter."""
    path = tmp_path / "file"
    path.write_bytes(DATA)
    with Source(str(path)) as source:
        os.truncate(path, 100)
        assert source.read_apart(90, 10) == DATA[90:100]
        with pytest.raises(FileChangedError):
            source.read_apart(90, 11)


def test_each_small_file_is_read_once(tmp_path: Path):
    """Its bytes are those of the first reading, until the steps end; a log is read again."""
    small, large, log = tmp_path / "small", tmp_path / "large", tmp_path / "0.log"
    paths = [small, large, log]

    def write(byte: bytes) -> None:
        for path, size in zip(paths, (SIZE_MAX, SIZE_MAX + 1, 3), strict=True):
            path.write_bytes(byte * size)

    def steps() -> Iterator[list[bytes]]:
        for _ in range(2):
            yield [read_file(str(path))[-1:] for path in paths]
        with Source(str(small)) as source:
            buffer = bytearray(4)
            source.read_into(SIZE_MAX - 4, memoryview(buffer))
            yield [bytes(buffer), source.read(2, 2), source.read(SIZE_MAX - 1, 9)]
            assert not source.is_zero_from(SIZE_MAX - 1)
            assert source.size_bytes == source.next_data(SIZE_MAX + 5) == SIZE_MAX
            with pytest.raises(FileChangedError):
                source.read_into(SIZE_MAX - 3, memoryview(buffer))

    write(b"a")
    read = each_file_once(steps())
    assert next(read) == [b"a"] * 3
    write(b"b")
    assert read_file(str(small))[:1] == b"b", "the code between its items reads again"
    assert list(read) == [[b"a", b"b", b"b"], [b"aaaa", b"aa", b"a"]]


def test_few_files_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A partition of many segments does not fill the memory with its small files."""
    monkeypatch.setattr("kafkalog.io.paths.kept_files.FILES_MAX", 1)
    paths = [tmp_path / "kept", tmp_path / "read again"]

    def steps() -> Iterator[list[bytes]]:
        for byte in (b"a", b"b"):
            for path in paths:
                path.write_bytes(byte)
            yield [read_file(str(path)) for path in paths]

    assert list(each_file_once(steps())) == [[b"a", b"a"], [b"a", b"b"]]


def test_large_reads_and_small_ones_agree(tmp_path: Path):
    """Reads larger than the largest window bypass it."""
    path = tmp_path / "large"
    data = os.urandom(3 * WINDOW_SIZE_MAX)
    path.write_bytes(data)
    with Source(str(path)) as source:
        assert source.read(5, 2 * WINDOW_SIZE_MAX) == data[5 : 5 + 2 * WINDOW_SIZE_MAX]
        assert source.read(6, 10) == data[6:16]
        position = 0
        while position < len(data):
            chunk = source.read(position, 70_001)
            assert chunk == data[position : position + 70_001]
            position += len(chunk)


def test_zeros_to_the_end_are_seen_through_holes(tmp_path: Path):
    """A sparse tail counts as zeros; a single other byte in it does not."""
    path = tmp_path / "sparse"
    with path.open("wb") as out:
        out.write(b"x")
        out.truncate(1 << 30)
    with Source(str(path)) as source:
        assert source.is_zero_from(1)
        assert source.is_zero_from(1 << 30)
        assert source.is_zero_from(1 << 31)
        assert not source.is_zero_from(0)
    with path.open("r+b") as out:
        out.seek(-1, os.SEEK_END)
        out.write(b"x")
    with Source(str(path)) as source:
        assert not source.is_zero_from(1)


def test_only_regular_files_are_opened(tmp_path: Path):
    """A FIFO would hang, and a device could act."""
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "socket", Path("/dev/null")):
        with pytest.raises(NotAKafkaFileError):
            Source(str(path))


def test_what_is_not_there_is_not_found(tmp_path: Path, file: Path):
    """Also below a file, behind a dangling link, and for names that no file can have."""
    (tmp_path / "dangling").symlink_to("nowhere")
    for path in (tmp_path / "none", file / "below", tmp_path / "dangling"):
        with pytest.raises(NotFoundError):
            Source(str(path))
    with pytest.raises(NotFoundError):
        Source(f"{file}\0")
    with pytest.raises(NotFoundError):
        Source("")


def test_a_loop_of_links_is_unreadable(tmp_path: Path):
    """ELOOP."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UnreadableError):
        Source(str(tmp_path / "a"))


def test_a_name_that_is_too_long_is_our_error(tmp_path: Path):
    """ENAMETOOLONG."""
    with pytest.raises(KafkaLogError):
        Source(str(tmp_path / ("x" * 300)))


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.EACCES, UnreadableError),
        (errno.EIO, UnreadableError),
        (errno.EMFILE, TemporaryError),
        (errno.ESTALE, TemporaryError),
    ],
)
def test_a_failed_open_is_told(
    file: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[KafkaLogError]
):
    """The refusal is mocked, as root may read everything."""

    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(kind, match=os.strerror(number)):
        Source(str(file))


def test_a_failing_disk_is_unreadable(file: Path, monkeypatch: pytest.MonkeyPatch):
    """EIO in the middle of a file."""

    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "I/O")

    with Source(str(file)) as source:
        monkeypatch.setattr(os, "pread", fail)
        with pytest.raises(UnreadableError):
            source.read(0, 10)
        with pytest.raises(UnreadableError):
            source.is_zero_from(0)


def test_short_reads_are_completed(file: Path, monkeypatch: pytest.MonkeyPatch):
    """pread may return less than requested, as on network file systems."""
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: real(fd, min(size, 1000), at))
    with Source(str(file)) as source:
        assert source.read(1, len(DATA)) == DATA[1:]


def test_a_file_that_shrinks_is_an_error(file: Path):
    """A short read is never taken for the end of the log."""
    with Source(str(file)) as source:
        source.read(0, 10)
        os.truncate(file, 20)
        with pytest.raises(UnreadableError, match="shorter"):
            source.read(len(DATA) - 100, 100)
        with pytest.raises(UnreadableError, match="shorter"):
            source.is_zero_from(20)


def test_a_file_that_grows_ends_where_it_ended(file: Path):
    """A broker appends meanwhile: the size is that of the moment of opening."""
    with Source(str(file)) as source:
        with file.open("ab") as out:
            out.write(b"more")
        assert source.read(0, 1 << 20) == DATA


def test_closing_twice_does_no_harm(file: Path):
    """The descriptor of a closed file may already belong to another one."""
    source = Source(str(file))
    source.close()
    source.close()


def test_small_files_have_a_limit(file: Path):
    """No real checkpoint has gigabytes."""
    assert read_file(str(file)) == DATA
    with pytest.raises(NotAKafkaFileError, match="far smaller"):
        read_file(str(file), size_max=len(DATA) - 1)
