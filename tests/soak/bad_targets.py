"""Targets that break each promise, to test that the soak notices.

None breaks it in the warm-up of a worker, which would end each worker before its first input.
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

import numpy as np

from kafkalog.io.jit.native import Kernel
from tests.soak.target import Place, Target

if TYPE_CHECKING:
    from random import Random

    from tests.soak.real import Files


def nothing(_rng: Random) -> Files:
    return {"nothing": b"x"}


def behave(_files: Files, _rng: Random, _place: Place) -> None:
    """Do nothing wrong."""


def fail(_files: Files, rng: Random, _place: Place) -> None:
    """Raise a foreign exception for some inputs."""
    if rng.random() < 0.2:
        raise IndexError("list index out of range")


def crash(_files: Files, rng: Random, _place: Place) -> None:
    """Let a kernel read one byte before its array, or after it, for some inputs."""
    chance = rng.random()
    place = -1 if 0.1 < chance < 0.2 else 13 if 0.62 < chance < 0.7 else 0

    def read(address: int, _size: int, _results: object) -> int:
        ctypes.string_at(address + place, 1)
        return 0

    reader = Kernel(crash, ["bytes"], 0)
    reader._native = read
    reader(np.zeros(13, np.uint8))


def hang(_files: Files, rng: Random, _place: Place) -> None:
    """Never return for some inputs."""
    while rng.random() < 0.2:
        time.sleep(1000)


def eat(_files: Files, rng: Random, _place: Place) -> None:
    """Take more memory than an input may, for some inputs more than ever before."""
    if rng.random() < 0.1:
        eaten.append(b"x" * (150 << 20))


eaten: list[bytes] = []


TARGETS = (
    Target("behave", 1, nothing, behave),
    Target("fail", 1, nothing, fail),
    Target("crash", 1, nothing, crash),
    Target("hang", 1, nothing, hang),
    Target("eat", 1, nothing, eat),
)
