"""`--to NEW` that crashes, fails or is killed: no directory of that name, or a whole one."""

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
from kafkalog.change.resurrection.quorum import write_rescue
from kafkalog.change.resurrection.run import run_resurrection
from kafkalog.change.resurrection.sources import open_sources
from kafkalog.errors import DestinationExistsError, KafkaLogError, PartlyDoneError
from kafkalog.node.quorum.quorum import read_quorum
from kafkalog.node.quorum.rescue import plan_rescue
from kafkalog.node.targets import open_targets
from tests.builders import frames, write_log
from tests.crash.disk import Recorder, crashes, put
from tests.crash.test_faults import ERRORS, FAULTS, Fault
from tests.kafkalog.change.resurrection.test_resurrect import (
    TOPIC_ID,
    log_of,
    make,
    topic,
    write_metadata,
)
from tests.nodes import METADATA
from tests.quorums import epoch_batches, write_copy
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


class Maker:
    """A command that makes the directory `new`, next to its sources."""

    name: str
    words: tuple[str, ...]
    """Of its command line; `{}` stands for the directory with the sources."""
    copied: tuple[str, ...] = ("-offset-checkpoint",)
    """Ends of the names of other files that are as in the sources."""

    def prepare(self, root: Path) -> Path:
        """Write the sources; return their directory."""
        raise NotImplementedError

    def run(self, root: Path, observe: Callable[[Step], None] | None = None) -> None:
        raise NotImplementedError

    def sized(self, name: str, data: bytes) -> bytes | int:
        """Return what is the same of a file whenever it is made: its bytes, or its size."""
        is_same = name.endswith((".log", "index", *self.copied, "partition.metadata"))
        has_paths = name in ("manifest.ndjson", "server.properties")
        return data if is_same else data.count(b"\n") if has_paths else len(data)

    def start(self, root: Path) -> subprocess.Popen[bytes]:
        words = [word.format(root) for word in self.words]
        line = [sys.executable, "-m", "kafkalog_cli", *words, "--to", str(root / "new")]
        return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Resurrect(Maker):
    name = "resurrect"
    words = ("resurrect", "{}/a", "--properties-out", "{}/" + PROPERTIES)

    def prepare(self, root: Path) -> Path:
        make(root / "a", "t-0", log_of(5))
        write_metadata(root / "a", *topic("t", TOPIC_ID, 1))
        return root

    def run(self, root: Path, observe: Callable[[Step], None] | None = None) -> None:
        options = ResurrectOptions(properties_out=str(root / PROPERTIES))
        run_resurrection(open_sources([root / "a"]), str(root / "new"), options, dry_run=False,
                         tell=None, progress=None, observe=observe)  # fmt: skip


class Quorum(Maker):
    """Voters that moved: a log of two segments, and a snapshot."""

    name = "quorum"
    copied = ("checkpoint",)
    words = ("quorum", "{}/n1", "{}/n2", "--voters", "1@h1:9093,2@h2:9093")

    def prepare(self, root: Path) -> Path:
        batches = epoch_batches([(1, 20), (3, 45)], [1, 2])
        for node in (1, 2):
            log_dir = write_copy(root, node, batches[:30], [(20, 1)], epoch=3, voters=[1, 2])
            base = int.from_bytes(batches[30][:8], "big")
            write_log(log_dir / METADATA, *batches[30:], name=f"{base:020}")
        return root

    def run(self, root: Path, observe: Callable[[Step], None] | None = None) -> None:
        found = read_quorum(open_targets([str(root / "n1"), str(root / "n2")]))
        plan = plan_rescue(found, {1: ("h1", 9093), 2: ("h2", 9093)})
        write_rescue(found, plan, str(root / "new"), observe)

    def sized(self, name: str, data: bytes) -> bytes | int:
        """The last batch has the time, and the directory id of the run."""
        if name.endswith(".log"):
            at, _ = frames(data)[-1]
            return data[:at] + len(data).to_bytes(4, "big")
        return super().sized(name, data)


@pytest.fixture(params=[Resurrect(), Quorum()], ids=lambda maker: maker.name)
def maker(request: pytest.FixtureRequest) -> Maker:
    found: Maker = request.param
    return found


def content(maker: Maker, place: Path) -> dict[str, bytes | int]:
    """Return its files: the bytes of those that are the same whenever they are made."""
    found: dict[str, bytes | int] = {}
    for path in place.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found[str(path.relative_to(place))] = maker.sized(path.name, data)
    return found


