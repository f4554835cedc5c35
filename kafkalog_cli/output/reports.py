"""Reports of a run for other programs: JUnit XML for CI, metrics for Prometheus, SARIF for viewers.

JUnit follows the schema of Ant's JUnit task, which has one failure per test case, and how Jenkins
and GitLab read it: a suite per target, a test case per partition or other file. Metrics are in
Prometheus' text format, for the textfile collector of node_exporter.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote
from xml.etree import ElementTree as ET

from kafkalog.defects.table import REFERENCES
from kafkalog.errors import INTERNAL_ERROR
from kafkalog.log_dir import LogDirListing, PartitionDir
from kafkalog.model import Severity
from kafkalog.paths.file_system import absolute
from kafkalog.wording import printable
from kafkalog_cli.output.findings import SUMMARY, Report, summary_lines
from kafkalog_cli.output.text import dumps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.errors import KafkaLogError
    from kafkalog.model import Defect
    from kafkalog_cli.output.findings import RunFacts, Target


@dataclass
class Place:
    """A partition directory, or a file outside of partitions, and what was found there.

    Attributes:
        path: as it was given or found.
        target: path of the target it belongs to.
        partition: the directory; None for another file.
        defects: the first findings of each kind.
        counts: numbers of all findings, by severity and reference.
    """

    path: str
    target: str
    partition: PartitionDir | None = None
    defects: list[Defect] = field(default_factory=list)
    counts: Counter[tuple[Severity, str]] = field(default_factory=Counter)


class Places:
    """All places of some targets, in their order.

    Memory grows with the number of partitions, not with that of findings: per place only
    `alike_max` findings of a kind are kept, and the others are counted.
    """

    def __init__(self, targets: Sequence[Target], alike_max: int) -> None:
        self._targets = targets
        self._alike_max = alike_max
        self._places: dict[str, Place] = {}
        for target in targets:
            if isinstance(target, LogDirListing):
                for entry in target.files:
                    self._add(Place(entry.path, target.path))
                for partition in target.partitions:
                    self._add(Place(partition.path, target.path, partition))
            elif isinstance(target, PartitionDir):
                self._add(Place(target.path, target.path, target))
            else:
                self._add(Place(target.path, target.path))

    def __iter__(self) -> Iterator[Place]:
        return iter(self._places.values())

    def add(self, defect: Defect) -> None:
        """Handle the next finding."""
        path = absolute(defect.path)
        place = self._places.get(path) or self._places.get(os.path.dirname(path))
        if place is None:
            place = self._add(Place(defect.path, self._target_of(path)))
        kind = (defect.severity, defect.reference)
        place.counts[kind] += 1
        if place.counts[kind] <= self._alike_max:
            place.defects.append(defect)

    def _target_of(self, path: str) -> str:
        """Return the target above a path; the last one for findings about the whole run."""
        for target in self._targets:
            if path.startswith(os.path.join(absolute(target.path), "")):
                return target.path
        return self._targets[-1].path

    def _add(self, place: Place) -> Place:
        return self._places.setdefault(absolute(place.path), place)


ALIKE_MAX: Final = 20
"""At most this many findings of one kind in one test case are listed; the others are counted."""

# Characters that XML does not have and that are left when text is made printable.
_NOT_XML = re.compile("[\ufffe\uffff]")


class JunitReport(Report):
    """A report that is written at its end, because a suite begins with its number of failures."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self._places = Places(targets, ALIKE_MAX)

    def finding(self, defect: Defect) -> None:
        self._places.add(defect)

    def end(self, facts: RunFacts) -> None:
        root = ET.Element("testsuites")
        places: dict[str, list[Place]] = {target.path: [] for target in self._targets}
        for place in self._places:
            places[place.target].append(place)
        for path, inner in places.items():
            _add_suite(root, path, inner, facts)
        for error in facts.errors:
            _add_error(root, error, facts)
        ET.indent(root)
        sys.stdout.buffer.write(ET.tostring(root, "utf-8", xml_declaration=True) + b"\n")


