"""Missing parts are reported clearly and in time, and a session leaves nothing."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.errors import EngineError, UnsupportedError, UsageError
from kafkalog.spark import session as session_module
from kafkalog.spark.session import _connected, scratch_directory, spark_session
from kafkalog.spark.settings import DriverProcess, find_java, require_connect
from tests.checkout import ROOT
from tests.spark.cluster import QUICK, connect_server, running_processes
from tests.spark.driver import start_driver, wait_for_files
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

QUERY = ("sql", "--spark", "local[*]", "-c", "SELECT 1", ROOT / "examples" / "log-dir")


def fake_java(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


def test_missing_java_is_told(
    kafkalog: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error precedes any start. It says what to install and what needs no Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("kafkalog.spark.session._open_already", lambda _: None)
    result = kafkalog(*QUERY)
    assert result.status == 5
    assert "openjdk-17" in result.stderr
    assert "Without `--spark` neither Java nor Spark is needed." in result.stderr


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.21", 11)])
def test_old_java_is_told(
    version: str, major: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UnsupportedError, match=f"is Java {major}"):
        find_java()


def test_java_of_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Spark's own scripts; if JAVA_HOME lacks Java, no other place is tried."""
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
    assert caught.value.hint == "pip install 'kafkalog[spark]'"


@pytest.mark.parametrize("master", ["", "local[0]", "mesos://x", "spark://", "loca1", "yarn "])
def test_master_that_is_none_is_usage(master: str) -> None:
    with pytest.raises(UsageError, match="not a Spark master"), spark_session(master):
        pass


def test_master_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error comes at once, without a JVM."""
    monkeypatch.setattr("kafkalog.spark.session._open_already", lambda _: None)
    monkeypatch.setattr("kafkalog.spark.settings.DriverProcess", lambda *_: pytest.fail("a JVM"))
    with (
        refusing_port() as port,
        pytest.raises(EngineError, match="No Spark master"),
        spark_session(f"spark://127.0.0.1:{port}"),
    ):
        pass


@contextmanager
def refusing_port() -> Iterator[int]:
    """Hold a port of loopback that refuses connections."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


def test_server_of_connect_that_does_not_answer_is_told(tmp_path: Path) -> None:
    """It comes after the timeout, not after the minutes of Spark's own retries."""
    with refusing_port() as port:
        master = f"sc://127.0.0.1:{port}"
        driver = start_driver(
            tmp_path / "tmp", master=master, timeout="2s", work="doubled", tasks=[{"number": 1}]
        )
        status, stdout, stderr = driver.end()
    assert (status, stdout) == (3, "")
    assert stderr.startswith(f"error: engine-failed\n× {master} did not answer within 2 seconds.")
    assert "Traceback" not in stderr


def test_connect_gives_the_same(tmp_path: Path) -> None:
    """Tasks of the engine and the data source, for a client without a JVM."""
    tasks = [{"number": number} for number in range(5)]
    read = str(ROOT / "examples" / "log-dir" / "orders-0")
    with connect_server(tmp_path / "server") as master:
        driver = start_driver(
            tmp_path / "tmp", master=master, work="doubled", tasks=tasks, read=read
        )
        *found, counts = driver.results()
    assert found == [[number, {"doubled": 2 * number}] for number in range(5)]
    assert [topic for topic, _ in counts] == ["orders"]
    assert counts[0][1] > 0


def test_interrupt_ends_all(tmp_path: Path) -> None:
    """Ctrl-C in mid-job: exit status 130; no process, file or message is left."""
    directory = tmp_path / "tasks"
    directory.mkdir()
    tasks = [{"number": number, "directory": str(directory), "seconds": 600} for number in (0, 1)]
    driver = start_driver(tmp_path / "tmp", master="local[2]", conf=QUICK, work="slow", tasks=tasks)
    wait_for_files(driver, directory, 2)
    mine = {pid for pid, _, command in running_processes() if bytes(tmp_path) in command}
    assert mine, "the JVM, which has the place of its log among its options"
    driver.process.send_signal(signal.SIGINT)
    assert driver.end() == (130, "", "")
    assert list(driver.temporary.iterdir()) == []
    workers = {int(path.name.partition("-")[2]) for path in directory.iterdir()}
    until(lambda: not (mine | workers) & {pid for pid, _, _ in running_processes()}, pause_s=0.1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("raised", ["UsageError('no plan')", "KeyboardInterrupt()"])
def test_a_session_that_is_not_asked_for_ends_with_the_block(raised: str, tmp_path: Path) -> None:
    """Nothing is left of it, and the error is that of the block."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    script = f"""
import os
from kafkalog.errors import UsageError
from kafkalog.spark.session import starting_session
from tests.spark.cluster import running_processes
from tests.waiting import until
try:
    with starting_session("local[1]", {QUICK!r}) as started:
        own = os.environb[b"TMPDIR"]
        until(lambda: any(own in one for *_, one in running_processes()))
        raise {raised}
except (UsageError, KeyboardInterrupt) as error:
    print(repr(error))
"""
    own = {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=False, env={**os.environ, **own},
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, raised, "")
    assert list(temporary.iterdir()) == []
    assert not [one for *_, one in running_processes() if bytes(tmp_path) in one]


def test_an_interrupt_while_a_session_stops_kills_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The JVM may have hung, and would outlive the command."""
    calls: list[str] = []

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session_module, "call_within", interrupted)
    monkeypatch.setattr(session_module, "_forget", lambda _: calls.append("forget"))
    process: Any = SimpleNamespace(is_alive=True, kill=lambda: calls.append("kill"))
    connected: Future[Any] = Future()
    connected.set_result(SimpleNamespace(stop=None))
    with pytest.raises(KeyboardInterrupt):
        session_module._end(process, connected, 1)
    assert calls == ["kill", "forget"]


@pytest.mark.thorough(
    "tests/spark/test_session.py::test_server_of_connect_that_does_not_answer_is_told"
)
def test_driver_that_dies_is_told(tmp_path: Path) -> None:
    """One line with the place of the log, the only file that is kept."""
    directory = tmp_path / "tasks"
    directory.mkdir()
    tasks = [{"number": 0, "directory": str(directory), "seconds": 600}]
    driver = start_driver(tmp_path / "tmp", master="local[2]", conf=QUICK, work="slow", tasks=tasks)
    wait_for_files(driver, directory, 1)
    [jvm] = [pid for pid, _, command in running_processes() if bytes(tmp_path) in command]
    os.kill(jvm, signal.SIGKILL)
    status, stdout, stderr = driver.end()
    [kept] = driver.temporary.iterdir()
    assert (status, stdout) == (3, "")
    assert stderr.startswith("error: engine-failed\n× The Spark driver died.\n"), stderr
    assert f"Spark's log: {kept}/spark.log" in stderr.replace("\n", "").replace("│", "")
    assert [path.name for path in kept.iterdir()] == ["spark.log"]
    assert "Traceback" not in stderr


class SlowSession:
    """Stands for a session whose driver takes long after its master has answered."""

    has_started = threading.Event()

    def __init__(self, _: object = None, gateway: object = None) -> None:
        self._accumulatorServer = self
        if gateway is not None:
            self.has_started.wait(HANG_S)


class LoggedProcess:
    """Stands for a driver whose log has some lines."""

    def __init__(self, log: Path) -> None:
        self.log_path = str(log)
        self.is_killed = False

    has_logged = DriverProcess.has_logged

    def connect(self, _: float) -> str:
        return "gateway"

    def kill(self) -> None:
        self.is_killed = True


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_slow_driver_is_not_a_master_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_registered: bool
) -> None:
    """The application was registered: only the start of the driver takes long."""
    monkeypatch.setattr("pyspark.SparkContext", SlowSession)
    monkeypatch.setattr("pyspark.sql.SparkSession", SlowSession)
    log = tmp_path / "spark.log"
    log.write_text(
        "INFO StandaloneAppClient$ClientEndpoint: Connecting to master spark://here:1...\n"
        + "INFO StandaloneSchedulerBackend: Connected to Spark cluster with app ID app-1\n"
        * is_registered
    )
    process: Any = LoggedProcess(log)
    SlowSession.has_started.clear()
    if is_registered:
        threading.Timer(1, SlowSession.has_started.set).start()
        assert isinstance(_connected(process, "spark://here:1", 0.3), SlowSession)
        return
    with pytest.raises(EngineError, match=r"did not answer within 0\.3 seconds"):
        _connected(process, "spark://here:1", 0.3)
    SlowSession.has_started.set()
    assert process.is_killed


def test_what_a_killed_session_left_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its settings can hold secrets. Live sessions, kept logs and foreign files stay."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    script = "import os; from kafkalog.spark.session import scratch_directory as directory; "
    then = "opened = directory(); opened.__enter__(); os.kill(os.getpid(), 9)"
    command = [sys.executable, "-c", f"{script}{then}"]
    subprocess.run(command, check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    [dead] = tmp_path.iterdir()
    (dead / "spark.conf").write_text("secret")
    kept = tmp_path / "kafkalog-spark-kept"
    kept.mkdir()
    (kept / "spark.log").write_text("why")
    (tmp_path / "another").mkdir()
    with scratch_directory() as first:
        assert not dead.exists()
        with scratch_directory() as second:
            assert os.path.isdir(first)
            assert os.path.isdir(second)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["another", kept.name]


def test_the_format_is_found_where_an_editable_install_is(tmp_path: Path) -> None:
    """Spark finds packages as `pkgutil` lists them; `make demo` installs this tree."""
    program = "import pkgutil; print(*(one.name for one in pkgutil.iter_modules()))"
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, cwd=tmp_path, env=own,
    )  # fmt: skip
    assert "pyspark_kafkalog" in done.stdout.split()
