"""Kafka clients that read: how each is set up and called, and what its records must be."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.kafka import broker_data
from tests.kafka.serve.gathered import as_recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.kafka.serve.gathered import Partition

ISOLATIONS: Final = ("read_uncommitted", "read_committed")
CLIENTS: Final = Path(__file__).parents[2] / "foreign" / "clients"
FIELDS: Final = ("offset", "timestamp", "timestampType", "key", "value", "headers")
SECONDS_MAX: Final = 300
_NOT_SAID: Final = {"NoTimestampType": "CreateTime"}
"""Batches of version 2, as which old ones are served, cannot say that they have no times."""


@dataclass(frozen=True)
class Reader:
    """A client that reads all of some topics.

    Attributes:
        name: of the client.
        read: writes a line for each record, given an address, the topics and a place for files.
        fields: the fields of a record that its API returns.
        software: the software name that it sends to a broker, if it sends one.
        misreads: prefixes of the topics that it also reads wrongly from a broker.
    """

    name: str
    read: Callable[[str, Sequence[Partition], Path], Iterator[dict[str, Any]]]
    fields: tuple[str, ...] = FIELDS
    software: str = ""
    misreads: tuple[str, ...] = ()


def run(command: Sequence[str], stdin: str, cwd: Path, **environ: str) -> Iterator[dict[str, Any]]:
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, encoding="utf-8", cwd=cwd,
        timeout=SECONDS_MAX, check=False, env={**os.environ, **environ},
    )  # fmt: skip
    assert done.returncode == 0, f"{command[:3]}: {done.returncode}\n{done.stderr[-3000:]}"
    yield from map(json.loads, done.stdout.splitlines())


def topics_of(partitions: Sequence[Partition]) -> list[str]:
    return sorted({one.topic for one in partitions})


def _lines(words: Sequence[object]) -> str:
    return "".join(f"{word}\n" for word in words)


def java_command(*args: str, lib: str = "") -> list[str]:
    """Return the command of the newest Java client, or of the version whose jars are in `lib`."""
    return broker_data.java_command("kafkalog.harness.ClientReader", *args, lib=lib)


def _java(protocol: str, lib: str = "") -> Callable[..., Iterator[dict[str, Any]]]:
    def read(address: str, partitions: Sequence[Partition], place: Path) -> Iterator[Any]:
        command = java_command(address, protocol, ",".join(ISOLATIONS), lib=lib)
        return run(command, _lines(topics_of(partitions)), place)

    return read


def python_command(client: str, address: str, *more: str) -> list[str]:
    program = CLIENTS / "python" / "read.py"
    return [sys.executable, str(program), client, address, ",".join(ISOLATIONS), *more]


def _python(client: str) -> Callable[..., Iterator[dict[str, Any]]]:
    def read(address: str, partitions: Sequence[Partition], place: Path) -> Iterator[Any]:
        command = python_command(client, address)
        return run(command, _lines(topics_of(partitions)), place)

    return read


def kcat(address: str, partitions: Sequence[Partition], place: Path) -> Iterator[dict[str, Any]]:
    """Read with kcat, which writes raw keys and values after their sizes (-1 for null)."""
    for isolation in ISOLATIONS:
        for topic in topics_of(partitions):
            command = [
                "kcat", "-C", "-q", "-e", "-b", address, "-t", topic, "-o", "beginning",
                "-X", f"isolation.level={isolation}", "-X", "fetch.wait.max.ms=5",
                "-X", "check.crcs=true", "-f", "%p %o %T %K %S\n%k%s",
            ]  # fmt: skip
            done = subprocess.run(
                command, capture_output=True, cwd=place, timeout=SECONDS_MAX, check=False
            )
            assert done.returncode == 0, done.stderr[-3000:]
            for row in _of_kcat(done.stdout):
                yield {"isolation": isolation, "topic": topic, **row}


def _of_kcat(data: bytes) -> Iterator[dict[str, Any]]:
    position = 0
    while position < len(data):
        end = data.index(b"\n", position)
        number, offset, timestamp, *sizes = map(int, data[position:end].split())
        row: dict[str, Any] = {"partition": number, "offset": offset, "timestamp": timestamp}
        position = end + 1
        for name, size in zip(("key", "value"), sizes, strict=True):
            held = data[position : position + max(size, 0)]
            row[name] = None if size < 0 else base64.b64encode(held).decode()
            position += len(held)
        yield row


_SET_UP: Final[dict[str, tuple[str, ...]]] = {
    "go": ("go", "build", "-o", "franz_read.bin", "./franz_read"),
    "kafkajs": ("npm", "ci", "--silent"),
    "spark": ("mvn", "-q", "-B", "package"),
}


def _foreign(directory: str, *command: str) -> Callable[..., Iterator[dict[str, Any]]]:
    """Return a reader that installs and runs a program below `tests/foreign/clients`."""

    def read(address: str, partitions: Sequence[Partition], place: Path) -> Iterator[Any]:
        home = place / directory
        shutil.copytree(CLIENTS / directory, home)
        subprocess.run(_SET_UP[directory], cwd=home, check=True)
        more = (address, ",".join(ISOLATIONS))
        yield from run((*command, *more), _lines(topics_of(partitions)), home)

    return read


READERS: Final = (
    Reader("java", _java("classic"), software=f"apache-kafka-java {broker_data.RELEASE}"),
    Reader("java-consumer-protocol", _java("consumer")),
    Reader("java-3.9", _java("classic", "lib-3.9"), software="apache-kafka-java 3.9"),
    Reader("kcat", kcat, ("offset", "timestamp", "key", "value"), software="librdkafka"),
    Reader("librdkafka", _python("librdkafka")),
    Reader("kafka-python", _python("kafka-python")),
    Reader("aiokafka", _python("aiokafka")),
)
FOREIGN: Final = (
    Reader("franz-go", _foreign("go", "./franz_read.bin"), software="kgo"),
    Reader(
        "kafkajs", _foreign("kafkajs", "node", "read.js"),
        ("offset", "timestamp", "key", "value"),
        misreads=(
            "txn-v0.",  # it shows what was aborted
            # So too here: it takes the aborted transactions for sorted by their first offsets, but
            # a broker sorts them by their last ones.
            "txn.txn",
            # It moves on by the records that it gets, not by the last offset of a batch. Where all
            # batches up to the end of a segment are empty, it fetches them for ever.
            "compact-1-first-pass.compact-idle-producer",
            "compact-2-later-passes.compact-idle-producer",
            "compact-2-later-passes.compact-gzip",
        ),
    ),
    Reader("spark", _foreign("spark", sys.executable, "read.py")),
)  # fmt: skip
"""They need Go, Node and minutes to be installed: only in `make test-all`."""


def wanted_of(one: Partition, isolation: str, fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return the recorded records of a partition for one isolation level."""
    assert one.records is not None
    committed = None if isolation == "read_uncommitted" else one.committed
    return [
        {
            name: _NOT_SAID.get(record[name], record[name])
            if name == "timestampType"
            else record[name]
            for name in fields
        }
        for record in one.records
        if committed is None or record["offset"] in committed
    ]


def found_by(
    rows: Iterator[dict[str, Any]], fields: Sequence[str]
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return what a client wrote, by isolation and partition, in the form of the corpus."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        record = {
            "offset": row["offset"],
            "timestamp": row["timestamp"],
            "timestampType": _NOT_SAID.get(row.get("type"), row.get("type")),
            "key": _decoded(row["key"]),
            "value": _decoded(row["value"]),
            "headers": [[name, _decoded(data)] for name, data in row.get("headers") or ()],
        }
        place = (row["isolation"], f"{row['topic']}-{row['partition']}")
        found.setdefault(place, []).append({name: record[name] for name in fields})
    return found


def _decoded(text: str | None) -> Any:
    return as_recorded(None if text is None else base64.b64decode(text))
