"""Audits whether a log was compacted correctly: a proof, or counterexamples.

Follows the rules of `Cleaner` of Kafka; it judges Kafka's results as well as ours.
"""

from kafkalog.change.audit.log_walk import Finding, Reason
from kafkalog.change.audit.run import Audit, audit_partition

__all__ = ["Audit", "Finding", "Reason", "audit_partition"]
