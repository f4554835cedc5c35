"""Metrics of streams for Prometheus, from what Spark says about their progress."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from kafkalog.io.storage.metrics_file import MetricsFile
from kafkalog.io.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        SourceProgress,
    )

_PREFIX: Final = "kafkalog_stream_"


class StreamMetrics(StreamingQueryListener):
    """Writes a file for the textfile collector of node_exporter after each batch of a query.

        spark.streams.addListener(StreamMetrics("/var/lib/node_exporter/streams.prom"))

    The file has all queries of the session that read the data source `kafkalog`, with rows, batches
    and the offsets by which they lag behind the logs, and what `DataFrame.observe` counts in them.

    Args:
        path: the file, which is replaced as a whole.

    Raises:
        UnsupportedError: prometheus_client is not installed.
        UnwritableError: the file cannot be written there.
    """

    def __init__(self, path: str) -> None:
        self._file = MetricsFile(path, "StreamMetrics")
        import prometheus_client as prometheus

        self._names: dict[str, str] = {}
        self._registry = registry = prometheus.CollectorRegistry()

        def gauge(name: str, meaning: str, *labels: str) -> Any:
            return prometheus.Gauge(
                f"{_PREFIX}{name}", meaning, ["query", *labels], registry=registry
            )

        self._active = gauge("active", "1 while the query runs.")
        self._batch = gauge("batch", "Number of the last batch.")
        self._seconds = gauge("batch_seconds", "How long the last batch took.")
        self._time = gauge("batch_timestamp_seconds", "When the last batch began.")
        self._rows = gauge("rows", "Rows since the query was started.")
        self._lag = gauge(
            "lag_offsets", "Offsets of the logs that were not read yet.", "topic", "partition"
        )
        self._observed = gauge(
            "observed", "What DataFrame.observe counts in a batch.", "observation", "metric"
        )
        self._file.write(registry)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 # Spark's names
        """Do nothing: which source it reads is known after its first batch."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: what was written is still true."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Write what the last batch has done."""
        progress = event.progress
        found = [one for source in progress.sources for one in _lags(source)]
        if not found:  # it reads no logs
            return
        query = self._names[str(progress.id)] = progress.name or str(progress.id)
        self._active.labels(query).set(1)
        self._batch.labels(query).set(progress.batchId)
        self._seconds.labels(query).set(progress.batchDuration / 1000)
        self._time.labels(query).set(datetime.fromisoformat(progress.timestamp).timestamp())
        self._rows.labels(query).inc(progress.numInputRows)
        for topic, partition, lag in found:
            self._lag.labels(query, printable(topic), partition).set(lag)
        for observation, row in (progress.observedMetrics or {}).items():
            for metric, value in row.asDict().items():
                if isinstance(value, (int, float)):
                    self._observed.labels(query, observation, metric).set(value)
        self._file.write(self._registry)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Write that a query has ended."""
        query = self._names.get(str(event.id))
        if query is not None:
            self._active.labels(query).set(0)
            self._file.write(self._registry)


def _lags(source: SourceProgress) -> Iterator[tuple[str, str, int]]:
    """Yield topic, partition and lag from the progress of a source; of other sources nothing."""
    reached, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
    for key, end in latest.items():
        topic, _, partition = key.partition("@")[0].rpartition("-")
        yield topic, partition, max(0, end - reached.get(key, 0))


def _offsets(text: str | None) -> dict[str, int]:
    """Return the offsets in the JSON that a source notes; none if it is not ours."""
    try:
        return {key: offset for key, (offset, epoch) in json.loads(text or "").items()
                if isinstance(offset, int) and isinstance(epoch, int)}  # fmt: skip
    except (AttributeError, TypeError, ValueError):
        return {}
