"""Reads that leave the page cache as it was."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from typing import Any, Final

_PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE")
_READABLE: Final = 1  # PROT_READ, and MAP_SHARED
_CACHED: Final = 1
_FAILED: Final = ctypes.c_void_p(-1).value


def read_block(descriptor: int, buffer: memoryview, position: int) -> int:
    """Read some bytes, up to where pages are in the page cache if the first was not, or not if so.

    Pages that were not in it are evicted.

    Returns:
        How many bytes; 0 at the end of the file.
    """
    start = position - position % _PAGE_SIZE
    pages = _pages(descriptor, start, position + len(buffer) - start)
    if pages is None:
        count = _read_cached(descriptor, buffer, position)
        if count:
            return count
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
    """Return for each page whether it is cached, in bit 0; None if the kernel would not say so.

    The bytes are mapped for that, but never touched: they may be gone. To others than the owner and
    those who may write, mincore(2) says that all is cached.
    """
    user = os.geteuid()
    is_told = user in (0, os.fstat(descriptor).st_uid)
    if not (is_told or os.access(f"/proc/self/fd/{descriptor}", os.W_OK, effective_ids=True)):
        return None
    libc = _libc()
    address = libc.mmap(None, size, _READABLE, _READABLE, descriptor, start)
    if address in (None, _FAILED):
        return None
    found = (ctypes.c_ubyte * -(-size // _PAGE_SIZE))()
    status = libc.mincore(address, size, found)
    libc.munmap(address, size)
    return None if status else bytes(found)


def _read_cached(descriptor: int, buffer: memoryview, position: int) -> int:
    """Read what is cached; a quick disk can deliver other pages meanwhile, which then stay."""
    try:
        return os.preadv(descriptor, [buffer], position, os.RWF_NOWAIT)
    except OSError as error:
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
