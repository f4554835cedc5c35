"""`resurrect --apply` that crashes, fails or is killed: the old log directory, the new or none.

"None" means that no broker starts on it, since it lacks `meta.properties`. From there `undo`
restores every byte, and the same command completes the run.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.journal import undo
from kafkalog.change.resurrection import ResurrectOptions
from kafkalog.change.resurrection.in_place import run_in_place
from kafkalog.errors import DestinationExistsError, KafkaLogError, PartlyDoneError
from tests.crash.disk import Recorder, crashes
from tests.crash.test_faults import ERRORS, FAULTS, Fault
from tests.crash.test_new_directories import has_killed
from tests.kafkalog.change.resurrection.test_into import files
from tests.kafkalog.change.resurrection.test_resurrect import (
    TOPIC_ID,
    log_of,
    make,
    topic,
    write_metadata,
)
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafkalog.io.storage import Step

MARK = ".kafka_cleanshutdown"
OPTIONS = ResurrectOptions(cluster_id="N" * 21 + "A")
KILLS = 9 if tries_everything() else 2


def prepared(root: Path) -> Path:
    """A log directory with a metadata log; the topic id of one partition is unknown."""
    log_dir = root / "d"
    make(log_dir, "t-0", log_of(5, epoch=1))
    make(log_dir, "u-0", log_of(3), topic_id=None)
    write_metadata(log_dir, *topic("t", TOPIC_ID, 1))
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    (log_dir / MARK).write_text('{"version":0,"brokerEpoch":7}')
    (log_dir / ".lock").touch()
    return root


def run(root: Path, observe: Callable[[Step], None] | None = None) -> None:
    run_in_place(str(root / "d"), OPTIONS, backup=str(root / "backup"), dry_run=False, tell=None,
                 progress=None, observe=observe)  # fmt: skip


def kind_of(found: dict[str, bytes], old: dict[str, bytes], new: set[str]) -> str:
    """Return what a broker would find: the old log directory, the new one, or none."""
    if found == old:
        return "old"
    if "meta.properties" not in found:
        return "none"
    assert found.keys() == new
    assert found["meta.properties"] != old["meta.properties"]
    assert all(found[name] == old[name] for name in old if name.endswith(".log") and name in new)
    return "new"


def new_names(root: Path) -> set[str]:
    run(prepared(root))
    return set(files(root / "d"))


def require_ended(root: Path, old: dict[str, bytes], new: set[str], *, by_undo: bool) -> str:
    """Require that `undo` restores the directory, or that a second run completes it."""
    kind = kind_of(files(root / "d"), old, new)
    if by_undo and kind != "old":
        undo(str(root / "backup"), in_place=True)
        found = files(root / "d")
        if MARK not in found:  # only a second undo after the note that it is back loses it
            found[MARK] = old[MARK]
        assert found == old
    elif kind == "new":
        with pytest.raises(DestinationExistsError, match="finished"):
            run(root)
    else:
        run(root)
        assert kind_of(files(root / "d"), old, new) == "new"
    return kind


def test_after_a_crash_no_broker_starts_on_a_half(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """A broker finds the old log directory, the new one or none, in every state of the disk."""
    root = prepared(tmp_path / "run")
    old = files(root / "d")
    rng = random.Random(seed := new_seed())
    recorder = Recorder(root / "d")
    run(root, recorder)
    new = set(files(root / "d"))
    found: Counter[str] = Counter()
    for _, tree in crashes(recorder, rng):
        content = {name: one for name, one in bytes_of(tree).items() if not name.endswith(".tmp")}
        found[kind_of(content, old, new)] += 1
    tell(f"resurrect --apply, seed {seed}: {len(recorder.steps)} steps, {dict(found)}")
    assert found.keys() == {"old", "none", "new"}


def bytes_of(tree: dict[str, object], above: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, inner in tree.items():
        if isinstance(inner, dict):
            found |= bytes_of(inner, f"{above}{name}/")
        elif name != ".lock":
            assert isinstance(inner, tuple)
            found[f"{above}{name}"] = inner[0]
    return found


def test_an_error_at_any_call_can_be_gone_back_or_on(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """An error after the first change exits with status 8."""
    new = new_names(tmp_path / "whole")
    old = files(prepared(tmp_path / "old") / "d")
    rng = random.Random(seed := new_seed())
    counted = prepared(tmp_path / "counted")
    with pytest.MonkeyPatch.context() as patch:
        fault = Fault(patch, most := 1 << 30, errno.EIO)
        run(counted)
    calls = most - fault.left
    failed: Counter[str] = Counter()
    number = 0
    while True:
        number += 1 if tries_everything() else rng.randint(1, 2 * calls // FAULTS)
        root = prepared(tmp_path / "failing")
        error = None
        with pytest.MonkeyPatch.context() as patch:
            fault = Fault(patch, number, ERRORS[(seed + number) % len(ERRORS)])
            try:
                run(root)
            except KafkaLogError as raised:
                error = raised
        if fault.failed is None:
            break
        kind = require_ended(root, old, new, by_undo=number % 2 == 0)
        assert (kind == "none") <= isinstance(error, PartlyDoneError), (seed, number, error)
        failed[f"{fault.failed}, {kind}, {'none' if error is None else error.exit_code}"] += 1
        shutil.rmtree(root)
    tell(f"resurrect --apply: {failed.total()} of {calls} calls failed, seed {seed}: "
         f"{dict(failed)}")  # fmt: skip
    assert failed.total() >= FAULTS // 2


def test_a_killed_command_can_be_gone_back_or_on(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """SIGKILL comes at a random moment after the first write."""
    rng = random.Random(seed := new_seed())
    old = files(prepared(tmp_path / "old") / "d")
    root = prepared(tmp_path / "whole")
    process = start(root)
    wait_for_a_change(process, root)
    began = time.monotonic()
    assert process.wait() == 0
    seconds = time.monotonic() - began
    new = set(files(root / "d"))
    found: Counter[str] = Counter()
    for number in count():
        if number >= KILLS and has_killed(found):
            break
        root = prepared(tmp_path / str(number))
        process = start(root)
        wait_for_a_change(process, root)
        try:
            process.wait(seconds * rng.random())
            seconds /= 2  # it had ended already
        except subprocess.TimeoutExpired:
            process.kill()
        status = process.wait()
        found[f"{status}, {require_ended(root, old, new, by_undo=number % 2 == 0)}"] += 1
    tell(f"kafkalog resurrect --apply killed, seed {seed}: {dict(found)}")


def start(root: Path) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "kafkalog_cli", "resurrect", root / "d", "--apply", "--yes"]
    line += ["--backup", root / "backup", "--cluster-id", OPTIONS.cluster_id]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_a_change(process: subprocess.Popen[bytes], root: Path) -> None:
    """Wait until the command has begun to change the log directory, or has ended."""
    before = os.stat(root / "d").st_mtime_ns
    while process.poll() is None and os.stat(root / "d").st_mtime_ns == before:
        time.sleep(0.0002)
