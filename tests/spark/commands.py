"""Command lines in one process with one session on a cluster: what each of them did.

What is asked comes as JSON on stdin: `master`, `conf`, `commands`. Starting a session and its
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

from kafkalog.spark import spark_session
from kafkalog_cli.main import run
from tests.spark.driver import REPOSITORY, WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

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
        timeout=WAIT_S,
        env={**os.environ, **own},
    )
    assert done.returncode == 0, done.stderr
    return [(status, stdout, stderr) for status, stdout, stderr in json.loads(done.stdout)]


def main() -> None:
    asked = json.load(sys.stdin)
    found: list[Any] = []
    with spark_session(asked["master"], asked["conf"]):
        for words in asked["commands"]:
            stdout, stderr = io.TextIOWrapper(io.BytesIO()), io.StringIO()
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                status = run(words)
            stdout.flush()
            found.append((status, stdout.buffer.getvalue().decode(), stderr.getvalue()))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
