"""Requirements of Spark on this machine, and the settings of a session for each kind of master."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalog.errors import UnsupportedError, UsageError

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
_LOCAL_HINT: Final = "`--engine local` needs neither Java nor Spark."


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


def require_connect() -> None:
    """Check that the packages of a Spark Connect client are installed."""
    require_pyspark()
    for name, package in (
        ("grpc", "grpcio"),
        ("grpc_status", "grpcio-status"),
        ("zstandard", "zstandard"),
    ):
        if importlib.util.find_spec(name) is None:
            raise UnsupportedError(
                f"Spark Connect (sc://) needs {package}.",
                hint="pip install 'kafkalog[spark,connect]'",
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

SQL_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
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
    if len(os.fsencode(directory)) + _SOCKET_NAME_SIZE <= _SOCKET_PATH_MAX:
        settings["spark.python.unix.domain.socket.enabled"] = "true"
    if is_local(master):
        settings["spark.driver.memory"] = LOCAL_MEMORY
        settings["spark.sql.warehouse.dir"] = os.path.join(directory, "warehouse")
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
