"""`kafkalog sql`: what it prints, and what it says if a question makes no sense."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from kafkalog.errors import CorruptDataError
from kafkalog.spark import queries
from kafkalog.spark.job import errors_as_ours
from kafkalog.spark.settings import PUSHES_FILTERS
from tests.builders import batch, flip, record, write_log
from tests.conftest import state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture
def ask(kafkalog: Callable[..., Any], spark: SparkSession) -> Callable[..., Any]:
    """Run a query in the open session."""
    master = spark.sparkContext.master
    return lambda *argv: kafkalog("sql", "--spark", master, *argv)


def rows_of(result: Any) -> list[dict[str, Any]]:
    assert (result.status, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_counts_by_topic_are_those_of_consumers(ask: Any, corpus_dir: Path) -> None:
    """Counted over one log directory."""
    one = state(corpus_dir, "kafka-4.3", "codecs")
    query = "select topic, count(*) n, count(distinct key) k from records group by topic"
    found = {row["topic"]: row for row in rows_of(ask("--format", "ndjson", "-c", query, one.root))}
    noted = sorted((one.expected / "records").glob("codec-*.ndjson"))
    for path in noted:
        keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
        row = found.pop(path.stem.rpartition("-")[0])
        assert row["n"] == len(keys)
        assert row["k"] == len({json.dumps(key) for key in keys if key is not None})
    assert not found
    assert noted


def test_counts_are_those_of_a_consumer(spark: SparkSession, corpus_dir: Path) -> None:
    """A read_committed consumer, where each row has the offset at which it was read."""
    one = state(corpus_dir, "kafka-4.3", "txn")
    query = "select topic, partition, count(*), max(offset) from records group by topic, partition"
    options = {"isolation": "read_committed", "subscribe": "txn"}
    answer = queries.run_query(spark, query, [str(one.root)], options)
    noted = sorted((one.expected / "records-committed").glob("txn-*.offsets.json"))
    expected = []
    for number, path in enumerate(noted):
        offsets = json.loads(path.read_text())
        expected.append(("txn", number, len(offsets), max(offsets)))
    assert sorted(answer.rows) == expected
    assert len(expected) == 3
    query = "select topic, partition, count(*) from records group by topic, partition"
    answer = queries.run_query(spark, query, [str(one.root)], options)  # nothing is decoded
    assert sorted(answer.rows) == [row[:3] for row in expected]


def test_damage_ends_a_query_that_shall_fail(
    spark: SparkSession, corpus_dir: Path, tmp_path: Path
) -> None:
    """Otherwise the damaged batch is skipped."""
    root = state(corpus_dir, "kafka-4.3", "codecs").root
    partition = next(path for path in sorted(root.glob("codec-*")) if path.is_dir())
    copy = shutil.copytree(partition, tmp_path / partition.name)
    log = min(copy.glob("*.log"))
    log.write_bytes(flip(log.read_bytes(), 8 * 70))
    query, options = "select min(value) from records", {"mode": "failfast"}
    with pytest.raises(CorruptDataError, match="checksum"), errors_as_ours():
        list(queries.run_query(spark, query, [str(copy)], options).rows)
    assert list(queries.run_query(spark, query, [str(copy)], {}).rows)


def test_a_session_that_pushes_no_filters_has_the_same_rows(
    ask: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """Sessions of ours push them. One of others need not, and then Spark refuses who takes them."""
    write_log(tmp_path / "orders-0", *(batch(n, [record(0)]) for n in range(5)))
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    assert spark.conf.get(PUSHES_FILTERS) == "true"
    spark.conf.set(PUSHES_FILTERS, "false")
    try:
        query = "select offset from records where offset < 3 and topic = 'orders'"
        rows = rows_of(ask("--format", "ndjson", "-c", query, tmp_path))
        assert sorted(row["offset"] for row in rows) == [0, 1, 2]
        reader = spark.read.format("kafkalog").option("filterPushdown", "true")
        with pytest.raises(PySparkException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
            reader.load(str(tmp_path)).collect()
    finally:
        spark.conf.set(PUSHES_FILTERS, "true")


def test_a_lost_segment_is_told(ask: Any, tmp_path: Path) -> None:
    """As in DuckDB's answer: with the remaining rows, and only if the segment is wanted."""
    for base in (0, 20):
        write_log(tmp_path / "orders-0", batch(base, [record(0), record(1)]), name=f"{base:020}")
    (tmp_path / "orders-0" / f"{0:020}.index").touch()
    (tmp_path / "orders-0" / f"{20:020}.index").touch()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    count = "select count(*) n from records"
    found = ask("--format", "ndjson", "-c", count, tmp_path)
    assert (found.status, json.loads(found.stdout)) == (8, {"n": 4})
    assert found.stderr.count("Offsets 2 to 19 are missing.") == 1
    assert rows_of(ask("--format", "ndjson", "-c", f"{count} where offset >= 20", tmp_path)) == [
        {"n": 2}
    ]


