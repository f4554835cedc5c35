"""`compact` on Spark: byte for byte what one process does, whichever process is killed."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from formats.file_names import staging_name
from kafkalog.change.compaction import CompactionRequest, find_candidate
from kafkalog.files.log_dir import open_partition
from kafkalog.node.configs import ConfigSources
from kafkalog.spark.engine import SparkEngine
from tests.builders import BASE_TIME
from tests.conftest import scenario_names
from tests.kafkalog.change.compaction.generated import Generator
from tests.kafkalog.change.compaction.oracle import PARTITION, cleanings
from tests.kafkalog.change.compaction.twins import by_engine, in_one_process, tree
from tests.sampling import sampled, tries_everything
from tests.spark.cluster import QUICK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafkalog.change.compaction import Candidate
    from tests.conftest import Result

SEED = 20240607
LATER_MS = BASE_TIME + 3_600_000
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "20000"}
QUICKLY = [text for item in QUICK.items() for text in ("--spark-conf", "=".join(item))]
REQUEST = CompactionRequest(LATER_MS, high_watermark="end", old_formats=True)


def find(log_dir: Path) -> list[Candidate]:
    """Return all partitions, whether they can be cleaned or not."""
    configs = ConfigSources(CONFIGS).in_log_dir(str(log_dir))
    paths = sorted(path for path in log_dir.iterdir() if path.is_dir())
    partitions = [open_partition(str(path)) for path in paths]
    return [find_candidate(one, configs.of_topic(one.topic), REQUEST) for one in partitions]


def make(log_dir: Path, partitions: int, segments: int, **more: int) -> Path:
    rng = random.Random(SEED)
    for number in range(partitions):
        count = 1 if number == 0 else segments
        Generator(rng, **more).partition(log_dir / f"made-{number}", count)
    (log_dir / ".kafka_cleanshutdown").touch()
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nother 3 7\n")
    return log_dir


def test_generated_logs_and_the_corpus(
    spark: SparkSession, corpus_dir: Path, tmp_path: Path
) -> None:
    """Partitions with one or many segments, in all formats, sound and damaged, in one job."""
    one = make(tmp_path / "one", *((4, 12) if tries_everything() else (3, 6)))
    for number, name in enumerate(sampled(scenario_names("compaction"), 18)):
        before = cleanings(corpus_dir / "compaction", name)[0].before
        shutil.copytree(before / PARTITION, one / f"corpus-{number}")
    other = tmp_path / "other"
    shutil.copytree(one, other)
    before = tree(other)
    done = by_engine(SparkEngine(spark, 2), other, find, REQUEST, backup=tmp_path / "backup")
    assert done == in_one_process(one, find, REQUEST)
    assert tree(other) == tree(one)
    assert tree(other) != before


def test_keys_that_do_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    """With almost no memory for keys, planned and applied; also from the middle of a segment on."""
    one = make(tmp_path / "one", 3, 4, segment_batches=10)
    (one / "cleaner-offset-checkpoint").write_text("0\n1\nmade 2 75\n")
    other = tmp_path / "other"
    shutil.copytree(one, other)
    engine = SparkEngine(spark, 2)
    for memory in (None, 1) if tries_everything() else (1,):
        planned = by_engine(engine, other, find, REQUEST, writes=False, task_memory=memory)
        assert planned == in_one_process(one, find, REQUEST, writes=False)
    done = by_engine(engine, other, find, REQUEST, task_memory=1)
    assert done == in_one_process(one, find, REQUEST)
    assert tree(other) == tree(one)


def rows(said: bytes, place: Path) -> list[dict[str, object]]:
    text = said.decode().replace(str(place), "")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.thorough("tests/crash/test_crashes.py::test_kafkas_own_start_finds_a_whole_log")
def test_a_killed_driver(
    spark: SparkSession,
    kafkalog: Callable[..., Result],
    tmp_path: Path,
    tell: Callable[[str], None],
) -> None:
    """Killed as soon as a task has ended, then run again: the same rows and bytes, no litter."""
    one = make(tmp_path / "one", 4, 5, segment_batches=300)
    other = tmp_path / "other"
    shutil.copytree(one, other)
    words = ["--config", "cleanup.policy=compact", "--high-watermark", "end", "--apply", "--yes",
             "--now", LATER_MS, "--format", "ndjson"]  # fmt: skip
    here = kafkalog("compact", one, *words)
    assert here.status == 0
    line = ["compact", other, *words, "--spark", spark.sparkContext.master]
    driver = subprocess.Popen(
        [sys.executable, "-m", "kafkalog_cli", *map(str, line), *QUICKLY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    staging = other / staging_name()
    while driver.poll() is None and not list(staging.glob("*/result.json")):
        time.sleep(0.01)  # looking takes some of the processors that the job needs
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    assert driver.returncode == -signal.SIGKILL
    left = len(list(staging.glob("*/result.json")))
    tell(f"a driver was killed with {left} of 4 results")
    assert left
    again = kafkalog(*line)
    assert again.status == 0, again.stderr
    assert rows(again.stdout, other) == rows(here.stdout, one)
    assert tree(other) == tree(one)
