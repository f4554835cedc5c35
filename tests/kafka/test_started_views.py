"""Readers show an unclosed log as Kafka's own loader leaves it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from formats.file_names import DirectoryState, parse_directory_name
from formats.topic_names import CLUSTER_METADATA
from tests.crash.readers import seen
from tests.crash.served import CHECKPOINTS, offset_in, served

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import State
    from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka


def load_command(copy: Path, log_dir: Path) -> list[str]:
    """Return KafkaOracle's command to load a partition whose log directory nobody closed."""
    is_metadata = copy.name.startswith(CLUSTER_METADATA)
    points = [
        0 if is_metadata else offset_in(log_dir, name, copy.name) or 0 for name in CHECKPOINTS
    ]
    words = ["load", str(copy), "--recovery-point", str(points[0]), "--log-start", str(points[1])]
    return [*words, "--config", "segment.index.bytes=10485760"]


@pytest.mark.sampled(6)
def test_logs_of_killed_brokers_are_shown_as_kafka_loads_them(
    any_state: State, oracle: Oracle, tmp_path: Path
) -> None:
    """Each reader, each live partition, and each state without the mark of a clean shutdown."""
    unclosed = [one for one in any_state.log_dirs if not (one / ".kafka_cleanshutdown").exists()]
    found = [
        (log_dir, partition)
        for log_dir in unclosed
        for partition in sorted(log_dir.iterdir())
        if (name := parse_directory_name(partition.name)) is not None
        and name.state == DirectoryState.LIVE
    ]
    if not found:
        return
    for log_dir, partition in found:
        view = seen(partition)
        copy = tmp_path / log_dir.name / partition.name
        shutil.copytree(partition, copy)
        answer = oracle.ask(*load_command(copy, log_dir))
        assert "error" not in answer, answer
        log = answer["log"]
        wanted = served(copy, log["logStartOffset"], log["logEndOffset"])
        view.require(wanted, os.path.join(any_state.name, partition.name))
