"""kafkalog: read, search and check Apache Kafka's log files without a broker.

    import kafkalog

    for name, log in kafkalog.LogDir("/var/lib/kafka").items():
        print(name, log.offsets.log_end_offset.value)

    log = kafkalog.Log("/var/lib/kafka/orders-0")
    for record in log.records(from_offset=1000, on_event=print):
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
    from kafkalog.answers.logs import Log as Log
    from kafkalog.answers.logs import LogDir as LogDir
    from kafkalog.answers.logs import open as open  # noqa: A004 # as in gzip or tarfile
    from kafkalog.answers.overview import report as report
    from kafkalog.answers.search.run import find as find
    from kafkalog.answers.verification import Findings as Findings
    from kafkalog.answers.verification import verify as verify
    from kafkalog.change.audit.run import audit_compaction as audit_compaction
    from kafkalog.change.compaction.run import compact as compact
    from kafkalog.change.lake import export as export
    from kafkalog.change.plan import Plan as Plan
    from kafkalog.change.plans import resurrect as resurrect
    from kafkalog.change.plans import salvage as salvage
    from kafkalog.change.plans import undo as undo
    from kafkalog.change.repair.rebuild import rebuild_index as rebuild_index
    from kafkalog.change.repair.run import recover as recover
    from kafkalog.change.resurrection import ResurrectOptions as ResurrectOptions
    from kafkalog.change.retention.run import retention as retention
    from kafkalog.change.retention.simulation import simulate_retention as simulate_retention
    from kafkalog.change.roll.simulate import simulate_roll as simulate_roll
    from kafkalog.check.comparison.run import diff as diff
    from kafkalog.check.schedule import Summary as Summary
    from kafkalog.errors import CorruptDataError as CorruptDataError
    from kafkalog.errors import KafkaLogError as KafkaLogError
    from kafkalog.files.log_dir import Segment as Segment
    from kafkalog.files.offsets import LogOffset as LogOffset
    from kafkalog.io.rows import Rows as Rows
    from kafkalog.model import Batch as Batch
    from kafkalog.model import Defect as Defect
    from kafkalog.model import Isolation as Isolation
    from kafkalog.model import Level as Level
    from kafkalog.model import LogView as LogView
    from kafkalog.model import Record as Record
    from kafkalog.model import Severity as Severity
    from kafkalog.node.configs import ConfigSources as ConfigSources
    from kafkalog.node.lookup import Lookup as Lookup
    from kafkalog.node.quorum.quorum import quorum as quorum
    from kafkalog.node.scan import Scan as Scan
    from kafkalog.node.state.groups import groups as groups
    from kafkalog.node.state.metadata import metadata as metadata
    from kafkalog.node.state.transactions import transactions as transactions
    from kafkalog.node.unified_log import LogOffsets as LogOffsets
    from kafkalog.tables.datasets import dataset as dataset
    from kafkalog.tables.profiles import profile as profile
    from kafkalog.wire.producing import replay as replay
    from kafkalog.wire.server.run import serve as serve

_MODULES = {
    "change.audit.run": ("audit_compaction",),
    "node.lookup": ("Lookup",),
    "check.schedule": ("Summary",),
    "node.scan": ("Scan",),
    "change.compaction.run": ("compact",),
    "check.comparison.run": ("diff",),
    "node.configs": ("ConfigSources",),
    "node.quorum.quorum": ("quorum",),
    "tables.datasets": ("dataset",),
    "errors": ("CorruptDataError", "KafkaLogError"),
    "change.lake": ("export",),
    "files.log_dir": ("Segment",),
    "answers.logs": ("Log", "LogDir", "open"),
    "model": ("Batch", "Defect", "Isolation", "Level", "LogView", "Record", "Severity"),
    "answers.overview": ("report",),
    "wire.producing": ("replay",),
    "tables.profiles": ("profile",),
    "change.repair.rebuild": ("rebuild_index",),
    "change.repair.run": ("recover",),
    "change.plan": ("Plan",),
    "change.plans": ("resurrect", "salvage", "undo"),
    "change.resurrection": ("ResurrectOptions",),
    "io.rows": ("Rows",),
    "change.retention.run": ("retention",),
    "change.retention.simulation": ("simulate_retention",),
    "change.roll.simulate": ("simulate_roll",),
    "answers.search.run": ("find",),
    "wire.server.run": ("serve",),
    "node.state.groups": ("groups",),
    "node.state.metadata": ("metadata",),
    "node.state.transactions": ("transactions",),
    "files.offsets": ("LogOffset",),
    "node.unified_log": ("LogOffsets",),
    "answers.verification": ("Findings", "verify"),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOMES)  # noqa: PLE0605 # computed from the table above


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kafkalog' has no attribute {name!r}")
    import_module("kafkalog.io.jit.fast_path").require_known_decoder()
    return getattr(import_module(f"kafkalog.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
