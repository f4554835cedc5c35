"""What a running broker leaves of a cleaning that fails, and what `ls` says of it."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from kafkalog.change.compaction.candidates import CleanerState, cleaner_state
from kafkalog.files.log_dir import open_partition
from tests.builders import batch, record
from tests.checkout import ROOT
from tests.kafka.booted import Life
from tests.kafka.test_given_up_partitions import COMPACTED, REWRITTEN
from tests.kafka.test_returned_partitions import NODE
from tests.kafkalog.change.compaction.test_edges import write
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.booted import Brokers

pytestmark = pytest.mark.kafka

EAGER = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
DAY_S = 86_400


def test_a_cleaning_that_failed_leaves_its_files_until_the_next_start(
    brokers: Brokers, tmp_path: Path
) -> None:
    """The broker goes on and leaves the partition alone; the next start removes them."""
    log_dir = tmp_path / "log"
    shutil.copytree(ROOT / "examples" / "log-dir", log_dir)
    partition = log_dir / COMPACTED
    for path in (*partition.glob("0*"), partition / "leader-epoch-checkpoint"):
        path.unlink()
    write(partition, 0, *REWRITTEN["one record goes, the other is from before 1970"].batches)
    write(partition, 3, batch(3, [record(0, b"z")]))
    (tmp_path / "server.properties").write_text(NODE.format(log_dir=log_dir))
    life = Life(
        brokers, tmp_path / "server.properties", log_dir, tmp_path / "out", EAGER,
        harmless=("thrown when cleaning log",),
    )  # fmt: skip
    with life:
        until(lambda: list(partition.glob("*.log.cleaned")))
        assert cleaner_state(open_partition(str(partition))) == CleanerState.IN_PROGRESS
        until(lambda: "Invalid negative timestamp" in brokers.log())
        [new] = partition.glob("*.log.cleaned")
        then = new.stat().st_mtime - DAY_S
        os.utime(new, (then, then))
        time.sleep(1)  # many rounds of the cleaner
        assert new.stat().st_mtime == then, "it is not tried again"
        assert cleaner_state(open_partition(str(partition))) == CleanerState.UNCLEANABLE
    assert cleaner_state(open_partition(str(partition))) == CleanerState.UNCLEANABLE
    with Life(brokers, tmp_path / "server.properties", log_dir, tmp_path / "out"):
        assert cleaner_state(open_partition(str(partition))) is None
