"""Logs of Kafka's classes, large enough for the kernels: both passes make the same files."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.compaction import CompactionRequest, compact_partition, find_candidate
from kafkalog.change.journal.run import Run
from kafkalog.files.log_dir import open_partition
from kafkalog.node.configs import ConfigSources
from tests.sampling import new_seed, tries_everything

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.change.compaction import Compaction
    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 10_000_000
ROOMY = 24 * 1_000_000
CODECS = ("none", "lz4", "zstd")
FIRST_DIRTY = (0, 21_007, 45_000)


def write(home: Path, codec: str, oracle: Oracle) -> None:
    """Let Kafka write more than four segments: transactions, tombstones and few keys."""
    home.mkdir()
    generate = {
        "op": "gen", "count": 30_000, "distinct": 4_000, "perBatch": 40, "codec": codec,
        "tombstoneEvery": 7, "ts": NOW_MS,
    }  # fmt: skip
    in_transactions = {**generate, "batchesPerTransaction": 5}
    spec = {
        "config": {"segment.bytes": 1_200_000},
        "now": NOW_MS,
        "seed": 11,
        "ops": [generate, in_transactions, {"op": "roll"}],
    }
    (home / "spec.json").write_text(json.dumps(spec))
    answer = oracle.ask("append", str(home / "orders-0"), str(home / "spec.json"), "--quiet")
    assert "error" not in answer, answer
    (home / "spec.json").unlink()


def compacted(source: Path, target: Path, first_dirty: int, map_memory: int | None) -> Compaction:
    """Compact a copy and return the result; a limited map is filled by the reference."""
    shutil.copytree(source, target)
    configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(target))
    request = CompactionRequest(
        LATER_MS, map_memory, first_dirty_offset=first_dirty, high_watermark="end"
    )
    partition = open_partition(str(target / "orders-0"))
    with Run(str(target)) as run:
        candidate = find_candidate(partition, configs.of_topic("orders"), request)
        return compact_partition(candidate, request, run)


@pytest.fixture(scope="module")
def beginnings() -> dict[str, tuple[int, ...]]:
    """Where the dirty part starts, by codec: everywhere, or in one place each, by the seed."""
    seed = new_seed()
    print("seed", seed)
    drawn = random.Random(seed).sample(FIRST_DIRTY, len(FIRST_DIRTY))
    return {
        codec: FIRST_DIRTY if tries_everything() else (first_dirty,)
        for codec, first_dirty in zip(CODECS, drawn, strict=True)
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("codec", CODECS)
def test_both_passes_make_the_same_files(
    oracle: Oracle, tmp_path: Path, beginnings: dict[str, tuple[int, ...]], codec: str
) -> None:
    """From the log start, and from the middle of a segment, of a batch and of a transaction.

    A sample has each codec and each start once: three of the nine pairs.
    """
    write(tmp_path / "log", codec, oracle)
    for first_dirty in beginnings[codec]:
        contents, tallies = [], []
        for name, map_memory in (("kernels", None), ("reference", ROOMY)):
            place = tmp_path / f"{name}-{first_dirty}"
            done = compacted(tmp_path / "log", place, first_dirty, map_memory)
            files = sorted((place / "orders-0").iterdir())
            contents.append({file.name: file.read_bytes() for file in files})
            tallies.append((done.keys, done.tally))
        assert contents[0] == contents[1], (codec, first_dirty, beginnings)
        assert tallies[0] == tallies[1], (codec, first_dirty, beginnings)
        assert sum(tallies[0][1].dropped.values()) > 10_000
