"""A driver in a process of its own: it reads its task as JSON from stdin and prints results.

Errors and the exit status are those of the command line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalog.errors import KafkaLogError
from kafkalog.spark import KafkaLogDataSource, export
from kafkalog.tables import Request
from kafkalog_cli.engines import EngineChoice
from kafkalog_cli.main import EXIT_INTERRUPTED
from kafkalog_cli.outcome import show_error
from tests.checkout import ROOT
from tests.spark import work
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Request(split_bytes=1 << 20)
"""What is exported, with several tasks for a few megabytes."""
WAIT_S = 300
"""Ends a driver that hangs; it is shorter than the tasks that wait to be interrupted."""


@dataclass
class Driver:
    """A running driver with its own directory for temporary files.

    Attributes:
        temporary: must be empty at the end, except for the log after an error of Spark's.
    """

    process: subprocess.Popen[str]
    temporary: Path

    def end(self) -> tuple[int, str, str]:
        """Wait for the driver; return exit status, stdout and stderr."""
        stdout, stderr = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, stdout, stderr

    def results(self) -> list[Any]:
        """Return the results of the tasks by number; require no messages and no files left."""
        status, stdout, stderr = self.end()
        assert (status, stderr) == (0, "")
        assert list(self.temporary.iterdir()) == []
        found: list[Any] = json.loads(stdout)
        return found


def start_driver(
    temporary: Path, environment: dict[str, str] | None = None, cwd: Path = ROOT, **asked: Any
) -> Driver:
    """Start a driver, which `main` is, with what it is asked for."""
    temporary.mkdir(exist_ok=True)
    own = {"TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.driver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, **own, **(environment or {})},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(asked))
    process.stdin.close()
    process.stdin = None  # `communicate` would flush it
    return Driver(process, temporary)


def wait_for_files(driver: Driver, directory: Path, count: int) -> None:
    """Wait until `count` tasks of `work.slow` of a driver have reported that they run."""

    def why_not() -> object:
        return None if driver.process.poll() is None else driver.end()

    until(lambda: len(list(directory.iterdir())) >= count, why_not, pause_s=0.05)


def main() -> int:
    asked = json.load(sys.stdin)
    conf = {**asked.get("conf", {}), "kafkalog.connect.timeout": asked.get("timeout", f"{WAIT_S}s")}
    try:
        with EngineChoice(asked["master"], conf).open() as engine:
            session: Any = engine.session  # type: ignore[attr-defined] # it is Spark's
            found: list[Any] = []
            if "work" in asked:
                found += engine.run(getattr(work, asked["work"]), asked["tasks"])
            if "export" in asked:
                *paths, to = asked["export"]
                found.append(export(session, *paths, to=to, request=SMALL).apply().rows)
            if "read" in asked:
                session.dataSource.register(KafkaLogDataSource)
                frame = session.read.format("kafkalog").load(asked["read"])
                found.append(frame.groupBy("topic").count().orderBy("topic").collect())
    except KafkaLogError as error:
        show_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