def test_a_subquery_has_columns_of_its_own(ask: Any, tmp_path: Path) -> None:
    """It may read columns of a table that the query around it does not name."""
    write_log(tmp_path / "orders-0", *(batch(n, [record(0, b"a")]) for n in range(9)))
    query = (
        "select offset from records where offset > (select max(batch_base_offset) - 2 from records)"
    )
    assert rows_of(ask("--format", "ndjson", "-c", query, tmp_path)) == [
        {"offset": 7},
        {"offset": 8},
    ]


def test_records_that_are_left_out_are_told(ask: Any, tmp_path: Path) -> None:
    """The note is the same as in an export, and only for queries of records."""
    write_log(tmp_path / "orders-0", *(batch(n, [record(0, b"a")]) for n in range(9)))
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    found = ask("--format", "ndjson", "-c", "select count(*) n from records", tmp_path)
    assert (found.status, found.stdout) == (0, b'{"n":7}\n')
    left_out = "records above the high watermark left out (--isolation log includes them)"
    why = "the checkpoint counts: no metadata log in PATH says which copies are in sync"
    assert found.stderr == f"note: {left_out}: orders-0 from 7, 2 records; {why}\n"
    rows_of(ask("--format", "ndjson", "-c", "select count(*) n from batches", tmp_path))
    query = (
        "--isolation",
        "log",
        "--format",
        "ndjson",
        "-c",
        "select count(*) n from records",
        tmp_path,
    )
    assert rows_of(ask(*query)) == [{"n": 9}]


def test_values_of_every_kind(ask: Any, tmp_path: Path) -> None:
    """Bytes, text, times, null and structs, in each format."""
    records = [record(0, b"a", b"\xff", headers=[(b"h", None)]), record(1, None, b"ok")]
    write_log(tmp_path / "orders-0", batch(0, records, base_time=1_700_000_000_123))
    query = (
        "select key, value, value_bytes, timestamp, headers, "
        "named_struct('x', 1.5D, 'y', double('nan')) s, "
        "map('k', 1) m, cast(1.10 as decimal(4,2)) d, date'2024-02-29' t "
        "from records order by offset"
    )
    first, second = rows_of(ask("--format", "ndjson", "-c", query, tmp_path / "orders-0"))
    assert first == {
        "key": "a",
        "value": "0xff",
        "value_bytes": {"base64": "/w=="},
        "timestamp": "2023-11-14T22:13:20.123000Z",
        "headers": [{"key": "h", "value": None}],
        "s": {"x": 1.5, "y": "nan"},
        "m": {"k": 1},
        "d": "1.10",
        "t": "2024-02-29",
    }
    assert (second["key"], second["value"]) == (None, "ok")
    as_csv = ask("--format", "csv", "-c", "select key, value from records", tmp_path / "orders-0")
    assert list(csv.reader(io.StringIO(as_csv.stdout.decode()))) == [
        ["key", "value"], ["a", "0xff"], ["", "ok"],
    ]  # fmt: skip
    table = ask("-c", "select offset, value from records order by 1", tmp_path / "orders-0")
    assert table.stdout.decode().splitlines() == ["offset  value", "     0  0xff", "     1  ok"]


