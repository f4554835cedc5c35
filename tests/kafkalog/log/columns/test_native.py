"""Kernels are built once, loaded without numba, and match their Python source."""

from __future__ import annotations

import json
import os
import platform
import random
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import crc32c as wheel
import numpy as np
import pytest

from kafkalog.errors import UnsupportedError
from kafkalog.io.jit import library
from kafkalog.io.jit.native import declared_kernels
from kafkalog.log.columns import kernels as k
from kafkalog.log.columns.crc_kernels import crc_ranges

LEVELS = library.LEVELS[platform.machine()]
LIBC = {"memcpy", "memmove", "memset", "memcmp"}
USE = """
import json, sys
import numpy as np
from kafkalog.log.columns import kernels as k
sizes = np.array([3, -1, 4, 0], np.int64)
offsets, valid = np.empty(5, np.int32), np.empty(1, np.uint8)
found = k.binary_offsets(sizes, offsets, valid)
assert (found, offsets.tolist(), valid[0]) == ((7, 1), [0, 3, 3, 7, 7], 0b1101)
print(json.dumps(sorted(sys.modules)))
"""


def library_path(level: library.Level) -> Path:
    return Path(library.__file__).with_name(library.library_file(level))


def test_they_are_loaded_without_a_compiler():
    """Neither numba nor LLVM is imported."""
    done = subprocess.run([sys.executable, "-c", USE], check=True, capture_output=True)
    assert not {"numba", "llvmlite"} & set(json.loads(done.stdout))


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_a_library_needs_libc_alone(level: library.Level):
    """It needs nothing of Python, so that any process can load it, and exports nothing else."""
    found = {"U": set(), "T": set(), "R": set()}
    listed = subprocess.run(
        ["nm", "-D", library_path(level)], check=True, capture_output=True, text=True
    )
    for line in listed.stdout.splitlines():
        *_, kind, name = line.split()
        found[kind].add(name.partition("@")[0])
    assert found["U"] <= LIBC
    assert found["T"] == {one.symbol for one in declared_kernels()}
    assert found["R"] == {library.SOURCES}


def copied_package(place: Path) -> Path:
    """Copy the packages into a directory; return the directory of the libraries."""
    for name in ("formats", "kafkalog"):
        shutil.copytree(name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    return place / "kafkalog" / "io" / "jit"


def refusal(place: Path) -> str:
    """Return the error from loading the library in a directory."""
    code = "from kafkalog.io.jit import library\ntry: library.loaded()\n"
    code += "except Exception as error: print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=place,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(place)},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def test_a_library_that_cannot_be_loaded_says_so(tmp_path: Path):
    """Missing, cut or for another machine: the error is clear, and nothing crashes."""
    place = copied_package(tmp_path)
    assert refusal(tmp_path) == ""
    for path in place.glob("*.so"):
        whole = path.read_bytes()
        for spoiled in (whole[:1000], b"no library", whole[:18] + b"\xf3\x00" + whole[20:]):
            path.write_bytes(spoiled)
            assert str(path) in refusal(tmp_path) or path.name != library.library_file(LEVELS[0])
        path.unlink()
    assert "No such file" in refusal(tmp_path)


def test_in_a_checkout_a_library_is_that_of_the_sources(tmp_path: Path):
    """A changed kernel asks to be built; installed libraries are not compared."""
    copied_package(tmp_path)
    with (tmp_path / "kafkalog" / "log" / "columns" / "kernels.py").open("a") as file:
        file.write("# changed\n")
    assert refusal(tmp_path) == ""
    shutil.copy("pyproject.toml", tmp_path)
    assert "python -m kafkalog.io.jit.library" in refusal(tmp_path)


def test_an_unknown_processor_has_none(monkeypatch: pytest.MonkeyPatch):
    """It lacks an instruction of the lowest level, or is of another kind."""
    monkeypatch.setattr(library, "_flags", lambda: LEVELS[-1].flags - {"popcnt"})
    library.loaded.cache_clear()
    if platform.machine() == "x86_64":
        with pytest.raises(UnsupportedError, match="no kernels were built for this processor"):
            library.loaded()
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(UnsupportedError, match="riscv64"):
        library.loaded()
    library.loaded.cache_clear()


@pytest.fixture(params=LEVELS, ids=lambda level: level.name)
def _level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Use the kernels of each level that this processor can run."""
    if not request.param.flags <= library._flags():
        pytest.skip(f"this processor is below {request.param.name}")
    monkeypatch.setattr(library, "_path", lambda: str(library_path(request.param)))
    library.loaded.cache_clear()
    for one in declared_kernels():
        monkeypatch.setattr(one, "_native", None)
    yield
    library.loaded.cache_clear()


@pytest.mark.usefixtures("_level")
def test_a_kernel_is_its_python_source():
    """The kernels use ints, tables cut out of larger ones, flags and several results."""
    data = np.frombuffer(Path("examples/log-dir/orders-0/00000000000000000000.log").read_bytes(),
                         np.uint8)  # fmt: skip
    found = []
    for scan, check in ((k.scan_headers, crc_ranges),
                        (k.scan_headers.function, crc_ranges.function)):  # fmt: skip
        wide = np.zeros((k.HEADER_FIELDS, 50), np.int64)
        table = wide[:, :20]
        count, _, _ = stopped = scan(data, 0, len(data), 1000, len(data), table)
        assert 2 < count <= 20
        starts = table[k.POSITION, :count] - 1000 + 21
        sums = np.zeros(count, np.int64)
        ends = starts - 21 + table[k.SIZE, :count]
        with np.errstate(over="ignore"):
            check(data, starts, ends, np.arange(count) > 1, sums)
        assert sums[:2].tolist() == table[k.CRC, :2].tolist()
        assert all(
            sums[2:] == [zlib.crc32(data[a:b]) for a, b in zip(starts[2:], ends[2:], strict=True)]
        )
        found.append((stopped, wide.tolist(), sums.tolist()))
    assert found[0] == found[1]


@pytest.mark.usefixtures("_level")
def test_checksums_side_by_side():
    """Ranges of any sizes and both kinds, three of which are summed together where they can be."""
    chance = random.Random(7)
    data = np.frombuffer(chance.randbytes(40_000), np.uint8)
    for count in (1, 2, 3, 4, 7, 40):
        sizes = [chance.choice((0, 1, 7, 8, 9, 100, 900)) for _ in range(count)]
        legacy = [chance.random() < 0.1 for _ in range(count)]
        ends = np.cumsum(sizes, dtype=np.int64)
        starts = ends - sizes
        wanted = [
            (zlib.crc32 if old else wheel.crc32c)(data[start:end].tobytes())
            for start, end, old in zip(starts, ends, legacy, strict=True)
        ]
        for check in (crc_ranges, crc_ranges.function):
            sums = np.zeros(count, np.int64)
            check(data, starts, ends, np.array(legacy), sums)
            assert sums.tolist() == wanted


@pytest.mark.parametrize("wrong", [np.zeros(3, np.int32), np.zeros((2, 2), np.int64),
                                   np.zeros(6, np.int64)[::2]])  # fmt: skip
def test_wrong_arrays_do_not_reach_native_code(wrong: np.ndarray):
    """Each call checks the type, dimensions and layout of the arrays."""
    with pytest.raises(AssertionError):
        k.list_offsets(wrong, np.zeros(4, np.int32))
