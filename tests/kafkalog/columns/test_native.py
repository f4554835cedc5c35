"""Kernels are compiled once, loaded without numba, and do what their Python source says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from kafkalog.columns import kernels as k
from kafkalog.jit import native

USE = """
import json, sys
import numpy as np
from kafkalog.columns import kernels as k
from kafkalog.jit import cache
cache.on_compile.append(lambda: print("compiling", file=sys.stderr))
sizes = np.array([3, -1, 4, 0], np.int64)
offsets, valid = np.empty(5, np.int32), np.empty(1, np.uint8)
found = k.binary_offsets(sizes, offsets, valid)
print(json.dumps([found, offsets.tolist(), int(valid[0]), "numba" in sys.modules]))
"""
ANSWER = [[7, 1], [0, 3, 3, 7, 7], 0b1101]


def use(home: Path | str) -> tuple[bool, bool]:
    """Call a kernel in a process of its own; whether it said it compiles, whether it took numba."""
    done = subprocess.run(
        [sys.executable, "-c", USE], check=True, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.getcwd(), "HOME": str(home)},
    )  # fmt: skip
    *found, has_numba = json.loads(done.stdout)
    assert found == ANSWER
    assert done.stderr in ("", "compiling\n")
    return bool(done.stderr), has_numba


def test_kept_ones_are_loaded(tmp_path: Path):
    """Without numba."""
    kept = native._cache_path()
    assert kept is not None
    copy = tmp_path / ".cache/kafkalog" / Path(kept).name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(Path(kept).read_bytes())
    assert use(tmp_path) == (False, False)


def test_a_damaged_file_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As after a loss of power: it is never run."""
    path = native._cache_path()
    assert path is not None
    whole = Path(path).read_bytes()
    copy = tmp_path / "copy"
    monkeypatch.setattr(native, "_cache_path", lambda: str(copy))
    for content, is_sound in (
        (whole, True), (b"", False), (whole[:100], False), (whole[:-1], False),
        (whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:], False), (b"[]\n", False),
        (b"\xff\n", False),
    ):  # fmt: skip
        copy.write_bytes(content)
        native._kept.cache_clear()
        assert bool(native._kept()) == is_sound
    native._kept.cache_clear()


def test_they_work_where_nothing_can_be_kept(tmp_path: Path):
    """A user without a home: compiled for this process, and nothing is left anywhere."""
    assert use("/proc/none") == (True, True)
    assert not list(tmp_path.iterdir())


def test_the_source_decides_the_key(monkeypatch: pytest.MonkeyPatch):
    """Another version never runs these kernels."""
    native._cache_path.cache_clear()
    before = native._cache_path()
    monkeypatch.setattr(native, "MODULES", ("columns.kernels",))
    native._cache_path.cache_clear()
    assert native._cache_path() != before
    native._cache_path.cache_clear()


def test_a_kernel_is_its_python_source():
    """Ints, tables cut out of larger ones, flags and several results."""
    data = np.frombuffer(Path("examples/log-dir/orders-0/00000000000000000000.log").read_bytes(),
                         np.uint8)  # fmt: skip
    found = []
    for scan, check in ((k.scan_headers, k.crc_ranges),
                        (k.scan_headers.function, k.crc_ranges.function)):  # fmt: skip
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


@pytest.mark.parametrize("wrong", [np.zeros(3, np.int32), np.zeros((2, 2), np.int64),
                                   np.zeros(6, np.int64)[::2]])  # fmt: skip
def test_wrong_arrays_do_not_reach_native_code(wrong: np.ndarray):
    """Their type, dimensions and layout are looked at with each call."""
    with pytest.raises(AssertionError):
        k.list_offsets(wrong, np.zeros(4, np.int32))
