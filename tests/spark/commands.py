"""Runs command lines in one process with one session on a cluster, and returns their results.

Starting a session and its executors takes far longer than most commands do. The process reads
lines of JSON: first `master` and `conf`, then `cwd` and `words` of each command. It answers with
the id of its application, and with exit status, stdout and stderr. The command `stream SOURCE TO`
is a query of the data source.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kafkalog.errors import KafkaLogError
from kafkalog.spark import KafkaLogDataSource, spark_session
from kafkalog.spark.job import errors_as_ours
from kafkalog_cli.main import run
from kafkalog_cli.outcome import show_error
from tests.checkout import ROOT
from tests.spark.driver import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.cluster import Cluster

T = TypeVar("T")
Done = tuple[int, str, str]
"""Exit status, stdout and stderr."""


class CommandSession:
    """A process that runs commands; use it as a context manager.

    Args:
        cluster: where the tasks run.
        temporary: its directory for temporary files.

    Attributes:
        application: the id of its application.
    """

    def __init__(self, cluster: Cluster, temporary: Path) -> None:
        own = {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "PYTHONWARNINGS": "error"}
        self._master = cluster.master
        self._log = (temporary / "stderr.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.commands"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=temporary,
            env={**os.environ, **own},
        )
        self._say({"master": cluster.master, "conf": cluster.conf})
        self.application: str = self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process, self._log:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(WAIT_S)

    def run(self, cwd: Path, *words: object) -> Done:
        """Run a command with `--spark` added; return its result."""
        self.start(cwd, *words)
        return self.end()

    def start(self, cwd: Path, *words: object) -> None:
        """Start a command; call `end` afterwards."""
        self._say({"cwd": str(cwd), "words": [*map(str, words), "--spark", self._master]})

    def wait_for(self, look: Callable[[], T]) -> T:
        """Wait for something true while the command is still at work; return it."""
        while not (found := look()):
            assert not self._has_answered(), "it has ended already"
            time.sleep(0.02)  # looking takes some of the processors that the job needs
        return found

    def end(self) -> Done:
        """Return the result of the started command."""
        status, stdout, stderr = self._answer()
        return status, stdout, stderr

    def _say(self, asked: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        assert self._has_answered(2 * WAIT_S), "it does not end"
        line = self._process.stdout.readline()
        assert line, (self._log.seek(0), self._log.read())
        return json.loads(line)

    def _has_answered(self, wait_s: float = 0) -> bool:
        """Return whether there is an answer, or never will be one."""
        return bool(select.select([self._process.stdout], [], [], wait_s)[0])


def follow(session: SparkSession, source: str, to: str) -> int:
    """Copy the present records of a stream to Parquet; show errors as commands do."""
    session.dataSource.register(KafkaLogDataSource)
    reader = session.readStream.format("kafkalog").load(source)
    writer = reader.writeStream.format("parquet").option("checkpointLocation", f"{to}-checkpoint")
    try:
        with errors_as_ours():
            writer.trigger(availableNow=True).start(to).awaitTermination()
    except KafkaLogError as error:
        show_error(error)
        return error.exit_code
    return 0


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    with spark_session(asked["master"], asked["conf"]) as session:
        _answer(session.sparkContext.applicationId)
        for line in sys.stdin:
            asked = json.loads(line)
            words = asked["words"]
            os.chdir(asked["cwd"])
            stdout, stderr = io.TextIOWrapper(io.BytesIO()), io.StringIO()
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                is_stream = words[0] == "stream"
                status = follow(session, *words[1:3]) if is_stream else run(words)
            stdout.flush()
            _answer((status, stdout.buffer.getvalue().decode(), stderr.getvalue()))


def _answer(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
