"""Runs of commands that change a log directory: its lock, a journal, a backup, the way back."""

from kafkalog.runs.run import PartitionRun, Run
from kafkalog.runs.undo import OffsetChange, PartitionUndo, Undo, undo

__all__ = ["OffsetChange", "PartitionRun", "PartitionUndo", "Run", "Undo", "undo"]
