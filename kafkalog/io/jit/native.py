"""Kernels: functions over arrays that are called as native code, without the GIL."""

from __future__ import annotations

import ctypes
import importlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalog.io.jit import library

if TYPE_CHECKING:
    from collections.abc import Callable

ARRAYS: Final[dict[str, tuple[Any, int]]] = {
    "bytes": (np.dtype(np.uint8), 1),
    "flags": (np.dtype(np.bool_), 1),
    "ints32": (np.dtype(np.int32), 1),
    "ints": (np.dtype(np.int64), 1),
    "table": (np.dtype(np.int64), 2),
}
"""Kinds of arrays that kernels take: dtype and dimensions. The rows of a table may be farther apart
than they are long; everything else is contiguous.
"""

_WORDS: Final = {"int": 1, "table": 4}
"""How many words of a C call an argument takes, if not two."""


_NOTHING: Final = ctypes.c_char * 0


def _address(array: Any) -> int:
    try:
        return ctypes.addressof(_NOTHING.from_buffer(array))
    except (BufferError, TypeError, ValueError):  # is read-only, or has rows apart
        address: int = array.ctypes.data  # several times as slow
        return address


class Kernel:
    """A function that is called as native code.

    Attributes:
        function: the Python source.
        arguments: kinds of the arguments: names in `ARRAYS`, or `int`.
        results: number of ints it returns; several are returned as a tuple.
    """

    def __init__(self, function: Callable[..., Any], arguments: list[str], results: int) -> None:
        self.function = function
        self.arguments = arguments
        self.results = results
        self._native: Any = None

    @property
    def symbol(self) -> str:
        """Its name in the library."""
        return f"kafkalog_{self.function.__name__}"

    def __call__(self, *values: Any) -> Any:
        """Call it; arrays are passed by reference.

        Raises:
            UnsupportedError: the kernels cannot be loaded.
        """
        native = self._native or self._load()
        words: list[int] = []
        for kind, value in zip(self.arguments, values, strict=True):
            if kind == "int":
                words.append(int(value))
                continue
            dtype, dimensions = ARRAYS[kind]
            assert (value.dtype, value.ndim) == (dtype, dimensions), (self.function, kind)
            if dimensions == 1:
                assert value.strides[0] == value.itemsize or value.size < 2, (self.function, kind)
                words += (_address(value), value.shape[0])
            else:
                stride = value.strides[0] // value.itemsize
                assert value.strides[1] == value.itemsize or value.shape[1] < 2, self.function
                words += (_address(value), value.shape[0], value.shape[1], stride)
        # One per call: threads call a kernel at the same time.
        results = (ctypes.c_int64 * max(self.results, 1))()
        status = native(*words, results)
        assert status == 0, f"{self.function} raised"
        return results[0] if self.results == 1 else tuple(results) if self.results else None

    def _load(self) -> Any:
        native = library.loaded()[self.symbol]  # an own object: others may declare it otherwise
        count = sum(_WORDS.get(kind, 2) for kind in self.arguments)
        native.argtypes = [ctypes.c_int64] * count + [ctypes.POINTER(ctypes.c_int64)]
        native.restype = ctypes.c_int32
        self._native = native
        return native


def kernel(arguments: str = "", results: int = 0) -> Callable[[Callable[..., Any]], Any]:
    """Declare a kernel: the kinds of its arguments, separated by blanks, and its number of results.

    The functions it calls are declared by `inlined`.
    """
    return lambda function: Kernel(function, arguments.split(), results)


def inlined(function: Callable[..., Any]) -> Any:
    """Declare a function that kernels call."""
    function.is_inlined = True  # type: ignore[attr-defined] # a mark for the compiler
    return function


def declared_kernels() -> list[Kernel]:
    modules = [importlib.import_module(f"kafkalog.{name}") for name in library.MODULES]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Kernel) and value.function.__module__ == module.__name__
    ]


def probe() -> None:
    """Load a kernel and call it.

    Raises:
        UnsupportedError: the kernels cannot be loaded here.
        ArithmeticError: one gives a wrong result.
    """
    kernels = importlib.import_module("kafkalog.log.columns.kernels")
    offsets, valid = np.empty(3, np.int32), np.empty(1, np.uint8)
    if kernels.binary_offsets(np.array([2, -1], np.int64), offsets, valid) != (2, 1):
        raise ArithmeticError("a kernel gives a wrong result")
