"""kafkalog on Spark: the data source `kafkalog`, sessions and jobs. Needs pyspark and Java 17.

    from kafkalog.spark import KafkaLogDataSource

    spark.dataSource.register(KafkaLogDataSource)
    spark.read.format("kafkalog").load("/var/lib/kafka").createOrReplaceTempView("records")

Names are loaded on first use, so that a missing pyspark gives a clear error.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.spark.engine import SparkEngine as SparkEngine
    from kafkalog.spark.frames import read_frame as read_frame
    from kafkalog.spark.lake import export as export
    from kafkalog.spark.session import spark_session as spark_session
    from kafkalog.spark.source import KafkaLogDataSource as KafkaLogDataSource
    from kafkalog.spark.stream_metrics import StreamMetrics as StreamMetrics

_HOMES = {
    "KafkaLogDataSource": "source",
    "SparkEngine": "engine",
    "StreamMetrics": "stream_metrics",
    "export": "lake",
    "read_frame": "frames",
    "spark_session": "session",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 # computed from the table above


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'kafkalog.spark' has no attribute {name!r}")
    if name == "KafkaLogDataSource":
        import_module("kafkalog.spark.settings").require_data_sources()
    return getattr(import_module(f"kafkalog.spark.{_HOMES[name]}"), name)
