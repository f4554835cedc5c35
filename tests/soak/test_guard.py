"""What the guard of kernels notices; `test_soak.py` has those that step over an end of an array."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kafkalog.io.jit.native import Kernel
from kafkalog.log.columns import kernels
from tests.soak import guard

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guard the calls in this test alone."""
    monkeypatch.setattr(Kernel, "__call__", guard._guarded_call)


def kernel(arguments: str, native: Callable[..., None], results: int = 0) -> Kernel:
    """Return a kernel whose native code is a Python function of addresses and sizes."""

    def call(*words: Any) -> int:
        native(*words)
        return 0

    made = Kernel(kernel, arguments.split(), results)
    made._native = call
    return made


def put(address: int, value: int) -> None:
    ctypes.memset(address, value, 1)


def test_a_kernel_does_what_it_does_elsewhere():
    """Results and what is written arrive, also in a table cut out of a larger one."""
    sizes = np.array([3, -1, 4, 0], np.int64)
    offsets, valid = np.empty(5, np.int32), np.empty(1, np.uint8)
    assert kernels.binary_offsets(sizes, offsets, valid) == (7, 1)
    assert (offsets.tolist(), valid[0]) == ([0, 3, 3, 7, 7], 0b1101)

    def fill(address: int, rows: int, columns: int, step: int, *_: object) -> None:
        for row in range(rows):
            cells = (ctypes.c_int64 * columns).from_address(address + 8 * row * step)
            cells[:] = [row] * columns

    wide = np.full((3, 5), 7, np.int64)
    kernel("table", fill)(wide[:, 1:3])
    assert wide.tolist() == [[7, row, row, 7, 7] for row in range(3)]


def test_arrays_that_share_memory_share_it_there():
    """A kernel that reads through one what it wrote through the other finds it."""
    found = []

    def copy(first: int, _n: int, second: int, _m: int, *_: object) -> None:
        put(first + 2, 9)
        found.append(ctypes.string_at(second, 1))

    data = np.zeros(6, np.uint8)
    kernel("bytes bytes", copy)(data[:4], data[2:])
    assert found == [b"\x09"] * 2
    assert data.tolist() == [0, 0, 9, 0, 0, 0]


@pytest.mark.parametrize("step", [1, 3, 4 * 8])
def test_what_lies_between_rows_is_not_written(step: int):
    """Nor does it write behind an array that begins where memory begins."""

    def spoil(address: int, *_: object) -> None:
        put(address + 2 * 8 + step, 1)

    with pytest.raises(AssertionError, match="outside of its arrays"):
        kernel("table", spoil)(np.zeros((2, 4), np.int64)[:, :2])


def test_what_may_only_be_read_is_not_written():
    """Such as bytes of a file that is mapped."""
    data = np.frombuffer(b"constant", np.uint8)
    with pytest.raises(AssertionError, match="outside of its arrays"):
        kernel("bytes", lambda address, *_: put(address, 1))(data)


def test_a_result_does_not_depend_on_what_is_around():
    """The two calls, before one end of memory and after the other, are compared."""
    numbers = iter((1, 2))

    def wander(_address: int, _size: int, results: Any) -> None:
        results[0] = next(numbers)

    with pytest.raises(AssertionError):
        kernel("bytes", wander, 1)(np.zeros(3, np.uint8))


def test_empty_arrays_have_a_place():
    """Their address is not read, and differs from that of no other array."""
    seen = []
    kernel("bytes table", lambda *words: seen.append(words[:-1]))(
        np.zeros(0, np.uint8), np.zeros((2, 0), np.int64)
    )
    assert [(n, rows, columns) for _, n, _, rows, columns, _ in seen] == [(0, 2, 0)] * 2


def test_scratch_may_hold_addresses():
    """Which differ between the two calls; in any other array that is a fault."""

    def note(address: int, _size: int, _results: object) -> None:
        ctypes.c_int64.from_address(address).value = address

    made = kernel("ints", note)
    made.function = lambda scratch: scratch
    made(np.zeros(1, np.int64))
    made.function = lambda data: data
    with pytest.raises(AssertionError, match="data"):
        made(np.zeros(1, np.int64))
