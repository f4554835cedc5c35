"""What Spark needs on this machine: pyspark, and Java; each missing part is told in words."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Final

from kafkalog.errors import UnsupportedError

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
        major: 17 for Java 17; 8 for what calls itself 1.8.
    """

    path: str
    major: int


def require_pyspark() -> None:
    """Raise `UnsupportedError` where pyspark or what its Arrow side needs is missing."""
    for name in ("pyspark", "pandas", "pyarrow"):
        if importlib.util.find_spec(name) is None:
            raise UnsupportedError(
                f"The Spark engine needs {name}.",
                note=_LOCAL_HINT,
                hint="pip install 'kafkalog[spark]'",
            )


def require_connect() -> None:
    """Raise `UnsupportedError` where the packages of a client of Spark Connect are missing."""
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
    """The Java that Spark's scripts take: that of `JAVA_HOME`, else the one on the PATH.

    Raises:
        UnsupportedError: there is none, it does not start, or it is too old.
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
