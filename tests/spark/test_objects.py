"""Spark over logs in a bucket: its workers get the settings of the session's program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.stores import BATCHES, PREFIX, log_dir
from kafkalog.spark import KafkaLogDataSource
from kafkalog.spark.engine import SparkEngine
from kafkalog.tables import Request
from kafkalog.tables.profiles.run import profile_logs
from tests.conftest import state
from tests.counted_store import counted_store
from tests.spark.test_source import load, sums
from tests.stores import running_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_tables_of_a_bucket(spark: SparkSession, corpus_dir: Path) -> None:
    """The data source has the same records, and the engine the same counts."""
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


def test_a_plan_asks_little_and_tasks_see_what_is_missing(spark: SparkSession) -> None:
    """The task that reads the segment before a lost one reports the loss."""
    spark.dataSource.register(KafkaLogDataSource)
    partitions, segments = 3, 10
    objects = log_dir(partitions, segments)
    with counted_store(objects) as store:
        rows = spark.read.format("kafkalog").load(store.uri(PREFIX)).select("offset").take(1)
        assert len(rows) == 1
        first = next(
            number for number, (kind, name) in enumerate(store.asked)
            if kind == "GET" and name.endswith(f"/{0:020d}.log")
        )  # fmt: skip
        assert first <= 1.2 * partitions * segments
        del store.objects[f"{PREFIX}/topic-0-1/{3 * BATCHES:020d}.log"]
        store.changed()
        reader = spark.read.format("kafkalog")
        with pytest.raises(Exception, match="Offsets 144 to 191 are missing"):
            reader.load(store.uri(PREFIX)).select("offset").collect()
        left = reader.option("failOnDataLoss", "false").load(store.uri(PREFIX))
        assert left.select("offset").count() == (partitions * segments - 1) * BATCHES


def test_a_query_plans_once(spark: SparkSession, kafkalog: Callable[..., Any]) -> None:
    """The command lists all, looks at the ends of logs, and plans; Spark's planners ask nothing."""
    partitions, segments = 6, 10
    query = "SELECT max(offset) n FROM records WHERE partition >= 0 GROUP BY hash(topic)"
    with counted_store(log_dir(partitions, segments)) as store:
        master = spark.sparkContext.master
        words = ("--spark", master, "--format", "ndjson", "-c", query, store.uri(PREFIX))
        found = kafkalog("sql", *words)
        assert (found.status, found.stdout) == (0, b'{"n":%d}\n' % (segments * BATCHES - 1))
        plan = store.asked[: store.asked.index(("GET", f"{PREFIX}/topic-0-0/{0:020d}.log"))]
    assert len(plan) <= 0.8 * partitions * segments
    assert [kind for kind, _ in plan].count("LIST") <= 3, "the top, a directory, and all"
