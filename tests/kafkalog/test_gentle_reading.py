"""Reading gives the same bytes when it spares the page cache and limits its rate."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import UnreadableError, UnsupportedError
from kafkalog.io.paths.reading import AS_FAST_AS_IT_GOES, RateLimiter, read_options, reading
from kafkalog.io.paths.source import Source
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path

PAGE = 4096
SIZE = 8 << 20
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def cached(path: Path) -> list[bool]:
    """Return for each page whether it is cached, as mincore(2) reports to the file's owner."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(descriptor).st_size
        address = LIBC.mmap(None, size, 1, 1, descriptor, 0)
        pages = (ctypes.c_ubyte * (-(-size // PAGE)))()
        assert LIBC.mincore(address, size, pages) == 0
        LIBC.munmap(address, size)
    finally:
        os.close(descriptor)
    return [bool(page & 1) for page in pages]


def evict(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


@pytest.fixture
def file(disk_path: Path) -> Path:
    """A file on disk, not in memory: without a disk, a file system caches everything."""
    path = disk_path / "file"
    path.write_bytes(bytes(range(256)) * (SIZE // 256) + b"tail")
    evict(path)
    assert not any(cached(path)), "tests must run on a file system with a disk"
    return path


def read_all(path: Path, step: int) -> bytes:
    with Source(str(path)) as source:
        return b"".join(source.read(at, step) for at in range(0, source.size_bytes, step))


TRIES = 5
"""The kernel takes advice, not orders: beside other work it may keep what it should drop."""


@pytest.mark.parametrize("step", [1000, 70_000, 1 << 20, 3_000_001])
def test_what_was_not_cached_is_not_cached_afterwards(file: Path, step: int):
    """A few pages may stay: those that the disk delivers during the check."""
    left = []
    for _ in range(TRIES):
        evict(file)
        with reading(leaves_cache=True):
            gentle = read_all(file, step)
        left.append(sum(cached(file)))
        if left[-1] <= len(cached(file)) // 20:
            break
    else:
        pytest.fail(f"pages that stay in the cache: {left}")
    assert gentle == read_all(file, step)
    assert sum(cached(file)) > len(cached(file)) // 2


def test_what_was_cached_stays(file: Path):
    """For example the end of an active segment, which a broker serves from memory."""
    block = (1 << 18) // PAGE
    added = []
    for _ in range(TRIES):
        evict(file)
        with file.open("rb", buffering=0) as hot:
            os.posix_fadvise(hot.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            hot.seek(SIZE // 2 + 12345)
            hot.read()
        before = cached(file)
        assert sum(before) >= SIZE // PAGE // 2 - 16
        with reading(leaves_cache=True):
            read_all(file, 1 << 20)
        after = cached(file)
        kept = sum(was and still for was, still in zip(before, after, strict=True))
        assert kept >= sum(before) - block
        added.append(sum(after) - sum(before))
        if added[-1] <= block:
            break
    else:
        pytest.fail(f"pages that came into the cache: {added}")


def test_buffers_are_filled_in_the_same_way(file: Path):
    """The columnar core reads into its own memory."""
    buffer = bytearray(3 << 20)
    with reading(leaves_cache=True), Source(str(file)) as source:
        source.read_into(77, memoryview(buffer))
    assert bytes(buffer) == file.read_bytes()[77 : 77 + len(buffer)]


def test_others_than_the_owner_read_the_same(file: Path, monkeypatch: pytest.MonkeyPatch):
    """The kernel does not tell them what is cached."""
    whole = file.read_bytes()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    for _ in range(2):
        with reading(leaves_cache=True):
            assert read_all(file, 70_000) == whole
        evict(file)


def test_a_file_that_became_shorter_is_an_error(file: Path):
    """The error is the same without the options."""
    with reading(leaves_cache=True, rate_limit=1 << 40), Source(str(file)) as source:
        os.truncate(file, 5000)
        with pytest.raises(UnreadableError, match="shorter"):
            source.read(0, SIZE)


def test_a_rate_limit_counts_every_byte(file: Path, monkeypatch: pytest.MonkeyPatch):
    """The rate limiter itself is tested with a clock."""
    spent: list[int] = []
    monkeypatch.setattr(RateLimiter, "spend", lambda _, size_bytes: spent.append(size_bytes))
    with reading(rate_limit=32 << 20):
        read_all(file, 100_000)
    assert sum(spent) >= file.stat().st_size


def test_the_options_end_with_their_block(file: Path):
    """A file opened afterwards is read at full speed, and cached."""
    with reading(leaves_cache=True, rate_limit=1):
        pass
    read_all(file, 1 << 20)
    assert any(cached(file))


def test_a_system_without_advice_says_so(monkeypatch: pytest.MonkeyPatch):
    """The option is refused instead of silently ignored."""
    monkeypatch.delattr(os, "posix_fadvise")
    with pytest.raises(UnsupportedError), reading(leaves_cache=True):
        pass


@pytest.mark.parametrize(
    "words",
    [("dump-segment",), ("find", "--key", "k"), ("diff", "{log}"), ("profile",), ("verify",),
     ("sql", "-c", "select max(value) from records"), ("export", "--to", "{out}")],
    ids=lambda words: words[0],
)  # fmt: skip
def test_every_command_that_reads_long_spares_the_disk(
    words: tuple[str, ...], tmp_path: Path, kafkalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options of the whole program hold in each thread that reads."""
    log = tmp_path / "orders-0"
    write_log(log, *(batch(10 * n, [record(i) for i in range(10)]) for n in range(500)))
    size = (log / f"{0:020}.log").stat().st_size
    spent: list[int] = []
    monkeypatch.setattr(RateLimiter, "spend", lambda _, size_bytes: spent.append(size_bytes))
    command, *rest = [word.format(log=log, out=tmp_path / "out") for word in words]
    done = kafkalog(command, log, *rest, "--rate-limit", "1GiB", "--no-cache")
    assert done.status in (0, 1), done.stderr
    assert sum(spent) >= size
    assert read_options() is AS_FAST_AS_IT_GOES
