"""Whole processes measured: wall time, CPU time, largest memory, and what they print.

This process stays small on purpose: the kernel counts the memory of the parent, as it was when the
child was started, into the largest memory of the child.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

SMALL_OUTPUT_BYTES = 1_000_000
SHORT_SECONDS = 5.0
LONG_SECONDS = 20.0
RUNS_LONG_MAX = 3
_CHUNK = 1 << 20
_GRACE_S = 10.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class FailedError(Exception):
    """A measured command did not end well; the message holds its words."""


@dataclass(frozen=True)
class Figures:
    """One process from start to end, or medians of several; the peak is the largest.

    Attributes:
        inside_s: what the process itself says that its work took; None: it was not asked.
        alone_wall_s, alone_cpu_s: the same work on one processor; see `benchmarks.cores`.
        gil_share: the part of `wall_s` with the GIL held.
        codec_cpu_s: what the codec takes alone.
    """

    wall_s: float
    cpu_s: float
    peak_mb: float
    inside_s: float | None = None
    alone_wall_s: float | None = None
    alone_cpu_s: float | None = None
    gil_share: float | None = None
    codec_cpu_s: float | None = None


@dataclass(frozen=True)
class Run(Figures):
    """One process, and the status that it ended with."""

    status: int = 0


@dataclass(frozen=True)
class Pair:
    """A command, and the one it is compared with."""

    ours: Figures
    theirs: Figures | None
    same_output: bool | None
    """None: not compared."""


def exit_on_signals() -> None:
    """Exit on SIGTERM and SIGINT as by `sys.exit`, so that what was started is ended first."""
    for number in _SIGNALS:
        signal.signal(number, lambda number, _: sys.exit(128 + number))


@contextmanager
def _signals_later() -> Iterator[None]:
    """Signals that come in the block count after it: what it starts is known then."""
    seen: list[int] = []
    before = {one: signal.signal(one, lambda number, _: seen.append(number)) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        for number in seen:
            os.kill(os.getpid(), number)


def end_group(process: subprocess.Popen[Any]) -> None:
    """End a process that leads a group, and all that it started in it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(_GRACE_S)


@contextmanager
def on_cpus(count: int) -> Iterator[None]:
    """Processes started in here are bound to so many processors."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def run(
    command: list[str],
    cpus: int,
    read: Callable[[bytes], object] | None = None,
    *,
    statuses: Collection[int] | None = (0,),
) -> Run:
    """Run a command from start to end, in a group of processes that ends with an exception here.

    Args:
        command: what to run.
        cpus: on how many processors.
        read: is given what the command prints, which slows the command down where that is much;
            None: the output is thrown away.
        statuses: those of success; None for any.

    Raises:
        FailedError: the command ended with another status.
    """
    stdout = subprocess.PIPE if read else subprocess.DEVNULL
    with tempfile.TemporaryFile() as errors:
        process = None
        try:
            with _signals_later(), on_cpus(cpus):
                started = time.perf_counter()
                process = subprocess.Popen(
                    command, stdout=stdout, stderr=errors, start_new_session=True
                )
            if process.stdout and read:
                with process.stdout as pipe:
                    while chunk := pipe.read(_CHUNK):
                        read(chunk)
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:  # raised again, so that even Ctrl-C leaves no process behind
            if process is not None:
                end_group(process)
            raise
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if statuses is not None and process.returncode not in statuses:
            errors.seek(0)
            said = errors.read().decode(errors="replace")
            raise FailedError(f"{' '.join(command)}\nstatus {process.returncode}: {said}")
    cpu, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6
    return Run(wall, cpu, peak, status=process.returncode)


def measure(
    commands: list[list[str]],
    cpus: int,
    runs: int,
    *,
    compare: bool,
    prepare: Callable[[], None] | None = None,
    tells_seconds: bool = False,
    tells_figures: bool = False,
    statuses: Collection[int] = (0,),
) -> Pair:
    """One or two commands in turn: a first run each, then as many as are worth the time.

    Args:
        commands: ours, and what it is compared with.
        cpus: on how many processors.
        runs: how many at most after the first; 0: the first is the one that counts.
        compare: whether the first run is also for comparing what the two print.
        prepare: called before each run.
        tells_seconds: whether the commands print JSON with the `seconds` that their work took.
        tells_figures: whether they print JSON with the figures of another process, as of `Run`.
        statuses: those of success.

    Raises:
        FailedError: a command ended with another status.
    """

    def once(command: list[str], read: Callable[[bytes], object] | None = None) -> Run:
        if prepare is not None:
            prepare()
        if not (tells_seconds or tells_figures):
            return run(command, cpus, read, statuses=statuses)
        said: list[bytes] = []
        done = run(command, cpus, said.append, statuses=statuses)
        told = json.loads(b"".join(said))
        return replace(done, **told) if tells_figures else replace(done, inside_s=told["seconds"])

    digests = [hashlib.sha256() for _ in commands]
    sizes = [0 for _ in commands]
    first = []
    for ordinal, command in enumerate(commands):

        def read(chunk: bytes, ordinal: int = ordinal) -> None:
            digests[ordinal].update(chunk)
            sizes[ordinal] += len(chunk)

        first.append(once(command, read if compare else None))
    # Little was read, if any: the first run was as good as any other.
    is_fair = max(sizes) < SMALL_OUTPUT_BYTES
    counts = [_runs_worth(each.wall_s, runs, is_fair=is_fair) for each in first]
    seen: list[list[Run]] = [[] for _ in commands]
    for number in range(max(counts)):
        for ordinal, command in enumerate(commands):
            if number < counts[ordinal]:
                seen[ordinal].append(once(command))
    figures = [_medians(each or [alone]) for each, alone in zip(seen, first, strict=True)]
    same = len({digest.digest() for digest in digests}) == 1 if compare else None
    return Pair(figures[0], figures[1] if len(figures) > 1 else None, same)


def _runs_worth(seconds: float, runs: int, *, is_fair: bool) -> int:
    if seconds <= SHORT_SECONDS:
        return runs
    if seconds <= LONG_SECONDS:
        return min(runs, RUNS_LONG_MAX)
    return 0 if is_fair else min(runs, 1)


def _medians(seen: list[Run]) -> Figures:
    found: dict[str, Any] = {}
    for field in fields(Figures):
        values = [getattr(each, field.name) for each in seen]
        middle = max if field.name == "peak_mb" else statistics.median
        found[field.name] = None if None in values else middle(values)
    return Figures(**found)
