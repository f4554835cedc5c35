"""KafkaOracle as a long-lived process: a JVM starts once and answers command after command."""

from __future__ import annotations

import json
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Self

from formats.releases import by_name
from tests.kafka import broker_data
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pathlib import Path


class Oracle:
    """Kafka's storage classes in a JVM of their own; use it as a context manager.

    Args:
        cwd: the directory of relative paths in commands.
        release: the name of the one whose classes they are.

    Attributes:
        release: what kafkalog knows of it.
    """

    command = (broker_data.ORACLE, "batch", "-")
    options = broker_data.JVM_OPTIONS

    def __init__(self, cwd: Path, release: str = broker_data.RELEASE) -> None:
        self._cwd = cwd
        self.release = by_name(release)

    def __enter__(self) -> Self:
        self._stderr = tempfile.TemporaryFile("a+")  # closed with the process
        self._process = subprocess.Popen(
            broker_data.java_command(
                *self.command, options=self.options, release=self.release.name
            ),
            cwd=self._cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.read()
        self._process.stdout.close()
        self._process.wait(HANG_S)
        self._stderr.close()

    def ask(self, *command: object) -> dict[str, Any]:
        """Return Kafka's answer; `error` in it holds the text of an exception.

        Raises:
            HarnessError: The process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command, default=str) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._stderr.seek(0)
            raise broker_data.HarnessError(f"{command}\n{self._stderr.read()}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def config_words(config: dict[str, str]) -> list[str]:
    """Return the configs of a topic as options of a command."""
    return [word for name in config for word in ("--config", f"{name}={config[name]}")]
