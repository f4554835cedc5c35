"""Where a running broker puts new partitions, and what it has not flushed yet, as `ls` lists it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.files.log_dir import open_path
from kafkalog.node.inventory import PartitionRow, list_log_dirs, list_partitions
from tests.builders import batch, copy_tree, record
from tests.kafka.broker_client import produce
from tests.waiting import HANG_S, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.booted import Brokers

pytestmark = pytest.mark.kafka

SENT = 5


def marked(log_dirs: list[Path]) -> list[str]:
    rows = list_log_dirs([open_path(str(log_dir)) for log_dir in log_dirs])
    return [row.path for row in rows if row.next_new_partition]


def listed(log_dirs: list[Path], name: str) -> PartitionRow:
    rows = list_partitions([open_path(str(log_dir)) for log_dir in log_dirs])
    [row] = [row for row in rows if row.path.endswith(f"/{name}")]
    return row


def test_a_new_partition_goes_to_the_log_directory_that_is_marked(
    brokers: Brokers, corpus_dir: Path, tmp_path: Path
) -> None:
    """The one with the fewest logs; on a tie the first. A log is flushed when the broker closes."""
    from confluent_kafka.admin import AdminClient, NewTopic

    jbod = copy_tree(corpus_dir / "kafka-4.3" / "jbod-restarted", tmp_path / "jbod")
    log_dirs = sorted(jbod.glob("logs-*"))
    ties, last, sent = 0, "", batch(0, [record(i) for i in range(SENT)])
    with brokers.on(*log_dirs) as running:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{running.port}"})
        for number in range(4):
            last, expected = f"new-{number}-0", marked(log_dirs)
            topic = NewTopic(f"new-{number}", 1, 1)
            admin.create_topics([topic])[topic.topic].result(HANG_S)
            # Until the broker has heard that it leads, nothing is written.
            until(lambda name=topic.topic: not produce(running.port, name, 0, sent)[0])
            [place] = [str(path) for path in log_dirs if (path / last).exists()]
            assert place == expected[0]
            ties += len(expected) > 1
        row = listed(log_dirs, last)
        assert (row.unflushed_records, row.unflushed_bytes) == (SENT, len(sent))
    assert 0 < ties < 4, "both were tried"
    row = listed(log_dirs, last)
    assert (row.recovery_point, row.unflushed_records, row.unflushed_bytes) == (SENT, 0, 0)
