"""The shared libraries of kernels: one for each level of processors, built once with the package.

`python -m kafkalog.io.jit.library` builds them in place. Only the build needs numba and a linker.
Readers load the best library for the processor in a millisecond.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from dataclasses import dataclass
from functools import cache
from typing import Final

from formats import decoder
from kafkalog.errors import UnsupportedError

MODULES: Final = (
    "log.text.object_kernels", "log.text.kafka_kernels", "log.columns.kernels",
    "change.compaction.kernels", "log.columns.unpack_kernels",
    "change.compaction.pack_kernels", "log.columns.legacy_kernels",
    "log.columns.fact_kernels", "log.columns.crc_kernels", "log.columns.byte_kernels",
    "log.typed.avro_kernels", "log.text.value_kernels", "log.typed.proto_kernels",
    "log.typed.json_kernels", "log.typed.json_scalar_kernels", "log.text.table_kernels",
)  # fmt: skip
"""The modules that hold kernels; those that take longest to compile come first."""

NUMBA: Final = "numba>=0.62,<0.69"
"""What is known to compile them: it is used below its public surface, which any minor release may
change.
"""

WITHOUT_KERNELS: Final = "KAFKALOG_WITHOUT_KERNELS"
"""The environment variable with which the package is built without kernels."""

SOURCES: Final = "kafkalog_sources"
"""The symbol that holds the digest of the sources."""

_OTHER_SOURCES: Final = (
    "kafkalog/log/columns/header_table.py", "kafkalog/io/jit/compiler.py",
    "kafkalog/io/jit/library.py", "kafkalog/io/jit/native.py", "formats/constants.py",
)  # fmt: skip
# `defs`: an unresolved symbol fails the build, not the first call on somebody's machine.
_LINK: Final = ("-shared", "-nostdlib", "-Wl,-z,defs", "-Wl,--build-id=none", "-Wl,-s")
_ELF_HEADER: Final = struct.Struct("=40sQ10sHHH")  # with where its last part is, and how long
_CPU_INFO: Final = "/proc/cpuinfo"
_CPU_INFO_SIZE: Final = 8192  # the first processor: with hundreds of them the file is long


@dataclass(frozen=True, slots=True)
class Level:
    """A level of processors.

    Attributes:
        name: names its library.
        processor, features: what LLVM calls it.
        flags: what a processor of this level has, as Linux names it.
    """

    name: str
    processor: str
    features: str = ""
    flags: frozenset[str] = frozenset()


# Levels of the x86-64 psABI, by the names in /proc/cpuinfo (`lzcnt` is `abm` there).
_V2 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
_V3 = f"{_V2} abm avx avx2 bmi1 bmi2 f16c fma movbe"

LEVELS: Final = {
    "x86_64": (
        Level("x86-64-v3", "x86-64-v3", "+crc32", frozenset(_V3.split())),
        Level("x86-64-v2", "x86-64-v2", "+crc32", frozenset(_V2.split())),
    ),
    "aarch64": (Level("aarch64", "generic"),),
}
"""The levels of each kind of machine with Linux, the best first."""


def levels() -> tuple[Level, ...]:
    """Return the levels of this kind of machine, the best first; empty if it has no kernels."""
    return LEVELS.get(platform.machine(), ()) if sys.platform == "linux" else ()


def levels_to_build() -> tuple[Level, ...]:
    """Return the levels that a build of the package makes libraries for."""
    return () if os.environ.get(WITHOUT_KERNELS) else levels()


def build_requirements() -> list[str]:
    """Return what has to be installed to build the kernels: nothing if they are current."""
    if not levels_to_build() or is_current():
        return []
    import shutil

    return [NUMBA] if os.environ.get("CC") or shutil.which("cc") else [NUMBA, "ziglang"]


def library_file(level: Level) -> str:
    """Return the name of the library of a level, in the directory of this module."""
    return f"kernels-{level.name}.so"


def object_file(level: Level) -> str:
    """Return the name of the object code of a level, while its library is built."""
    return f"{level.name}.o"


@cache
def loaded() -> ctypes.CDLL:
    """Load the best library for this processor. In a checkout it must match the sources.

    Raises:
        UnsupportedError: none was built, it cannot be loaded, or it was built from other sources.
    """
    assert not decoder.BY_SCHEMA, "no kernel decodes then"
    path = _path()
    if path is None:
        raise UnsupportedError(f"no kernels were built for this processor ({platform.machine()})")
    # In a checkout sources change; in an installed package they come with their library.
    if os.path.exists(os.path.join(_root(), "pyproject.toml")) and not is_current():
        raise UnsupportedError(
            "the kernels were built from other sources; build them: "
            "python -m kafkalog.io.jit.library"
        )
    try:
        if not _is_whole(path):
            raise UnsupportedError(f"{path} is not a whole library")
        return ctypes.CDLL(path)
    except OSError as error:
        raise UnsupportedError(f"{error}") from error


def is_current() -> bool:
    """Return whether the library of this processor, if it has one, is that of these sources."""
    path = _path()
    try:
        return path is None or digest().encode() in _read(path)
    except OSError:
        return False


def digest() -> str:
    """Return the digest of all that decides what a library does."""
    import hashlib

    found = hashlib.sha256()
    kernels = (f"kafkalog/{name.replace('.', '/')}.py" for name in MODULES)
    for name in (*kernels, *_OTHER_SOURCES):
        found.update(_read(os.path.join(_root(), name)))
    return found.hexdigest()


def build(directory: str | None = None) -> list[str]:
    """Compile and link the libraries of this kind of machine; return their paths.

    Args:
        directory: where they are put; None for the directory of this module.

    Raises:
        UnsupportedError: numba or a linker is missing, or they fail.

    Cost:
        Some 20 seconds of one processor, shared by all that there are.
    """
    import subprocess
    import tempfile
    from importlib.util import find_spec

    if not levels():
        raise UnsupportedError(f"There are no kernels for {sys.platform} on {platform.machine()}.")
    if find_spec("numba") is None:
        raise UnsupportedError("Kernels are built with numba.", hint=f"pip install '{NUMBA}'")
    place = directory or os.path.dirname(__file__)
    os.makedirs(place, exist_ok=True)
    # In the same directory, so that libraries get their names by a rename: a running process keeps
    # the old file.
    with tempfile.TemporaryDirectory(dir=place) as work:
        line = [sys.executable, "-m", "kafkalog.io.jit.compiler", digest(), work]
        if subprocess.run(line, env=_environment(), check=False).returncode:  # noqa: S603 # ours
            raise _refusal()
        paths = []
        for level in levels():
            made = os.path.join(work, library_file(level))
            line = [*linker(), *_LINK, "-o", made, os.path.join(work, object_file(level)), "-lc"]
            if subprocess.run(line, check=False).returncode:  # noqa: S603 # the builder's own
                raise UnsupportedError("The kernels cannot be linked.")
            paths.append(os.path.join(place, library_file(level)))
            os.replace(made, paths[-1])
    return paths


def linker() -> list[str]:
    """Return the command of the C compiler that links.

    Raises:
        UnsupportedError: no C compiler was found.
    """
    import shlex
    import shutil
    from importlib.util import find_spec

    if command := os.environ.get("CC"):
        return shlex.split(command)
    if shutil.which("cc"):
        return ["cc"]
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise UnsupportedError("Kernels are linked with a C compiler.", hint="pip install ziglang")


def _refusal() -> UnsupportedError:
    from importlib.metadata import version

    tried = " and ".join(f"{name} {version(name)}" for name in ("numba", "llvmlite"))
    return UnsupportedError(
        f"The kernels cannot be compiled with {tried}.",
        note=f"They are known to compile with {NUMBA}.",
        hint=f"pip install '{NUMBA}', or set {WITHOUT_KERNELS}=1 to install without kernels: "
        "everything works, and large logs are read slowly.",
    )


def _environment() -> dict[str, str]:
    """Return the environment of the compiler."""
    inherited = os.environ.get("PYTHONPATH")
    weakest = levels()[-1]
    known = {
        "NUMBA_CPU_NAME": weakest.processor,
        "NUMBA_CPU_FEATURES": weakest.features,
        # Whatever its callers prefer. Loops stay loops: each level has vectors of its own.
        "NUMBA_OPT": "3",
        "NUMBA_LOOP_VECTORIZE": "0",
        "PYTHONPATH": os.pathsep.join((_root(), *([inherited] if inherited else ()))),
    }
    return os.environ | known


def _path() -> str | None:
    """Return the path of the best library for this processor, or None."""
    flags = _flags()
    for level in levels():
        if level.flags <= flags:
            return os.path.join(os.path.dirname(__file__), library_file(level))
    return None


def _is_whole(path: str) -> bool:
    """Return whether an ELF file is as long as its header says: a process dies of a shorter one."""
    with open(path, "rb") as file:
        header = file.read(_ELF_HEADER.size)
        size = os.fstat(file.fileno()).st_size
    if len(header) < _ELF_HEADER.size:
        return False
    _, sections, _, section_size, count, _ = _ELF_HEADER.unpack(header)
    return bool(sections + section_size * count <= size)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _flags() -> set[str]:
    """Return what the processor has, as Linux names it; nothing where that is unknown."""
    try:
        with open(_CPU_INFO, "rb") as file:
            lines = file.read(_CPU_INFO_SIZE).splitlines()
    except OSError:
        return set()
    found = next((line for line in lines if line.startswith(b"flags")), b"")
    return {one.decode("ascii", "replace") for one in found.partition(b":")[2].split()}


def _root() -> str:
    return os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))


if __name__ == "__main__":
    for _built in build():
        print(_built)  # noqa: T201 # what a build made
