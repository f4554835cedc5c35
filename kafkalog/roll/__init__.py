"""Rolling: when a broker starts a new segment, and which files result.

Follows `LogSegment.shouldRoll` and `UnifiedLog.maybeRoll` of Kafka 4.3.
"""

from __future__ import annotations

from kafkalog.roll.replay import Replay, RollCondition, RollReplay, RollSettings, SimulatedSegment
from kafkalog.roll.simulate import ROLL_CONFIGS, replay_partition, roll_settings

__all__ = [
    "ROLL_CONFIGS",
    "Replay",
    "RollCondition",
    "RollReplay",
    "RollSettings",
    "SimulatedSegment",
    "replay_partition",
    "roll_settings",
]
