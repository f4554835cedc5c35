"""Arrays that end where memory ends, so that a kernel which reads or writes one byte too far dies.

Kernels have no bounds checks. In ordinary memory an extra byte goes unnoticed; here it is on a
protected page, and the process ends with SIGSEGV, which the soak reports with its seed.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import mmap
import pkgutil
from typing import Any

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE
_PROT_NONE = 0


def guarded(shape: Any, dtype: Any = np.float64) -> Any:
    """Return an array of zeros whose last byte is the last one accessible."""
    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    size = math.prod(shape) * dtype.itemsize
    usable = -(-size // _PAGE) * _PAGE
    pages = mmap.mmap(-1, usable + _PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    if _LIBC.mprotect(ctypes.c_void_p(address + usable), ctypes.c_size_t(_PAGE), _PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    found = np.ndarray(shape, dtype, pages, usable - size)
    assert found.flags.writeable
    return found


class GuardedNumpy:
    """numpy whose new arrays are guarded."""

    empty = staticmethod(guarded)
    zeros = staticmethod(guarded)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


class GuardedArrow:
    """pyarrow whose new buffers are guarded."""

    def __getattr__(self, name: str) -> Any:
        import pyarrow as pa

        return getattr(pa, name)

    @staticmethod
    def allocate_buffer(size: int) -> Any:
        import pyarrow as pa

        return pa.py_buffer(guarded(size, np.uint8))


def guard_kernels() -> None:
    """Make all code that works on columns use guarded arrays from now on."""
    names = ["kafkalog.compaction.chunks", "kafkalog.compaction.key_map", "kafkalog.roll.columns"]
    for room in ("kafkalog.columns", "kafkalog.text"):
        package = importlib.import_module(room)
        names += [found.name for found in pkgutil.iter_modules(package.__path__, f"{room}.")]
    for name in names:
        if name.endswith(("_kernels", ".kernels")):
            continue  # constants are made at import; kernels allocate nothing
        module = importlib.import_module(name)
        if getattr(module, "np", None) is np:
            module.np = GuardedNumpy()  # type: ignore[attr-defined]
    assembly = importlib.import_module("kafkalog.columns.arrow")
    assembly.pa = GuardedArrow()  # type: ignore[attr-defined]
