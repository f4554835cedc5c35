"""Retention performed without a broker: the oldest segments of a log go, as its policies say.

Follows `UnifiedLog.deleteOldSegments` and `LocalLog.deleteSegmentFiles` of Kafka 4.3.
"""

from kafkalog.trimming.perform import perform_trim
from kafkalog.trimming.plan import TrimPlan, plan_trim

__all__ = ["TrimPlan", "perform_trim", "plan_trim"]
