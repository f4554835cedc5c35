"""Retention of remote segments by time, compared with a walk as `RemoteLogManager` has it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from formats.releases import by_name
from kafkalog.change.retention import Blocker, LogFacts, Policy, SegmentFacts
from kafkalog.change.retention.partition import judge_partition
from kafkalog.change.retention.remote import judge_remote
from kafkalog.files.log_dir import open_partition
from kafkalog.files.remote_metadata import RemoteSegment, RemoteSegments
from kafkalog.files.tiers import Tier
from kafkalog.node.configs.sources import LogDirConfigs, MetadataConfigs, Setting
from tests.checkout import ROOT

RETENTION_MS = 50


def walked(stamps: list[int], now: int) -> int:
    """Count the segments that go: from the front, to the first that is not old enough.

    Source: `isSegmentBreachedByRetentionTime`: `maxTimestampMs() < cleanupUntilMs`.
    """
    return next(
        (number for number, stamp in enumerate(stamps) if stamp >= now - RETENTION_MS), len(stamps)
    )


def test_each_segment_goes_when_a_walk_reaches_it() -> None:
    """What keeps it is the segment at which the walk stops in the last millisecond before."""
    rng = random.Random(7)
    held = 0
    for _ in range(200):
        stamps = [rng.randrange(8) for _ in range(rng.randrange(1, 7))]
        starts = [10 * number for number in range(len(stamps))]
        segments = RemoteSegments({
            f"id-{start}": RemoteSegment(start, start + 9, ((0, start),), 100, max_timestamp=stamp)
            for start, stamp in zip(starts, stamps, strict=True)
        })  # fmt: skip
        end = 10 * len(stamps)
        tier = Tier((), None, end, lambda local: local, "tier", segments, {})
        log = LogFacts((SegmentFacts(end, 10, 99),), 0, end + 1, end + 1)
        now = RETENTION_MS + rng.randrange(10)
        found = judge_remote(tier, ((0, 0),), log, Policy(retention_ms=RETENTION_MS), now)
        assert found.deleted_segments == walked(stamps, now)
        for number, verdict in enumerate(found.verdicts):
            assert verdict.is_deleted == (number < walked(stamps, now))
            if verdict.is_deleted:
                continue
            at = next(ms for ms in range(now, 1000) if walked(stamps, ms) > number)
            stop = walked(stamps, at - 1)
            is_held = stamps[stop] > stamps[number]
            assert verdict.deletable_timestamp == at
            assert verdict.blocking_segment == (starts[stop] if is_held else None)
            is_old = stamps[number] < now - RETENTION_MS
            assert verdict.blocked_by == (Blocker.SEGMENT if is_old else None)
            held += is_held
    assert held > 50


@pytest.mark.parametrize(("release", "first_local"), [("4.3", 500), ("4.4", 750)])
def test_which_segments_only_the_local_log_has(release: str, first_local: int) -> None:
    """The one that begins with the highest remote offset counts for 4.3, and not for 4.4.

    Without it the log is as large as the limit, and with it a remote segment goes.
    """
    partition = open_partition(str(ROOT / "examples" / "log-dir" / "orders-0"))
    segments = RemoteSegments({"id-0": RemoteSegment(0, 500, ((0, 0),), 100, max_timestamp=1)})
    tier = Tier((), None, 501, lambda local: local, "tier", segments, {})
    sizes = {one.base_offset: one.log.size_bytes for one in partition.segments}
    without = sum(size for base, size in sizes.items() if base > 500)
    given = {"remote.storage.enable": "true", "retention.bytes": str(100 + without)}
    given |= {"retention.ms": "-1", "local.retention.ms": "-1"}
    settings = {name: Setting(text, "test") for name, text in given.items()}
    sources = LogDirConfigs(partition.path, settings, {})
    sources.metadata = MetadataConfigs(release=by_name(release))
    configs = sources.of_topic("orders")
    found = judge_partition(replace(partition, tier=tier), configs, 0, high_watermark="end").remote
    assert found is not None
    assert found.local_bytes == sum(size for base, size in sizes.items() if base >= first_local)
    assert found.deleted_segments == (release == "4.3")
