"""A run as metrics, in Prometheus' text format, for the textfile collector of node_exporter."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Self

from kafkalog.model import Severity
from kafkalog_cli.output.places import Places
from kafkalog_cli.output.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from kafkalog.model import Defect
    from kafkalog_cli.output.findings import RunFacts, Target

_PREFIX = "kafkalog_verify_"


class PrometheusReport:
    """A report that is written at its end: counts alone are kept, of findings by partition."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self._places = Places(targets, alike_max=0)

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
        lines = [*_gauges(facts), *self._by_partition()]
        sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())

    def _by_partition(self) -> Iterator[str]:
        yield from _head("partition_defects", "Findings in a partition directory, if any.")
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
    yield from _head("defects", "Findings by severity.")
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
        yield from _head(name, meaning)
        yield _sample(name, value)


def _head(name: str, meaning: str) -> Iterator[str]:
    yield f"# HELP {_PREFIX}{name} {meaning}"
    yield f"# TYPE {_PREFIX}{name} gauge"


def _sample(name: str, value: float, **labels: str) -> str:
    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
    return f"{_PREFIX}{name}{{{inner}}} {value}" if inner else f"{_PREFIX}{name} {value}"


def _escaped(text: str) -> str:
    r"""A label's value: backslash and quote escaped; no line end is left in printable text."""
    return printable(text).replace("\\", r"\\").replace('"', r"\"")
