"""The report of a run of `verify` for Prometheus, in its text format.

It is for the textfile collector of node_exporter.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

from kafkalog.files.log_dir import LogDirListing, PartitionDir
from kafkalog.io.paths.file_system import absolute
from kafkalog.io.wording import printable
from kafkalog.model import Severity
from kafkalog_cli.output.findings import Report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.files.log_dir import Target
    from kafkalog.model import Defect
    from kafkalog_cli.output.findings import RunFacts

_PREFIX = "kafkalog_verify_"


class PrometheusReport(Report):
    """A report that is written at its end; keeps only counts of findings by partition."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._partitions: dict[str, PartitionDir] = {}
        for target in targets:
            for one in target.partitions if isinstance(target, LogDirListing) else (target,):
                if isinstance(one, PartitionDir):
                    self._partitions.setdefault(absolute(one.path), one)
        self._counts = Counter[tuple[str, Severity]]()

    def finding(self, defect: Defect) -> None:
        path = absolute(defect.path)
        place = path if path in self._partitions else os.path.dirname(path)
        self._counts[place, defect.severity] += 1

    def end(self, facts: RunFacts) -> None:
        lines = [*_gauges(facts), *self._by_partition()]
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())

    def _by_partition(self) -> Iterator[str]:
        yield from _gauge_head("partition_defects", "Findings in a partition directory, if any.")
        for place, partition in self._partitions.items():
            for severity in Severity:
                if count := self._counts[place, severity]:
                    yield _sample(
                        "partition_defects", count, severity=severity, path=partition.path,
                        topic=partition.topic, partition=str(partition.partition),
                    )  # fmt: skip


def _gauges(facts: RunFacts) -> Iterator[str]:
    summary = facts.run.summary
    yield from _gauge_head("defects", "Findings by severity.")
    for severity in Severity:
        yield _sample("defects", summary.defects[severity], severity=severity)
    values: dict[str, tuple[float, str]] = {
        "files": (summary.files, "Files checked."),
        "batches": (summary.batches, "Record batches checked."),
        "records": (summary.records, "Records in them."),
        "expected_bytes": (summary.expected_bytes, "Bytes the run set out to check."),
        "checked_bytes": (summary.checked_bytes, "Bytes checked."),
        "deferred_bytes": (summary.deferred_bytes, "Bytes deferred because time ran out."),
        "deferred_segments": (summary.deferred_segments, "Segments deferred because time ran out."),
        "errors": (len(facts.errors), "Paths that could not be read; one more if checks failed."),
        "exit_status": (facts.status, "Exit status of the run."),
        "duration_seconds": ((facts.ended_ms - facts.started_ms) / 1000, "How long the run took."),
        "last_run_timestamp_seconds": (facts.ended_ms / 1000, "When the run ended."),
    }
    for name, (value, meaning) in values.items():
        yield from _gauge_head(name, meaning)
        yield _sample(name, value)


def _gauge_head(name: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {meaning}"
    yield f"# TYPE {_PREFIX}{name} gauge"


def _sample(name: str, value: float, **labels: str) -> str:
    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{_PREFIX}{name}{{{inner}}} {value}" if inner else f"{_PREFIX}{name} {value}"


def _escaped(text: str) -> str:
    r"""Return a label's value: backslash and quote are escaped, line ends already are."""
    return printable(text).replace("\\", r"\\").replace('"', r"\"")
