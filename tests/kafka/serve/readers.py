"""Clients of Kafka that read: how each is set up and called, and what its records have to be."""

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
from tests.kafka.broker_data import TARGET
from tests.kafka.serve.gathered import as_recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.kafka.serve.gathered import Partition

ISOLATIONS: Final = ("read_uncommitted", "read_committed")
CLIENTS: Final = Path(__file__).parents[2] / "foreign" / "clients"
FIELDS: Final = ("offset", "timestamp", "timestampType", "key", "value", "headers")
SECONDS_MAX: Final = 300
_BUILD_SECONDS_MAX: Final = 900
_NOT_SAID: Final = {"NoTimestampType": "CreateTime"}
"""Batches of version 2, as which old ones are served, cannot say that they have no times."""
_OLDER_JARS: Final = ("jackson-core", "slf4j", "lz4", "zstd", "snappy")


@dataclass(frozen=True)
class Reader:
    """A client that reads all of some topics.

    Attributes:
        name: of the client.
        read: writes a line for each record, given an address, the topics and a place for files.
        fields: what its API tells of a record.
        tools: programs that have to be there.
    """

    name: str
    read: Callable[[str, Sequence[Partition], Path], Iterator[dict[str, Any]]]
    fields: tuple[str, ...] = FIELDS
    tools: tuple[str, ...] = ()

    def missing(self) -> str | None:
        """Which program is not there, in words."""
        names = [name for name in self.tools if shutil.which(name) is None]
        return f"{self.name}: not on this machine: {', '.join(names)}" if names else None


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


def java_command(*args: str, older: bool = False) -> list[str]:
    """`ClientReader` with the newest client, or with an older one's jar in its place."""
    command = broker_data.java_command("kafkalog.harness.ClientReader", *args)
    if older:
        shared = [str(jar) for name in _OLDER_JARS for jar in TARGET.glob(f"lib/{name}*.jar")]
        of_ours = [str(TARGET / "classes"), str(TARGET / "older-client" / "*")]
        command[command.index("-cp") + 1] = os.pathsep.join([*of_ours, *shared])
    return command


def _java(protocol: str, *, older: bool) -> Callable[..., Iterator[dict[str, Any]]]:
    def read(address: str, partitions: Sequence[Partition], place: Path) -> Iterator[Any]:
        command = java_command(address, protocol, ",".join(ISOLATIONS), older=older)
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


def _spark(address: str, partitions: Sequence[Partition], place: Path) -> Iterator[Any]:
    """Spark's Kafka source with the client that it was built with."""
    jars = [*TARGET.glob("spark-source/*.jar"), *TARGET.glob("older-client/*.jar")]
    command = python_command("spark", address, ",".join(map(str, jars)))
    return run(command, _lines(topics_of(partitions)), place)


def _franz_go(address: str, partitions: Sequence[Partition], place: Path) -> Iterator[Any]:
    program = TARGET / "franz-go"
    with broker_data.locked(TARGET / "franz-go.lock"):
        command = ["go", "build", "-o", str(program), "./read"]
        subprocess.run(command, cwd=CLIENTS / "go", check=True, timeout=_BUILD_SECONDS_MAX)
    return run([str(program), address, ",".join(ISOLATIONS)], _lines(topics_of(partitions)), place)


def _kafkajs(address: str, partitions: Sequence[Partition], place: Path) -> Iterator[Any]:
    """It tells nobody where a partition ends, so it is told how many records there are."""
    there = TARGET / "kafkajs"
    with broker_data.locked(TARGET / "kafkajs.lock"):
        shutil.copytree(CLIENTS / "kafkajs", there, dirs_exist_ok=True)
        command = ["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=there, check=True, timeout=_BUILD_SECONDS_MAX)
    counts = [
        f"{one.topic} {one.number} {len(wanted_of(one, isolation, ('offset',)))} {isolation}"
        for isolation in ISOLATIONS
        for one in partitions
    ]
    assert place.exists()
    return run(["node", "read.js", address, ",".join(ISOLATIONS)], _lines(counts), there)


def _kcat(address: str, partitions: Sequence[Partition], place: Path) -> Iterator[Any]:
    """One process for each topic; lengths tell where a key and a value end, null is -1."""
    for isolation in ISOLATIONS:
        for topic in topics_of(partitions):
            done = subprocess.run(
                ["kcat", "-C", "-q", "-b", address, "-t", topic, "-o", "beginning", "-e",
                 "-X", f"isolation.level={isolation}", "-X", "check.crcs=true",
                 "-f", "%p %o %T %K %S %k%s\n"],
                capture_output=True, cwd=place, timeout=SECONDS_MAX, check=False,
            )  # fmt: skip
            assert done.returncode == 0, (topic, done.stderr)
            for row in _rows_of_kcat(done.stdout):
                yield {"isolation": isolation, "topic": topic, **row}


def _rows_of_kcat(printed: bytes) -> Iterator[dict[str, Any]]:
    while printed:
        *numbers, rest = printed.split(b" ", 5)
        partition, offset, ms, *sizes = map(int, numbers)
        parts: list[str | None] = []
        for size in sizes:
            data, rest = rest[: max(size, 0)], rest[max(size, 0) :]
            parts.append(None if size < 0 else base64.b64encode(data).decode())
        assert rest[:1] == b"\n", rest[:80]
        printed = rest[1:]
        yield {"partition": partition, "offset": offset, "timestamp": ms,
               "key": parts[0], "value": parts[1]}  # fmt: skip


WHOLE: Final = (
    Reader("java", _java("classic", older=False)),
    Reader("java-3.9", _java("classic", older=True)),
    Reader("librdkafka", _python("librdkafka")),
    Reader("kafka-python", _python("kafka-python")),
)
"""Those that read everything each time."""
OTHERS: Final = (
    Reader("java-consumer-protocol", _java("consumer", older=False)),
    Reader("aiokafka", _python("aiokafka")),
    Reader("kcat", _kcat, ("offset", "timestamp", "key", "value"), ("kcat",)),
    Reader("franz-go", _franz_go, tools=("go",)),
    Reader("kafkajs", _kafkajs, ("offset", "timestamp", "key", "value", "headers"),
           ("node", "npm")),
    Reader("spark", _spark),
)  # fmt: skip


def wanted_of(one: Partition, isolation: str, fields: Sequence[str]) -> list[dict[str, Any]]:
    """What was recorded of a partition, as one isolation level has it."""
    assert one.records is not None
    committed = None if isolation == "read_uncommitted" else one.committed
    return [
        {name: _NOT_SAID.get(record[name], record[name]) if name == "timestampType" else record[name]
         for name in fields}
        for record in one.records
        if committed is None or record["offset"] in committed
    ]


def found_by(
    rows: Iterator[dict[str, Any]], fields: Sequence[str]
) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What a client wrote, by isolation and partition, as the corpus has records."""
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
