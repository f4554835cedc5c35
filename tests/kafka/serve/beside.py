"""A stock broker on a copy of the gathered logs, and answers that can be compared with ours.

`resurrect` makes metadata for the copy. The broker starts on the files of the original directories,
with their checkpoints, so that it recovers the logs that were not closed.
"""

from __future__ import annotations

import base64
import shutil
import struct
import subprocess
import sys
import time
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafkalog.wire.server.model import Address
from tests.kafka import broker_data
from tests.kafka.booted import Life
from tests.kafka.serve.drawn_requests import Log
from tests.kafkalog.wire.server.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.kafka.booted import Brokers
    from tests.kafka.serve.drawn_requests import Request
    from tests.kafka.serve.gathered import Gathered, Partition

SECONDS_MAX: Final = 120
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
_KEPT: Final = ("bootstrap.checkpoint", "meta.properties")
_HARMLESS: Final = (
    "ASSIGN_REPLICAS_TO_DIRS", "assignments failed",  # before the broker has its epoch
    "Error processing fetch with max size -1", "Unexpected error handling request",  # drawn so
)  # fmt: skip
EXCLUDED: Final = {
    "throttleTimeMs": "there are no quotas here",
    "sessionId": "there are no fetch sessions: a broker gives one to who asks",
    "clusterId": "the copy's cluster is a new one",
    "host": "two servers",
    "port": "two servers",
}
"""What may differ, and why.

Besides: a node's own number counts as `self`; a broker that starts leads in a new epoch, which
counts as the last one in the log; operations count as told or not told, since fewer are allowed on
files; and the bytes of magic 0 and 1, which are served rebuilt.
"""
_OWN: Final = ("leaderId", "controllerId", "nodeId")
_OPERATIONS: Final = ("topicAuthorizedOperations", "clusterAuthorizedOperations")
_EPOCHS: Final = ("leaderEpoch", "epoch")
_NOT_TOLD: Final = -(1 << 31)


def kafka_home(gathered: Gathered, home: Path) -> list[Path]:
    """Lay out a home for a broker; return its log directories with the copies."""
    command = [sys.executable, "-m", "kafkalog_cli", "resurrect", *gathered.log_dirs,
               "--to", home, "--salvage", "--kafka", broker_data.RELEASE]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 8, done.stderr  # two logs are damaged inside
    for path in (home / "log").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in _KEPT:
            path.unlink()
    properties = (home / "log" / "meta.properties").read_text()
    copies = []
    for log_dir in gathered.log_dirs:
        copy = home / log_dir.name
        shutil.copytree(log_dir, copy)
        own_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        lines = [line for line in properties.splitlines() if not line.startswith("directory.id")]
        text = "\n".join((*lines, f"directory.id={own_id}", ""))
        (copy / "meta.properties").write_text(text)
        copies.append(copy)
    return copies


@contextmanager
def running_kafka(
    brokers: Brokers, gathered: Gathered, home: Path
) -> Iterator[tuple[Address, list[Path]]]:
    """Run a broker on a copy, wait for all leaders, yield its address and log directories."""
    copies = kafka_home(gathered, home)
    log_dirs = ",".join(map(str, (home / "log", *copies)))
    with Life(
        brokers, home / "server.properties", home / "log", home / "told", {"log.dirs": log_dirs},
        harmless=_HARMLESS,
    ) as life:  # fmt: skip
        host, _, port = life.addresses["PLAINTEXT"].rpartition(":")
        address = Address(host, int(port))
        with Wire(address) as wire:
            deadline = time.monotonic() + SECONDS_MAX
            for one in gathered.partitions.values():
                while list_offset(wire, one, LATEST)["errorCode"]:
                    assert time.monotonic() < deadline, one.name
                    time.sleep(0.05)
        yield address, copies


def list_offset(wire: Wire, one: Partition, timestamp: int, isolation: int = 0) -> dict[str, Any]:
    answer = wire.tell("ListOffsets", 7, replicaId=-1, isolationLevel=isolation, topics=[
        {"name": one.topic, "partitions": [{"partitionIndex": one.number, "timestamp": timestamp}]}
    ])  # fmt: skip
    found: dict[str, Any] = answer["topics"][0]["partitions"][0]
    return found


@dataclass
class Side:
    """A server that answers requests.

    Attributes:
        name: for messages.
        wire: the connection.
        node: the id of the only node.
        epochs: its current leader epoch, by topic and partition.
        topic_ids: of all topics.
    """

    name: str
    wire: Wire
    node: int
    epochs: dict[tuple[str, int], int]
    topic_ids: dict[str, str]

    def ask(self, request: Request) -> dict[str, Any]:
        return self.wire.tell(request.api, request.version, **request.for_leader(self.epochs))


