"""Retention: what a broker would delete from a log, when, why, and what blocks it.

Follows `UnifiedLog.deleteOldSegments` of Kafka, and `RemoteLogManager` for remote storage.
"""

from __future__ import annotations

from kafkalog.change.retention.model import (
    Blocker,
    Deletion,
    LatestRecord,
    LogFacts,
    Outcome,
    Policy,
    Reason,
    SegmentFacts,
    TimestampSource,
    Verdict,
)
from kafkalog.change.retention.partition import PartitionRetention, judge_partition, policy_of
from kafkalog.change.retention.remote import RemoteRetention
from kafkalog.change.retention.verdicts import ForecastDay, forecast, judge_segments, run_policies

__all__ = [
    "Blocker",
    "Deletion",
    "ForecastDay",
    "LatestRecord",
    "LogFacts",
    "Outcome",
    "PartitionRetention",
    "Policy",
    "Reason",
    "RemoteRetention",
    "SegmentFacts",
    "TimestampSource",
    "Verdict",
    "forecast",
    "judge_partition",
    "judge_segments",
    "policy_of",
    "run_policies",
]
