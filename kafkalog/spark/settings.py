"""The driver's JVM: what Spark requires here, the settings of a session, and the start by py4j.

`pyspark.java_gateway.launch_gateway` starts a JVM of its own unless it is given a running one. Here
it is given one, so that the process can be ended at any moment of its start. Nothing public does
that: `SparkSession.builder` starts a JVM which it neither names nor ends, and whose log is stderr.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import javaproperties

from formats import decoder
from kafkalog.errors import EngineError, UnsupportedError, UsageError
from kafkalog.spark.job import reason_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables (None removes one), and restore them when the block ends."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


JAVA_MIN: Final = 17
"""The oldest Java that Spark 4 runs on."""

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_S: Final = 60.0
_LOCAL_HINT: Final = "Without `--spark` neither Java nor Spark is needed."


@dataclass(frozen=True, slots=True)
class Java:
    """A Java on this machine.

    Attributes:
        path: the program, links followed.
        major: 17 for Java 17; 8 for a Java that calls itself 1.8.
    """

    path: str
    major: int


def require_pyspark() -> None:
    """Check that pyspark and the dependencies of its Arrow support are installed."""
    for name in ("pyspark", "pandas", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise UnsupportedError(
                f"The Spark engine needs {name}.",
                note=_LOCAL_HINT,
                hint="pip install 'kafkalog[spark]'",
            )


def has_data_sources() -> bool:
    """Return whether the API of Python data sources is there as we use it: from Spark 4.2 on."""
    try:
        return importlib.util.find_spec("pyspark.sql.streaming.datasource") is not None
    except ModuleNotFoundError:  # not even `pyspark.sql.streaming`
        return False


def require_data_sources() -> None:
    """Raise `UnsupportedError` where the data source cannot be used."""
    require_pyspark()
    if not has_data_sources():
        raise UnsupportedError(
            f"The data source needs Spark 4.2; this is {pyspark_version()}.",
            hint="kafkalog.spark.read_frame(session, PATH, …) reads a table from Spark 3.5 on.",
        )


def pyspark_version() -> str:
    return importlib.metadata.version("pyspark")


def require_connect() -> None:
    """Check that the packages of a Spark Connect client are installed."""
    require_pyspark()
    if not has_data_sources():
        raise UnsupportedError(
            f"Spark Connect (sc://) needs Spark 4.2; this is {pyspark_version()}.",
            hint="Other masters, such as local[*] and spark://HOST:PORT, need Spark 3.5.",
        )
    for name, package in (
        ("grpc", "grpcio"),
        ("grpc_status", "grpcio-status"),
        ("zstandard", "zstandard"),
    ):
        if importlib.util.find_spec(name) is None:
            raise UnsupportedError(
                f"Spark Connect (sc://) needs {package}.",
                hint="pip install 'kafkalog[spark]'",
            )


def find_java() -> Java:
    """Return the Java that Spark's scripts use: that of `JAVA_HOME`, else the one on the PATH.

    Raises:
        UnsupportedError: Java is missing, does not start, or is too old.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        program = os.path.join(home, "bin", "java")
        if not os.access(program, os.X_OK):
            raise _unfit(f"JAVA_HOME is {home}, where there is no bin/java.")
    else:
        found = shutil.which("java")
        if found is None:
            raise _unfit("Spark needs Java; there is none on the PATH.")
        program = found
    try:
        said = subprocess.run(  # noqa: S603 # the program that Spark's own scripts would start
            [program, "-version"], capture_output=True, check=True, timeout=_ANSWER_S
        ).stderr.decode(errors="replace")
    except (OSError, subprocess.SubprocessError) as raised:
        raise _unfit(f"{program} does not start.", note=str(raised)) from raised
    version = _VERSION.search(said)
    if version is None:
        raise _unfit(f"{program} does not say which version of Java it is.")
    major = int(version[1])
    if major < JAVA_MIN:
        raise _unfit(f"Spark needs Java {JAVA_MIN} or newer; {program} is Java {major}.")
    return Java(os.path.realpath(program), major)


def _unfit(message: str, note: str | None = None) -> UnsupportedError:
    return UnsupportedError(
        message,
        note=note or _LOCAL_HINT,
        hint=f"Install a Java {JAVA_MIN} (openjdk-{JAVA_MIN}-jre-headless on Debian and Ubuntu), "
        "or set JAVA_HOME to one.",
    )


