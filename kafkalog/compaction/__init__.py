"""Compaction as Kafka's cleaner does it, without a broker."""

from __future__ import annotations

from kafkalog.compaction.candidates import filthiest_first, find_candidate
from kafkalog.compaction.compact import compact_partition, require_compactable, skipped
from kafkalog.compaction.log_dirs import (
    find_candidates,
    log_dir_of,
    reading_lock,
    working_copy,
)
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
from kafkalog.compaction.soundness import require_closed

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
    "compact_partition",
    "filthiest_first",
    "find_candidate",
    "find_candidates",
    "log_dir_of",
    "reading_lock",
    "require_closed",
    "require_compactable",
    "skipped",
    "working_copy",
]
