"""Rolling: when a broker starts a new segment, and which files result.

Follows `LogSegment.shouldRoll` and `UnifiedLog.maybeRoll` of Kafka.
"""
