"""`kafkalog serve` and a real broker as processes that stay, each on log directories of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.kafka.serve.gathered import Gathered

SECONDS_MAX: Final = 120
_COMMAND: Final = (sys.executable, "-m", "kafkalog_cli", "serve")


@dataclass(frozen=True)
class Server:
    """Something that speaks Kafka's protocol.

    Attributes:
        port: where, on this machine.
        process: of its own.
        stderr: where its words are.
    """

    port: int
    process: subprocess.Popen[str]
    stderr: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def memory(self) -> int:
        """The bytes that its process has in memory."""
        with open(f"/proc/{self.process.pid}/status") as lines:
            [line] = [line for line in lines if line.startswith("VmRSS:")]
        return int(line.split()[1]) << 10

    def files(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def serve_command(paths: Sequence[Path], *options: str) -> list[str]:
    return [*_COMMAND, *map(str, paths), "--listen", "127.0.0.1:0", *options]


@contextmanager
def running_serve(
    paths: Sequence[Path], place: Path, *options: str, before: Sequence[str] = ()
) -> Iterator[Server]:
    """`kafkalog serve`, ended with SIGTERM; `before` is a program that runs it.

    What it said goes to stderr where it did not end well.
    """
    place.mkdir(parents=True, exist_ok=True)
    said = place / "stderr"
    with said.open("w") as stderr:
        process = subprocess.Popen(
            [*before, *serve_command(paths, *options)], stdout=subprocess.PIPE, stderr=stderr,
            text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        name, _, address = line.strip().partition("=")
        assert name == "bootstrap.servers", f"{line!r}\n{said.read_text()}"
        yield Server(int(address.rpartition(":")[2]), process, said)
        assert process.poll() is None, f"it ended: {process.returncode}\n{said.read_text()[-3000:]}"
        process.send_signal(signal.SIGTERM)
        process.wait(SECONDS_MAX)
        assert "Traceback" not in said.read_text(), said.read_text()[-3000:]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def running_broker(gathered: Gathered, place: Path) -> Iterator[Server]:
    """A real broker, which changes the log directories that it is given."""
    place.mkdir(parents=True, exist_ok=True)
    said = place / "stderr"
    words = [str(place), *map(str, gathered.log_dirs)]
    with said.open("w") as stderr:
        process = subprocess.Popen(
            broker_data.java_command("kafkalog.harness.GatheredBroker", *words), cwd=place,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
        )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        word, _, port = process.stdout.readline().partition(" ")
        assert word == "running", said.read_text()[-3000:]
        yield Server(int(port), process, said)
    finally:
        process.kill()  # nobody needs what it leaves
        process.wait()
        process.stdin.close()
        process.stdout.close()


class Bridge:
    """Kafka's own classes, which write requests and read answers: `ProtocolBridge`."""

    def __init__(self, place: Path) -> None:
        self._stderr = (place / "bridge-stderr").open("w+")
        self._process = subprocess.Popen(
            broker_data.java_command("kafkalog.harness.ProtocolBridge"), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._stderr, text=True, encoding="utf-8",
        )  # fmt: skip

    def ask(self, port: int, api: str, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """What the one at a port answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        question = {"port": port, "api": api, "version": version, "body": body}
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._stderr.seek(0)
            raise broker_data.HarnessError(f"{question}\n{self._stderr.read()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(SECONDS_MAX)
        self._process.stdout.close()
        self._stderr.close()
