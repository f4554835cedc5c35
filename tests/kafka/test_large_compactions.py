"""Logs of Kafka's classes, large enough for the kernels: both passes make the same files."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.compaction import CompactionRequest, compact_partition, find_candidate
from kafkalog.configs import ConfigSources
from kafkalog.journal.run import Run
from kafkalog.log_dir import open_partition
from tests.kafka import broker_data

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.compaction import Compaction

pytestmark = pytest.mark.usefixtures("harness")

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 10_000_000
ROOMY = 24 * 1_000_000


def write(home: Path, codec: str) -> None:
    """Four segments and more, with transactions, tombstones and few keys."""
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
    broker_data.oracle(
        "append", str(home / "orders-0"), str(home / "spec.json"), "--quiet", cwd=home
    )
    (home / "spec.json").unlink()


def compacted(source: Path, target: Path, first_dirty: int, map_memory: int | None) -> Compaction:
    """What comes of a copy; a map with a limit is filled by the reference."""
    shutil.copytree(source, target)
    configs = ConfigSources({"cleanup.policy": "compact"}).in_log_dir(str(target))
    request = CompactionRequest(
        LATER_MS, map_memory, first_dirty_offset=first_dirty, high_watermark="end"
    )
    partition = open_partition(str(target / "orders-0"))
    with Run(str(target)) as run:
        candidate = find_candidate(partition, configs.of_topic("orders"), request)
        return compact_partition(candidate, request, run)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("first_dirty", [0, 21_007, 45_000])
def test_both_passes_make_the_same_files(tmp_path: Path, codec: str, first_dirty: int) -> None:
    """From the start, and from the middle of a segment, a batch and a transaction on."""
    write(tmp_path / "log", codec)
    contents, tallies = [], []
    for name, map_memory in (("kernels", None), ("reference", ROOMY)):
        done = compacted(tmp_path / "log", tmp_path / name, first_dirty, map_memory)
        files = sorted((tmp_path / name / "orders-0").iterdir())
        contents.append({file.name: file.read_bytes() for file in files})
        tallies.append((done.keys, done.tally))
    assert contents[0] == contents[1]
    assert tallies[0] == tallies[1]
    assert sum(tallies[0][1].dropped.values()) > 10_000