@contextmanager
def sides(addresses: Mapping[str, Address]) -> Iterator[list[Side]]:
    """Connect to servers, and read their metadata."""
    with ExitStack() as stack:
        found = []
        for name, address in addresses.items():
            wire = stack.enter_context(Wire(address))
            told = wire.tell("Metadata", 12, topics=None)
            epochs = {
                (topic["name"], one["partitionIndex"]): one["leaderEpoch"]
                for topic in told["topics"]
                for one in topic["partitions"]
            }
            ids = {topic["name"]: topic["topicId"] for topic in told["topics"]}
            found.append(Side(name, wire, told["controllerId"], epochs, ids))
        yield found


def known_logs(kafka: Side, ours: Side, gathered: Gathered) -> list[Log]:
    """Return what a generator needs to know; the offsets come from Kafka."""
    logs = []
    for one in gathered.partitions.values():
        key = one.topic, one.number
        end = list_offset(kafka.wire, one, LATEST)["offset"]
        [path] = [path / one.name for path in gathered.log_dirs if (path / one.name).exists()]
        targets = [int(query["target"]) for query in one.lookups.get("timestamps", ())]
        targets += [int(query["time"]) for query in one.lookups.get("offsetsForTimes", ())]
        logs.append(Log(
            *key, kafka.topic_ids[one.topic],
            start=list_offset(kafka.wire, one, EARLIEST)["offset"],
            stable=list_offset(kafka.wire, one, LATEST, 1)["offset"],
            end=end,
            epoch=ours.epochs[key],
            has_epoch=has_epoch(path, ours.epochs[key], end),
            times=(*targets, list_offset(kafka.wire, one, MAX_TIMESTAMP)["timestamp"]),
            bases=tuple(int(log.stem) for log in path.glob("*.log")),
            is_old=any(map(has_old_magic, path.glob("*.log"))),
        ))  # fmt: skip
    return logs


def has_epoch(partition: Path, epoch: int, end: int) -> bool:
    """Return whether the leader of an epoch has appended something."""
    path = partition / "leader-epoch-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    noted = [tuple(map(int, line.split())) for line in lines]
    return any(one == epoch and start < end for one, start in noted)


def has_old_magic(log: Path) -> bool:
    data, position = log.read_bytes(), 0
    while position + 17 <= len(data):
        [length] = struct.unpack_from(">i", data, position + 8)
        if length <= 0:
            break
        if data[position + 16] < 2:
            return True
        position += 12 + length
    return False


def answers(side: Side, logs: Mapping[tuple[str, int], Log], answer: dict[str, Any]) -> Any:
    """Return the comparable part of a response, without the order of partitions."""
    names = {topic_id: name for name, topic_id in side.topic_ids.items()}
    part = "responses" if "responses" in answer else "topics"
    rest = {name: value for name, value in answer.items() if name != part}
    found: dict[str, list[Any]] = {"": [_plain(rest, side, None)]}
    for topic in answer[part]:
        told = {name: value for name, value in topic.items() if name != "partitions"}
        topic_id = topic.get("topicId")
        name = topic.get("name") or topic.get("topic") or names.get(topic_id) or ""
        if "isInternal" in topic:
            found.setdefault(f"{name} {topic_id}", []).append(_plain(told, side, None))
        for one in topic["partitions"]:
            number = one["partition" if "partition" in one else "partitionIndex"]
            log = logs.get((name, number))
            if log is not None and log.is_old and "records" in one:
                one["records"] = bool(one["records"])
            key = f"{topic.get('name')} {topic.get('topic')} {topic_id} {number}"
            found.setdefault(key, []).append(_plain(one, side, log))
    return found


def _plain(value: Any, side: Side, log: Log | None) -> Any:
    if isinstance(value, list):
        return [_plain(one, side, log) for one in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for name, one in value.items():
        if name in EXCLUDED:
            continue
        if name in _OWN and one == side.node:
            found[name] = "self"
        elif name in ("replicaNodes", "isrNodes"):
            found[name] = ["self" if node == side.node else node for node in one]
        elif name in _OPERATIONS:
            found[name] = one == _NOT_TOLD
        elif name in _EPOCHS and log and one == side.epochs[log.topic, log.number]:
            found[name] = log.epoch
        else:
            found[name] = _plain(one, side, log)
    return found


def different(wanted: Any, got: Any, place: str = "") -> Iterator[str]:
    """Yield where two answers differ."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for name in wanted.keys() | got.keys():
            yield from different(wanted.get(name), got.get(name), f"{place}.{name}")
    elif isinstance(wanted, list) and isinstance(got, list) and len(wanted) == len(got):
        for one, other in zip(wanted, got, strict=True):
            yield from different(one, other, place)
    elif wanted != got:
        yield f"{place}: {str(wanted)[:200]}, but got {str(got)[:200]}"
