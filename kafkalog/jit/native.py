"""Kernels as native code: compiled once by numba, kept as object code, loaded without numba.

Importing numba and unpickling its own cache takes a third of a second in every process. Here the
kernels' object code is kept in a directory that belongs to this user alone, under a key of
everything that decides it (sources, LLVM, processor), and is loaded through LLVM in a few
milliseconds. Calls release the GIL.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import struct
import sys
import threading
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalog.errors import UnsupportedError
from kafkalog.jit.cache import cache_directory, keep, on_compile, read_kept, unusable_words
from kafkalog.jit.declared import ARRAYS, MODULES

if TYPE_CHECKING:
    from collections.abc import Callable


_RUNTIME_SYMBOLS: Final = (
    "NRT_Free", "NRT_MemInfo_call_dtor", "numba_do_raise", "numba_gil_ensure",
    "numba_gil_release", "numba_runtime_build_excinfo_struct", "numba_unpickle",
)  # fmt: skip

_ELF_HEADER: Final = struct.Struct("=16sHHIQQQIHHHHHH")

_lock = threading.Lock()


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

    def __call__(self, *values: Any) -> Any:
        """Call it; arrays are passed by reference."""
        if self._native is None:
            with _lock:
                if self._native is None:
                    self._native = self._load()
        words: list[int] = []
        for kind, value in zip(self.arguments, values, strict=True):
            if kind == "int":
                words.append(int(value))
                continue
            dtype, dimensions = ARRAYS[kind]
            assert (value.dtype, value.ndim) == (dtype, dimensions), (self.function, kind)
            if dimensions == 1:
                assert value.strides[0] == value.itemsize or value.size < 2, (self.function, kind)
                words += (value.ctypes.data, value.shape[0])
            else:
                stride = value.strides[0] // value.itemsize
                assert value.strides[1] == value.itemsize or value.shape[1] < 2, self.function
                words += (value.ctypes.data, value.shape[0], value.shape[1], stride)
        results = (ctypes.c_int64 * max(self.results, 1))()
        self._native(*words, results)
        return results[0] if self.results == 1 else tuple(results) if self.results else None

    def _load(self) -> Any:
        """Load the native function; compile it first if necessary."""
        try:
            address = _address_of(self)
        except Exception as error:  # numba and LLVM raise exceptions of their own
            raise UnsupportedError(
                "The compiled decoder can be neither loaded nor compiled on this machine.",
                note=" ".join(f"{type(error).__name__}: {error}".split()),
                hint="pip install --force-reinstall numba llvmlite",
            ) from error
        widths = {"int": 1, "table": 4}
        count = sum(widths.get(kind, 2) for kind in self.arguments)
        types = [ctypes.c_int64] * count + [ctypes.POINTER(ctypes.c_int64)]
        return ctypes.CFUNCTYPE(None, *types)(address)


def kernel(arguments: str = "", results: int = 0) -> Callable[[Callable[..., Any]], Any]:
    """Declare a kernel: the kinds of its arguments, separated by blanks, and its number of results.

    The functions it calls are declared by `inlined`.
    """
    return lambda function: Kernel(function, arguments.split(), results)


def is_compiled() -> bool:
    """Return whether the kernels can be loaded without being compiled first."""
    path = _cache_path()
    return path is not None and os.path.exists(path)


def compile_all() -> str | None:
    """Compile all kernels and keep them; return the path of their file, None without a cache."""
    path = _cache_path()
    if path is not None:
        _kept.cache_clear()
        _write(path, _compiled(_all_kernels()))
    return path


def _all_kernels() -> list[Kernel]:
    modules = [importlib.import_module(f"kafkalog.{name}") for name in MODULES]
    return [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Kernel) and value.function.__module__ == module.__name__
    ]


def probe() -> None:
    """Load a kernel and call it.

    Raises:
        Exception: any reason why kernels cannot be loaded or compiled here.
    """
    kernels = importlib.import_module("kafkalog.columns.kernels")
    offsets, valid = np.empty(3, np.int32), np.empty(1, np.uint8)
    if kernels.binary_offsets(np.array([2, -1], np.int64), offsets, valid) != (2, 1):
        raise ArithmeticError("a kernel gives a wrong result")


def _address_of(kernel: Kernel) -> int:
    """Link a kernel; compile it again if the kept object code cannot be loaded."""
    symbol, code = _object_code(kernel)
    try:
        return _engine().add(code, symbol)
    except (RuntimeError, OSError):
        path, name = compile_all(), kernel.function.__qualname__
        kept = _kept() if path is not None else {}
        symbol, code = kept[name] if name in kept else _compiled([kernel])[name]
        return _engine().add(code, symbol)


def _object_code(kernel: Kernel) -> tuple[str, bytes]:
    """Return symbol and object code of a kernel, from the cache or freshly compiled."""
    name = kernel.function.__qualname__
    if name not in _kept():
        while on_compile:
            on_compile.pop()()
        if compile_all() is None or name not in _kept():
            return _compiled([kernel])[name]
    return _kept()[name]


def _compiled(kernels: list[Kernel]) -> dict[str, tuple[str, bytes]]:
    from kafkalog.jit.compiler import compile_kernel

    return {kernel.function.__qualname__: compile_kernel(kernel) for kernel in kernels}


@cache
def _cache_path() -> str | None:
    """Return the cache file for these sources and this processor; None without a cache."""
    directory = cache_directory()
    if directory is None:
        return None
    llvm = _llvm()
    key = hashlib.sha256(llvm.get_host_cpu_name().encode())
    key.update(llvm.get_host_cpu_features().flatten().encode())
    key.update(repr(llvm.llvm_version_info).encode())
    here = os.path.dirname(os.path.dirname(__file__))
    known = ("columns.header_table", "jit.compiler", "jit.declared", "jit.native")
    sources = [f"{name.replace('.', os.sep)}.py" for name in (*MODULES, *known)]
    for name in (*sources, "../formats/constants.py"):
        with open(os.path.join(here, name), "rb") as file:
            key.update(file.read())
    return os.path.join(directory, f"{key.hexdigest()[:32]}.kernels")


@cache
def _kept() -> dict[str, tuple[str, bytes]]:
    """Return the kernels in the cache; none if it is missing, damaged, or not only ours."""
    path = _cache_path()
    data = None if path is None else read_kept(path)
    if data is None:
        return {}
    head, _, code = data.partition(b"\n")
    try:
        checksum, contents = json.loads(head)
    except (TypeError, ValueError):
        return {}
    if zlib.crc32(code) != checksum:
        return {}
    kept = {}
    for name, symbol, size in contents:
        kept[name] = (symbol, code[:size])
        code = code[size:]
    return kept


def _write(path: str, kernels: dict[str, tuple[str, bytes]]) -> None:
    """Write object code to the cache."""
    code = b"".join(one[1] for one in kernels.values())
    contents = [(name, symbol, len(one)) for name, (symbol, one) in kernels.items()]
    keep(path, json.dumps((zlib.crc32(code), contents)).encode() + b"\n" + code)


def _llvm() -> Any:
    import llvmlite.binding

    return llvmlite.binding


class _Engine:
    """LLVM's execution engine, which object code is linked into."""

    def __init__(self) -> None:
        llvm = _llvm()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        # numba's error paths, which kernels without exceptions and allocations never take.
        stop = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p).value
        for name in _RUNTIME_SYMBOLS:
            llvm.add_symbol(name, stop)
        machine = llvm.Target.from_default_triple().create_target_machine()
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)

    def add(self, code: bytes, symbol: str) -> int:
        """Link object code and return the address of a function in it.

        Raises:
            RuntimeError: it is for another machine, or has no such function.
        """
        if not _is_loadable(code):
            raise RuntimeError("the object code is not for this machine, or not whole")
        self._engine.add_object_file(_llvm().ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        address = int(self._engine.get_function_address(symbol))
        if not address:
            raise RuntimeError(f"the object code has no function {symbol}")
        return address


def _is_loadable(code: bytes) -> bool:
    """Return whether code is a whole ELF object for this machine: LLVM aborts on others."""
    with open("/proc/self/exe", "rb") as file:
        own = file.read(_ELF_HEADER.size)
    if len(code) < _ELF_HEADER.size or len(own) < _ELF_HEADER.size:
        return False
    identity, _, machine, _, _, _, sections, _, _, _, _, size, count, _ = _ELF_HEADER.unpack_from(
        code
    )
    own_identity, _, own_machine, *_ = _ELF_HEADER.unpack(own)
    is_own = (identity[:6], machine) == (own_identity[:6], own_machine)
    return is_own and sections + size * count <= len(code)


@cache
def _engine() -> _Engine:
    return _Engine()


def _prepare() -> int:
    """Compile all kernels as a step of an installation; return the exit status."""
    try:
        compile_all()
    except Exception as raised:  # noqa: BLE001 # numba and LLVM raise kinds of their own
        words = " ".join(f"{type(raised).__name__}: {raised}".split())
        sys.stderr.write(f"note: {unusable_words(words)}\n")
        return UnsupportedError.exit_code
    return 0


if __name__ == "__main__":  # `python -m kafkalog.jit.native`
    sys.exit(importlib.import_module("kafkalog.jit.native")._prepare())  # noqa: SLF001
