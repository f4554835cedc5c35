"""Metadata images against Kafka's own, printed by the nodes of its metadata shell."""

from __future__ import annotations

import difflib
import random
from typing import TYPE_CHECKING

import pytest

from kafkalog.node.state.image_tree import tree_lines
from kafkalog.node.state.metadata import metadata
from kafkalog.node.state.model import Moment
from tests.conftest import OF_KAFKA_4, state
from tests.kafka import broker_data
from tests.metadata_logs import write_metadata_log
from tests.sampling import new_seed, sampled

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.conftest import Ask, GroupMoments

pytestmark = pytest.mark.kafka

OPERATIONS = 400
KNOWN = [f"kafka-{name}" for name in broker_data.KNOWN]


def our_tree(path: Path, offset: int | None = None) -> str:
    at = None if offset is None else Moment(partition=0, offset=offset)
    found = metadata(path, at=at, on_event=lambda _: None)
    return "".join(f"{line}\n" for line in tree_lines(found.tree))


def require_same(told: str, path: Path, offset: int | None, where: str) -> None:
    ours = our_tree(path, offset)
    differing = difflib.unified_diff(told.splitlines(), ours.splitlines(), "Kafka", "kafkalog", n=0)
    assert told == ours, f"{where}\n" + "\n".join(differing)


def require_same_at(metadata_trees: Ask, directory: Path, offsets: list[int], where: str) -> None:
    for offset, told in zip(offsets, metadata_trees("at", directory, *offsets), strict=True):
        require_same(told, directory, offset, f"{where}, offset {offset}")


def test_snapshots_are_shown_as_by_the_shell(metadata_trees: Ask, corpus_dir: Path) -> None:
    """Every snapshot of real brokers; `/local` describes only the shell itself."""
    snapshots = sorted(path for name in KNOWN for path in (corpus_dir / name).rglob("*.checkpoint"))
    assert len(snapshots) >= 20
    for path, told in zip(snapshots, metadata_trees("shell", *snapshots), strict=True):
        image, _, local = told.partition("local:")
        assert local
        require_same(image, path, None, str(path))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("release", "name"), [one for one in OF_KAFKA_4 if one[0] in KNOWN], ids=lambda word: word
)
def test_images_of_brokers_are_equal_at_any_offset(
    release: str, name: str, metadata_trees: Ask, corpus_dir: Path
) -> None:
    """The offsets include those between snapshots, and within batches."""
    for log_dir in state(corpus_dir, release, name).log_dirs:
        directory = log_dir / "__cluster_metadata-0"
        if directory.exists():
            end = metadata(directory, on_event=lambda _: None).end_offset
            offsets = [*range(0, end, 7), end]
            require_same_at(metadata_trees, directory, offsets, name)


def test_metadata_of_a_fresh_broker(metadata_trees: Ask, group_moments: GroupMoments) -> None:
    """Configs, ACLs, quotas, credentials, features: its snapshots, and offsets between them."""
    directory = group_moments.root / "log" / "__cluster_metadata-0"
    where = f"seed {group_moments.seed}"
    snapshots = sorted(directory.glob("*.checkpoint"))
    assert snapshots
    for path, told in zip(snapshots, metadata_trees("shell", *snapshots), strict=True):
        require_same(told.partition("local:")[0], path, None, f"{where}, {path.name}")
    end = metadata(directory).end_offset
    require_same_at(metadata_trees, directory, sorted({*sampled(range(end), 20), end}), where)
    found = metadata(directory)
    parts = {leaf.path.split("/")[2] for leaf in found.leaves() if leaf.origin.offset is None}
    assert parts | {"provenance"} >= {"acls", "clientQuotas", "configs", "features", "scram"}
    assert "gone" not in found.image.topics


def test_images_of_random_logs_are_equal_at_any_offset(metadata_trees: Ask, tmp_path: Path) -> None:
    """All types of records in all their versions, contradictions, metadata transactions."""
    seed = new_seed()
    rnd = random.Random(seed)
    directory = tmp_path / "__cluster_metadata-0"
    end = write_metadata_log(directory, rnd, OPERATIONS)
    offsets = sorted({*sampled(range(end), 25), end})
    require_same_at(metadata_trees, directory, offsets, f"seed {seed}")