def content_of(maker: Maker, tree: Tree, above: str = "") -> dict[str, bytes | int]:
    """Return the same for what a crash left."""
    found: dict[str, bytes | int] = {}
    for name, inner in tree.items():
        if isinstance(inner, dict):
            found |= content_of(maker, inner, f"{above}{name}/")
        else:
            found[f"{above}{name}"] = maker.sized(name, inner[0])
    return found


def require_ended(maker: Maker, root: Path, whole: dict[str, bytes | int]) -> None:
    """Require that the directory is whole or that the same command makes it, without leftovers."""
    if (root / "new").exists():
        assert content(maker, root / "new") == whole
        with pytest.raises(DestinationExistsError):
            maker.run(root)
    else:
        (root / PROPERTIES).unlink(missing_ok=True)
        maker.run(root)
        assert content(maker, root / "new") == whole
        assert not (root / PARTIAL).exists()


def test_after_a_crash_it_is_whole_or_not_there(
    maker: Maker, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Checks every state of the disk, and repeats the command from some of them."""
    root = maker.prepare(tmp_path / "run")
    rng = random.Random(seed := new_seed())
    recorder = Recorder(root)
    maker.run(root, recorder)
    whole = content(maker, root / "new")
    trees = list(crashes(recorder, rng))
    found: Counter[str] = Counter()
    for how, tree in trees:
        new = tree.get("new")
        assert new is None or content_of(maker, new) == whole, f"seed {seed}: {how}"
        found["nothing" if new is None else "whole"] += 1
    for _, tree in trees if tries_everything() else rng.sample(trees, REPEATED):
        again = put(tree, tmp_path / "again")
        require_ended(maker, again, whole)
    tell(f"{maker.name} --to, seed {seed}: {len(recorder.steps)} steps, {dict(found)}")
    assert found["nothing"] > len(recorder.steps)
    assert found["whole"] > 0


def test_an_error_at_any_call_leaves_nothing_or_the_whole(
    maker: Maker, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """A failure after the directory has its name exits with status 8."""
    maker.run(maker.prepare(tmp_path / "whole"))
    whole = content(maker, tmp_path / "whole" / "new")
    rng = random.Random(seed := new_seed())
    failed: Counter[str] = Counter()
    number, calls = 0, 0
    while True:
        number += 1 if tries_everything() or not calls else rng.randint(1, 2 * calls // FAULTS)
        root = maker.prepare(tmp_path / str(number))
        error = None
        with pytest.MonkeyPatch.context() as patch:
            most = number if calls else 1 << 30
            fault = Fault(patch, most, ERRORS[(seed + number) % len(ERRORS)])
            try:
                maker.run(root)
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
            require_ended(maker, root, whole)
        shutil.rmtree(root)
    tell(
        f"{maker.name} --to: {failed.total()} of {calls} calls failed, seed {seed}: {dict(failed)}"
    )
    assert failed.total() >= FAULTS // 2


def test_a_killed_command_leaves_nothing_or_the_whole(
    maker: Maker, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """SIGKILL comes at a random moment after the first write."""
    rng = random.Random(seed := new_seed())
    root = maker.prepare(tmp_path / "whole")
    process = maker.start(root)
    wait_for_a_change(process, root)
    began = time.monotonic()
    assert process.wait() == 0
    seconds = time.monotonic() - began
    whole = content(maker, root / "new")
    found: Counter[str] = Counter()
    for number in count():
        if number >= KILLS and has_killed(found):
            break
        root = maker.prepare(tmp_path / str(number))
        process = maker.start(root)
        wait_for_a_change(process, root)
        try:
            process.wait(seconds * rng.random())
            seconds /= 2  # it had ended already
        except subprocess.TimeoutExpired:
            process.kill()
        found[str(process.wait())] += 1
        require_ended(maker, root, whole)
    tell(f"kafkalog {maker.name} --to killed, seed {seed}: {dict(found)}")


def has_killed(found: Counter[str]) -> bool:
    """Return whether one process was killed before it ended; fail after too many tries."""
    assert found.total() < TRIALS_MAX
    return any(status.startswith("-9") for status in found)


def wait_for_a_change(process: subprocess.Popen[bytes], root: Path) -> None:
    """Wait until the command has begun to write, or has ended."""
    while process.poll() is None and not (root / PARTIAL).exists():
        time.sleep(0.0002)
