"""Clients of Kafka that read: how each is set up and called, and what its records have to be."""

from __future__ import annotations

import base64
import json
import os
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
        fields: what its API tells of a record.
    """

    name: str
    read: Callable[[str, Sequence[Partition], Path], Iterator[dict[str, Any]]]
    fields: tuple[str, ...] = FIELDS


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


def java_command(*args: str) -> list[str]:
    """The newest Java client."""
    return broker_data.java_command("kafkalog.harness.ClientReader", *args)


def _java(protocol: str) -> Callable[..., Iterator[dict[str, Any]]]:
    def read(address: str, partitions: Sequence[Partition], place: Path) -> Iterator[Any]:
        command = java_command(address, protocol, ",".join(ISOLATIONS))
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


READERS: Final = (
    Reader("java", _java("classic")),
    Reader("java-consumer-protocol", _java("consumer")),
    Reader("librdkafka", _python("librdkafka")),
    Reader("kafka-python", _python("kafka-python")),
    Reader("aiokafka", _python("aiokafka")),
)


def wanted_of(one: Partition, isolation: str, fields: Sequence[str]) -> list[dict[str, Any]]:
    """What was recorded of a partition, as one isolation level has it."""
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
