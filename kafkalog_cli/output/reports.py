"""Reports of a run of `verify`: for the textfile collector of node_exporter, and for CI."""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kafkalog.files.log_dir import LogDirListing, PartitionDir
from kafkalog.io.paths.file_system import absolute
from kafkalog.io.wording import counted, printable
from kafkalog.model import Severity
from kafkalog_cli.output.findings import Report

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kafkalog.errors import KafkaLogError
    from kafkalog.files.log_dir import Target
    from kafkalog.model import Defect
    from kafkalog_cli.output.findings import RunFacts

_PREFIX = "kafkalog_verify_"


_FINDINGS_MAX: Final = 100  # of one test case that are named
_SECOND: Final = 1000
_NOT_IN_XML: Final = {0xFFFE: r"\ufffe", 0xFFFF: r"\uffff"}  # besides what `printable` escapes


class _WholeReport(Report):
    """A report that is written at its end, and knows the partition of each path."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._partitions: dict[str, PartitionDir] = {}
        for target in targets:
            for one in target.partitions if isinstance(target, LogDirListing) else (target,):
                if isinstance(one, PartitionDir):
                    self._partitions.setdefault(absolute(one.path), one)

    def _place_of(self, path: str) -> str:
        path = absolute(path)
        return path if path in self._partitions else os.path.dirname(path)


class PrometheusReport(_WholeReport):
    """Gauges; keeps only counts of findings by partition."""

    def __init__(self, targets: Sequence[Target]) -> None:
        super().__init__(targets)
        self._counts = Counter[tuple[str, Severity]]()

    def finding(self, defect: Defect) -> None:
        self._counts[self._place_of(defect.path), defect.severity] += 1

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


class JunitReport(_WholeReport):
    """A test case for each partition, file or log directory, which fails by `--fail-on`."""

    def __init__(self, targets: Sequence[Target], failing: Collection[Severity]) -> None:
        super().__init__(targets)
        self._failing = failing
        named = (absolute(target.path) for target in targets)
        self._cases: dict[str, None] = dict.fromkeys((*named, *self._partitions))
        self._lines = defaultdict[tuple[str, bool], list[str]](list)
        self._counts = Counter[tuple[str, bool]]()

    def finding(self, defect: Defect) -> None:
        case = self._case_of(defect.path), defect.severity in self._failing
        self._counts[case] += 1
        if len(self._lines[case]) < _FINDINGS_MAX:
            at = "" if defect.position is None else f" at {defect.position}"
            words = f"{defect.severity}: {defect.reference}: {defect.path}{at}: {defect.detail}"
            self._lines[case].append(words)

    def end(self, facts: RunFacts) -> None:
        errors: dict[str, list[KafkaLogError]] = defaultdict(list)
        for error in facts.errors:
            case = self._case_of(error.path) if error.path else "kafkalog"
            self._cases[case] = None
            errors[case].append(error)
        put_off = {*map(absolute, facts.run.verification.put_off)}
        suite = Element("testsuite", name="kafkalog verify")
        for path in self._cases:
            self._add(suite, path, errors[path], is_put_off=path in put_off)
        begun = datetime.fromtimestamp(facts.started_ms / _SECOND, UTC)
        numbers = {"tests": "testcase", "failures": "*/failure", "errors": "*/error",
                   "skipped": "*/skipped"}  # fmt: skip
        suite.attrib |= {name: str(len(suite.findall(path))) for name, path in numbers.items()}
        suite.attrib["timestamp"] = f"{begun:%Y-%m-%dT%H:%M:%S}"
        suite.attrib["time"] = f"{(facts.ended_ms - facts.started_ms) / _SECOND:.3f}"
        indent(suite)
        sys.stdout.buffer.write(tostring(suite, "utf-8", xml_declaration=True) + b"\n")

    def _case_of(self, path: str) -> str:
        path = absolute(path)
        place = path if path in self._cases else self._place_of(path)
        case = place if place in self._cases else path
        self._cases[case] = None
        return case

    def _add(
        self, suite: Element, path: str, errors: Sequence[KafkaLogError], *, is_put_off: bool
    ) -> None:
        log_dir, name = map(_in_xml, os.path.split(path))
        case = SubElement(suite, "testcase", classname=log_dir, name=name)
        for error in errors:
            SubElement(case, "error", type=error.reference, message=_in_xml(error.message))
        for is_failure, tag in ((True, "failure"), (False, "system-out")):
            if count := self._counts[path, is_failure]:
                found = SubElement(case, tag)
                found.text = "\n".join(map(_in_xml, self._lines[path, is_failure]))
                if is_failure:
                    found.attrib = {"type": "findings", "message": counted(count, "finding")}
        if is_put_off and case.find("failure") is None and not errors:
            SubElement(case, "skipped", message="time ran out")


def _in_xml(text: str) -> str:
    return printable(text).translate(_NOT_IN_XML)


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
