"""Compiles the kernels with numba into object code with plain C signatures; loaded by builds alone.

A kernel of arrays and ints becomes a C function of pointers, lengths and ints (all 64 bit), with a
last pointer to its results; it returns 0. All kernels are one module of LLVM's, so that nothing is
left of what numba adds for its own callers: the code needs `memcpy` and its like, and no Python.

numba's part, which takes longest, is done once and by all processors; only LLVM's last part, which
makes vectors of loops, is done for each level.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kafkalog.io.jit.library import MODULES, SOURCES, Level, levels, object_file
from kafkalog.io.jit.native import ARRAYS, Kernel, declared_kernels

if TYPE_CHECKING:
    from collections.abc import Iterator


_OPTIONS = {
    "nogil": True,
    "error_model": "numpy",
    "forceinline": True,  # else calls pass arrays as seven words each, which is twice as slow
    "no_cpython_wrapper": True,  # nobody calls them here; a wrapper takes as long as a function
    "no_cfunc_wrapper": True,
}
_NUMBAS_ARGUMENTS = 2  # pointers to its result and to its exception: a kernel has neither


def compile_kernels(sources: str) -> dict[Level, bytes]:
    """Compile all kernels for each level; return position-independent object code.

    numba takes the settings of `library.build` from its environment when it is imported.

    Args:
        sources: the digest of the sources, which the code then holds as `SOURCES`.
    """
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    size, text = len(sources) + 1, f'c"{sources}\\00"'
    # In the code itself, so that a library from other sources is recognized (`library.is_current`).
    whole = llvm.parse_assembly(f"@{SOURCES} = constant [{size} x i8] {text}")
    # Forked, since importing numba takes a second, and LLVM's binding runs one thread at a time.
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("fork")) as pool:
        for code in pool.map(_code_of_module, MODULES):
            whole.link_in(llvm.parse_bitcode(code))
        codes = pool.map(_code_for, levels(), repeat(whole.as_bitcode()))
        return dict(zip(levels(), codes, strict=True))


def _code_of_module(name: str) -> bytes:
    """Compile the kernels of a module; return code for any level, as bitcode."""
    whole = llvm.parse_assembly("")
    with _jitted():
        for kernel in declared_kernels():
            if kernel.function.__module__ == f"kafkalog.{name}":
                whole.link_in(_module_of(kernel))
    return whole.as_bitcode()  # type: ignore[no-any-return]


def _code_for(level: Level, code: bytes) -> bytes:
    """Optimize bitcode for a level; return object code."""
    whole = llvm.parse_bitcode(code)
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(level.processor, level.features, 3, "pic", "default")
    tuning = llvm.create_pipeline_tuning_options(3)
    tuning.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, tuning)
    passes = builder.getModulePassManager()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_strip_dead_prototype_pass()
    passes.run(whole, builder)
    whole.verify()
    return bytes(machine.emit_object(whole))


def _module_of(kernel: Kernel) -> llvm.ModuleRef:
    """Compile a kernel; return the module in which it alone is visible, under its symbol."""
    compiled = _compiled(kernel)
    module = llvm.parse_assembly(str(compiled._library._final_module))  # noqa: SLF001
    body = module.get_function(compiled.native_name.removeprefix("cfunc."))
    kinds = [str(one.type) for one in body.arguments]
    words = [f"{kind} %{i}" for i, kind in enumerate(kinds)][_NUMBAS_ARGUMENTS:]
    symbol = kernel.symbol
    module.link_in(
        llvm.parse_assembly(f"""
        declare i32 @"{body.name}"({", ".join(kinds)})
        define i32 @{symbol}({", ".join(words)}) {{
            %result = alloca ptr
            %exception = alloca ptr
            %status = call i32 @"{body.name}"({
            ", ".join(("ptr %result", "ptr %exception", *words))
        })
            ret i32 %status
        }}
    """)
    )
    # Inlined functions and tables come again with each kernel: equal names must not collide.
    for one in (*module.functions, *module.global_variables):
        if not one.is_declaration and one.name != symbol:
            one.linkage = "internal"
    return module


def _compiled(kernel: Kernel) -> Any:
    """Return numba's result for a function that takes the words of a C call."""
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
    # A C call hands over words: this function makes numba's arrays of them.
    lines = [f"def call({', '.join(parameters)}, out):", f"    r = kernel({', '.join(values)})"]
    if kernel.results == 1:
        lines.append("    out[0] = r")
    else:
        lines += [f"    out[{i}] = r[{i}]" for i in range(kernel.results)]
    names: dict[str, Any] = {
        "carray": numba.carray,
        "kernel": numba.njit(**_OPTIONS)(kernel.function),
    }
    exec("\n".join(lines), names)  # noqa: S102 # made of our own declarations alone
    signature = types.void(*kinds, types.CPointer(types.int64))
    return numba.cfunc(signature)(names["call"])