_MASTER: Final = re.compile(
    r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?|spark://\S+|yarn|k8s://\S+|sc://\S+"
)
_LOOPBACK: Final = re.compile(r"spark://(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
_SOCKET_PATH_MAX: Final = 100
"""Length of a Unix domain socket's path, in bytes, that every system accepts."""
_SOCKET_NAME_SIZE: Final = 48

LOCAL_MEMORY: Final = "3g"
"""For a driver that also runs the tasks: enough for a record of 512 MiB."""

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

PUSHES_FILTERS: Final = "spark.sql.python.filterPushdown.enabled"
"""Whether Spark hands filters to Python data sources: not by default. Where it does not, it refuses
readers that would take them."""

SQL_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    PUSHES_FILTERS: "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
"""Settings that can be set in any session, even over Spark Connect."""

_SETTINGS: Final = {
    **SQL_SETTINGS,
    "spark.app.name": "kafkalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def check_master(master: str) -> None:
    """Raise `UsageError` if a text is not a Spark master."""
    if _MASTER.fullmatch(master) is None:
        raise UsageError(
            f"{master!r} is not a Spark master.",
            hint="local[*], local[N], spark://HOST:PORT, yarn, k8s://HOST:PORT or sc://HOST:PORT",
        )


def is_local(master: str) -> bool:
    """Return whether all work is done in the driver's process and its children."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Return whether the driver is a server of Spark Connect."""
    return master.startswith("sc://")


def on_this_machine(master: str) -> bool:
    """Return whether the master is local[*] or can only be reached from here."""
    return is_local(master) or _LOOPBACK.fullmatch(master) is not None


def driver_settings(
    master: str, conf: Mapping[str, str], directory: str, java_options: list[str]
) -> dict[str, str]:
    """Return the settings of a driver that is started here.

    Args:
        master: where the tasks are to run.
        conf: the user's own settings, which take precedence.
        directory: for the driver's own files.
        java_options: ours; the user's own follow them.
    """
    settings = dict(_SETTINGS)
    # Linux refuses longer paths of sockets; without it, workers use TCP.
    if len(os.fsencode(directory)) + _SOCKET_NAME_SIZE <= _SOCKET_PATH_MAX:
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    if is_local(master):
        settings["spark.driver.memory"] = LOCAL_MEMORY
        settings["spark.sql.warehouse.dir"] = os.path.join(directory, "warehouse")
    if decoder.BY_SCHEMA:
        settings[f"spark.executorEnv.{decoder.VARIABLE}"] = decoder.CHOSEN
    settings.update({**conf, "spark.master": master})
    options = [*java_options, settings.get(JAVA_OPTIONS, "")]
    settings[JAVA_OPTIONS] = " ".join(option for option in options if option)
    return settings


def driver_environment(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of this process while the session lives.

    The Python of tasks that run on this machine is the one that runs now: it has kafkalog. Other
    machines decide for themselves (`PYSPARK_PYTHON`, `spark.pyspark.python`).
    """
    own = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if "spark.pyspark.python" in conf:
        own["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    elif is_local(master):
        own["PYSPARK_PYTHON"] = sys.executable
    elif on_this_machine(master):
        own["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if on_this_machine(master):
        own["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return own


_NAMES: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NOWHERE: Final = logging.NullHandler()


@contextmanager
def silent_loggers() -> Iterator[None]:
    """Keep pyspark's and py4j's loggers off stderr while the block runs."""
    loggers: list[logging.Logger] = []
    with suppress(ModuleNotFoundError):  # before Spark 4
        from pyspark.logger import PySparkLogger

        loggers = [PySparkLogger.getLogger(name) for name in _NAMES]  # the only right way
    # py4j logs some errors to the root logger, which writes to stderr if it has no handler.
    shared = [logging.getLogger(), logging.getLogger("py4j")]
    for logger in loggers:
        logger.addFilter(_keeps_none)
    for logger in shared:
        logger.addHandler(_NOWHERE)
    try:
        yield
    finally:
        for logger in shared:
            logger.removeHandler(_NOWHERE)
        for logger in loggers:
            logger.removeFilter(_keeps_none)


def _keeps_none(_: logging.LogRecord) -> bool:
    """Filter of a logger: what it would write is in the error."""
    return False


LOG_NAME: Final = "spark.log"
ASKS_MASTER: Final = b"Connecting to master "
"""The driver logs this when it contacts a standalone master."""
IS_REGISTERED: Final = b"Connected to Spark cluster with app ID "
"""The driver logs this when a standalone master has answered."""
_LOOK_S: Final = 0.05


class DriverProcess:
    """A JVM of Spark's that serves one session.

    Args:
        directory: of this session alone: the log, the settings (they can hold secrets) and what
            Spark writes while it runs.
        settings: Spark's settings, which do not appear in the list of processes.

    Attributes:
        log_path: the log of Spark, the JVM and the Python workers of local[*].
    """

    def __init__(self, directory: str, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self.log_path = os.path.join(directory, LOG_NAME)
        self._answer_path = os.path.join(directory, "connection")
        self._gateway: Any = None
        _write(os.path.join(directory, "spark.conf"), settings)
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        from pyspark.find_spark_home import _find_spark_home  # the only code that knows the rules

        command = [
            os.path.join(_find_spark_home(), "bin", "spark-submit"),
            "--properties-file",
            os.path.join(self.directory, "spark.conf"),
            *(["--load-spark-defaults"] if has_data_sources() else []),  # unknown before Spark 4
            "pyspark-shell",
        ]
        # Private to pyspark: `PythonGatewayServer` writes its port and its secret to this file.
        own = {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": self._answer_path}
        with open(self.log_path, "ab") as log:
            return subprocess.Popen(  # noqa: S603 # Spark's own script
                command,
                stdin=subprocess.PIPE,  # the JVM ends when this is closed, even by our own death
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **own},
                start_new_session=True,  # this process handles Ctrl-C
            )

    @property
    def is_alive(self) -> bool:
        """Whether the JVM runs."""
        return self._process.poll() is None

    def has_logged(self, text: bytes) -> bool:
        """Return whether the log contains a text."""
        with open(self.log_path, "rb") as log:
            return any(text in line for line in log)

    def connect(self, timeout_s: float) -> Any:
        """Return py4j's gateway, once the JVM has reported its port.

        Raises:
            EngineError: the JVM ended, or did not report in time.
        """
        from pyspark.java_gateway import launch_gateway

        until = time.monotonic() + timeout_s
        while not os.path.exists(self._answer_path):
            if not self.is_alive:
                status = self._process.returncode
                raise EngineError(
                    f"Spark's JVM ended with status {status} while it started.",
                    note=reason_in(self.log_path),
                )
            if time.monotonic() > until:
                raise EngineError(f"Spark's JVM did not start within {timeout_s:g} seconds.")
            time.sleep(_LOOK_S)
        with open(self._answer_path, "rb") as answer:
            port, size = struct.unpack(">ii", answer.read(8))
            secret = answer.read(size).decode()
        os.unlink(self._answer_path)
        told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        with environment(told):
            self._gateway = launch_gateway()  # type: ignore[no-untyped-call]
        return self._gateway

    def end(self, timeout_s: float) -> None:
        """End the JVM, which removes its files; kill it if that takes too long."""
        try:
            if self._gateway is not None:
                self._gateway.shutdown()
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(timeout_s)
        except (OSError, subprocess.TimeoutExpired):
            pass  # killed below
        finally:
            self.kill()

    def kill(self) -> None:
        """End the JVM now; its Python workers end when their pipes are closed."""
        if self.is_alive:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def java_options(directory: str) -> list[str]:
    """Return the JVM's options: log to a file, and leave nothing outside of `directory`."""
    config = os.path.join(directory, "log4j2.properties")
    _write(
        config,
        {
            "rootLogger.level": "warn",
            "rootLogger.appenderRef.file.ref": "file",
            "logger.asks.name": "org.apache.spark.deploy.client",
            "logger.asks.level": "info",
            "logger.registered.name": "org.apache.spark.scheduler.cluster",
            "logger.registered.level": "info",
            "appender.file.type": "File",
            "appender.file.name": "file",
            "appender.file.fileName": os.path.join(directory, LOG_NAME),
            "appender.file.append": "true",
            "appender.file.layout.type": "PatternLayout",
            "appender.file.layout.pattern": "%d{yyyy-MM-dd HH:mm:ss.SSS} %p %c{1}: %m%n%ex",
        },
    )
    return [
        f'"-Dlog4j2.configurationFile={config}"',
        f'"-Djava.io.tmpdir={directory}"',
        "-Duser.timezone=UTC",
        "-XX:-UsePerfData",
    ]


def _write(path: str, properties: Mapping[str, str]) -> None:
    """Write a properties file that only this user can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        javaproperties.dump(properties, file, timestamp=False, ensure_ascii=True)
