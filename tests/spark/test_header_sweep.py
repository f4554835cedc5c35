"""Bits of headers that no checksum covers, read through Spark: rows, defects and FAILFAST."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import PySparkException

from kafkalog.spark import KafkaLogDataSource
from tests.kafkalog.test_header_sweep import LOGS, Part, cases, wanted_of, write
from tests.sampling import sampled
from tests.spark.test_source import load

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafkalog.test_header_sweep import Row

ONE_OF: Final = 17
"""`make test-all` tries one case in this many: each bit of each kind of log; other readers all."""
SHARE: Final = 100
FAILURES_MAX: Final = 2
"""A task that fails is a job of Spark's own."""


def place_of(part: Part, parts: list[Part]) -> tuple[str, int]:
    """Return the name of the log that has a batch, and the position of the batch in it."""
    own = [one for one in parts if one.segment == part.segment]
    return f"{own[0].first:020}.log", sum(len(one.data) for one in own[: part.ordinal])


def test_every_bit_that_no_checksum_covers(spark: SparkSession, tmp_path: Path) -> None:
    """Each case is a topic: its rows are right, or the table of defects names the batch."""
    spark.dataSource.register(KafkaLogDataSource)
    chosen = sampled(cases()[::ONE_OF], SHARE)
    topics = {f"case{number}": case for number, case in enumerate(chosen)}
    for topic, (name, number, bit) in topics.items():
        write(tmp_path / f"{topic}-0", LOGS[name], LOGS[name][number], bit)
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for one in load(spark, tmp_path, columns="topic,offset,leader_epoch").collect():
        rows[one.topic].append((one.offset, one.leader_epoch))
    named: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for one in load(spark, tmp_path, table="defects").collect():
        named[one.topic].add((os.path.basename(one.path), one.position))
    wrong = [
        topic
        for topic, case in topics.items()
        if sorted(rows[topic]) != wanted_of(case, None, None, None)
    ]
    silent = []
    for topic in wrong:
        name, number, _ = topics[topic]
        if place_of(LOGS[name][number], LOGS[name]) not in named[topic]:
            silent.append(topics[topic])
    assert not silent
    assert 0 < len(wrong) < len(topics)
    for topic in wrong[:FAILURES_MAX]:
        with pytest.raises(PySparkException, match=r"kafkalog\.errors\.CorruptDataError"):
            load(spark, tmp_path, subscribe=topic, mode="FAILFAST").collect()
