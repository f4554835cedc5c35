"""What the time indexes of a killed broker say, compared with Kafka's storage classes."""

from __future__ import annotations

import os
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.retention import judge_partition
from kafkalog.files.log_dir import open_partition
from kafkalog.node.configs import ConfigSources
from tests.kafka.differential.retentions import (
    PARTITION,
    START_MS,
    STEP_MS,
    small_log,
    written,
)
from tests.sampling import new_seed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

LOGS = 25


def test_largest_timestamps_after_a_crash_are_kafkas(oracle: Oracle, tmp_path: Path) -> None:
    """A killed broker left preallocated indexes; our times are those that the next start finds."""
    seed = new_seed()
    print("seed", seed)
    rng = random.Random(seed)
    for number in range(LOGS):
        root = tmp_path / str(number)
        point = written(oracle, root, small_log(rng) | {"crash": True})["log"]["recoveryPoint"]
        for path in sorted((root / PARTITION).glob("*.log")):
            stamp = START_MS + rng.randrange(20) * STEP_MS
            os.utime(path, ns=(stamp * 10**6, stamp * 10**6))
        kafkas = tmp_path / f"{number}-kafka"
        shutil.copytree(root, kafkas)
        said = oracle.ask("load", str(kafkas / PARTITION), "--recovery-point", str(point))
        configs = ConfigSources().in_log_dir(str(root)).of_topic("orders")
        log = judge_partition(open_partition(str(root / PARTITION)), configs, START_MS).log
        wanted = said["log"]
        assert log.log_end_offset == wanted["logEndOffset"], root
        assert [(one.max_timestamp, one.size_bytes) for one in log.segments] == [
            (one["largestTimestamp"], one["size"]) for one in wanted["segments"]
        ], root
