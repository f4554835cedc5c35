"""`resurrect --to` that crashes, fails or is killed: no directory of that name, or a whole one."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.resurrection import ResurrectOptions
from kafkalog.change.resurrection.run import run_resurrection
from kafkalog.change.resurrection.sources import open_sources
from kafkalog.errors import DestinationExistsError, KafkaLogError, PartlyDoneError
from tests.crash.disk import Recorder, crashes, put
from tests.crash.test_faults import ERRORS, FAULTS, Fault
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
    from tests.crash.disk import Tree

REPEATED = 12
KILLS = 9 if tries_everything() else 2
TRIALS_MAX = 60
PARTIAL = "new.kafkalog-partial"
PROPERTIES = "out.properties"


def prepared(root: Path) -> Path:
    """A source; the new directory will be called `new`, next to the source."""
    make(root / "a", "t-0", log_of(5))
    write_metadata(root / "a", *topic("t", TOPIC_ID, 1))
    return root


def run(root: Path, observe: Callable[[Step], None] | None = None) -> None:
    options = ResurrectOptions(properties_out=str(root / PROPERTIES))
    run_resurrection(open_sources([root / "a"]), str(root / "new"), options, dry_run=False,
                     tell=None, progress=None, observe=observe)  # fmt: skip


def content(place: Path) -> dict[str, bytes | int]:
    """Return its files: bytes of logs and offset checkpoints, and sizes of the others."""
    found: dict[str, bytes | int] = {}
    for path in place.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found[str(path.relative_to(place))] = sized(path.name, data)
    return found


def sized(name: str, data: bytes) -> bytes | int:
    if name.endswith((".log", "index", "-offset-checkpoint", "partition.metadata")):
        return data
    has_paths = name in ("manifest.ndjson", "server.properties")
    return data.count(b"\n") if has_paths else len(data)


def content_of(tree: Tree, above: str = "") -> dict[str, bytes | int]:
    """Return the same for what a crash left."""
    found: dict[str, bytes | int] = {}
    for name, inner in tree.items():
        if isinstance(inner, dict):
            found |= content_of(inner, f"{above}{name}/")
        else:
            found[f"{above}{name}"] = sized(name, inner[0])
    return found


def require_ended(root: Path, whole: dict[str, bytes | int]) -> None:
    """Require that the directory is whole or that the same command makes it, without leftovers."""
    if (root / "new").exists():
        assert content(root / "new") == whole
        with pytest.raises(DestinationExistsError):
            run(root)
    else:
        (root / PROPERTIES).unlink(missing_ok=True)
        run(root)
        assert content(root / "new") == whole
        assert not (root / PARTIAL).exists()


def test_after_a_crash_it_is_whole_or_not_there(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Checks every state of the disk, and repeats the command from some of them."""
    root = prepared(tmp_path / "run")
    rng = random.Random(seed := new_seed())
    recorder = Recorder(root)
    run(root, recorder)
    whole = content(root / "new")
    trees = list(crashes(recorder, rng))
    found: Counter[str] = Counter()
    for how, tree in trees:
        new = tree.get("new")
        assert new is None or content_of(new) == whole, f"seed {seed}: {how}"
        found["nothing" if new is None else "whole"] += 1
    for _, tree in trees if tries_everything() else rng.sample(trees, REPEATED):
        again = put(tree, tmp_path / "again")
        require_ended(again, whole)
    tell(f"resurrect --to, seed {seed}: {len(recorder.steps)} steps, {dict(found)}")
    assert found["nothing"] > len(recorder.steps)
    assert found["whole"] > 0


def test_an_error_at_any_call_leaves_nothing_or_the_whole(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """A failure after the directory has its name exits with status 8."""
    run(prepared(tmp_path / "whole"))
    whole = content(tmp_path / "whole" / "new")
    rng = random.Random(seed := new_seed())
    failed: Counter[str] = Counter()
    number, calls = 0, 0
    while True:
        number += 1 if tries_everything() or not calls else rng.randint(1, 2 * calls // FAULTS)
        root = prepared(tmp_path / str(number))
        error = None
        with pytest.MonkeyPatch.context() as patch:
            most = number if calls else 1 << 30
            fault = Fault(patch, most, ERRORS[(seed + number) % len(ERRORS)])
            try:
                run(root)
            except KafkaLogError as raised:
                error = raised
        if not calls:
            calls, number = most - fault.left, 0
        elif fault.failed is None:
            break
        else:
            failed[f"{fault.failed}, {'none' if error is None else error.exit_code}"] += 1
            is_there = (root / "new").exists()
            assert is_there == (error is None or isinstance(error, PartlyDoneError)), (seed, number)
            require_ended(root, whole)
        shutil.rmtree(root)
    tell(f"resurrect --to: {failed.total()} of {calls} calls failed, seed {seed}: {dict(failed)}")
    assert failed.total() >= FAULTS // 2


def test_a_killed_command_leaves_nothing_or_the_whole(
    tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """SIGKILL comes at a random moment after the first write."""
    rng = random.Random(seed := new_seed())
    root = prepared(tmp_path / "whole")
    process = start(root)
    wait_for_a_change(process, root)
    began = time.monotonic()
    assert process.wait() == 0
    seconds = time.monotonic() - began
    whole = content(root / "new")
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
        found[str(process.wait())] += 1
        require_ended(root, whole)
    tell(f"kafkalog resurrect --to killed, seed {seed}: {dict(found)}")


def has_killed(found: Counter[str]) -> bool:
    """Return whether one process was killed before it ended; fail after too many tries."""
    assert found.total() < TRIALS_MAX
    return any(status.startswith("-9") for status in found)


def start(root: Path) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "kafkalog_cli", "resurrect", root / "a", "--to", root / "new"]
    line += ["--properties-out", root / PROPERTIES]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_a_change(process: subprocess.Popen[bytes], root: Path) -> None:
    """Wait until the command has begun to write, or has ended."""
    while process.poll() is None and not (root / PARTIAL).exists():
        time.sleep(0.0002)
