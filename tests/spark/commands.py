"""Command lines in one process with one session on a cluster: what each of them did.

What is asked comes as JSON on stdin: `master`, `conf`, `commands`; the command `stream SOURCE TO`
is a query of the data source. Starting a session and its
executors takes far longer than most commands do.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from kafkalog.errors import KafkaLogError
from kafkalog.spark import KafkaLogDataSource, spark_session
from kafkalog.spark.errors import errors_as_ours
from kafkalog_cli.main import run
from kafkalog_cli.outcome import show_error
from tests.spark.driver import REPOSITORY, WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.cluster import Cluster


def run_commands(
    cluster: Cluster, cwd: Path, commands: Iterable[Sequence[object]]
) -> list[tuple[int, str, str]]:
    """Exit status, stdout and stderr of each command line; `--master` is added."""
    own = {"PYTHONPATH": str(REPOSITORY), "TMPDIR": str(cwd), "PYTHONWARNINGS": "error"}
    asked = {
        "master": cluster.master,
        "conf": cluster.conf,
        "commands": [[*map(str, words), "--master", cluster.master] for words in commands],
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.commands"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=2 * WAIT_S,
        env={**os.environ, **own},
    )
    assert done.returncode == 0, done.stderr
    return [(status, stdout, stderr) for status, stdout, stderr in json.loads(done.stdout)]


def follow(session: SparkSession, source: str, to: str) -> int:
    """Copy what a stream is given now to Parquet; say what stops it as commands do."""
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
    asked = json.load(sys.stdin)
    found: list[Any] = []
    with spark_session(asked["master"], asked["conf"]) as session:
        for words in asked["commands"]:
            stdout, stderr = io.TextIOWrapper(io.BytesIO()), io.StringIO()
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                is_stream = words[0] == "stream"
                status = follow(session, *words[1:3]) if is_stream else run(words)
            stdout.flush()
            found.append((status, stdout.buffer.getvalue().decode(), stderr.getvalue()))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
