"""Every client reads from `kafkalog serve` what Kafka's consumers read from the brokers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.crash.disk import tries_everything
from tests.kafka.conftest import new_seed
from tests.kafka.serve import readers
from tests.kafka.serve.readers import ISOLATIONS, READERS, Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.kafka.serve.gathered import Gathered, Partition
    from tests.kafka.serve.served import Server

pytestmark = pytest.mark.kafka

SAMPLE = 40
SHOWN_MAX = 5
NAMED = {"earliest": "earliest", "latest": "latest", "max-timestamp": "maxTimestamp"}


def recorded(gathered: Gathered) -> list[Partition]:
    """The partitions whose records somebody recorded."""
    found = [one for one in gathered.partitions.values() if one.records is not None]
    assert len(found) > 200
    return found


def drawn(partitions: list[Partition]) -> list[Partition]:
    """Return those of some topics, or in `make soak` all of them."""
    if tries_everything():
        return partitions
    seed = new_seed()
    print("seed", seed)
    topics = random.Random(seed).sample(sorted({one.topic for one in partitions}), SAMPLE)
    return [one for one in partitions if one.topic in topics]


def differences(
    reader: Reader, server: Server, partitions: Sequence[Partition], place: Path
) -> list[str]:
    rows = reader.read(server.address, partitions, place)
    found = readers.found_by(rows, reader.fields)
    different = []
    for one in partitions:
        for isolation in ISOLATIONS:
            wanted = readers.wanted_of(one, isolation, reader.fields)
            got = found.get((isolation, one.name), [])
            if got != wanted:
                pairs = zip(wanted, got, strict=False)
                first = next((f"{a}, but got {b}" for a, b in pairs if a != b), "")
                counts = f"{len(got)} of {len(wanted)} records"
                different.append(f"{one.name} {isolation}: {counts} {first[:600]}")
    return different


@pytest.mark.parametrize("reader", READERS, ids=lambda one: one.name)
def test_everything_is_read(
    reader: Reader, gathered: Gathered, server: Server, harness: None, tmp_path: Path
) -> None:
    """All partitions from the first record to the end, with and without what was aborted.

    A sample of the topics, or in `make soak` all of them.
    """
    assert harness is None
    some = drawn(recorded(gathered))
    found = differences(reader, server, some, tmp_path)
    assert not found, f"{len(found)} partitions differ:\n" + "\n".join(found[:SHOWN_MAX])


def questions(gathered: Gathered) -> dict[tuple[str, str, str], dict[str, int]]:
    """What ListOffsets answered: by partition, isolation level and target."""
    wanted = {}
    for one in gathered.partitions.values():
        told = one.lookups if one.records is not None else {}
        if "timestamps" not in told:
            continue  # 2.8 answered otherwise where a log was older than times
        for target, name in NAMED.items():
            plain = told[name]
            stable = told.get(f"{name}ReadCommitted", plain)
            wanted[one.name, "read_uncommitted", target] = plain
            wanted[one.name, "read_committed", target] = (
                told["lastStableOffset"] if target == "latest" else stable
            )
        for query in told["timestamps"]:
            target = str(query["target"])
            wanted[one.name, "read_uncommitted", target] = query
            wanted[one.name, "read_committed", target] = query.get("readCommitted", query)
    assert len(wanted) > 10_000
    return wanted


@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_lookups_are_those_of_the_brokers(
    client: str, gathered: Gathered, server: Server, harness: None, tmp_path: Path,
    tell: Callable[[str], None],
) -> None:  # fmt: skip
    """Each recorded answer of ListOffsets, by the newest Java client and by librdkafka."""
    assert harness is None
    wanted = questions(gathered)
    asked = [(gathered.partitions[name], *rest) for name, *rest in wanted]
    lines = "".join(
        f"{one.topic} {one.number} {isolation} {target}\n" for one, isolation, target in asked
    )
    command = (
        readers.java_command(server.address, "classic", "none")
        if client == "java"
        else readers.python_command(client, server.address)
    )
    found = {}
    for row in readers.run(command, lines, tmp_path):
        answer = {name: row[name] for name in ("offset", "timestamp", "epoch")}
        found[f"{row['topic']}-{row['partition']}", row["isolation"], row["target"]] = answer
    tell(f"{len(wanted)} lookups by {client}")
    different = [
        f"{key}: {found.get(key)}, recorded {answer}"
        for key, answer in wanted.items()
        if not is_answered(key[2], answer, found.get(key))
    ]
    assert not different, f"{len(different)} of {len(wanted)}:\n" + "\n".join(different[:10])


def is_answered(target: str, wanted: dict[str, int], found: dict[str, int] | None) -> bool:
    """The epoch of the end is the leader's at that time; that of a record never changes."""
    if found is None:
        return False
    same = (found["offset"], found["timestamp"]) == (wanted["offset"], wanted["timestamp"])
    return same and (target == "latest" or found["epoch"] == wanted["leaderEpoch"])
