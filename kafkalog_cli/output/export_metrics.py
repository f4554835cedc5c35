"""What is reported about runs of `export`: a file of metrics for Prometheus.

The file is for the textfile collector of node_exporter, which reads files named `*.prom`. It is
replaced as a whole at the end of each run, so a scrape never sees half of it.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kafkalog.errors import DataError
from kafkalog.io.storage.metrics_file import MetricsFile
from kafkalog.io.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalog.change.lake import ExportSummary

_PREFIX: Final = "kafkalog_export_"
_BY_PARTITION: Final = {
    "rows": "Rows that the run has added.",
    "bytes": "Bytes of the files that the run has added.",
    "defects": "Damage that was skipped, and deletions before the rows were read.",
    "rejects": "Records that did not decode.",
    "next_offset": "Offset where the next run begins.",
    "lag_offsets": "Offsets from there to the log end.",
}


class ExportMetrics:
    """Writes a file after each run.

    Args:
        path: the file; None to write none.

    Raises:
        UnsupportedError: prometheus_client is not installed.
        UnwritableError: the file cannot be written there.
    """

    def __init__(self, path: str | None) -> None:
        self._file = None if path is None else MetricsFile(path, "--metrics-file")

    @contextmanager
    def run(self) -> Iterator[None]:
        """Watch a run, which fails if the block does before it is done."""
        self._began = time.monotonic()
        self._is_done = False
        try:
            yield
        except (Exception, KeyboardInterrupt):
            if not self._is_done:
                with suppress(DataError):  # the first error is shown
                    self._write(0, {}, {})
            raise

    def done(self, summary: ExportSummary) -> None:
        self._is_done = True
        totals = {
            "files": (
                sum(part.file is not None for part in summary.parts),
                "Files that the run has added.",
            ),
            "gaps": (len(summary.gaps), "Gaps that the run has left."),
            "log_bytes": (summary.log_bytes, "Bytes of logs that the run has read."),
        }
        if summary.increment is not None:
            totals["commit"] = (summary.increment.number, "Number of the last commit, from 0.")
        self._write(1, totals, _by_partition(summary))

    def _write(
        self, success: int, totals: Mapping[str, tuple[float, str]],
        by_partition: Mapping[str, Mapping[tuple[str, int], int]],
    ) -> None:  # fmt: skip
        if self._file is None:
            return
        import prometheus_client as prometheus

        registry = prometheus.CollectorRegistry()
        values = {
            "success": (success, "1 if the run has ended well, also without anything new."),
            "duration_seconds": (time.monotonic() - self._began, "How long the run took."),
            "last_run_timestamp_seconds": (time.time(), "When the run ended."),
            **totals,
        }
        for name, (value, meaning) in values.items():
            prometheus.Gauge(f"{_PREFIX}{name}", meaning, registry=registry).set(value)
        for name, found in by_partition.items():
            gauge = prometheus.Gauge(
                f"{_PREFIX}{name}", _BY_PARTITION[name], ["topic", "partition"], registry=registry
            )
            for (topic, partition), value in found.items():
                gauge.labels(printable(topic), partition).set(value)
        self._file.write(registry)


def _by_partition(summary: ExportSummary) -> dict[str, Counter[tuple[str, int]]]:
    """Return the values of each metric; of partitions without news they are 0."""
    found: dict[str, Counter[tuple[str, int]]] = {name: Counter() for name in _BY_PARTITION}
    for end in summary.ends:
        for name in ("rows", "bytes", "defects", "rejects"):
            found[name][end.topic, end.partition] += 0
    for part in summary.parts:
        place = part.topic, part.partition
        found["rows"][place] += part.rows
        found["bytes"][place] += part.size_bytes
        found["defects"][place] += part.defect_count
        found["rejects"][place] += 0 if part.rejects is None else part.rejects.rows
    if summary.increment is None:
        # Only a commit has next offsets.
        return {name: values for name, values in found.items() if "offset" not in name}
    # Keys are `TOPIC-PARTITION@TOPIC_ID`.
    following = {
        key.partition("@")[0]: offset for key, (offset, _) in summary.increment.end.items()
    }
    for end in summary.ends:
        offset = following.get(end.name)
        if offset is not None:
            place = end.topic, end.partition
            found["next_offset"][place] = offset
            lag = max(0, end.end.known - offset)
            # Of several copies the one that is furthest ahead.
            found["lag_offsets"][place] = max(lag, found["lag_offsets"][place])
    return found
