"""`kafkalog verify --spark` prints exactly what it prints without Spark."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kafkalog.check import tasks
from kafkalog.model import Level
from kafkalog.spark.engine import SparkEngine
from tests.conftest import OF_KAFKA_4, STATES_28, State, state
from tests.kafkalog.check.test_tasks import damages, make_partition
from tests.kafkalog.check.twins_by_tasks import verdict
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.conftest import Result

ON_SPARK = ("--spark", "local[2]")


@pytest.fixture(scope="module")
def shares(corpus_dir: Path) -> dict[Level, Sequence[State]]:
    """Assign states to levels: all to each, or one level to half of them, with a torn one."""
    places = [*OF_KAFKA_4, *(("kafka-2.8", name) for name in STATES_28)]
    states = [state(corpus_dir, *place) for place in places]
    if tries_everything():
        return dict.fromkeys(Level, states)
    seed = new_seed()
    print("seed", seed)
    random.Random(seed).shuffle(states)
    torn = [one for one in states if one.name == "crash-1-torn"]
    sound = [one for one in states if one.name != "crash-1-torn"]
    return {level: torn + sound[number :: 2 * len(Level)] for number, level in enumerate(Level)}


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("level", Level)
def test_the_corpus(
    shares: dict[Level, Sequence[State]], kafkalog: Callable[..., Result], level: Level
):
    """The log directories of many states in one run, as if of one fleet."""
    log_dirs = [log_dir for one in shares[level] for log_dir in one.log_dirs]
    command = ("verify", "--level", level, "--format", "ndjson", *log_dirs)
    wanted = kafkalog(*command)
    found = kafkalog(*command, *ON_SPARK)
    assert found == wanted
    assert wanted.status == 1


@pytest.mark.usefixtures("spark")
def test_options_that_say_how_to_read(corpus_dir: Path, kafkalog: Callable[..., Result]):
    """They reach the tasks, and the report of a sample names the same segments."""
    command = ("verify", "--level", "deep", "--sample", "30%", "--seed", 3, "--format", "ndjson",
               "--no-cache", "--rate-limit", "1GiB", "--threads", 2, "-q",
               corpus_dir / "kafka-4.3" / "txn")  # fmt: skip
    assert kafkalog(*command, *ON_SPARK) == kafkalog(*command)


@pytest.mark.thorough("tests/spark/test_verify.py::test_the_corpus")
def test_damaged_logs_in_pieces(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Their columns come through a shuffle."""
    monkeypatch.setattr(tasks, "_TASKS_PER_WORKER", 1 << 40)
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    path, sizes = make_partition(tmp_path / "t-0", 5)
    for i, changed in enumerate(damages(path.read_bytes(), sizes, random.Random(5)), 1):
        copy, _ = make_partition(tmp_path / f"t-{i}", 5)
        copy.write_bytes(changed)
    engine = SparkEngine(spark, 2)
    wanted = verdict([tmp_path], Level.DEEP)
    assert verdict([tmp_path], Level.DEEP, engine=engine, split_bytes=9000) == wanted
    assert len(wanted[0]) > 10


@pytest.mark.thorough("tests/spark/test_verify.py::test_the_corpus")
def test_many_tasks_are_taken_some_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Results come in the order of the walk, whatever the portions."""
    monkeypatch.setattr(tasks, "_TASKS_PER_WORKER", 1 << 40)
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    for i in range(20):
        path, _ = make_partition(tmp_path / f"t-{i}", 5)
        path.write_bytes(path.read_bytes()[: -i - 1])
    wanted = verdict([tmp_path], Level.QUICK)
    engine = SparkEngine(spark, 2)
    assert verdict([tmp_path], Level.QUICK, engine=engine, split_bytes=1 << 20) == wanted
    assert len(wanted[0]) >= 20


@pytest.mark.usefixtures("spark")
def test_a_missing_target_is_told_beside_the_others(
    corpus_dir: Path, tmp_path: Path, kafkalog: Callable[..., Result]
):
    command = ("verify", "--format", "ndjson", tmp_path / "none", corpus_dir / "kafka-4.3" / "txn")
    wanted = kafkalog(*command)
    assert kafkalog(*command, *ON_SPARK) == wanted
    assert wanted.status == 8


@pytest.mark.parametrize("option", ["--state", "--max-duration"])
def test_what_is_about_one_process_is_refused(
    tmp_path: Path, kafkalog: Callable[..., Result], option: str
):
    """They are refused before anything starts."""
    found = kafkalog("verify", option, "10m", *ON_SPARK, tmp_path)
    assert found.status == 2
    assert f"{option} does not work with --spark." in found.stderr
    assert "hint: Leave one of them out." in found.stderr
