"""kafkalog: read, search and check Apache Kafka's log files without a broker.

    import kafkalog

    for name, log in kafkalog.LogDir("/var/lib/kafka").items():
        print(name, log.offsets.log_end_offset.value)

    log = kafkalog.Log("/var/lib/kafka/orders-0")
    for record in log.records(from_offset=1000, on_defect=print):
        print(record.offset, record.key, record.value)
    table = log.scan(["timestamp", "key"]).to_table()
    found = log.lookup(timestamp=1_700_000_000_000)

    for defect in kafkalog.verify("/disk1/kafka", "/disk2/kafka"):
        print(defect.severity, defect.reference, defect.path)

Names are loaded on first use, so that importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.audit.run import audit_compaction as audit_compaction
    from kafkalog.batches.lookup import Lookup as Lookup
    from kafkalog.check.schedule import Summary as Summary
    from kafkalog.columns.scan import Scan as Scan
    from kafkalog.compaction.run import compact as compact
    from kafkalog.comparison.run import diff as diff
    from kafkalog.configs import ConfigSources as ConfigSources
    from kafkalog.datasets import dataset as dataset
    from kafkalog.errors import CorruptDataError as CorruptDataError
    from kafkalog.errors import KafkaLogError as KafkaLogError
    from kafkalog.journal.undo import undo as undo
    from kafkalog.lake import export as export
    from kafkalog.log_dir import Segment as Segment
    from kafkalog.logs import Log as Log
    from kafkalog.logs import LogDir as LogDir
    from kafkalog.logs import open as open  # noqa: A004 # as in gzip or tarfile
    from kafkalog.model import Batch as Batch
    from kafkalog.model import Defect as Defect
    from kafkalog.model import Isolation as Isolation
    from kafkalog.model import Level as Level
    from kafkalog.model import LogView as LogView
    from kafkalog.model import Record as Record
    from kafkalog.model import Severity as Severity
    from kafkalog.offsets import LogOffset as LogOffset
    from kafkalog.overview import report as report
    from kafkalog.producing import replay as replay
    from kafkalog.profiles import profile as profile
    from kafkalog.repair.rebuild import rebuild_index as rebuild_index
    from kafkalog.repair.run import recover as recover
    from kafkalog.rescue import salvage as salvage
    from kafkalog.resurrection import ResurrectOptions as ResurrectOptions
    from kafkalog.resurrection import resurrect as resurrect
    from kafkalog.resurrection import resurrect_in_place as resurrect_in_place
    from kafkalog.resurrection import resurrect_into as resurrect_into
    from kafkalog.retention.run import apply_retention as apply_retention
    from kafkalog.retention.simulation import simulate_retention as simulate_retention
    from kafkalog.roll.simulate import simulate_roll as simulate_roll
    from kafkalog.search.run import find as find
    from kafkalog.server.run import serve as serve
    from kafkalog.state.groups import groups as groups
    from kafkalog.state.metadata import metadata as metadata
    from kafkalog.state.transactions import transactions as transactions
    from kafkalog.unified_log import LogOffsets as LogOffsets
    from kafkalog.verification import Findings as Findings
    from kafkalog.verification import verify as verify

_MODULES = {
    "audit.run": ("audit_compaction",),
    "batches.lookup": ("Lookup",),
    "check.schedule": ("Summary",),
    "columns.scan": ("Scan",),
    "compaction.run": ("compact",),
    "comparison.run": ("diff",),
    "configs": ("ConfigSources",),
    "datasets": ("dataset",),
    "errors": ("CorruptDataError", "KafkaLogError"),
    "journal.undo": ("undo",),
    "lake": ("export",),
    "log_dir": ("Segment",),
    "logs": ("Log", "LogDir", "open"),
    "model": ("Batch", "Defect", "Isolation", "Level", "LogView", "Record", "Severity"),
    "overview": ("report",),
    "producing": ("replay",),
    "profiles": ("profile",),
    "repair.rebuild": ("rebuild_index",),
    "repair.run": ("recover",),
    "rescue": ("salvage",),
    "resurrection": ("ResurrectOptions", "resurrect", "resurrect_in_place", "resurrect_into"),
    "retention.run": ("apply_retention",),
    "retention.simulation": ("simulate_retention",),
    "roll.simulate": ("simulate_roll",),
    "search.run": ("find",),
    "server.run": ("serve",),
    "state.groups": ("groups",),
    "state.metadata": ("metadata",),
    "state.transactions": ("transactions",),
    "offsets": ("LogOffset",),
    "unified_log": ("LogOffsets",),
    "verification": ("Findings", "verify"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605 # computed from the table above


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kafkalog' has no attribute {name!r}")
    import_module("kafkalog.jit.fast_path").require_known_decoder()
    return getattr(import_module(f"kafkalog.{_HOMES[name]}"), name)
