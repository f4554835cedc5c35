"""`export`, `verify` and `compact` on a cluster give the local result, whatever is killed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import batch, copy_tree, flip, record
from tests.checkout import ROOT
from tests.sampling import tries_everything
from tests.spark.cluster import running_processes
from tests.waiting import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.spark.cluster import Cluster
    from tests.spark.commands import CommandSession, Done

PARTITIONS = 6
PER_BATCH = 500
BATCHES = 120
PER_SEGMENT = 50
LATER_MS = "1700000600000"
COMPACT = ("--config", "cleanup.policy=compact", "--high-watermark", "end", "--apply", "--yes",
           "--now", LATER_MS)  # fmt: skip


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write some 60 MB, one batch damaged. A checksum does not cover the first offset."""
    place = tmp_path_factory.mktemp("cluster-jobs") / "logs"
    values = [f"{n:04}".encode() * 40 for n in range(PER_BATCH)]
    one = batch(0, [record(n, b"%d" % (n * 7919), value) for n, value in enumerate(values)])
    for partition in range(PARTITIONS):
        directory = place / f"orders-{partition}"
        directory.mkdir(parents=True)
        for first in range(0, BATCHES, PER_SEGMENT):
            numbers = range(first, min(first + PER_SEGMENT, BATCHES))
            log = b"".join((n * PER_BATCH).to_bytes(8, "big") + one[8:] for n in numbers)
            if (partition, first) == (5, PER_SEGMENT):
                log = flip(log, 8 * 5000)
            (directory / f"{first * PER_BATCH:020}.log").write_bytes(log)
    (place / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    return place


def quietly(done: Done) -> tuple[int, str]:
    """Return exit status and stdout; allow only notes on configs and a start on stderr."""
    status, stdout, stderr = done
    known = ("note: ", "warning: ", "× Offsets 25000 to 49999 are missing.", "╰─> ", "hint: ")
    assert all(line.startswith(known) for line in stderr.splitlines()), stderr
    return status, stdout


def rows_of(text: str, place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.replace(str(place), "").splitlines()]


def tree(place: Path) -> dict[str, bytes]:
    """Return all files but the lock, with the entries of checkpoints in sorted order."""
    return {
        str(path.relative_to(place)): (
            b"".join(sorted(path.read_bytes().splitlines(keepends=True)))
            if path.parent == place and path.name.endswith("-checkpoint")
            else path.read_bytes()
        )
        for path in sorted(place.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def task_seconds(cluster: Cluster, application: str) -> dict[int, float]:
    """Return for how long each process of an application's tasks has worked."""
    executors, running = cluster.executors(application), [*running_processes()]
    daemons = {pid for pid, parent, _ in running if parent in executors}
    found = {}
    for pid, parent, _ in running:
        if parent in daemons:
            with suppress(FileNotFoundError):  # it has ended meanwhile
                found[pid] = cpu_seconds(pid)
    return found


def test_verify(
    cluster: Cluster, commands: CommandSession, log_dir: Path, kafkalog: Callable[..., Any]
) -> None:
    """The same findings in the same order, in pieces.

    If everything is tried, an executor is killed; else `test_a_killed_executor` stands for that.
    """
    words = ("verify", "--level", "deep", "--format", "ndjson", log_dir)
    here = kafkalog(*words)
    before = task_seconds(cluster, commands.application)

    def at_work() -> int | None:
        now = task_seconds(cluster, commands.application)
        return next((pid for pid in now if now[pid] > before.get(pid, 0)), None)

    commands.start(log_dir, *words, "--spark", "local[*]")
    if tries_everything():
        cluster.kill_an_executor(task=commands.wait_for(at_work))
    status, stdout = quietly(commands.end())
    found = rows_of(stdout, log_dir)
    assert (status, here.status) == (1, 1)
    wanted = rows_of(here.stdout.decode(), log_dir)
    assert [row for row in found if row["type"] != "verify_summary"] == [
        row for row in wanted if row["type"] != "verify_summary"
    ]
    assert any(row.get("reference") == "batch-crc-mismatch" for row in found)


@dataclass(frozen=True)
class Job:
    """A command that writes.

    Attributes:
        words: its line, to be run on Spark.
        status: its exit status.
        is_begun: returns whether some of the work is done.
        is_done: returns whether the result is complete, byte for byte, with nothing else.
    """

    words: tuple[object, ...]
    status: int
    is_begun: Callable[[], bool]
    is_done: Callable[[], bool]


@pytest.fixture(params=["export", "compact"])
def job(
    request: pytest.FixtureRequest, log_dir: Path, tmp_path: Path, kafkalog: Callable[..., Any]
) -> Job:
    """Prepare a job and, without Spark, its expected result."""
    make = an_export if request.param == "export" else a_compaction
    return make(log_dir, tmp_path, kafkalog)


def an_export(log_dir: Path, place: Path, kafkalog: Callable[..., Any]) -> Job:
    """Prepare an export; it has begun when the first files exist."""
    words = ("export", log_dir, "--set", "split-size=4MiB", "--format", "ndjson", "--to")
    here, there = place / "here", place / "there"
    assert kafkalog(*words, here).status == 8

    def is_begun() -> bool:
        return len([*there.rglob("*.parquet")]) >= 2

    def is_done() -> bool:
        return data(there) == data(here) and tree(there).keys() == tree(here).keys()

    return Job((*words, there), 8, is_begun, is_done)


def data(lake: Path) -> dict[str, bytes]:
    """Return the files that hold rows."""
    return {name: content for name, content in tree(lake).items() if "topic=" in name}


def a_compaction(log_dir: Path, place: Path, kafkalog: Callable[..., Any]) -> Job:
    """Prepare a compaction; it has begun when the first new segments are staged."""
    here, there = place / "here", place / "there"
    shutil.copytree(log_dir, here)
    shutil.rmtree(here / "orders-5")  # a damaged partition is not compacted
    assert kafkalog("recover", here, "--apply", "--yes").status == 0
    copy_tree(here, there)
    assert kafkalog("compact", here, *COMPACT).status == 0
    assert tree(there) != tree(here)

    def is_begun() -> bool:
        return any(there.glob("*-delete/*"))

    def is_done() -> bool:
        return tree(there) == tree(here)

    return Job(("compact", there, *COMPACT), 0, is_begun, is_done)


@pytest.mark.sampled(2)
def test_a_killed_executor(
    cluster: Cluster, commands: CommandSession, job: Job, tmp_path: Path
) -> None:
    """The job continues: the same bytes in the end, and no litter."""
    commands.start(tmp_path, *job.words, "--spark", "local[*]")
    commands.wait_for(job.is_begun)
    cluster.kill_an_executor(commands.application)
    status, _ = quietly(commands.end())
    assert status == job.status
    assert job.is_done()


@pytest.mark.thorough("tests/spark/test_commands_on_a_cluster.py::test_a_killed_executor")
def test_a_killed_driver(
    cluster: Cluster, commands: CommandSession, job: Job, tmp_path: Path
) -> None:
    """Given again, the command completes the work it began."""
    kill_a_driver(cluster, commands, job.words, job.is_begun)
    assert not job.is_done()
    commands.start(tmp_path, *job.words, "--spark", "local[*]")
    status, _ = quietly(commands.end())
    assert status == job.status
    assert job.is_done()


def kill_a_driver(
    cluster: Cluster,
    others: CommandSession,
    words: Sequence[object],
    is_so: Callable[[], object],
) -> None:
    """Kill a command's driver in mid-job; its executors end when they notice."""
    conf = [text for item in cluster.conf.items() for text in ("--spark-conf", "=".join(item))]
    line = [sys.executable, "-m", "kafkalog_cli", *map(str, words), "--spark", cluster.master,
            *conf]  # fmt: skip
    driver = subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    while not is_so():
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.02)  # looking takes some of the processors that the job needs
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    until = time.monotonic() + 150  # on two busy processors it takes a minute
    while cluster.executors() != cluster.executors(others.application):
        assert time.monotonic() < until, [*running_processes()]
        time.sleep(0.05)
