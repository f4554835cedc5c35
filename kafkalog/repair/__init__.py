"""Repairs in place: what a broker's start would do, before it starts; indexes made anew."""

from kafkalog.repair.model import Fate, FileChange, RecoveryPlan
from kafkalog.repair.plan import plan_recovery
from kafkalog.repair.recover import RecoveryDone, recover

__all__ = [
    "Fate",
    "FileChange",
    "RecoveryDone",
    "RecoveryPlan",
    "plan_recovery",
    "recover",
]