def _add_suite(root: ET.Element, path: str, places: Sequence[Place], facts: RunFacts) -> None:
    suite = _suite(root, path, facts)
    properties = ET.SubElement(suite, "properties")
    values = {"levels": ", ".join(facts.levels), "exit_status": str(facts.status)}
    for name, value in values.items():
        ET.SubElement(properties, "property", name=name, value=value)
    put_off = {absolute(name) for name in facts.verification.put_off}
    failures = skipped = 0
    below: list[str] = []
    for place in places:
        case = ET.SubElement(suite, "testcase", name=_xml(place.path), classname=_xml(path),
                             time="0")  # fmt: skip
        fatal = sum(n for (severity, _), n in place.counts.items() if severity in facts.failing)
        if fatal:
            failures += 1
            _add_failure(case, place)
        elif absolute(place.path) in put_off:
            skipped += 1
            ET.SubElement(case, "skipped", message="Time ran out before everything was checked.")
        if not fatal:
            below += _lines(place)
    if len(root) == 1:  # once: no element above the suites can have it
        below += summary_lines(facts)
    suite.set("tests", str(len(places)))
    suite.set("failures", str(failures))
    suite.set("skipped", str(skipped))
    ET.SubElement(suite, "system-out").text = "\n".join(map(_xml, below))
    ET.SubElement(suite, "system-err").text = ""


def _add_failure(case: ET.Element, place: Place) -> None:
    gravest = min(place.counts, key=lambda kind: list(Severity).index(kind[0]))
    counts = ", ".join(f"{n} {reference}" for (_, reference), n in place.counts.items())
    failure = ET.SubElement(case, "failure", type=gravest[1], message=_xml(counts))
    failure.text = "\n".join(map(_xml, _lines(place)))


def _add_error(root: ET.Element, error: KafkaLogError, facts: RunFacts) -> None:
    path = error.path or "kafkalog"
    suite = _suite(root, path, facts)
    ET.SubElement(suite, "properties")
    case = ET.SubElement(suite, "testcase", name=_xml(path), classname=_xml(path), time="0")
    message = ET.SubElement(case, "error", type=error.reference, message=_xml(error.message))
    message.text = _xml(error.hint or "")
    suite.set("tests", "1")
    suite.set("errors", "1")
    ET.SubElement(suite, "system-out").text = ""
    ET.SubElement(suite, "system-err").text = _xml(error.message)


