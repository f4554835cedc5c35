"""Findings as SARIF 2.1.0, for code hosts and viewers of analysis results; written as they come."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from kafkalog.defects import REFERENCES
from kafkalog.errors import INTERNAL_ERROR
from kafkalog.model import Severity
from kafkalog_cli.output.findings import SUMMARY, Report
from kafkalog_cli.output.text import dumps

if TYPE_CHECKING:
    from kafkalog.errors import KafkaLogError
    from kafkalog.model import Defect
    from kafkalog_cli.output.findings import RunFacts

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
        """Handle the next finding."""
        _put((",\n" if self._count else "\n") + dumps(_result(defect)))
        self._count += 1

    def end(self, facts: RunFacts) -> None:
        """Handle the end of the run, given its facts."""
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
