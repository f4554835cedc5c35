"""One process that soaks: it reads slices of inputs from stdin and answers each with a JSON line.

The number of the current input is in a small mapped file, so that the parent knows it if this
process hangs or dies.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import mmap
import os
import re
import resource
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.soak.target import Target

STATE = struct.Struct("=qd")
"""Ordinal of the input that is being worked on, -1 for none, and when it began (monotonic)."""

WARMING_UP = -2
"""The ordinal that stands for all inputs of the warm-up."""

_WARM_UP_SEED = -1
_WARM_UPS = 12
_FAILURES_MAX = 5


class Worker:
    """The targets and their limits."""

    def __init__(self, targets: str, state: Path, place: Path, growth_max: int) -> None:
        from tests.soak.guard import guard_kernels
        from tests.soak.target import Place

        found: tuple[Target, ...] = importlib.import_module(targets).TARGETS
        self._targets = {target.name: target for target in found}
        self._place = Place(place)
        self._growth_max = growth_max
        self._warm: set[str] = set()
        with state.open("r+b") as file:
            self._state = mmap.mmap(file.fileno(), STATE.size)
        guard_kernels()

    def soak(self, name: str, seed: int, first: int, count: int) -> dict[str, Any]:
        """Soak a slice; return its duration and the failed inputs."""
        self._warm_up(name)
        started = time.monotonic()
        failures: list[dict[str, Any]] = []
        done = 0
        for ordinal in range(first, first + count):
            failure = self._one(name, seed, ordinal)
            done += 1
            if failure is not None:
                failures.append({"ordinal": ordinal, "what": failure})
                if len(failures) == _FAILURES_MAX:
                    break
        STATE.pack_into(self._state, 0, -1, time.monotonic())
        return {"done": done, "seconds": time.monotonic() - started, "failures": failures,
                "peak_bytes": peak_bytes()}  # fmt: skip

    def _one(self, name: str, seed: int, ordinal: int) -> str | None:
        target = self._targets[name]
        shown = WARMING_UP if seed == _WARM_UP_SEED else ordinal
        STATE.pack_into(self._state, 0, shown, time.monotonic())
        files, rng = target.input(seed, ordinal)
        before = peak_bytes()
        try:
            target.run(files, rng, self._place)
        except Exception:  # noqa: BLE001 # whatever it is, it is not what was promised
            return traceback.format_exc(limit=-12)
        grown = peak_bytes() - before
        return f"took {grown >> 20} MiB of memory" if grown > self._growth_max else None

    def _warm_up(self, name: str) -> None:
        """Load lazy modules early, so that they do not count as memory of an input."""
        if name not in self._warm:
            self._warm.add(name)
            for ordinal in range(_WARM_UPS):
                self._one(name, _WARM_UP_SEED, ordinal)


def peak_bytes() -> int:
    """Return the peak memory of this process since its program began."""
    status = Path("/proc/self/status").read_text()
    [kilobytes] = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) << 10


def main() -> None:
    """Process slices until stdin ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--targets", required=True, help="the module they are in")
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--growth-max", type=int, required=True)
    parser.add_argument("--memory-max", type=int, required=True)
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # nothing that is soaked can talk to the parent
    faulthandler.enable()
    worker = Worker(arguments.targets, arguments.state, arguments.place, arguments.growth_max)
    resource.setrlimit(resource.RLIMIT_DATA, (arguments.memory_max,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        print(json.dumps(worker.soak(*json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
