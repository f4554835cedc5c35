"""The parent of the soak: gives slices to worker processes, watches them, counts.

A hanging worker is ended with SIGABRT, so that its stacks are in its log; a dead one is replaced.
In both cases its current input is a failure, and the rest of the slice goes on.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.checkout import ROOT
from tests.soak.worker import STATE, WARMING_UP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.soak.target import Target

MEMORY_MAX = 3 << 30
"""Bytes of data a worker may ask for: what is asked for beyond is a MemoryError, a failure."""

GROWTH_MAX = 96 << 20
"""Bytes by which one input may raise the peak of a worker's memory."""

DEADLINE_S = 30.0
"""So long an input may take; it takes milliseconds, but the machine may be busy."""

_SLICE_INPUTS = 500
_START_S = 180.0


@dataclass(frozen=True)
class Slice:
    """Some inputs of a target."""

    name: str
    seed: int
    first: int
    count: int


@dataclass(frozen=True)
class Failure:
    """An input that broke a promise."""

    name: str
    seed: int
    ordinal: int
    what: str

    @property
    def command(self) -> str:
        """Return the command that repeats it."""
        return (
            f"python -m tests.soak --only {self.name} --seed {self.seed} --first {self.ordinal} "
            "--inputs 1"
        )


@dataclass
class Report:
    """The results so far."""

    inputs: Counter[str] = field(default_factory=Counter)
    seconds: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    peak_bytes: int = 0


def slices(
    targets: Iterable[Target], inputs: int, seed: int, first: int = 0, size: int = _SLICE_INPUTS
) -> list[Slice]:
    """Share inputs out into slices, in an order that soaks all targets from the beginning."""
    targets = list(targets)
    total = sum(target.share for target in targets)
    found = []
    for target in targets:
        count = max(inputs * target.share // total, 1)
        pieces = [
            Slice(target.name, seed, first + start, min(size, count - start))
            for start in range(0, count, size)
        ]
        found += [(i / len(pieces), piece) for i, piece in enumerate(pieces)]
    return [piece for _, piece in sorted(found, key=lambda pair: pair[0])]


class Soak:
    """Slices on their way through worker processes.

    Args:
        pieces: the slices.
        workers: the number of processes.
        tell: called after each slice.
        targets: the module of the targets.
        deadline_s: the most seconds that an input may take.
    """

    def __init__(
        self,
        pieces: list[Slice],
        workers: int,
        tell: Callable[[Report], None] = lambda _: None,
        *,
        targets: str = "tests.soak.targets",
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._targets = targets
        self._deadline_s = deadline_s
        self.report = Report()
        self._pieces: queue.SimpleQueue[Slice] = queue.SimpleQueue()
        for piece in pieces:
            self._pieces.put(piece)
        self._workers = workers
        self._tell = tell
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def run(self) -> Report:
        """Run all slices; return the report."""
        with tempfile.TemporaryDirectory(prefix="kafkalog-soak-", dir=_fast_directory()) as top:
            threads = [
                threading.Thread(target=self._serve, args=(Path(top) / str(number),))
                for number in range(self._workers)
            ]
            try:
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            finally:
                self._stopped.set()
                for thread in threads:
                    thread.join()
        return self.report

    def _serve(self, top: Path) -> None:
        """Run one worker after another until no slice is left."""
        top.mkdir()
        process = _Process(top, self._targets, self._deadline_s)
        try:
            while not self._stopped.is_set():
                try:
                    piece = self._pieces.get_nowait()
                except queue.Empty:
                    return
                if not process.is_alive:
                    process.end()
                    process = _Process(top, self._targets, self._deadline_s)
                answer = process.ask(piece, self._stopped)
                self._note(piece, answer, process)
        finally:
            process.end()

    def _note(self, piece: Slice, answer: dict[str, Any] | None, process: _Process) -> None:
        with self._lock:
            report = self.report
            if answer is None and self._stopped.is_set():
                return
            if answer is None:
                ordinal = max(process.ordinal, piece.first)
                report.failures.append(Failure(piece.name, piece.seed, ordinal, process.last_words))
                done = ordinal + 1 - piece.first
                report.inputs[piece.name] += done
            else:
                done = answer["done"]
                report.inputs[piece.name] += done
                report.seconds[piece.name] += answer["seconds"]
                report.peak_bytes = max(report.peak_bytes, answer["peak_bytes"])
                report.failures += [
                    Failure(piece.name, piece.seed, one["ordinal"], one["what"])
                    for one in answer["failures"]
                ]
            if done < piece.count:
                rest = Slice(piece.name, piece.seed, piece.first + done, piece.count - done)
                self._pieces.put(rest)
            self._tell(report)


class _Process:
    """A worker process."""

    def __init__(self, top: Path, targets: str, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self.last_words = ""
        self.ordinal = -1
        self._state = top / "state"
        self._state.write_bytes(STATE.pack(-1, time.monotonic()))
        (top / "place").mkdir(exist_ok=True)
        self._log = (top / "log").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.soak.worker",
             "--targets", targets, "--state", self._state, "--place", top / "place",
             "--growth-max", str(GROWTH_MAX), "--memory-max", str(MEMORY_MAX)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, piece: Slice, stopped: threading.Event) -> dict[str, Any] | None:
        """Return the answer, or None if the worker hung or died; see `ordinal` and `last_words`."""
        assert self._process.stdin
        assert self._process.stdout
        question = json.dumps((piece.name, piece.seed, piece.first, piece.count))
        try:
            self._process.stdin.write(question.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._give_up("the process had died")
        started = time.monotonic()
        while not stopped.is_set():
            if select.select([self._process.stdout], [], [], 0.5)[0]:
                line = self._process.stdout.readline()
                if line:
                    found: dict[str, Any] = json.loads(line)
                    return found
                return self._give_up("the process died")
            ordinal, since = STATE.unpack(self._state.read_bytes())
            limit = _START_S if ordinal == -1 else self._deadline_s
            if time.monotonic() - max(since, started) > limit:
                return self._give_up(f"no answer within {limit:.0f} seconds")
        return None

    def _give_up(self, why: str) -> None:
        self.ordinal = STATE.unpack(self._state.read_bytes())[0]
        if self.ordinal == WARMING_UP:
            why += ", in the warm-up, not at the input named"
        if self.is_alive:
            self._process.send_signal(signal.SIGABRT)  # faulthandler writes the stacks
        status = self._process.wait()
        self._log.seek(0)
        log = self._log.read()[-6000:].decode("utf-8", "replace")
        self.last_words = f"{why}: status {status}\n{log}"

    def end(self) -> None:
        """End the process."""
        if self.is_alive:
            self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._log):
            if file:
                file.close()


def _fast_directory() -> str | None:
    """Return a directory on a file system in memory, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 # a fresh directory
