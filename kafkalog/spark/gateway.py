"""The driver's JVM: started silently, connected through py4j, and always ended.

`pyspark.java_gateway.launch_gateway` starts a JVM of its own unless it is given a running one. Here
it is given one, so that the process can be ended at any moment of its start.
"""

from __future__ import annotations

import logging
import os
import signal
import struct
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import javaproperties

from kafkalog.errors import EngineError
from kafkalog.spark.errors import reason_in
from kafkalog.spark.settings import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_NAMES: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NOWHERE: Final = logging.NullHandler()


@contextmanager
def silent_loggers() -> Iterator[None]:
    """Keep pyspark's and py4j's loggers off stderr while the block runs."""
    from pyspark.logger import PySparkLogger

    loggers: list[logging.Logger]
    loggers = [PySparkLogger.getLogger(name) for name in _NAMES]  # the only right way to make them
    before = [logger.disabled for logger in loggers]
    # py4j logs some errors to the root logger, which writes to stderr if it has no handler.
    shared = [logging.getLogger(), logging.getLogger("py4j")]
    for logger in loggers:
        logger.disabled = True
    for logger in shared:
        logger.addHandler(_NOWHERE)
    try:
        yield
    finally:
        for logger in shared:
            logger.removeHandler(_NOWHERE)
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


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
            "--load-spark-defaults",
            "pyspark-shell",
        ]
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
