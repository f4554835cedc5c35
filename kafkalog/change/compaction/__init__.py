"""Compaction as Kafka's cleaner does it, without a broker.

Names are loaded on first use: a request loads no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.change.compaction.candidates import filthiest_first as filthiest_first
    from kafkalog.change.compaction.candidates import find_candidate as find_candidate
    from kafkalog.change.compaction.compact import compact_partition as compact_partition
    from kafkalog.change.compaction.compact import require_compactable as require_compactable
    from kafkalog.change.compaction.distributed import clock_of_stopped_run as clock_of_stopped_run
    from kafkalog.change.compaction.distributed import compact_partitions as compact_partitions
    from kafkalog.change.compaction.log_dirs import find_candidates as find_candidates
    from kafkalog.change.compaction.log_dirs import named_candidate as named_candidate
    from kafkalog.change.compaction.log_dirs import working_copy as working_copy
    from kafkalog.change.compaction.model import Candidate as Candidate
    from kafkalog.change.compaction.model import Cleanable as Cleanable
    from kafkalog.change.compaction.model import Compaction as Compaction
    from kafkalog.change.compaction.model import CompactionConfig as CompactionConfig
    from kafkalog.change.compaction.model import CompactionRequest as CompactionRequest
    from kafkalog.change.compaction.model import Dropped as Dropped
    from kafkalog.change.compaction.model import Group as Group
    from kafkalog.change.compaction.model import Skip as Skip
    from kafkalog.change.compaction.model import Tally as Tally

_MODULES = {
    "candidates": ("filthiest_first", "find_candidate"),
    "compact": ("compact_partition", "require_compactable"),
    "distributed": ("clock_of_stopped_run", "compact_partitions"),
    "log_dirs": ("find_candidates", "named_candidate", "working_copy"),
    "model": (
        "Candidate",
        "Cleanable",
        "Compaction",
        "CompactionConfig",
        "CompactionRequest",
        "Dropped",
        "Group",
        "Skip",
        "Tally",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605 # computed from the table above


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kafkalog.change.compaction' has no attribute {name!r}")
    return getattr(import_module(f"kafkalog.change.compaction.{_HOMES[name]}"), name)
