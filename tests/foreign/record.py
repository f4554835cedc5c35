"""Records what foreign clients write through a real broker: `python -m tests.foreign.record`.

Each client is a program below `clients`, with its versions pinned. It gets a broker of its own,
writes what it can into the topics of `TOPICS`, and ends; then Java consumers read all of it, the
broker is shut down, and Kafka's own tool prints each file. The log directory and the output of the
tools become `tests/corpus/foreign/CLIENT.tar.xz` and `CLIENT.expected.tar.xz`. Tests read these.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.kafka import broker_data

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE: Final = Path(__file__).parent / "clients"
CORPUS: Final = Path(__file__).parents[1] / "corpus" / "foreign"
TOPICS: Final = (
    "plain", "headers", "times", "many", "big", "gzip", "snappy", "lz4", "zstd", "idempotent",
    "transactional",
)  # fmt: skip
_SECONDS_MAX: Final = 900


@dataclass(frozen=True)
class Client:
    """A program that writes.

    Attributes:
        name: of its recording.
        directory: of its sources, below `clients`.
        set_up: commands that install it, in a copy of its directory.
        command: runs it there; the broker's address is added.
    """

    name: str
    directory: str
    set_up: tuple[tuple[str, ...], ...]
    command: tuple[str, ...]


_PYTHON: Final = (
    (sys.executable, "-m", "venv", "venv"),
    ("venv/bin/pip", "install", "--quiet", "--requirement", "requirements.txt"),
)
CLIENTS: Final = (
    Client("librdkafka", "python", _PYTHON, ("venv/bin/python", "librdkafka_client.py")),
    Client("aiokafka", "python", _PYTHON, ("venv/bin/python", "aiokafka_client.py")),
    Client("kafka-python", "python", _PYTHON, ("venv/bin/python", "kafka_python_client.py")),
    Client("franz-go", "go", (("go", "build", "-o", "franz.bin", "./franz"),), ("./franz.bin",)),
    Client("sarama", "go", (("go", "build", "-o", "sarama.bin", "./sarama"),), ("./sarama.bin",)),
    Client("kafkajs", "kafkajs", (("npm", "ci", "--silent"),), ("node", "client.js")),
    Client("rskafka", "rskafka", (("cargo", "build", "--quiet", "--locked"),),
           ("target/debug/rskafka-client",)),
    Client("java-2.1", "java", (("mvn", "-q", "-B", "package"),),
           ("java", "-cp", "target/classes:target/lib/*", "OldClient")),
)  # fmt: skip


def record(client: Client, work: Path) -> None:
    """Run a client against its own broker, and put the results into the corpus."""
    place = work / client.directory
    shutil.copytree(HERE / client.directory, place, dirs_exist_ok=True)
    for command in client.set_up:
        subprocess.run(command, cwd=place, check=True, timeout=_SECONDS_MAX)
    with tempfile.TemporaryDirectory(dir=work) as top:
        root = Path(top) / client.name
        (root / "cwd").mkdir(parents=True)
        broker = subprocess.Popen(
            broker_data.java_command("kafkalog.harness.RecordedBroker", str(root), *TOPICS),
            cwd=root / "cwd", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert broker.stdin is not None
        assert broker.stdout is not None
        try:
            word, port = broker.stdout.readline().split()
            assert word == "running", word
            address = f"127.0.0.1:{port}"
            subprocess.run([*client.command, address], cwd=place, check=True, timeout=_SECONDS_MAX)
            broker.stdin.close()
            assert broker.wait(_SECONDS_MAX) == 0
        finally:
            broker.kill()
            broker.wait()
        pack(root / "log", CORPUS / f"{client.name}.tar.xz", client.name)
        pack(root / "expected", CORPUS / f"{client.name}.expected.tar.xz",
              f"{client.name}.expected")  # fmt: skip


def pack(directory: Path, archive: Path, name: str) -> None:
    """Pack a directory like the other archives of the corpus: times kept, no owners."""
    archive.parent.mkdir(exist_ok=True)
    subprocess.run(
        ["tar", "--sparse", "--format=posix", "--owner=0", "--group=0", "--numeric-owner",
         "--sort=name", f"--transform=s,^{directory.name},{name},", "-cJf", archive,
         "-C", directory.parent, directory.name],
        check=True,
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Record the clients named, or all if no name is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", choices=[[], *(one.name for one in CLIENTS)])
    parser.add_argument("--work", type=Path, help="where clients are installed, and stay")
    arguments = parser.parse_args(argv)
    broker_data.build()
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        for client in CLIENTS:
            if not arguments.clients or client.name in arguments.clients:
                record(client, work.resolve())
                sys.stdout.write(f"{client.name} recorded\n")


if __name__ == "__main__":
    main()
