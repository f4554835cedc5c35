"""Tiers by their names alone: which directories are taken for one, and which are refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import NotAKafkaFileError, UnsupportedError
from kafkalog.log_dir import PartitionDir, open_any, open_path
from kafkalog.parents import Parent
from kafkalog.targets import open_targets

EXAMPLES = Path(__file__).parents[2] / "examples"
TOPIC_ID = "qcTm-9etQeKXX6L9q4c_5w"
SEGMENT_ID = "5M8iwiofTIqTAfE-AavnCA"
STEM = f"{0:020d}-{SEGMENT_ID}"


def files_of(directory: Path, *suffixes: str) -> Path:
    directory.mkdir(parents=True)
    for suffix in suffixes:
        (directory / f"{STEM}{suffix}").write_bytes(b"")
    return directory


def test_a_tier_stands_for_its_logs(tmp_path: Path):
    """In a run that takes several paths; also a log without any segment left."""
    tier = tmp_path / "backup" / "tier"
    logs = [files_of(tier / f"orders-{number}-{TOPIC_ID}", ".log", ".index") for number in (0, 10)]
    empty = files_of(tier / f"orders-2-{TOPIC_ID}")
    found = open_any(str(tier))
    assert isinstance(found, Parent)
    assert found.log_dirs == tuple(sorted(map(str, [*logs, empty])))
    opened = open_targets([tier])
    assert [(one.topic, one.partition) for one in opened if isinstance(one, PartitionDir)] == [
        ("orders", 0), ("orders", 10), ("orders", 2)
    ]  # fmt: skip
    assert all(isinstance(one, PartitionDir) and one.is_remote for one in opened)
    with pytest.raises(NotAKafkaFileError, match="holds 3 tiered logs"):
        open_path(str(tier))


@pytest.mark.parametrize("path", ["", "orders-{topic}", "orders-{topic}/0", "{partition}.log",
                                  "{partition}.rsm-manifest", "{partition}.indexes"])  # fmt: skip
def test_aivens_layout_is_refused_by_name(tmp_path: Path, kafkalog: Any, path: str):
    """Its logs are named as those of other tiers, and hold chunks: status 5, at each level."""
    files_of(tmp_path / f"orders-{TOPIC_ID}" / "0", ".log", ".indexes", ".rsm-manifest")
    files_of(tmp_path / f"orders-{TOPIC_ID}" / "1", ".log", ".indexes", ".rsm-manifest")
    partition = f"orders-{TOPIC_ID}/0/{STEM}"
    given = tmp_path / path.format(topic=TOPIC_ID, partition=partition)
    with pytest.raises(UnsupportedError, match="Aiven"):
        open_path(str(given))
    result = kafkalog("dump-segment", given)
    assert result.status == 5, result.stderr


def test_a_partition_with_files_of_a_tier_stays_one(tmp_path: Path):
    """Files that somebody put into a log directory do not make its partition a remote one."""
    copy = shutil.copytree(EXAMPLES / "log-dir" / "orders-0", tmp_path / "orders-0")
    before = open_path(str(copy))
    assert isinstance(before, PartitionDir)
    (copy / f"{STEM}.log").write_bytes(b"")
    after = open_path(str(copy))
    assert isinstance(after, PartitionDir)
    assert after.segments == before.segments
    assert not after.is_remote
