"""Every client reads from `kafkalog serve` what Kafka's consumers read from the brokers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.kafka.serve import readers
from tests.kafka.serve.readers import FOREIGN, ISOLATIONS, READERS, Reader
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.kafka.serve.gathered import Gathered, Partition
    from tests.kafka.serve.served import Server

pytestmark = pytest.mark.kafka

SAMPLE = 15
SHOWN_MAX = 5


def recorded(gathered: Gathered) -> list[Partition]:
    """Return the partitions whose records were recorded."""
    found = [one for one in gathered.partitions.values() if one.records is not None]
    assert len(found) > 200
    return found


def drawn(partitions: list[Partition]) -> list[Partition]:
    """Return the partitions of some topics, or all of them in `make test-all`."""
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


ALL = READERS + (FOREIGN if tries_everything() else ())


@pytest.mark.parametrize("reader", ALL, ids=lambda one: one.name)
def test_everything_is_read(
    reader: Reader, gathered: Gathered, server: Server, harness: None, tmp_path: Path
) -> None:
    """All partitions are read from the first record to the end, with and without aborted records.

    The run takes a sample of the topics, or all of them in `make test-all`.
    """
    assert harness is None
    some = [one for one in drawn(recorded(gathered)) if not one.topic.startswith(reader.misreads)]
    found = differences(reader, server, some, tmp_path)
    assert not found, f"{len(found)} partitions differ:\n" + "\n".join(found[:SHOWN_MAX])
    assert f"({reader.software}" in server.stderr.read_text()
