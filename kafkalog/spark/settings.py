"""What a session of Spark is set to: by the kind of its master, and by what the user says."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Final

from kafkalog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MASTER: Final = re.compile(
    r"local(\[(\*|[1-9]\d*)(,\s*\d+)?\])?|spark://\S+|yarn|k8s://\S+|sc://\S+"
)
_LOOPBACK: Final = re.compile(r"spark://(localhost|127(\.\d+){3}|\[::1\])(:\d+)?")
_SOCKET_PATH_MAX: Final = 100
"""Bytes of the path of a Unix domain socket that every system takes."""
_SOCKET_NAME_SIZE: Final = 48

LOCAL_MEMORY: Final = "3g"
"""Of a driver that does the tasks, too: a record of 512 MiB passes."""

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

SQL_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
"""What can be set in any session, also in one over Spark Connect."""

_SETTINGS: Final = {
    **SQL_SETTINGS,
    "spark.app.name": "kafkalog",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def check_master(master: str) -> None:
    """Raise `UsageError` for what is no master of Spark's."""
    if _MASTER.fullmatch(master) is None:
        raise UsageError(
            f"{master!r} is not a Spark master.",
            hint="local[*], local[N], spark://HOST:PORT, yarn, k8s://HOST:PORT or sc://HOST:PORT",
        )


def is_local(master: str) -> bool:
    """Whether all work is done in the driver's process and its children."""
    return master.startswith("local")


def is_connect(master: str) -> bool:
    """Whether the driver is a server of Spark Connect."""
    return master.startswith("sc://")


def on_this_machine(master: str) -> bool:
    """Whether the master is local[*] or can only be reached from here."""
    return is_local(master) or _LOOPBACK.fullmatch(master) is not None


def driver_settings(
    master: str, conf: Mapping[str, str], directory: str, java_options: list[str]
) -> dict[str, str]:
    """The settings of a driver that is started here.

    Args:
        master: where the tasks are to run.
        conf: the user's own settings, which win.
        directory: what the driver writes for itself goes here.
        java_options: ours; the user's own come after them.
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
    """Variables of the environment of this process while the session lives.

    The Python of tasks that run on this machine is the one that runs now: it has kafkalog. For
    other machines that is theirs to say (`PYSPARK_PYTHON`, `spark.pyspark.python`).
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
