"""Metadata images against Kafka's own, printed by the nodes of its metadata shell."""

from __future__ import annotations

import difflib
import json
import random
import subprocess
from typing import TYPE_CHECKING

import pytest

from kafkalog.node.state.image_tree import tree_lines
from kafkalog.node.state.metadata import metadata
from kafkalog.node.state.model import Moment
from tests.conftest import OF_KAFKA_4, state
from tests.kafka import broker_data
from tests.metadata_logs import write_metadata_log
from tests.sampling import new_seed, sampled
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kafka.conftest import GroupMoments

    Ask = Callable[..., list[str]]

pytestmark = pytest.mark.kafka

OPERATIONS = 400
KNOWN = [f"kafka-{name}" for name in broker_data.KNOWN]


@pytest.fixture(scope="module")
def ask(harness: None) -> Iterator[Ask]:
    """Get trees of Kafka's images from one JVM; MetadataTrees explains `shell` and `at`."""
    assert harness is None
    process = subprocess.Popen(
        broker_data.java_command("kafkalog.harness.MetadataTrees"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
    )  # fmt: skip

    def answer(*words: object) -> list[str]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(word) for word in words]) + "\n")
        process.stdin.flush()
        found: list[str] = json.loads(process.stdout.readline())
        return found

    yield answer
    assert process.stdin is not None
    process.stdin.close()
    assert process.stdout is not None
    process.stdout.close()
    process.wait(HANG_S)


def our_tree(path: Path, offset: int | None = None) -> str:
    at = None if offset is None else Moment(partition=0, offset=offset)
    found = metadata(path, at=at, on_event=lambda _: None)
    return "".join(f"{line}\n" for line in tree_lines(found.tree))


def require_same(told: str, path: Path, offset: int | None, where: str) -> None:
    ours = our_tree(path, offset)
    differing = difflib.unified_diff(told.splitlines(), ours.splitlines(), "Kafka", "kafkalog", n=0)
    assert told == ours, f"{where}\n" + "\n".join(differing)


def require_same_at(ask: Ask, directory: Path, offsets: list[int], where: str) -> None:
    for offset, told in zip(offsets, ask("at", directory, *offsets), strict=True):
        require_same(told, directory, offset, f"{where}, offset {offset}")


def test_snapshots_are_shown_as_by_the_shell(ask: Ask, corpus_dir: Path) -> None:
    """Every snapshot of real brokers; `/local` describes only the shell itself."""
    snapshots = sorted(path for name in KNOWN for path in (corpus_dir / name).rglob("*.checkpoint"))
    assert len(snapshots) >= 20
    for path, told in zip(snapshots, ask("shell", *snapshots), strict=True):
        image, _, local = told.partition("local:")
        assert local
        require_same(image, path, None, str(path))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("release", "name"), [one for one in OF_KAFKA_4 if one[0] in KNOWN], ids=lambda word: word
)
def test_images_of_brokers_are_equal_at_any_offset(
    release: str, name: str, ask: Ask, corpus_dir: Path
) -> None:
    """The offsets include those between snapshots, and within batches."""
    for log_dir in state(corpus_dir, release, name).log_dirs:
        directory = log_dir / "__cluster_metadata-0"
        if directory.exists():
            end = metadata(directory, on_event=lambda _: None).end_offset
            offsets = [*range(0, end, 7), end]
            require_same_at(ask, directory, offsets, name)


def test_metadata_of_a_fresh_broker(ask: Ask, group_moments: GroupMoments) -> None:
    """Configs, ACLs, quotas, credentials, features: its snapshots, and offsets between them."""
    directory = group_moments.root / "log" / "__cluster_metadata-0"
    where = f"seed {group_moments.seed}"
    snapshots = sorted(directory.glob("*.checkpoint"))
    assert snapshots
    for path, told in zip(snapshots, ask("shell", *snapshots), strict=True):
        require_same(told.partition("local:")[0], path, None, f"{where}, {path.name}")
    end = metadata(directory).end_offset
    require_same_at(ask, directory, sorted({*sampled(range(end), 20), end}), where)
    found = metadata(directory)
    parts = {leaf.path.split("/")[2] for leaf in found.leaves() if leaf.origin.offset is None}
    assert parts | {"provenance"} >= {"acls", "clientQuotas", "configs", "features", "scram"}
    assert "gone" not in found.image.topics


def test_images_of_random_logs_are_equal_at_any_offset(ask: Ask, tmp_path: Path) -> None:
    """All types of records in all their versions, contradictions, metadata transactions."""
    seed = new_seed()
    rnd = random.Random(seed)
    directory = tmp_path / "__cluster_metadata-0"
    end = write_metadata_log(directory, rnd, OPERATIONS)
    offsets = sorted({*sampled(range(end), 25), end})
    require_same_at(ask, directory, offsets, f"seed {seed}")
