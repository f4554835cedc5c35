"""What is missing is told in words and in time; nothing is left of a session."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import EngineError, UnsupportedError, UsageError
from kafkalog.spark.requirements import find_java, require_connect
from kafkalog.spark.session import spark_session
from tests.spark.cluster import QUICK, connect_server, free_port, running_processes
from tests.spark.driver import REPOSITORY, start_driver, wait_for_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUERY = ("sql", "SELECT 1", REPOSITORY / "examples" / "log-dir")


def fake_java(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


def test_missing_java_is_told(
    kafkalog: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started, with what to install and what needs no Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kafkalog.spark.session._open_already", lambda _: None)
    result = kafkalog(*QUERY)
    assert result.status == 5
    assert "openjdk-17" in result.stderr
    assert "--engine local" in result.stderr


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.21", 11)])
def test_old_java_is_told(
    version: str, major: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnsupportedError, match=f"is Java {major}"):
        find_java()


def test_java_of_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Spark's own scripts; a JAVA_HOME without Java is no reason to look elsewhere."""
    program = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert (find_java().path, find_java().major) == (os.path.realpath(program), 21)
    program.unlink()
    with pytest.raises(UnsupportedError, match="JAVA_HOME"):
        find_java()


@pytest.mark.parametrize("missing", ["pyspark", "pandas", "pyarrow"])
def test_missing_pyspark_is_told(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else name)
    with pytest.raises(UnsupportedError, match=missing) as caught, spark_session():
        pass
    assert caught.value.hint == "pip install 'kafkalog[spark]'"


def test_missing_client_of_connect_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else name)
    with pytest.raises(UnsupportedError, match="grpcio") as caught:
        require_connect()
    assert caught.value.hint == "pip install 'kafkalog[spark,connect]'"


@pytest.mark.parametrize("master", ["", "local[0]", "mesos://x", "spark://", "loca1", "yarn "])
def test_master_that_is_none_is_usage(master: str) -> None:
    with pytest.raises(UsageError, match="no master"), spark_session(master):
        pass


def test_master_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, without a JVM."""
    monkeypatch.setattr("kafkalog.spark.session._open_already", lambda _: None)
    began = time.monotonic()
    master = f"spark://127.0.0.1:{free_port()}"
    with pytest.raises(EngineError, match="No master"), spark_session(master):
        pass
    assert time.monotonic() - began < 10


def test_server_of_connect_that_does_not_answer_is_told(tmp_path: Path) -> None:
    """After the timeout, not after the minutes for which a call is tried again."""
    master = f"sc://127.0.0.1:{free_port()}"
    driver = start_driver(
        tmp_path / "tmp", master=master, timeout="2s", work="doubled", tasks=[{"number": 1}]
    )
    status, stdout, stderr = driver.end()
    assert (status, stdout) == (3, "")
    assert stderr.startswith(f"error: engine-failed\n× {master} did not answer within 2 seconds.")
    assert "Traceback" not in stderr


def test_connect_gives_the_same(tmp_path: Path) -> None:
    """Tasks of ours and the data source, by a client without a JVM."""
    tasks = [{"number": number} for number in range(5)]
    read = str(REPOSITORY / "examples" / "log-dir" / "orders-0")
    with connect_server(tmp_path / "server") as master:
        driver = start_driver(
            tmp_path / "tmp", master=master, work="doubled", tasks=tasks, read=read
        )
        *found, counts = driver.results()
    assert found == [[number, {"doubled": 2 * number}] for number in range(5)]
    assert [topic for topic, _ in counts] == ["orders"]
    assert counts[0][1] > 0


def test_interrupt_ends_all(tmp_path: Path) -> None:
    """Ctrl-C in mid-job: exit status 130 within seconds; no process, no file, no word is left."""
    directory = tmp_path / "tasks"
    directory.mkdir()
    tasks = [{"number": number, "directory": str(directory), "seconds": 600} for number in (0, 1)]
    driver = start_driver(tmp_path / "tmp", master="local[2]", conf=QUICK, work="slow", tasks=tasks)
    wait_for_files(directory, 2)
    mine = {pid for pid, _, command in running_processes() if bytes(tmp_path) in command}
    assert mine, "the JVM, which has the place of its log among its options"
    began = time.monotonic()
    driver.process.send_signal(signal.SIGINT)
    assert driver.end() == (130, "", "")
    assert time.monotonic() - began < 15
    assert list(driver.temporary.iterdir()) == []
    workers = {int(path.name.partition("-")[2]) for path in directory.iterdir()}
    time.sleep(0.5)
    assert not (mine | workers) & {pid for pid, _, _ in running_processes()}


def test_driver_that_dies_is_told(tmp_path: Path) -> None:
    """One line, and the log's place: it is all that is kept."""
    directory = tmp_path / "tasks"
    directory.mkdir()
    tasks = [{"number": 0, "directory": str(directory), "seconds": 600}]
    driver = start_driver(tmp_path / "tmp", master="local[2]", conf=QUICK, work="slow", tasks=tasks)
    wait_for_files(directory, 1)
    [jvm] = [pid for pid, _, command in running_processes() if bytes(tmp_path) in command]
    os.kill(jvm, signal.SIGKILL)
    status, stdout, stderr = driver.end()
    [kept] = driver.temporary.iterdir()
    assert (status, stdout) == (3, "")
    assert stderr.startswith("error: engine-failed\n× Spark's driver has died.\n"), stderr
    assert f"Spark's log: {kept}/spark.log" in stderr.replace("\n", "").replace("│", "")
    assert [path.name for path in kept.iterdir()] == ["spark.log"]
    assert "Traceback" not in stderr
