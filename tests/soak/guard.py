"""Kernels between guard pages, so that one which reads or writes one byte too far dies.

Kernels have no bounds checks. In ordinary memory an extra byte goes unnoticed; here it is on a
protected page, and the process ends with SIGSEGV, which the soak reports with its seed.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import mmap
import os
import pkgutil
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kafkalog.io.jit.native import ARRAYS, Kernel

_LIBC = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE
_PROT_NONE = 0
_call = Kernel.__call__


def guarded(shape: Any, dtype: Any = np.float64) -> Any:
    """Return an array of zeros whose last byte is the last one accessible."""
    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    size = math.prod(shape) * dtype.itemsize
    usable = _whole_pages(size)
    found = np.ndarray(shape, dtype, _pages(usable), _PAGE + usable - size)
    assert found.flags.writeable
    return found


def _whole_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _pages(usable: int) -> mmap.mmap:
    """Return memory with a page before it and one after it that nobody may touch."""
    pages = mmap.mmap(-1, usable + 2 * _PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    for place in (address, address + _PAGE + usable):
        if _LIBC.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(_PAGE), _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    return pages


def guard_calls() -> None:
    """Let each kernel work between guard pages from now on, once close to each of them.

    Each of its arrays is copied into memory of its own; arrays that share memory share the copy.
    """
    Kernel.__call__ = _guarded_call  # type: ignore[method-assign]


def _guarded_call(kernel: Kernel, *values: Any) -> Any:
    """Call a kernel on copies of its arrays, and copy back what it wrote.

    The first time the arrays begin where accessible memory begins, the second time they end where
    it ends. Both times it must do the same, and write to nothing but cells of arrays that may be
    written. Only what it leaves in its `scratch` may differ: the addresses of the other arrays.
    """
    names = kernel.function.__code__.co_varnames
    arrays = [
        (place, value)
        for place, (kind, value) in enumerate(zip(kernel.arguments, values, strict=True))
        if kind in ARRAYS
        and (value.dtype, value.ndim) == ARRAYS[kind]
        and (value.strides[-1] == value.itemsize or value.shape[-1] < 2)  # else it is refused
    ]
    spans = _sharing(arrays)
    results, written = [], []
    for at_end in (False, True):
        copies = [*values]
        lent = [_Copies(span, at_end=at_end) for span in spans]
        for one in lent:
            for place, array in one.arrays.items():
                copies[place] = array
        results.append(_call(kernel, *copies))
        written.append({place: cells for one in lent for place, cells in one.returned().items()})
    assert results[0] == results[1], kernel.function
    for place, (data, is_new) in written[0].items():
        same = np.array_equal(data, written[1][place][0])
        assert same or names[place] == "scratch", (kernel.function, names[place])
        np.copyto(values[place], data, where=is_new)  # other threads may write to other cells
    return results[0]


@dataclass
class _Span:
    """Arrays, by their places among the arguments, and the memory from first to last byte."""

    arrays: dict[int, Any]
    start: int
    end: int
    data: bytes = b""


def _sharing(arrays: list[tuple[int, Any]]) -> list[_Span]:
    """Return the memory of arrays, one span for those that overlap."""
    spans: list[_Span] = []
    for place, array in sorted(arrays, key=lambda one: one[1].ctypes.data):
        start = array.ctypes.data
        size = array.itemsize if array.size else 0
        size += sum((n - 1) * step for n, step in zip(array.shape, _strides(array), strict=True)
                    if array.size)  # fmt: skip
        if size and spans and start < spans[-1].end:
            spans[-1].arrays[place] = array
            spans[-1].end = max(spans[-1].end, start + size)
        else:
            spans.append(_Span({place: array}, start, start + size))
    for span in spans:
        span.data = ctypes.string_at(span.start, span.end - span.start)
    return spans


def _strides(array: Any) -> tuple[int, ...]:
    """Return the strides of an array; one that says nothing, of a single row or cell, is fit."""
    if array.ndim == 1:
        return (array.itemsize,)
    return (array.strides[0] if array.shape[0] > 1 else array.itemsize, array.itemsize)


class _Copies:
    """Copies of arrays in pages that are used again for other arrays.

    Attributes:
        arrays: the copies, by their places among the arguments.
    """

    _unused: ClassVar[dict[int, list[mmap.mmap]]] = defaultdict(list)

    def __init__(self, span: _Span, *, at_end: bool) -> None:
        size = span.end - span.start
        align = max(array.itemsize for array in span.arrays.values())
        self._span = span
        self._usable = _whole_pages(size + align)
        try:
            self._pages = self._unused[self._usable].pop()
        except IndexError:
            self._pages = _pages(self._usable)
        if at_end:
            first = _PAGE + self._usable - size
            first -= (first - span.start) % align
        else:
            first = _PAGE + span.start % align
        self._first = first
        self._pages[first : first + size] = span.data
        self._before = self._accessible()
        self.arrays = {
            place: self._as(array, self._pages, 0) for place, array in span.arrays.items()
        }
        for place, array in span.arrays.items():
            self.arrays[place].flags.writeable = array.flags.writeable

    def returned(self) -> dict[int, tuple[Any, Any]]:
        """Return what arrays that may be written hold now, and which cells are new.

        Everything else must be unchanged.
        """
        after, found = self._accessible(), {}
        for place, array in self._span.arrays.items():
            if array.flags.writeable:
                old, new = (self._as(array, some, _PAGE) for some in (self._before, after))
                found[place] = (new.copy(), new != old)
        for place, (data, _) in found.items():
            self._as(self._span.arrays[place], self._before, _PAGE)[...] = data
        assert self._before == after, "a kernel wrote outside of its arrays"
        self._unused[self._usable].append(self._pages)
        return found

    def _accessible(self) -> bytearray:
        return bytearray(memoryview(self._pages)[_PAGE : _PAGE + self._usable])

    def _as(self, array: Any, buffer: Any, offset: int) -> Any:
        """Return an array like one of the arguments, in a buffer that begins at an offset."""
        at = self._first + array.ctypes.data - self._span.start - offset
        if not array.size:
            return np.ndarray(array.shape, array.dtype, buffer, min(at, len(buffer)))
        return np.ndarray(array.shape, array.dtype, buffer, at, _strides(array))


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


def calls_are_guarded() -> bool:
    """Return whether this run is to guard the calls, which then take three times as long."""
    return bool(os.environ.get("KAFKALOG_GUARDED"))


def guard_kernels() -> None:
    """Guard what is allocated for kernels and codecs from now on, and calls if the run says so."""
    if calls_are_guarded():
        guard_calls()
    names = ["kafkalog.change.compaction.chunks", "kafkalog.change.compaction.key_map"]
    for room in ("kafkalog.log.columns", "kafkalog.log.text"):
        package = importlib.import_module(room)
        names += [found.name for found in pkgutil.iter_modules(package.__path__, f"{room}.")]
    for name in names:
        if name.endswith(("_kernels", ".kernels")):
            continue  # constants are made at import; kernels allocate nothing
        module = importlib.import_module(name)
        if getattr(module, "np", None) is np:
            module.np = GuardedNumpy()  # type: ignore[attr-defined]
    assembly = importlib.import_module("kafkalog.log.columns.arrow")
    assembly.pa = GuardedArrow()  # type: ignore[attr-defined]
