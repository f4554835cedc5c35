"""What is put together from damaged copies of a quorum, by Kafka's own metadata image."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.node.quorum.quorum import read_quorum
from kafkalog.node.targets import open_targets
from tests.builders import flip, frames
from tests.kafkalog.node.quorum.test_copies import ENDS
from tests.nodes import METADATA
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.node.quorum.choice import Merge
    from tests.kafka.conftest import Ask

pytestmark = pytest.mark.kafka

NODES = (1, 2, 12)
ROUNDS = 60 if tries_everything() else 8


def put_together(merged: Merge, directory: Path) -> None:
    """Write the snapshot and the log of a merge, cut out of the files that it names."""
    directory.mkdir()
    if merged.snapshot is not None:
        shutil.copy(merged.snapshot.entry.path, directory)
    log = b""
    for part in merged.parts:
        for segment in part.replica.partition.segments:
            data = Path(segment.log.path).read_bytes()
            for at, size in sound_frames(data):
                offset = int.from_bytes(data[at : at + 8], "big")
                if part.start <= offset < part.end:
                    log += data[at : at + size]
    (directory / f"{merged.start:020}.log").write_bytes(log)


def sound_frames(data: bytes) -> list[tuple[int, int]]:
    """Return the batches up to and behind damage; a wrong length ends them."""
    return [(at, size) for at, size in frames(data) if 0 < size <= len(data) - at]


@pytest.mark.parametrize("name", ENDS)
def test_an_image_of_damaged_copies_is_that_of_the_sound_one(
    name: str, metadata_trees: Ask, corpus_dir: Path, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Flips in the logs and snapshots of each copy: what is left of all of them is everything."""
    seed = new_seed()
    rnd = random.Random(seed)
    whole = corpus_dir / "quorum" / name
    end = ENDS[name]
    [wanted] = metadata_trees("at", whole / "n1" / METADATA, end)
    topics = {line.split()[1] for line in (whole / "topics.txt").read_text().splitlines()}
    assert topics
    assert all(f"{topic}:" in wanted for topic in topics)  # as Admin said before the kill
    complete = 0
    for number in range(ROUNDS):
        root = tmp_path / str(number)
        for node in NODES:
            shutil.copytree(whole / f"n{node}", root / f"n{node}")
        for path in rnd.sample(sorted((*root.rglob("*.log"), *root.rglob("*.checkpoint"))), 6):
            data = path.read_bytes()
            at, size = rnd.choice(frames(data))
            # The bytes that a checksum covers: lengths stay, for who puts the files together.
            path.write_bytes(flip(data, rnd.randrange(8 * (at + 21), 8 * (at + size))))
        found = read_quorum(open_targets([str(root / f"n{node}") for node in NODES]))
        assert found.merged is not None
        merged = found.merged
        if not (merged.is_whole and merged.has_start):
            continue
        complete += 1
        put_together(merged, root / METADATA)
        [image] = metadata_trees("at", root / METADATA, end)
        assert image == wanted, f"seed {seed}, round {number}"
        shutil.rmtree(root)
    tell(f"{complete} of {ROUNDS} are whole, seed {seed}")
    assert complete > ROUNDS // 2
