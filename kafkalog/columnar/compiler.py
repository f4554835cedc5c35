"""Compiles kernels with numba into object code with plain C signatures; loaded when one is missing.

A kernel of arrays and ints becomes a C function of pointers, lengths and ints (all 64 bit), and
last a pointer to where its results go.
"""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kafkalog.columnar.native import ARRAYS, MODULES, Kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTIONS = {"nogil": True, "error_model": "numpy"}


def compile_kernel(kernel: Kernel) -> tuple[str, bytes]:
    """The symbol and the object code of a kernel.

    Cost:
        Some seconds for the larger ones.
    """
    parameters, values, kinds = [], [], []
    for i, kind in enumerate(kernel.arguments):
        if kind == "int":
            parameters.append(f"p{i}")
            values.append(f"p{i}")
            kinds.append(types.int64)
            continue
        dtype, dimensions = ARRAYS[kind]
        pointer = types.CPointer(numba.from_dtype(dtype))
        if dimensions == 1:
            parameters += [f"p{i}", f"n{i}"]
            values.append(f"carray(p{i}, n{i})")
            kinds += [pointer, types.int64]
        else:
            parameters += [f"p{i}", f"n{i}", f"m{i}", f"s{i}"]
            values.append(f"carray(p{i}, (n{i}, s{i}))[:, :m{i}]")
            kinds += [pointer, types.int64, types.int64, types.int64]
    lines = [f"def call({', '.join(parameters)}, out):", f"    r = kernel({', '.join(values)})"]
    if kernel.results == 1:
        lines.append("    out[0] = r")
    else:
        lines += [f"    out[{i}] = r[{i}]" for i in range(kernel.results)]
    with _jitted():
        names: dict[str, Any] = {
            "carray": numba.carray,
            "kernel": numba.njit(**_OPTIONS)(kernel.function),
        }
        exec("\n".join(lines), names)  # noqa: S102 # made of our own declarations alone
        signature = types.void(*kinds, types.CPointer(types.int64))
        compiled = numba.cfunc(signature)(names["call"])
    return compiled.native_name, compiled._library._get_compiled_object()  # noqa: SLF001


@contextmanager
def _jitted() -> Iterator[None]:
    """Kernels' modules with what they call as numba's functions, and `copy_bytes` as `memcpy`."""
    modules = [importlib.import_module(f"kafkalog.columnar.{name}") for name in MODULES]
    found: dict[Any, Any] = {}
    before = [dict(module.__dict__) for module in modules]
    for module in modules:
        for name, value in list(module.__dict__.items()):
            if not getattr(value, "is_inlined", False):
                continue
            if value not in found:
                is_copy = value.__name__ == "copy_bytes"
                found[value] = _copy_bytes if is_copy else numba.njit(**_OPTIONS)(value)
            setattr(module, name, found[value])
    try:
        yield
    finally:
        for module, names in zip(modules, before, strict=True):
            module.__dict__.update(names)


@intrinsic
def _copy_bytes(_, target, target_at, source, source_at, size):  # type: ignore[no-untyped-def]  # noqa: ARG001
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointers = []
        for array, at in ((0, 1), (2, 3)):
            made = context.make_array(signature.args[array])(context, builder, arguments[array])
            pointers.append(builder.gep(made.data, [arguments[at]]))
        cgutils.raw_memcpy(builder, pointers[0], pointers[1], arguments[4], 1)
        return context.get_dummy_value()

    return signature, generate
