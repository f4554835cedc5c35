"""Compacts logs as Kafka's cleaner does, without a broker."""

from __future__ import annotations

from kafkalog.compaction.candidates import filthiest_first, find_candidate
from kafkalog.compaction.compact import compact_partition, require_compactable
from kafkalog.compaction.distributed import clock_of_stopped_run, compact_partitions
from kafkalog.compaction.log_dirs import find_candidates, named_candidate, working_copy
from kafkalog.compaction.model import (
    Candidate,
    Cleanable,
    Compaction,
    CompactionConfig,
    CompactionRequest,
    Dropped,
    Group,
    Skip,
    Tally,
)

__all__ = [
    "Candidate",
    "Cleanable",
    "Compaction",
    "CompactionConfig",
    "CompactionRequest",
    "Dropped",
    "Group",
    "Skip",
    "Tally",
    "clock_of_stopped_run",
    "compact_partition",
    "compact_partitions",
    "filthiest_first",
    "find_candidate",
    "find_candidates",
    "named_candidate",
    "require_compactable",
    "working_copy",
]
