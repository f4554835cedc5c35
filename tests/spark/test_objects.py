"""Spark over logs in a bucket: its workers know what the session's program was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.profiles.run import profile_logs
from kafkalog.spark import KafkaLogDataSource
from kafkalog.spark.engine import SparkEngine
from kafkalog.tables import Request
from tests.conftest import state
from tests.spark.test_source import load, sums
from tests.stores import running_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_tables_of_a_bucket(spark: SparkSession, corpus_dir: Path) -> None:
    """The data source has the same records, and the engine comes to the same counts."""
    spark.dataSource.register(KafkaLogDataSource)
    [path] = state(corpus_dir, "kafka-4.3", "codecs").log_dirs
    with running_store() as store:
        partition = path / "codec-zstd-0"
        store.upload(partition, partition.name)
        uri = store.uri(partition.name)
        here: list[dict[str, Any]] = load(spark, partition).toArrow().to_pylist()
        there = spark.read.format("kafkalog").load(uri).toArrow().to_pylist()
        assert sums(there) == sums(here)
        assert len(here) > 1000
        [found] = profile_logs(SparkEngine(spark, 2), [uri], Request())
    assert found.records == len(here)
