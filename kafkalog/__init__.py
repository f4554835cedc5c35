"""kafkalog: read, search and check Apache Kafka's log files without a broker.

    import kafkalog

    for record in kafkalog.read_records("orders-0"):
        if isinstance(record, kafkalog.Record):
            print(record.offset, record.key, record.value)

    log = kafkalog.UnifiedLog("orders-0")
    found = kafkalog.lookup_timestamp(log, 1_700_000_000_000)

    for defect in kafkalog.Verification().verify("/disk1/kafka", "/disk2/kafka"):
        print(defect.severity, defect.reference, defect.path)

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.batches.lookup import Lookup as Lookup
    from kafkalog.batches.lookup import lookup_offset as lookup_offset
    from kafkalog.batches.lookup import lookup_special as lookup_special
    from kafkalog.batches.lookup import lookup_timestamp as lookup_timestamp
    from kafkalog.batches.reader import read_batches as read_batches
    from kafkalog.batches.reader import read_records as read_records
    from kafkalog.batches.selection import Selection as Selection
    from kafkalog.check.summary import Summary as Summary
    from kafkalog.check.verify import Verification as Verification
    from kafkalog.checkpoints import read_leader_epochs as read_leader_epochs
    from kafkalog.checkpoints import read_offset_checkpoint as read_offset_checkpoint
    from kafkalog.columns.scan import scan as scan
    from kafkalog.columns.scan import scan_schema as scan_schema
    from kafkalog.columns.scan import to_reader as to_reader
    from kafkalog.columns.scan import to_table as to_table
    from kafkalog.configs import ConfigSources as ConfigSources
    from kafkalog.configs import TopicConfigs as TopicConfigs
    from kafkalog.errors import CorruptDataError as CorruptDataError
    from kafkalog.errors import DestinationExistsError as DestinationExistsError
    from kafkalog.errors import EngineError as EngineError
    from kafkalog.errors import KafkaLogError as KafkaLogError
    from kafkalog.errors import LimitExceededError as LimitExceededError
    from kafkalog.errors import NotAKafkaFileError as NotAKafkaFileError
    from kafkalog.errors import NotFoundError as NotFoundError
    from kafkalog.errors import UnreadableError as UnreadableError
    from kafkalog.errors import UnsupportedError as UnsupportedError
    from kafkalog.errors import UnwritableError as UnwritableError
    from kafkalog.errors import UsageError as UsageError
    from kafkalog.indexes import OffsetIndex as OffsetIndex
    from kafkalog.indexes import TimeIndex as TimeIndex
    from kafkalog.indexes import read_aborted_transactions as read_aborted_transactions
    from kafkalog.log_dir import LogDir as LogDir
    from kafkalog.log_dir import PartitionDir as PartitionDir
    from kafkalog.log_dir import Segment as Segment
    from kafkalog.log_dir import open_path as open_path
    from kafkalog.metadata_files import read_meta_properties as read_meta_properties
    from kafkalog.metadata_files import read_topic_id as read_topic_id
    from kafkalog.model import Batch as Batch
    from kafkalog.model import Defect as Defect
    from kafkalog.model import Isolation as Isolation
    from kafkalog.model import Level as Level
    from kafkalog.model import Record as Record
    from kafkalog.model import Severity as Severity
    from kafkalog.model import Special as Special
    from kafkalog.producers import read_producer_snapshot as read_producer_snapshot
    from kafkalog.retention import PartitionRetention as PartitionRetention
    from kafkalog.retention import Verdict as Verdict
    from kafkalog.retention import simulate_retention as simulate_retention
    from kafkalog.roll import RollReplay as RollReplay
    from kafkalog.roll import RollSettings as RollSettings
    from kafkalog.roll import SimulatedSegment as SimulatedSegment
    from kafkalog.roll import roll_settings as roll_settings
    from kafkalog.roll import simulate_roll as simulate_roll
    from kafkalog.unified_log import Mark as Mark
    from kafkalog.unified_log import Marks as Marks
    from kafkalog.unified_log import UnifiedLog as UnifiedLog

_MODULES = {
    "batches.lookup": ("Lookup", "lookup_offset", "lookup_special", "lookup_timestamp"),
    "batches.reader": ("read_batches", "read_records"),
    "batches.selection": ("Selection",),
    "check.summary": ("Summary",),
    "check.verify": ("Verification",),
    "checkpoints": ("read_leader_epochs", "read_offset_checkpoint"),
    "columns.scan": ("scan", "scan_schema", "to_reader", "to_table"),
    "configs": ("ConfigSources", "TopicConfigs"),
    "errors": (
        "CorruptDataError",
        "DestinationExistsError",
        "EngineError",
        "KafkaLogError",
        "LimitExceededError",
        "NotAKafkaFileError",
        "NotFoundError",
        "UnreadableError",
        "UnsupportedError",
        "UnwritableError",
        "UsageError",
    ),
    "indexes": ("OffsetIndex", "TimeIndex", "read_aborted_transactions"),
    "log_dir": ("LogDir", "PartitionDir", "Segment", "open_path"),
    "metadata_files": ("read_meta_properties", "read_topic_id"),
    "model": ("Batch", "Defect", "Isolation", "Level", "Record", "Severity", "Special"),
    "producers": ("read_producer_snapshot",),
    "retention": ("PartitionRetention", "Verdict", "simulate_retention"),
    "roll": ("RollReplay", "RollSettings", "SimulatedSegment", "roll_settings", "simulate_roll"),
    "unified_log": ("Mark", "Marks", "UnifiedLog"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605 # computed from the table above


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kafkalog' has no attribute {name!r}")
    return getattr(import_module(f"kafkalog.{_HOMES[name]}"), name)
