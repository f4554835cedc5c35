"""Repairs in place: what a broker's start would do, performed before it starts; rebuilt indexes."""

from kafkalog.change.repair.model import (
    Fate,
    FileChange,
    RecoveryPlan,
    Untouched,
    require_performable,
)
from kafkalog.change.repair.plan import plan_recovery
from kafkalog.change.repair.rebuild import (
    Comparison,
    IndexComparison,
    compare_indexes,
    rebuild_indexes,
)
from kafkalog.change.repair.recover import RecoveryDone, perform_recovery

__all__ = [
    "Comparison",
    "Fate",
    "FileChange",
    "IndexComparison",
    "RecoveryDone",
    "RecoveryPlan",
    "Untouched",
    "compare_indexes",
    "perform_recovery",
    "plan_recovery",
    "rebuild_indexes",
    "require_performable",
]
