"""Disks that fill up and fail, and processes that are killed: the old log or the new one, whole."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from kafkalog.errors import KafkaLogError
from kafkalog.io.paths.retry import tried
from kafkalog.node.recovery import StartMode
from tests.crash.commands import COMMANDS, FAILING, KILLED, Command, run_undo
from tests.crash.served import copy_and_start, mode_of
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.io.storage import Step
    from tests.crash.served import Served

CALLS = (
    "chmod", "copy_file_range", "fdopen", "fsync", "ftruncate", "link", "mkdir", "open", "pwrite",
    "rename", "rmdir", "unlink", "utime",
)  # fmt: skip
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)
KILLS = 2  # 12 where everything is tried
KILL_TRIALS_MAX = 24  # each that comes too late halves the time of the next
FAULTS = 8  # about, of all calls


class FullFile:
    """A file on a full disk, which accepts no byte."""

    def __init__(self, file: BinaryIO, error: OSError) -> None:
        self._file, self._error = file, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> FullFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, _data: bytes) -> int:
        raise self._error


class Fault:
    """Makes one call of `kafkalog.io.storage` to the system fail, chosen by its number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> None:
        self.left = number
        self._code = code
        self.failed: str | None = None
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            frame = sys._getframe(1)
            if frame.f_globals["__name__"] == tried.__module__ and frame.f_back is not None:
                frame = frame.f_back
            if not frame.f_globals["__name__"].startswith("kafkalog.io.storage"):
                return call(*args, **options)
            self.left -= 1
            if self.left:
                return call(*args, **options)
            self.failed = name
            error = OSError(self._code, os.strerror(self._code))
            if name == "fdopen":
                return FullFile(call(*args, **options), error)
            raise error

        return wrapped


def logs_of(command: Command, corpus_dir: Path, root: Path) -> list[dict[str, Served]]:
    """Return the log before all, the old log and the new one."""
    first = copy_and_start(command.fresh(corpus_dir, root / "fresh"), root / "scratch" / "log")
    log_dir = command.ready(corpus_dir, root)
    old = copy_and_start(log_dir, root / "scratch" / "log")
    command.run(root, None)
    return [first, old, copy_and_start(log_dir, root / "scratch" / "log")]


def calls_of(command: Command, corpus_dir: Path, root: Path) -> int:
    """Count the command's calls to the system."""
    command.ready(corpus_dir, root / "counted")
    most = 1 << 30
    with pytest.MonkeyPatch.context() as patch:
        fault = Fault(patch, most, errno.EIO)
        command.run(root / "counted", None)
    return most - fault.left


