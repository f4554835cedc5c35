"""Which partition coordinates a name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from formats.topic_names import CONSUMER_OFFSETS
from kafkalog.files.log_dir import open_path
from kafkalog.node.state.coordinators import (
    coordinators_of,
    internal_topic,
    partition_for,
)
from kafkalog.node.targets import best_replica
from tests.builders import batch, record, write_log

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("key", "count", "number"),
    [
        ("", 50, 0),
        ("a", 50, 97 % 50),
        ("ab", 1000, (31 * 97 + 98) % 1000),
        ("polygenelubricants", 50, 0),  # its hashCode is the smallest int
        ("billing", 50, 109829509 % 50),  # as Java says: -109829509
        ("console-consumer", 50, 648006740 % 50),  # -648006740
        ("ü", 50, 0xFC % 50),
        ("\U0001f600", 1 << 30, (31 * 0xD83D + 0xDE00) % (1 << 30)),  # two UTF-16 units
    ],
)
def test_partition_of_a_key(key: str, count: int, number: int) -> None:
    """The absolute value of `String.hashCode`, computed over UTF-16 units."""
    assert partition_for(key, count) == number


def test_the_count_comes_from_directories_without_metadata(tmp_path: Path) -> None:
    """The count is the largest number + 1, however large; missing numbers take no memory."""
    for number in (0, 7, 2_000_000_000):
        write_log(tmp_path / f"__consumer_offsets-{number}", batch(0, [record(0, b"k")]))
    (tmp_path / "__consumer_offsets--3").mkdir()
    topic = internal_topic(CONSUMER_OFFSETS, [open_path(str(tmp_path))])
    assert (topic.count, topic.counted) == (2_000_000_001, "directories")
    assert topic.missing_count == 2_000_000_001 - 3
    assert next(iter(topic.missing())) == 1
    assert sorted(topic.replicas) == [0, 7, 2_000_000_000]


def test_the_best_replica_has_the_latest_epoch_then_the_longest_log(tmp_path: Path) -> None:
    """The long log of a former leader does not win."""
    sides = {"long-old": (5, 0), "short-new": (2, 1), "shorter-new": (1, 1)}
    for name, (records, epoch) in sides.items():
        path = write_log(
            tmp_path / name / "__consumer_offsets-0",
            *(batch(offset, [record(0, b"k")], epoch=epoch) for offset in range(records)),
        )
        (path.parent / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
    topic = internal_topic(CONSUMER_OFFSETS, [open_path(str(tmp_path / name)) for name in sides])
    assert best_replica(topic.replicas[0]).path == str(
        tmp_path / "short-new" / "__consumer_offsets-0"
    )


def test_a_topic_that_nobody_knows(tmp_path: Path) -> None:
    """Without a partition count there is no answer."""
    (tmp_path / "other-0").mkdir()
    topic = internal_topic(CONSUMER_OFFSETS, [open_path(str(tmp_path))])
    assert list(coordinators_of("group", ["g"], topic)) == []