@contextmanager
def _jitted() -> Iterator[None]:
    """Turn the functions that kernels call into numba's, with plain memory access."""
    modules = [importlib.import_module(f"kafkalog.{name}") for name in MODULES]
    found: dict[Any, Any] = {}
    before = [dict(module.__dict__) for module in modules]
    for module in modules:
        for name, value in list(module.__dict__.items()):
            if not getattr(value, "is_inlined", False):
                continue
            # A function that several modules import is compiled once.
            if value not in found:
                made = _INTRINSICS.get(value.__name__)
                found[value] = made or numba.njit(**_OPTIONS)(value)
            setattr(module, name, found[value])
    try:
        yield
    finally:
        for module, names in zip(modules, before, strict=True):
            module.__dict__.update(names)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
    """Return the address of an element, without numba's check for negative indexes."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [at])


@intrinsic
def _copy_bytes(_, target, target_at, source, source_at, size):  # type: ignore[no-untyped-def]  # noqa: ARG001
    signature = types.void(target, types.int64, source, types.int64, types.int64)

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        pointers = [
            _pointer(context, builder, signature.args[i], *arguments[i : i + 2]) for i in (0, 2)
        ]
        cgutils.raw_memcpy(builder, *pointers, arguments[4], 1)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _byte(_, data, at):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        value = builder.load(_pointer(context, builder, signature.args[0], *arguments))
        return builder.zext(value, ir.IntType(64))

    return types.int64(data, types.int64), generate


@intrinsic
def _eight_bytes(_, data, at):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        place = _pointer(context, builder, signature.args[0], *arguments)
        value = builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)
        if sys.byteorder == "big":
            value = builder.bswap(value)
        return value

    return types.uint64(data, types.int64), generate


@intrinsic
def _put_eight_bytes(_, data, at, word):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        place = _pointer(context, builder, signature.args[0], *arguments[:2])
        value = builder.bswap(arguments[2]) if sys.byteorder == "big" else arguments[2]
        builder.store(value, builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.uint64), generate


@intrinsic
def _prefetch(_, data, at):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        place = _pointer(context, builder, signature.args[0], *arguments)
        flag, address = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), (address, flag, flag, flag))
        hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        # Prefetch for writing, into the nearest level of the data cache.
        words = [ir.Constant(flag, word) for word in (1, 3, 1)]
        builder.call(hint, (builder.bitcast(place, address), *words))
        return context.get_dummy_value()

    return types.void(data, types.int64), generate


@intrinsic
def _address(_, data, at):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        place = _pointer(context, builder, signature.args[0], *arguments)
        return builder.ptrtoint(place, ir.IntType(64))

    return types.int64(data, types.int64), generate


@intrinsic
def _call_c(_, function, arguments):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def generate(context, builder, signature, values):  # type: ignore[no-untyped-def]  # noqa: ARG001
        wide = ir.IntType(64)
        words = cgutils.unpack_tuple(builder, values[1])
        kind = ir.FunctionType(wide, [wide] * len(words))
        return builder.call(builder.inttoptr(values[0], kind.as_pointer()), words)

    count = len(arguments)
    return types.int64(types.int64, types.UniTuple(types.int64, count)), generate


@intrinsic
def _trailing_zeros(_, word):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]  # noqa: ARG001
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def _crc32c_word(_, crc, word):  # type: ignore[no-untyped-def]  # noqa: ARG001
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]  # noqa: ARG001
        wide = ir.IntType(64)
        kind = ir.FunctionType(wide, (wide, wide))
        name = "llvm.x86.sse42.crc32.64.64"
        instruction = cgutils.get_or_insert_function(builder.module, kind, name)
        before = builder.zext(arguments[0], wide)
        after = builder.call(instruction, (before, arguments[1]))
        return builder.trunc(after, ir.IntType(32))

    return types.uint32(types.uint32, types.uint64), generate


_INTRINSICS = {
    "address": _address,
    "byte": _byte,
    "call_c": _call_c,
    "copy_bytes": _copy_bytes,
    "eight_bytes": _eight_bytes,
    "prefetch": _prefetch,
    "put_eight_bytes": _put_eight_bytes,
    "trailing_zeros": _trailing_zeros,
}
if platform.machine() == "x86_64":  # every level of it has the instruction
    _INTRINSICS["crc32c_word"] = _crc32c_word


if __name__ == "__main__":
    # SOURCES DIRECTORY: a process of its own, for numba reads its settings when it is imported.
    _sources, _directory = sys.argv[1:]
    for _level, _code in compile_kernels(_sources).items():
        with open(os.path.join(_directory, object_file(_level)), "wb") as _file:
            _file.write(_code)
