"""Findings as JUnit XML, for CI: a suite a target, a test case a partition or other file.

Follows the schema of Ant's JUnit task (which has one failure a test case) and what Jenkins and
GitLab make of it. A test case fails from the severity of `--fail-on` on; the text has its findings.
"""

from __future__ import annotations

import re
import socket
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Self
from xml.etree import ElementTree as ET

from kafkalog.model import Severity
from kafkalog.paths.file_system import absolute
from kafkalog_cli.output.findings import summary_lines
from kafkalog_cli.output.places import Places
from kafkalog_cli.output.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from kafkalog.errors import KafkaLogError
    from kafkalog.model import Defect
    from kafkalog_cli.output.findings import RunFacts, Target
    from kafkalog_cli.output.places import Place

ALIKE_MAX: Final = 20
"""So many findings of one kind in one test case are told; the others are counted."""

# What remains of characters that XML does not have when text is made printable.
_NOT_XML = re.compile("[\ufffe\uffff]")


class JunitReport:
    """A report that is written at its end: a suite begins with how many of its cases fail."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = targets
        self._places = Places(targets, ALIKE_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Nothing is half-written."""

    def finding(self, defect: Defect) -> None:
        """A finding was made."""
        self._places.add(defect)

    def end(self, facts: RunFacts) -> None:
        """The run is over."""
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
    if len(root) == 1:
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
    duration = facts.duration_s if not len(root) else 0
    return ET.SubElement(
        root, "testsuite", id=str(len(root)), name=_xml(path), package="kafkalog.verify",
        timestamp=begun.isoformat(), hostname=_xml(socket.gethostname()) or "localhost",
        tests="0", failures="0", errors="0", skipped="0", time=f"{duration:.3f}",
    )  # fmt: skip


def _lines(place: Place) -> list[str]:
    """The findings of a place, one a line; those beyond the limit as a number."""
    lines = []
    for defect in place.defects:
        where = "" if defect.position is None else f", position {defect.position}"
        lines.append(f"{defect.severity} {defect.reference}: {defect.path}{where}: {defect.detail}")
    for (severity, reference), count in place.counts.items():
        if count > ALIKE_MAX:
            lines.append(f"{severity} {reference}: {count - ALIKE_MAX} more")
    return lines


def _xml(text: str) -> str:
    """Text without what XML does not have, or a terminal could act on."""
    return _NOT_XML.sub(lambda match: f"\\u{ord(match[0]):04x}", printable(text))