@pytest.mark.parametrize("command", FAILING, ids=lambda command: command.name)
def test_an_error_at_any_call_is_told_and_leaves_a_whole_log(
    command: Command, corpus_dir: Path, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Each call to the system fails in turn; a command that can be repeated then succeeds.

    The errors take turns too, and the seed chooses the first. A sample has a third of the commands;
    `test_a_killed_process_leaves_a_whole_log` kills another third.
    """
    seed = new_seed()
    logs = logs_of(command, corpus_dir, tmp_path / "whole")
    failed: Counter[str] = Counter()
    calls = calls_of(command, corpus_dir, tmp_path)
    number, step = 0, 1 if tries_everything() else max(1, calls // FAULTS)
    rng = random.Random(seed)
    while True:
        number += rng.randint(1, 2 * step - 1)
        root = tmp_path / "failing"
        shutil.rmtree(root, ignore_errors=True)
        log_dir = command.ready(corpus_dir, root)
        with pytest.MonkeyPatch.context() as patch:
            fault = Fault(patch, number, ERRORS[(seed + number) % len(ERRORS)])
            with suppress(KafkaLogError):
                command.run(root, None)
        if fault.failed is None:
            break
        failed[fault.failed] += 1
        got = copy_and_start(log_dir, tmp_path / "scratch" / "log")
        assert command.accepts(got, logs), f"seed {seed}, call {number}, {fault.failed}"
        if command.can_be_repeated:
            command.run(root, None)
            got = copy_and_start(log_dir, tmp_path / "scratch" / "log")
            assert got == logs[-1], f"seed {seed}, call {number}, {fault.failed}, then again"
    tell(f"{command.name}: {failed.total()} calls failed, seed {seed}: {dict(failed)}")
    assert failed.total() >= FAULTS // 2


@pytest.mark.parametrize("command", KILLED, ids=lambda command: command.name)
def test_a_killed_process_leaves_a_whole_log(
    command: Command, corpus_dir: Path, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """SIGKILL comes at a random moment of the command's run."""
    seed = new_seed()
    rng = random.Random(seed)
    began = time.monotonic()
    logs = logs_of(command, corpus_dir, tmp_path / "whole")
    seconds = (time.monotonic() - began) / 2
    found: Counter[str] = Counter()
    kills = 6 * KILLS if tries_everything() else KILLS
    for number in range(KILL_TRIALS_MAX):
        if number >= kills and found["killed"]:
            break
        root = tmp_path / str(number)
        log_dir = command.ready(corpus_dir, root)
        if kill(lambda root=root: command.run(root, None), rng.random() * seconds):
            found["killed"] += 1
        else:
            seconds /= 2  # it had ended already
        got = copy_and_start(log_dir, root / "scratch" / "log")
        assert command.accepts(got, logs), f"seed {seed}, kill {number}"
        found["new" if got == logs[-1] else "old"] += 1
        if command.can_be_repeated:
            command.run(root, None)
            assert ends_as_new(command, root, tmp_path / "whole"), f"seed {seed}, kill {number}"
    tell(f"{command.name} killed, seed {seed}: {dict(found)}")
    assert found["killed"]


def ends_as_new(command: Command, root: Path, whole: Path) -> bool:
    """Check whether a log is the new one after a second run.

    An undo may stop after it notes that the mark of a clean shutdown is back, and before it
    restores the mark. Then the mark stays lost, since it must not come back twice. The only effect
    is that the next start scans the log.
    """
    log_dir, scratch = root / "log", root / "scratch" / "log"
    lost_mark = command.run is run_undo and mode_of(log_dir) != mode_of(whole / "log")
    mode = StartMode.UNCLEAN if lost_mark else None
    return copy_and_start(log_dir, scratch, mode) == copy_and_start(whole / "log", scratch, mode)


def test_an_undo_that_stops_at_any_of_its_last_steps_ends_when_it_is_repeated(
    corpus_dir: Path, tmp_path: Path
) -> None:
    """Only a stop right after the note about the mark of a clean shutdown loses the mark."""
    command = next(one for one in COMMANDS if one.name == "undo-of-recover-offset_overflow_split")
    steps: list[Step] = []
    command.ready(corpus_dir, tmp_path / "whole")
    command.run(tmp_path / "whole", steps.append)
    lost = 0
    for number in range(len(steps) - 8, len(steps)):
        root = tmp_path / str(number)
        command.ready(corpus_dir, root)
        with suppress(StopIteration):
            command.run(root, stop_after(number))
        command.run(root, None)
        assert ends_as_new(command, root, tmp_path / "whole"), number
        lost += mode_of(root / "log") != mode_of(tmp_path / "whole" / "log")
    assert lost == 1


def stop_after(number: int) -> Callable[[Step], None]:
    """Return an observer that lets this number of steps pass and stops the run at the next."""
    left = iter(range(number))

    def observe(_step: Step) -> None:
        next(left)

    return observe


def kill(act: Callable[[], None], after_seconds: float) -> bool:
    """Do something in another process and kill it; return whether it was still running."""
    process = os.fork()
    if not process:
        try:
            act()
        finally:
            os._exit(0)
    time.sleep(after_seconds)
    os.kill(process, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(process, 0)[1])
