"""Encrypted segments in a tier on Spark: tasks have the private key, and no output shows it."""

from __future__ import annotations

import json
import pickle
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from kafkalog.io.paths import tier_keys
from kafkalog.spark import KafkaLogDataSource
from kafkalog.spark.options import parse_options
from tests.kafkalog.test_tiers import EXAMPLES
from tests.packed_tiers import Packing, new_key, pack, uploaded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

COUNT = 1000
"""Records in `orders-0` of the examples."""


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an empty log directory, an encrypted tier of orders-0, and its key."""
    place = tmp_path_factory.mktemp("sealed")
    key = new_key(place, "of-tests")
    remote = uploaded(EXAMPLES / "log-dir" / "orders-0", place / "plain")
    pack(remote, place / "tier", Packing(4096, compression=True, key=("of-tests", key)))
    shutil.rmtree(place / "plain")
    return place


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_keys, "_keys", {})


def lines_of(key: Path) -> list[str]:
    """Return the lines of a key that can come from nowhere else."""
    return [line for line in key.read_text().splitlines() if not line.startswith("-----")]


def test_the_data_source_takes_a_key(spark: SparkSession, sealed: Path) -> None:
    """In batches, streams and plans; without a key, the error names the missing one."""
    spark.dataSource.register(KafkaLogDataSource)
    key, tier = sealed / "of-tests.pem", str(sealed / "tier")
    reader = spark.read.format("kafkalog").option("tierKey", str(key))
    frame = reader.load(tier).select("offset")
    assert sorted(row.offset for row in frame.collect()) == list(range(COUNT))
    told = frame._jdf.queryExecution().toString()  # what the pages of Spark show
    assert "kafkalog" in told
    assert not any(line in told for line in lines_of(key))
    spark.sql("CLEAR CACHE")
    stream = spark.readStream.format("kafkalog").option("tierKey", json.dumps([str(key)]))
    query = (
        stream.load(tier).writeStream.format("memory").queryName("sealed")
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert spark.table("sealed").count() == COUNT


@pytest.mark.thorough("tests/spark/test_tiers.py::test_the_data_source_takes_a_key")
def test_a_command_gives_its_key_to_tasks(
    spark: SparkSession, sealed: Path, kafkalog: Any, tmp_path: Path
) -> None:
    """An export and a query; without a key they are refused with status 5 and its name."""
    assert spark is not None
    argv = ("export", sealed / "tier", "--spark", "local[*]", "--to")
    found = kafkalog(*argv, tmp_path / "lake")
    assert found.status == 5, found.stderr
    assert "private key of-tests is not given" in found.stderr
    key = ("--tier-key", sealed / "of-tests.pem")
    assert kafkalog(*key, *argv, tmp_path / "lake").status == 0
    rows = pq.read_table(tmp_path / "lake", columns=["offset"])["offset"].to_pylist()
    assert sorted(rows) == list(range(COUNT))
    query = "select count(*) as n, max(offset) as last from records"
    options = ("--spark", "local[*]", "--format", "ndjson")
    answer = kafkalog(*key, "sql", "-c", query, sealed / "tier", *options)
    assert answer.status == 0, answer.stderr
    assert json.loads(answer.stdout) == {"n": COUNT, "last": COUNT - 1}


@contextmanager
def event_log(spark: SparkSession, directory: Path) -> Iterator[None]:
    """Write the event log of a running session, as `spark.eventLog.enabled` does."""
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc.sc()
    conf = context.getConf().clone().set("spark.eventLog.compress", "false")
    place = jvm.java.net.URI.create(directory.as_uri())
    nothing = jvm.scala.Option.empty()
    log = jvm.org.apache.spark.scheduler.EventLoggingListener("of-tests", nothing, place, conf)
    log.start()
    context.addSparkListener(log)
    try:
        yield
    finally:
        context.removeSparkListener(log)
        log.stop()


def test_a_key_is_in_no_log(
    spark: SparkSession, sealed: Path, kafkalog: Any, tmp_path: Path
) -> None:
    """It is not in the event log, in the output of a command, or in a representation."""
    key, tier = sealed / "of-tests.pem", sealed / "tier"
    events = tmp_path / "events"
    events.mkdir()
    argv = ("--tier-key", key, "sql", "--spark", "local[*]", "--format", "ndjson")
    with event_log(spark, events):
        done = kafkalog(*argv, "-c", "select topic, key from records where offset = 471", tier)
        assert done.status == 0, done.stderr
        assert json.loads(done.stdout)["topic"] == "orders"
        argv = ("--tier-key", key, "export", tier, "--spark", "local[*]")
        done = kafkalog(*argv, "--to", tmp_path / "lake")
        assert done.status == 0, done.stderr
    told = [path.read_text() for path in events.rglob("*") if path.is_file()]
    assert any("SparkListenerTaskEnd" in text and "kafkalog" in text for text in told)
    asked = parse_options({"path": str(tier), "tierKey": str(key)})
    for text in (*told, done.stdout.decode(), done.stderr, repr(asked), repr(asked.keys)):
        assert not any(line in text for line in lines_of(key))


def test_another_process_uses_a_key_once_it_has_it(
    sealed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any process of Spark's that receives the options has the key; an invalid file is refused."""
    options = {"path": str(sealed / "tier"), "tierKey": str(sealed / "of-tests.pem")}
    sent = pickle.dumps(parse_options(options))
    monkeypatch.setattr(tier_keys, "_keys", {})
    assert not tier_keys.keys_in_use().keys
    pickle.loads(sent)  # noqa: S301 # our own
    [(key_id, path, data)] = tier_keys.keys_in_use().keys
    assert (key_id, path) == ("of-tests", options["tierKey"])
    assert data == (sealed / "of-tests.pem").read_bytes()
