"""Runs of commands that change a log directory: its lock, journal, backup and undo."""

from kafkalog.change.journal.recorded import RecordedRun, recorded_runs
from kafkalog.change.journal.run import PartitionRun, Run
from kafkalog.change.journal.undo import OffsetChange, PartitionUndo, Undo, undo

__all__ = [
    "OffsetChange",
    "PartitionRun",
    "PartitionUndo",
    "RecordedRun",
    "Run",
    "Undo",
    "recorded_runs",
    "undo",
]
