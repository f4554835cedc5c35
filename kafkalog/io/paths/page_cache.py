"""Reads that leave the page cache as it was."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from functools import cache
from typing import Any, Final

_PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE")
_CACHED: Final = 1  # of a byte of mincore(2)
_FAILED: Final = ctypes.c_void_p(-1).value  # MAP_FAILED of mmap(2)


def read_block(descriptor: int, buffer: memoryview, position: int) -> int:
    """Read bytes from pages that are all cached, or all not cached; evict them if they were not.

    Returns:
        The number of bytes read: the read ends before the first page that differs from the first
        one. 0 at the end of the file.
    """
    start = position - position % _PAGE_SIZE
    pages = _pages(descriptor, start, position + len(buffer) - start)
    if pages is None:
        count = _read_cached(descriptor, buffer, position)
        if count:
            return count
        # Without mincore(2) and RWF_NOWAIT, all pages count as not cached, and are evicted.
        was_cached, alike = False, -(-(position + len(buffer) - start) // _PAGE_SIZE)
    else:
        was_cached = bool(pages[0] & _CACHED)
        others = (i for i, one in enumerate(pages) if bool(one & _CACHED) != was_cached)
        alike = next(others, len(pages))
    count = os.preadv(descriptor, [buffer[: start + alike * _PAGE_SIZE - position]], position)
    if not was_cached:
        os.posix_fadvise(descriptor, start, alike * _PAGE_SIZE, os.POSIX_FADV_DONTNEED)
    return count


def _pages(descriptor: int, start: int, size: int) -> bytes | None:
    """Return whether each page is cached, in bit 0; None if the kernel would not report it.

    The bytes are mapped, but never touched, because a broker may truncate the file. mincore(2)
    reports every page as cached unless the caller owns the file or may write it.
    """
    user = os.geteuid()
    is_told = user in (0, os.fstat(descriptor).st_uid)
    if not (is_told or os.access(f"/proc/self/fd/{descriptor}", os.W_OK, effective_ids=True)):
        return None
    libc = _libc()
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
    if address in (None, _FAILED):
        return None
    found = (ctypes.c_ubyte * -(-size // _PAGE_SIZE))()
    status = libc.mincore(address, size, found)
    libc.munmap(address, size)
    return None if status else bytes(found)


def _read_cached(descriptor: int, buffer: memoryview, position: int) -> int:
    """Read cached bytes; pages that a fast disk delivers meanwhile count as cached, and stay."""
    try:
        return os.preadv(descriptor, [buffer], position, os.RWF_NOWAIT)
    except OSError as error:
        # Not cached; or the file system has no such flag.
        if error.errno not in (errno.EAGAIN, errno.EOPNOTSUPP):
            raise
        return 0


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc
