"""A real standalone cluster from the pip package: a master and two workers, all on loopback.

Each worker has an address of its own: Spark does not speculate on the host of the first attempt.

Every process is started here, with Java directly, and ended by its id. The processes authenticate
each other by a secret.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from tests.checkout import ROOT
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOME = Path(pyspark.__file__).parent
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that lives for seconds only."""
QUICK = {
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
}
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = b"org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        master: `spark://127.0.0.1:PORT`.
        secret: the secret that a driver needs.
        directory: logs, and the work directories of the workers.
        processes: the master, then the workers.
    """

    master: str
    secret: str
    directory: Path
    processes: tuple[subprocess.Popen[bytes], ...]

    @property
    def disk(self) -> Path:
        """Return a path that is a different directory for each worker, by a mount of its own."""
        return self.directory / "disk"

    @property
    def disks(self) -> tuple[Path, ...]:
        """Return the directories that the workers see at `disk`."""
        return tuple(self.directory / f"disk-{n}" for n, _ in enumerate(self.processes[1:]))

    @property
    def conf(self) -> dict[str, str]:
        """Return the settings that a driver needs."""
        return {
            "spark.authenticate": "true",
            "spark.authenticate.secret": self.secret,
            "spark.executor.memory": "512m",
            "spark.cores.max": "2",  # one of each worker: there is room for another driver
            **QUICK,
        }

    def executors(self, application: str = "") -> list[int]:
        """Return the process ids of all executors, or of an application's: children of workers."""
        workers = {process.pid for process in self.processes[1:]}
        return sorted(
            pid
            for pid, parent, command in running_processes()
            if parent in workers and _EXECUTOR in command
            if application.encode() in command
        )

    def kill_an_executor(self, application: str = "", task: int | None = None) -> int:
        """Kill one executor, that of a task's process if given; Spark starts another."""
        executors = self.executors(application)
        pid = executors[0] if task is None else task
        above = {pid: parent for pid, parent, _ in running_processes()}
        while pid not in executors:
            pid = above[pid]
        os.kill(pid, signal.SIGKILL)
        return pid


@contextmanager
def standalone_cluster(
    directory: Path, workers: int = 2, *, has_kafkalog: bool = True
) -> Iterator[Cluster]:
    """Run a cluster of workers with two cores each until the block ends, whatever happens in it."""
    secret = secrets.token_hex(16)
    processes = [_start(directory, "master", secret, _MASTER, "--port", "0")]
    try:
        wait_for(directory / "master.log", "I have been elected leader")
        master = wait_for(directory / "master.log", r"Starting Spark master at (spark://\S+)")[1]
        for number in range(workers):
            arguments = ["--cores", "2", "--memory", "1g"]
            arguments += ["--work-dir", str(directory / f"work-{number}"), master]
            own = _own_disk(directory, number)
            address, name = f"127.0.0.{number + 1}", f"worker-{number}"
            processes.append(
                _start(
                    directory,
                    name,
                    secret,
                    _WORKER,
                    *arguments,
                    around=own,
                    address=address,
                    has_kafkalog=has_kafkalog,
                )
            )
        for number in range(workers):
            wait_for(directory / f"worker-{number}.log", "Successfully registered with master")
        yield Cluster(master, secret, directory, tuple(processes))
    finally:
        end_all(processes)


@contextmanager
def connect_server(directory: Path, conf: dict[str, str] | None = None) -> Iterator[str]:
    """Run a Spark Connect server with two cores of this machine; yield its `sc://…`."""
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        **(conf or {}),
    }
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    options = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    submit = ["org.apache.spark.deploy.SparkSubmit", *options, "--class", server, "spark-internal"]
    process = _java(directory, "connect", submit, {"PYTHONPATH": str(ROOT)})
    try:
        started = wait_for(directory / "connect.log", r"Spark Connect server started at.*:(\d+)\b")
        yield f"sc://127.0.0.1:{started[1]}"
    finally:
        end_all([process])


def running_processes() -> Iterator[tuple[int, int, bytes]]:
    """Yield id, parent id and command line of each process on this machine."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                command = (entry / "cmdline").read_bytes()
            except (OSError, UnicodeDecodeError):
                continue  # it has ended meanwhile
            yield int(entry.name), parent, command


def wait_for(log: Path, pattern: str) -> re.Match[str]:
    """Wait until a log contains a line; return it."""
    over = time.monotonic() + HANG_S
    while True:
        text = log.read_text(errors="replace") if log.exists() else ""
        if found := re.search(pattern, text):
            return found
        assert time.monotonic() < over, f"no {pattern!r} in {log}:\n{text[-2000:]}"
        time.sleep(0.1)


def end_all(processes: list[subprocess.Popen[bytes]]) -> None:
    """End processes in reverse order, so that workers end their executors."""
    for process in reversed(processes):
        process.terminate()
    for process in reversed(processes):
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _own_disk(directory: Path, number: int) -> list[str]:
    """Return a command prefix that gives a process its own disk at `directory/disk`."""
    shared, own = directory / "disk", directory / f"disk-{number}"
    for path in (shared, own):
        path.mkdir(exist_ok=True)
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    return [*unshare, "sh", "-c", script, "sh", str(own), str(shared)]


def _start(
    directory: Path,
    name: str,
    secret: str,
    kind: str,
    *arguments: str,
    around: Sequence[str] = (),
    address: str = "127.0.0.1",
    has_kafkalog: bool = True,
) -> subprocess.Popen[bytes]:
    settings = directory / f"{name}.conf"
    settings.write_text(
        "spark.authenticate true\n"
        f"spark.authenticate.secret {secret}\n"
        "spark.master.rest.enabled false\n"
        "spark.master.ui.enabled false\n"
        "spark.worker.ui.enabled false\n"
        "spark.ui.enabled false\n"
    )
    command = [kind, "--host", address, "--webui-port", "0"]
    command += ["--properties-file", str(settings), *arguments]
    environment = {
        # The functions of the tests, too.
        "PYTHONPATH": str(ROOT) if has_kafkalog else "",
        "PYSPARK_PYTHON": sys.executable if has_kafkalog else "/nowhere/python3",
        "SPARK_LOCAL_DIRS": str(directory / f"{name}-local"),
        "SPARK_LOCAL_IP": address,
    }
    return _java(directory, name, command, environment, around)


def _java(
    directory: Path,
    name: str,
    command: list[str],
    environment: dict[str, str],
    around: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Start a Java class of Spark's."""
    directory.mkdir(exist_ok=True)
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    java = [
        "java",
        *QUICK_JVM.split(),
        "-Xmx512m",
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={directory}",
        *opened,
    ]
    own = {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SCALA_VERSION": "2.13",  # what Spark's scripts set
    }
    with (directory / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*around, *java, "-cp", f"{HOME}/jars/*", *command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**os.environ, **own, **environment},
        )


_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""What Spark's launcher opens to it on Java 17."""
