"""A real cluster gives the results of the local engine, even if it loses an executor."""

from __future__ import annotations

import os
import random
import re
import signal
from typing import TYPE_CHECKING

import pytest

from kafkalog.io.engine import LocalEngine
from tests.builders import batch, record, write_log
from tests.kafkalog.change.lake.exporting import export, files_of
from tests.spark import work
from tests.spark.cluster import running_processes
from tests.spark.driver import SMALL, start_driver, wait_for_files
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.cluster import Cluster


@pytest.mark.thorough("tests/spark/test_commands_on_a_cluster.py::test_a_killed_executor")
def test_executor_killed_in_mid_job_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Another executor repeats its task, and the results are those of the local engine."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    tasks = [{"number": number, "directory": str(there), "seconds": 1} for number in range(6)]
    driver = start_driver(
        tmp_path / "tmp", master=cluster.master, conf=cluster.conf, work="slow", tasks=tasks
    )
    wait_for_files(driver, there, 3)
    newest = max(there.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    killed = cluster.kill_an_executor(task=int(newest.name.partition("-")[2]))
    found = driver.results()
    assert killed not in cluster.executors()
    quick = [{**task, "directory": str(here), "seconds": 0} for task in tasks]
    assert dict(found) == dict(LocalEngine(2).run(work.slow, quick))
    ran = [int(path.name.partition("-")[0]) for path in there.iterdir()]
    assert len(ran) > len(set(ran)) == 6, "a task was done twice"


@pytest.mark.thorough(
    "tests/spark/test_session.py::test_a_slow_driver_is_not_a_master_that_does_not_answer"
)
def test_wrong_secret_is_told_in_time(cluster: Cluster, tmp_path: Path) -> None:
    """Spark itself would keep trying for a minute."""
    driver = start_driver(
        tmp_path / "tmp",
        master=cluster.master,
        conf={**cluster.conf, "spark.authenticate.secret": "another"},
        timeout="3s",
        work="doubled",
        tasks=[{"number": 1}],
    )
    status, stdout, stderr = driver.end()
    assert (status, stdout) == (3, "")
    assert f"× {cluster.master} did not answer within 3 seconds." in stderr
    assert "Traceback" not in stderr
    [kept] = driver.temporary.iterdir()
    assert [path.name for path in kept.iterdir()] == ["spark.log"]


SPECULATES = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.1",
}


@pytest.mark.thorough("tests/kafkalog/change/lake/test_resume.py::test_a_task_may_be_done_twice")
def test_a_task_that_hangs_is_overtaken(cluster: Cluster, tmp_path: Path) -> None:
    """Another executor writes its file, too; what the first one writes later changes nothing."""
    values = random.Random(SMALL.split_bytes)
    logs, here, there = tmp_path / "logs", tmp_path / "here", tmp_path / "there"
    for number in range(8):
        records = [record(i, None, values.randbytes(SMALL.split_bytes // 8)) for i in range(12)]
        write_log(logs / f"orders-{number}", batch(0, records))
    export([logs], here, SMALL)
    driver = start_driver(
        tmp_path / "tmp", master=cluster.master, conf={**cluster.conf, **SPECULATES},
        export=[str(logs), str(there)],
    )  # fmt: skip

    def ended() -> object:
        return None if driver.process.poll() is None else driver.end()

    until(lambda: list(there.rglob("*.parquet")), ended)
    [stopped, _] = cluster.executors()
    workers = [pid for pid, parent, _ in running_processes() if parent == stopped]
    workers += [pid for pid, parent, _ in running_processes() if parent in workers]
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        until((there / "_SUCCESS").exists, ended)
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)
    assert driver.results() == [96]
    until(lambda: not {*workers} & {pid for pid, *_ in running_processes()})
    assert files_of(there) == files_of(here)
    last = max(path.name for path in cluster.directory.glob("work-*/app-*"))
    told = [path.read_text() for path in cluster.directory.glob(f"work-*/{last}/*/stderr")]
    assert re.search(r"Running task \d+\.1 in stage", "".join(told)), "Spark has speculated"