def test_columns_are_there_where_a_query_names_them(ask: Any, corpus_dir: Path) -> None:
    """`*` has the columns of Spark's own Kafka source, and any column that is also named."""
    log = state(corpus_dir, "kafka-4.3", "codecs").root / "codec-lz4-0"
    (row,) = rows_of(ask("--format", "ndjson", "-c", "select * from records where offset = 5", log))
    assert list(row) == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    query = "select compression, count(*) n from records group by compression"
    assert rows_of(ask("--format", "ndjson", "-c", query, log)) == [
        {"compression": "lz4", "n": 2000}
    ]
    query = "from batches |> where not crc_valid |> aggregate count(*) as n"
    assert rows_of(ask("--format", "ndjson", "-c", query, log)) == [{"n": 0}]


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (("select nothing from records", "LOG"), 2, "nothing"),
        (("selct 1", "LOG"), 2, "Syntax error"),
        (("select 1 from elsewhere", "LOG"), 2, "elsewhere"),
        (("select 1 a, 2 a", "LOG", "--format", "ndjson"), 2, "Two columns have the name 'a'"),
        (("select 1", "/no/such/place"), 2, "No such file"),
        (("select raise_error('ab' || 'cd')", "LOG"), 3, "abcd"),
    ],
)
def test_what_makes_no_sense_is_told_in_a_few_lines(
    ask: Any, tmp_path: Path, argv: tuple[str, ...], status: int, words: str
) -> None:
    write_log(tmp_path / "orders-0", batch(0, [record(0, b"a")]))
    result = ask("-c", *(str(tmp_path / "orders-0") if word == "LOG" else word for word in argv))
    assert (result.status, result.stdout) == (status, b"")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) <= 4


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["codecs", "txn", "crash-1-torn"])
def test_both_engines_give_the_same_rows(
    ask: Any, kafkalog: Callable[..., Any], corpus_dir: Path, name: str
) -> None:
    """For statements that both understand; both skip damage."""
    place = state(corpus_dir, "kafka-4.3", name).root
    for query in (
        "select topic, count(*) n, min(offset) a, max(offset) b from records group by 1 order by 1",
        "select topic, sum(octet_length(key_bytes)) k from records group by topic order by topic",
        "select * from batches order by path, position",
        "select topic, count(*) n from records where offset < 70 group by topic order by topic",
        "select offset from records where timestamp_ms > 0 and topic like '%a%' order by 1",
        "select reference, position from defects order by path, position",
    ):
        words = ("-o", "ndjson", "--isolation", "read_committed", "-c", query, place)
        theirs = ask(*words)
        ours = kafkalog("sql", *words)
        assert theirs.status == 0 or name == "crash-1-torn"
        assert ours.status in (0, 8)
        assert ours.stdout == theirs.stdout, query


@pytest.mark.thorough(
    "tests/kafkalog_cli/test_sql_command.py::test_a_reader_that_goes_away_ends_the_query_silently"
)
def test_a_reader_that_goes_away_leaves_no_litter(corpus_dir: Path, tmp_path: Path) -> None:
    """A pipe into `head` ends silently, without leaving a process or a file."""
    place = state(corpus_dir, "kafka-4.3", "codecs").root
    line = [sys.executable, "-m", "kafkalog_cli", "sql", "--spark", "local[2]", "--format"]
    line += ["ndjson", "-c", "select * from records", str(place)]
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=own) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode in {-signal.SIGPIPE, 128 + signal.SIGPIPE}  # as a shell sees it
    assert list(tmp_path.iterdir()) == []
