"""`kafkalog serve` as a long-lived process."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalog.wire.server.model import Address

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SECONDS_MAX: Final = 120
_COMMAND: Final = (sys.executable, "-m", "kafkalog_cli")


@dataclass(frozen=True)
class Server:
    """Something that speaks Kafka's protocol.

    Attributes:
        port: the port on this machine.
        process: the server's process.
        stderr: the file with its messages.
    """

    port: int
    process: subprocess.Popen[str]
    stderr: Path

    @property
    def address(self) -> str:
        return str(self.endpoint)

    @property
    def endpoint(self) -> Address:
        return Address("127.0.0.1", self.port)


def serve_command(paths: Sequence[Path], *options: str, first: Sequence[str] = ()) -> list[str]:
    return [*_COMMAND, *first, "serve", *map(str, paths), "--listen", "127.0.0.1:0", *options]


@contextmanager
def running_serve(
    paths: Sequence[Path], place: Path, *options: str, first: Sequence[str] = ()
) -> Iterator[Server]:
    """Run `kafkalog serve` and end it with SIGTERM; options of all commands come first."""
    place.mkdir(parents=True, exist_ok=True)
    said = place / "stderr"
    with said.open("w") as stderr:
        process = subprocess.Popen(
            serve_command(paths, *options, first=first), stdout=subprocess.PIPE, stderr=stderr,
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