def _suite(root: ET.Element, path: str, facts: RunFacts) -> ET.Element:
    begun = datetime.fromtimestamp(facts.started_ms // 1000, UTC).replace(tzinfo=None)
    # Also once: the run was not timed by target.
    duration = facts.duration_s if not len(root) else 0
    return ET.SubElement(
        root, "testsuite", id=str(len(root)), name=_xml(path), package="kafkalog.verify",
        timestamp=begun.isoformat(), hostname=_xml(socket.gethostname()) or "localhost",
        tests="0", failures="0", errors="0", skipped="0", time=f"{duration:.3f}",
    )  # fmt: skip


def _lines(place: Place) -> list[str]:
    """Return the findings of a place, one per line; those beyond the limit as a number."""
    lines = []
    for defect in place.defects:
        where = "" if defect.position is None else f", position {defect.position}"
        lines.append(f"{defect.severity} {defect.reference}: {defect.path}{where}: {defect.detail}")
    for (severity, reference), count in place.counts.items():
        if count > ALIKE_MAX:
            lines.append(f"{severity} {reference}: {count - ALIKE_MAX} more")
    return lines


def _xml(text: str) -> str:
    """Escape characters that XML does not have, or on which a terminal could act."""
    return _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", printable(text))


_PREFIX = "kafkalog_verify_"


class PrometheusReport(Report):
    """A report that is written at its end; keeps only counts of findings by partition."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._places = Places(targets, alike_max=0)

    def finding(self, defect: Defect) -> None:
        self._places.add(defect)

    def end(self, facts: RunFacts) -> None:
        lines = [*_gauges(facts), *self._by_partition()]
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())

    def _by_partition(self) -> Iterator[str]:
        yield from _gauge_head("partition_defects", "Findings in a partition directory, if any.")
        for place in self._places:
            counts = Counter[Severity]()
            for (severity, _), count in place.counts.items():
                counts[severity] += count
            if place.partition is not None:
                labels = {
                    "directory": place.path,
                    "topic": place.partition.topic,
                    "partition": str(place.partition.partition),
                }
                for severity in Severity:
                    if counts[severity]:
                        yield _sample(
                            "partition_defects", counts[severity], severity=severity, **labels
                        )


def _gauges(facts: RunFacts) -> Iterator[str]:
    summary = facts.verification.summary
    yield from _gauge_head("defects", "Findings by severity.")
    for severity in Severity:
        yield _sample("defects", summary.defects[severity], severity=severity)
    values: dict[str, tuple[float, str]] = {
        "files": (summary.files, "Files checked."),
        "batches": (summary.batches, "Record batches checked."),
        "records": (summary.records, "Records in them."),
        "bytes_expected": (summary.bytes_expected, "Bytes the run set out to check."),
        "bytes_checked": (summary.bytes_checked, "Bytes checked."),
        "bytes_deferred": (summary.bytes_deferred, "Bytes deferred because time ran out."),
        "segments_deferred": (summary.segments_deferred, "Segments deferred because time ran out."),
        "errors": (len(facts.errors), "Paths that could not be read; one more if checks failed."),
        "exit_status": (facts.status, "Exit status of the run."),
        "duration_seconds": (facts.duration_s, "How long the run took."),
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


_LEVELS = {
    Severity.DAMAGE: "error",
    Severity.INDEX: "warning",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
}
_NUMBERS = {name: number for number, name in enumerate(REFERENCES)}


class SarifReport(Report):
    """A report of one run: the rules first, then a result per finding, then how the run ended."""

    def __init__(self) -> None:
        self._count = 0

    def __enter__(self) -> Self:
        driver = {
            "name": "kafkalog",
            "version": version("kafkalog"),
            "rules": [_rule(name) for name in REFERENCES],
        }
        _put(
            '{"$schema":"https://json.schemastore.org/sarif-2.1.0.json","version":"2.1.0",'
            f'"runs":[{{"tool":{dumps({"driver": driver})},\n"results":['
        )
        return self

    def finding(self, defect: Defect) -> None:
        _put((",\n" if self._count else "\n") + dumps(_result(defect)))
        self._count += 1

    def end(self, facts: RunFacts) -> None:
        summary = SUMMARY.row(facts)
        del summary["type"]
        _put(
            f'\n],\n"invocations":[{dumps(_invocation(facts))}],"properties":{dumps(summary)}}}]}}\n'
        )


def _rule(name: str) -> dict[str, Any]:
    known = REFERENCES[name]
    return {
        "id": name,
        "shortDescription": {"text": known.meaning},
        "fullDescription": {"text": f"{known.meaning} {known.arises}"},
        "help": {"text": f"A broker: {known.broker} What to do: {known.hint or '-'}"},
        "defaultConfiguration": {"level": _LEVELS[known.severity]},
        "properties": {"severity": known.severity},
    }


def _result(defect: Defect) -> dict[str, Any]:
    location: dict[str, Any] = {"artifactLocation": {"uri": _uri(defect.path)}}
    if defect.position is not None:
        location["region"] = {"byteOffset": defect.position}
        if defect.size_bytes is not None:
            location["region"]["byteLength"] = defect.size_bytes
    properties = {"severity": defect.severity, "offset": defect.offset, "hint": defect.hint}
    return {
        "ruleId": defect.reference,
        "ruleIndex": _NUMBERS[defect.reference],
        "level": _LEVELS[defect.severity],
        "message": {"text": defect.detail},
        "locations": [{"physicalLocation": location}],
        "properties": {key: value for key, value in properties.items() if value is not None},
    }


def _invocation(facts: RunFacts) -> dict[str, Any]:
    return {
        "executionSuccessful": not facts.errors and facts.status < INTERNAL_ERROR,
        "exitCode": facts.status,
        "startTimeUtc": _time(facts.started_ms),
        "endTimeUtc": _time(facts.ended_ms),
        "toolExecutionNotifications": [_notification(error) for error in facts.errors],
    }


def _notification(error: KafkaLogError) -> dict[str, Any]:
    found: dict[str, Any] = {
        "level": "error",
        "message": {"text": error.message},
        "descriptor": {"id": error.reference},
    }
    if error.path:
        location = {"physicalLocation": {"artifactLocation": {"uri": _uri(error.path)}}}
        found["locations"] = [location]
    return found


def _uri(path: str) -> str:
    """Return a relative reference for a relative path, a file URI for an absolute one."""
    text = quote(os.fsencode(path))
    return f"file://{text}" if path.startswith("/") else text


def _time(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _put(text: str) -> None:
    sys.stdout.buffer.write(text.encode())
